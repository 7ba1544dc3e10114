"""What a GPU trace says: busy time, overlap of communication and computation, what is exposed."""

from trainer_io.moe.profile.kineto import Trace, TraceError, read_trace
from trainer_io.moe.profile.overlap import OverlapReport, analyse_overlap

__all__ = ["OverlapReport", "Trace", "TraceError", "analyse_overlap", "read_trace"]
