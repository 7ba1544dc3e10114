"""The scheduler metadata object that decode calls of one shape share."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """What a schedule depends on; calls that share a metadata object must agree in all of it."""

    batch: int
    s_q: int
    h_q: int
    page_size: int
    h_k: int
    causal: bool
    is_fp8_kvcache: bool
    topk: int | None
    extra_page_size: int | None
    extra_topk: int | None


@dataclass(slots=True)
class FlashMLASchedMeta:
    """Filled at the first decode call; made new for each step, shared by that step's layers."""

    config: DecodeConfig | None = None

    def agree(self, config: DecodeConfig) -> None:
        """Remembers the first call's shapes.

        Raises:
            ValueError: this call's differ; make new metadata for it.
        """
        if self.config is None:
            self.config = config
        elif self.config != config:
            raise ValueError(
                f"the scheduler metadata was made for {self.config} and is used for {config}: call "
                "get_mla_metadata() again when shapes change"
            )


def get_mla_metadata(*_: Any, **__: Any) -> tuple[FlashMLASchedMeta, None]:
    """New scheduler metadata; arguments of older versions are accepted and not needed."""
    return FlashMLASchedMeta(), None
