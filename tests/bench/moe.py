"""Mixture-of-experts building blocks on the CPU: CPU time of one call, one thread.

`eager` is what one writes without this package: gather the pages, bf16 matmuls, fp32 softmax; or a
loop of bf16 matmuls over the experts. It rounds after every step, ours once. The ratio is a matter
of the CPU: with bf16 units (AVX512_BF16), eager matmuls run at several times the fp32 rate, and
without at a fraction of it. To see the second on any machine, set ATEN_CPU_CAPABILITY=avx2,
ONEDNN_MAX_CPU_ISA=AVX2 and MKL_ENABLE_INSTRUCTIONS=AVX2.
The published balancer's time is a stored figure: 1.44 s of CPU for 58 layers of 256 experts.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import torch

from tests.bench.harness import Options, Row, Sample, in_turn, main
from tests.unit.moe import eplb_reference
from trainer_io.moe.attention import flash_mla_with_kvcache, get_mla_metadata
from trainer_io.moe.balance import rebalance_experts
from trainer_io.moe.gemm import calc_diff, m_grouped_bf16_gemm_nt_contiguous

EPLB: Final = "eplb vs published time"
MLA: Final = "mla decode cpu vs eager"
GEMM: Final = "grouped gemm cpu vs eager"
ROWS: Final = (EPLB, MLA, GEMM)

PUBLISHED_EPLB: Final = Sample(1_440.0, 1_440_000.0)
UNIT: Final = "ms of CPU per call"
AGREEMENT: Final = 1e-5
"""Largest `calc_diff` against float64 that still counts as the right result."""


def cost(work: Callable[[], object]) -> Sample:
    """CPU of one call of this process, after one that warms the caches up."""
    work()
    begun = time.process_time()
    work()
    seconds = time.process_time() - begun
    return Sample(seconds * 1e3, seconds * 1e6)


def eplb(options: Options) -> Row:
    """Placements of DeepSeek-V3's size; the first layers are compared with a slow statement."""
    weight = torch.randn(58, 256, generator=torch.Generator().manual_seed(1)).exp() * 1000
    shape = (288, 8, 4, 32)
    checked = 2
    physical, _, count = rebalance_experts(weight, *shape)
    wanted = eplb_reference.rebalance(weight[:checked], *shape)
    ours = [cost(lambda: rebalance_experts(weight, *shape)) for _ in range(options.samples)]
    return Row(
        EPLB,
        UNIT,
        ours,
        "published code",
        [PUBLISHED_EPLB] * options.samples,
        higher_is_better=False,
        verified=physical[:checked].tolist() == wanted[0] and count[:checked].tolist() == wanted[2],
        reference_run="stored",
    )


@dataclass
class Decode:
    """One step of one request: 128 heads, pages in random order."""

    length: int
    page: int = 64
    heads: int = 128
    dice: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(2))

    def __post_init__(self) -> None:
        pages = self.length // self.page
        self.q = self._random(1, 1, self.heads, 576)
        self.cache = self._random(pages, self.page, 1, 576)
        self.table = torch.randperm(pages, generator=self.dice).int()[None]
        self.lengths = torch.tensor([self.length], dtype=torch.int32)

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.dice).to(torch.bfloat16)

    def ours(self) -> torch.Tensor:
        metadata, _ = get_mla_metadata()
        return flash_mla_with_kvcache(
            self.q, self.cache, self.table, self.lengths, 512, metadata, causal=True
        )[0]

    def eager(self, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        keys = self.cache[self.table[0].long()].flatten(0, 2).to(dtype)
        scores = (self.q[0, 0].to(dtype) @ keys.T) * 576**-0.5
        weights = scores.to(torch.promote_types(dtype, torch.float32)).softmax(-1)
        return torch.mm(weights.to(dtype), keys[:, :512])


def mla(options: Options) -> Row:
    decode = Decode(length=1024 if options.quick else 2048)
    ours, eager = in_turn(options.samples, lambda: cost(decode.ours), lambda: cost(decode.eager))
    verified = calc_diff(decode.ours()[0, 0], decode.eager(torch.float64)) < AGREEMENT
    return Row(MLA, UNIT, ours, "eager bf16", eager, higher_is_better=False, verified=verified)


def grouped(options: Options) -> Row:
    groups, rows, n, k = 8, 64 if options.quick else 128, 512, 1024
    dice = torch.Generator().manual_seed(3)
    a = torch.randn(groups * rows, k, generator=dice).to(torch.bfloat16)
    b = torch.randn(groups, n, k, generator=dice).to(torch.bfloat16)
    layout = torch.arange(groups, dtype=torch.int32).repeat_interleave(rows)
    d = torch.empty(groups * rows, n, dtype=torch.bfloat16)

    def eager() -> None:
        for group in range(groups):
            mine = slice(group * rows, (group + 1) * rows)
            d[mine] = a[mine] @ b[group].T

    def ours() -> None:
        m_grouped_bf16_gemm_nt_contiguous(a, b, d, layout)

    taken, reference = in_turn(options.samples, lambda: cost(ours), lambda: cost(eager))
    ours()
    exact = torch.bmm(a.double().view(groups, rows, k), b.double().mT).view_as(d)
    return Row(
        GEMM,
        UNIT,
        taken,
        "eager bf16",
        reference,
        higher_is_better=False,
        verified=calc_diff(d, exact) < AGREEMENT,
    )


def measure(options: Options) -> Iterator[Row]:
    torch.set_num_threads(1)
    for name, row in ((EPLB, eplb), (MLA, mla), (GEMM, grouped)):
        if options.wants(name):
            yield row(options)


if __name__ == "__main__":
    sys.exit(main("moe", ROWS, measure))
