"""A PyTorch DataLoader over a stream that knows exactly how far training has come.

Workers read ahead; a sample counts as consumed when its batch is handed to the training loop. The
loader counts batches in the main process, so `state_dict` is exact at every step whatever workers
hold, and costs nothing per step.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

try:
    from torch.utils.data import DataLoader
except ImportError as error:
    raise ImportError("StreamingLoader needs PyTorch: pip install 'fs3[torch]'") from error

from trainer_io.core.cursor import Cursor
from trainer_io.dataset.streaming import StreamingDataset

T_co = TypeVar("T_co", covariant=True)


class StreamingLoader(DataLoader[T_co]):
    """`DataLoader` of a `StreamingDataset`: batches of its `batch_size`, in its order.

        loader = StreamingLoader(stream, num_workers=2)
        loader.load_state_dict(saved)
        for batch in loader: ...

    Args:
        stream: decides batch size, order and share; so those options of DataLoader are not taken.
        options: other options of DataLoader: num_workers, collate_fn, pin_memory, prefetch_factor,
            multiprocessing_context, persistent_workers, drop_last.

    Raises:
        TypeError: batch_size, shuffle, sampler or batch_sampler was given.
    """

    def __init__(self, stream: StreamingDataset[Any], **options: Any) -> None:
        if taken := options.keys() & {"batch_size", "shuffle", "sampler", "batch_sampler"}:
            raise TypeError(f"the StreamingDataset decides {', '.join(sorted(taken))}")
        super().__init__(stream, batch_size=stream.batch_size, **options)
        self.stream = stream

    def __iter__(self) -> Iterator[T_co]:  # type: ignore[override]  # DataLoader returns its own
        stream = self.stream
        start = stream.cursor
        assignment = stream.rank_assignment()
        stream.move_to(start)
        delivered = 0
        for batch in super().__iter__():
            delivered = min(delivered + stream.batch_size, assignment.rank_count)
            stream.advance_to(Cursor(start.epoch, assignment.cursor_after(delivered)))
            yield batch
        stream.move_to(start.next_epoch())

    def set_epoch(self, epoch: int) -> None:
        self.stream.set_epoch(epoch)

    def state_dict(self) -> dict[str, int | str | None]:
        """Where training stands; see `StreamingDataset.state_dict`."""
        return self.stream.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Goes on where `state` was saved; see `StreamingDataset.load_state_dict`."""
        self.stream.load_state_dict(state)
