"""Multi-head latent attention over a paged cache, with the published FlashMLA interface."""

from trainer_io.moe.attention.combine import combine_splits
from trainer_io.moe.attention.decode import flash_mla_with_kvcache
from trainer_io.moe.attention.fp8_cache import MODEL1, V32, dequantise_cache, quantise_cache
from trainer_io.moe.attention.metadata import FlashMLASchedMeta, get_mla_metadata
from trainer_io.moe.attention.schedule import schedule_splits
from trainer_io.moe.attention.sparse import flash_mla_sparse_fwd

__all__ = [
    "MODEL1",
    "V32",
    "FlashMLASchedMeta",
    "combine_splits",
    "dequantise_cache",
    "flash_mla_sparse_fwd",
    "flash_mla_with_kvcache",
    "get_mla_metadata",
    "quantise_cache",
    "schedule_splits",
]
