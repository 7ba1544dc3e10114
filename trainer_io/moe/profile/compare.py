"""Is a trace worse than an earlier one? The figures that a step pays for, with a tolerance."""

from dataclasses import dataclass
from typing import Final

from trainer_io.moe.profile.overlap import OverlapReport

FIGURES: Final = ("span_ms", "idle_ms", "exposed_ms", "waiting_ms")
NOISE_MS: Final = 0.05
"""A figure that grew by less than this is never a regression, however small it was."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure before and after, in milliseconds."""

    figure: str
    before_ms: float
    after_ms: float
    is_regression: bool

    @property
    def growth(self) -> float:
        """Relative change; 0.1 is ten percent more. Infinite when it was zero and is not."""
        if self.before_ms == 0:
            return 0.0 if self.after_ms == 0 else float("inf")
        return self.after_ms / self.before_ms - 1


def compare(before: OverlapReport, after: OverlapReport, tolerance: float) -> tuple[Change, ...]:
    """Compares the figures for which less is better; `tolerance` 0.05 allows five percent."""
    return tuple(
        Change(
            figure,
            was := getattr(before, figure),
            now := getattr(after, figure),
            now - was > max(tolerance * was, NOISE_MS),
        )
        for figure in FIGURES
    )
