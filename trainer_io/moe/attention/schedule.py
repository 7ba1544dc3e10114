"""Split-KV scheduling: even work for a fixed number of persistent workers, whatever the lengths.

The published algorithm. Each request costs its number of KV blocks plus a fixed overhead; every
worker gets the same payload and walks the requests in order. It takes a request whole when the rest
of it fits, else as many blocks as its payload leaves, and the next worker goes on from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BLOCK_TOKENS: Final = 64
OVERHEAD_BLOCKS: Final = 5


@dataclass(frozen=True, slots=True)
class Part:
    """What one worker does: from `begin_block` of `begin_request` to `end_block` of `end_request`.

    The end request is included and the end block is not. Idle workers have `begin_request` equal to
    the number of requests.

    Attributes:
        begin_split: the first request's split number of this part.
        first_is_shared, last_is_shared: others work on that request, too, so that its result goes
            to the split buffers and not to the output.
    """

    begin_request: int
    end_request: int
    begin_block: int
    end_block: int
    begin_split: int
    first_is_shared: bool
    last_is_shared: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """`splits[i] : splits[i + 1]` are the split buffers of request i."""

    parts: tuple[Part, ...]
    splits: tuple[int, ...]


def schedule_splits(
    lengths: Sequence[int],
    part_count: int,
    block_tokens: int = BLOCK_TOKENS,
    overhead_blocks: int = OVERHEAD_BLOCKS,
) -> Schedule:
    """Divides requests of `lengths` tokens among `part_count` workers.

    An empty request counts as one block: someone must write its output.
    """
    if part_count < 1:
        raise ValueError(f"part_count is {part_count}: there must be at least one worker")
    blocks = [max(-(-length // block_tokens), 1) for length in lengths]
    payload = -(-sum(n + overhead_blocks for n in blocks) // part_count) + overhead_blocks
    request = block = split = 0
    splits = [0]
    begins: list[tuple[int, int, int]] = []
    ends: list[tuple[int, int]] = []
    for _ in range(part_count):
        begins.append((request, block, split))
        room = payload
        while request < len(blocks):
            rest = blocks[request] - block
            if room >= rest + overhead_blocks:
                room -= rest + overhead_blocks
                splits.append(splits[-1] + split + 1)
                request, block, split = request + 1, 0, 0
            else:
                if room > overhead_blocks:
                    block += room - overhead_blocks
                    split += 1
                break
        ends.append((request, block) if block else (request - 1, _last(blocks, request)))
    assert request == len(blocks), "the payloads add up to all the work"
    return Schedule(
        tuple(Part(*_row(begin, end, splits)) for begin, end in zip(begins, ends, strict=True)),
        tuple(splits),
    )


def _last(blocks: Sequence[int], request: int) -> int:
    return blocks[request - 1] if request else 0


def _row(
    begin: tuple[int, int, int], end: tuple[int, int], splits: Sequence[int]
) -> tuple[int, int, int, int, int, bool, bool]:
    def is_shared(request: int) -> bool:
        return 0 <= request < len(splits) - 1 and splits[request + 1] - splits[request] > 1

    return (begin[0], end[0], begin[1], end[1], begin[2], is_shared(begin[0]), is_shared(end[0]))
