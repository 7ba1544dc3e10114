"""Checkpoints: one safetensors file per state, written in parallel, committed by one rename.

    from trainer_io import checkpoint
    checkpoint.save({"model": model.state_dict(), "step": 100}, "fs3:///run/step-100.safetensors")
    state = checkpoint.load("fs3:///run/step-100.safetensors")

`layout` knows the file format and nothing of IO, `state` turns nested state into named tensors and
back, `storage` writes. A storage writer and reader for torch.distributed.checkpoint belongs beside
them, in `dcp.py`, on the same layout and storage.
"""

from trainer_io.checkpoint.load import load
from trainer_io.checkpoint.save import save

__all__ = ["load", "save"]
