"""Import names of the published packages, in code written for those."""

import sys
import types
from collections.abc import Iterator

import pytest

from trainer_io.moe import attention, balance, compat, gemm

FLASH_MLA = """
from flash_mla import flash_mla_with_kvcache, get_mla_metadata
import torch
lengths = torch.tensor([3], dtype=torch.int32)
metadata, num_splits = get_mla_metadata(lengths, 1 * 2 // 1, 1)
cache = torch.ones(1, 64, 1, 576, dtype=torch.bfloat16)
out, lse = flash_mla_with_kvcache(
    torch.ones(1, 1, 2, 576, dtype=torch.bfloat16), cache,
    torch.zeros(1, 1, dtype=torch.int32), lengths, 512, metadata, num_splits, causal=True)
assert bool((out == 1).all())
"""
DEEP_GEMM = """
import deep_gemm, torch
from deep_gemm.testing import calc_diff
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8
x, y = torch.ones(4, 128).bfloat16(), torch.ones(8, 128).bfloat16()
d = torch.empty(4, 8, dtype=torch.bfloat16)
a = per_token_cast_to_fp8(x, use_ue8m0=False)
deep_gemm.fp8_gemm_nt(a, per_block_cast_to_fp8(y, use_ue8m0=True), d)
assert calc_diff(d, x @ y.T) < 1e-3
"""
EPLB = """
import eplb, torch
phy2log, log2phy, logcnt = eplb.rebalance_experts(torch.rand(2, 12), 16, 4, 2, 8)
assert phy2log.shape == (2, 16)
"""


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    assert compat.install() == ("flash_mla", "deep_gemm", "eplb")
    yield
    compat.uninstall()


@pytest.mark.parametrize("program", [FLASH_MLA, DEEP_GEMM, EPLB])
def test_programs_run_unchanged(program: str) -> None:
    exec(compile(program, "program", "exec"), {})


def test_names_lead_here() -> None:
    modules = {"flash_mla": attention, "deep_gemm": gemm, "eplb": balance}
    for name, members in compat.PUBLISHED.items():
        for member in members:
            assert getattr(sys.modules[name], member) is getattr(modules[name], member)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(AttributeError, match=r"deep_gemm\.einsum is not offered"):
        exec("import deep_gemm; deep_gemm.einsum", {})
    with pytest.raises(ImportError, match="flash_attn_varlen_func"):
        exec("from flash_mla import flash_attn_varlen_func", {})
    with pytest.raises(ModuleNotFoundError, match="deep_ep"):
        exec("import deep_ep", {})


def test_a_real_package_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compat.uninstall()
    real = types.ModuleType("eplb")
    monkeypatch.setitem(sys.modules, "eplb", real)
    assert compat.install() == ("flash_mla", "deep_gemm")
    assert sys.modules["eplb"] is real
