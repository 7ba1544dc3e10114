"""Training input and checkpoints on fs3 or on any local directory.

    from trainer_io import StreamingDataset, StreamingLoader, TokenDataset

    tokens = TokenDataset("fs3:///corpus/tokens", column="tokens", window=129)
    loader = StreamingLoader(StreamingDataset(tokens, batch_size=32, seed=7), num_workers=2)
    for batch in loader: ...
    state = loader.state_dict()            # goes on exactly here, under any world size

Names are loaded when first used, because only `StreamingDataset` and `StreamingLoader` need PyTorch
to be imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_io.dataset.files import FileDataset
    from trainer_io.dataset.loader import StreamingLoader
    from trainer_io.dataset.rows import ParquetDataset
    from trainer_io.dataset.streaming import StreamingDataset
    from trainer_io.dataset.tokens import TokenDataset

__all__ = ["FileDataset", "ParquetDataset", "StreamingDataset", "StreamingLoader", "TokenDataset"]

_HOME = {
    "FileDataset": "trainer_io.dataset.files",
    "ParquetDataset": "trainer_io.dataset.rows",
    "StreamingDataset": "trainer_io.dataset.streaming",
    "StreamingLoader": "trainer_io.dataset.loader",
    "TokenDataset": "trainer_io.dataset.tokens",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'trainer_io' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
