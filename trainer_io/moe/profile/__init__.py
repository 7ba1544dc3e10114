"""What a GPU trace says: busy time, overlap of communication and computation, what is exposed."""

from trainer_io.moe.profile.compare import Change, compare
from trainer_io.moe.profile.gaps import Gap, longest_gaps
from trainer_io.moe.profile.kineto import Trace, TraceError, read_trace
from trainer_io.moe.profile.overlap import OverlapReport, analyse_overlap
from trainer_io.moe.profile.sm_split import sm_split

__all__ = [
    "Change",
    "Gap",
    "OverlapReport",
    "Trace",
    "TraceError",
    "analyse_overlap",
    "compare",
    "longest_gaps",
    "read_trace",
    "sm_split",
]
