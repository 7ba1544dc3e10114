"""Which rank and which DataLoader worker this process is, as far as PyTorch knows.

PyTorch is only asked when the program has imported it.
"""

import sys


def current_rank() -> tuple[int, int]:
    """(rank, world size) of torch.distributed, or (0, 1) where it is not initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def current_worker() -> tuple[int, int] | None:
    """(worker, workers) inside a DataLoader worker, None elsewhere."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else (info.id, info.num_workers)
