"""How close a result must be to a float64 reference, as the published tests measure it."""

import torch

from trainer_io.moe.gemm import calc_diff


def assert_close(
    got: torch.Tensor, expected: torch.Tensor, absolute: float, relative: float, cosine: float
) -> None:
    """Infinities must be the same; each element within either bound; the whole within `cosine`."""
    x, y = got.double(), expected.double()
    assert not x.isnan().any()
    assert torch.equal(x.isinf(), y.isinf())
    assert torch.equal(x[x.isinf()], y[y.isinf()])
    x, y = x[x.isfinite()], y[y.isfinite()]
    error = (x - y).abs()
    worst = (error - torch.clamp(relative * y.abs(), min=absolute)).max() if len(x) else error.sum()
    assert worst <= 0, f"an element is {float(worst):.3g} outside its bound"
    assert calc_diff(x, y) <= cosine


def assert_output(got: torch.Tensor, expected: torch.Tensor) -> None:
    """The published bounds of decode outputs."""
    assert_close(got, expected, 8e-4, 2.01 / 128, 5e-6)


def assert_lse(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert_close(got, expected, 1e-6, 8.01 / 65536, 1e-10)
