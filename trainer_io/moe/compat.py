"""Offers the published packages' import names, so that code written for them runs unchanged.

    from trainer_io.moe import compat

    compat.install()
    import deep_gemm, eplb, flash_mla

A name of theirs that is not here raises an error that lists what is. A package that is
installed for real is left alone.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

OFFERED: Final = {
    "flash_mla": "trainer_io.moe.attention",
    "deep_gemm": "trainer_io.moe.gemm",
    "eplb": "trainer_io.moe.balance",
}
PUBLISHED: Final = {
    "flash_mla": ("flash_mla_with_kvcache", "get_mla_metadata", "flash_mla_sparse_fwd"),
    "deep_gemm": (
        *(f"{kind}_gemm_{order}" for kind in ("fp8", "bf16") for order in ("nt", "nn", "tn", "tt")),
        *(
            f"m_grouped_{kind}_gemm_{form}"
            for kind in ("fp8", "bf16")
            for form in ("nt_contiguous", "nn_contiguous", "nt_masked")
        ),
        "calc_diff",
        "get_mk_alignment_for_contiguous_layout",
        "get_mn_major_tma_aligned_packed_ue8m0_tensor",
        "get_mn_major_tma_aligned_tensor",
        "get_tma_aligned_size",
        "per_token_cast_to_fp8",
        "per_channel_cast_to_fp8",
        "per_block_cast_to_fp8",
    ),
    "eplb": ("rebalance_experts",),
}
_DEEP_GEMM_PARTS: Final = {
    "utils": (
        "get_mk_alignment_for_contiguous_layout",
        "per_block_cast_to_fp8",
        "per_channel_cast_to_fp8",
        "per_token_cast_to_fp8",
    ),
    "testing": ("calc_diff",),
}


def install() -> tuple[str, ...]:
    """Registers the import names that are free; returns those that now lead here."""
    names = tuple(name for name in OFFERED if _is_free(name))
    for name in names:
        source = importlib.import_module(OFFERED[name])
        _register(name, source, PUBLISHED[name])
        if name == "deep_gemm":
            for part, members in _DEEP_GEMM_PARTS.items():
                setattr(sys.modules[name], part, _register(f"{name}.{part}", source, members))
    return names


def uninstall() -> None:
    """Takes back what `install` registered."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, _Substitute):
            del sys.modules[name]


class _Substitute(ModuleType):
    """A module that explains what it does not have."""

    __path__: list[str] = []  # noqa: RUF012  (a package, so that its parts can be imported)
    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self.__name__}.{name} is not offered by trainer_io.moe; there are: "
            f"{', '.join(sorted(self.__all__))}"
        )


def _is_free(name: str) -> bool:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return isinstance(loaded, _Substitute)
    return importlib.util.find_spec(name) is None


def _register(name: str, source: ModuleType, members: tuple[str, ...]) -> ModuleType:
    module = _Substitute(name, f"`{name}` as offered by {source.__name__}.")
    for member in members:
        setattr(module, member, getattr(source, member))
    module.__all__ = list(members)
    sys.modules[name] = module
    return module
