"""A better placement than the published one: even, without duplicates, and with few moves.

Replicas are shared out so that no expert's share per replica stands out, then packed to GPUs of
which none gets the same expert twice, then improved by local search:
the heaviest GPU gives work away by exchanging two experts, or by turning a slot elsewhere into one
more replica of one of its own. With a previous placement the search starts there, and each changed
slot (one expert's weights copied to one GPU) is paid from a budget.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Loads = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Placement:
    """Experts on GPUs.

    Attributes:
        slots: `[layers, gpus, slots per GPU]`, the expert in each slot.
        moves: slots that differ from the previous placement, by layer; None without one.
    """

    slots: Indices
    moves: Indices | None = None


def plan_placement(
    loads: npt.ArrayLike,
    num_gpus: int,
    slots_per_gpu: int,
    *,
    previous: Indices | None = None,
    moves_max: int | None = None,
) -> Placement:
    """Plans where expert replicas live.

    Args:
        loads: `[layers, experts]`, tokens expected by each expert, not negative.
        num_gpus: GPUs.
        slots_per_gpu: experts each GPU holds; all slots together at least the experts.
        previous: `[layers, gpus, slots]`, the placement in use; None plans afresh.
        moves_max: most slots that may change in a layer against `previous`.

    Raises:
        ValueError: shapes do not fit, or a GPU would have to hold an expert twice.
    """
    table = np.asarray(loads, np.float64)
    if table.ndim != 2 or (table < 0).any():
        raise ValueError(f"loads {list(table.shape)} must be [layers, experts] and not negative")
    layers, experts = table.shape
    if not slots_per_gpu <= experts <= num_gpus * slots_per_gpu:
        raise ValueError(
            f"{experts} experts do not fit {num_gpus} GPUs x {slots_per_gpu} different slots"
        )
    shape = (layers, num_gpus, slots_per_gpu)
    if previous is not None and previous.shape != shape:
        raise ValueError(f"previous placement {previous.shape} must be {shape}")
    slots = np.empty(shape, np.int64)
    for layer in range(layers):
        start = previous[layer] if previous is not None else None
        slots[layer] = _plan_layer(table[layer], num_gpus, slots_per_gpu, start, moves_max)
    moves = None if previous is None else (slots != previous).sum((1, 2))
    return Placement(slots, moves)


def gpu_loads(loads: npt.ArrayLike, slots: Indices) -> Loads:
    """`[layers, gpus]`: what each GPU carries when an expert's tokens are split evenly."""
    table = np.asarray(loads, np.float64)
    result = np.empty(slots.shape[:2])
    for layer, placed in enumerate(slots):
        count = np.bincount(placed.ravel(), minlength=table.shape[1])
        result[layer] = (table[layer] / np.maximum(count, 1))[placed].sum(-1)
    return result


def peak_to_mean(loads: npt.ArrayLike, slots: Indices) -> Loads:
    """`[layers]`: load of the heaviest GPU over the mean; 1.0 is perfect, also for no load."""
    carried = gpu_loads(loads, slots)
    mean = carried.mean(-1)
    peak: Loads = np.divide(carried.max(-1), mean, out=np.ones_like(mean), where=mean > 0)
    return peak


def _plan_layer(
    loads: Loads, gpus: int, slots: int, previous: Indices | None, moves_max: int | None
) -> Indices:
    if previous is None:
        search = _Search(loads, _pack(loads, _counts(loads, gpus, slots), gpus, slots), None)
    else:
        search = _Search(loads, previous, moves_max)
    search.run()
    return search.slots


def _counts(loads: Loads, gpus: int, slots: int) -> Indices:
    """Replicas of each expert: one each, the rest to the highest share, at most one per GPU."""
    count: Indices = np.ones(len(loads), np.int64)
    share = loads.copy()
    for _ in range(gpus * slots - len(loads)):
        hottest = int(np.where(count < gpus, share, -1.0).argmax())
        count[hottest] += 1
        share[hottest] = loads[hottest] / count[hottest]
    return count


def _pack(loads: Loads, count: Indices, gpus: int, slots: int) -> Indices:
    """Experts with several replicas go, most replicas first, to the emptiest GPUs, which always
    have room for them; single ones go, heaviest first, to the lightest GPU with room."""
    placed = np.full((gpus, slots), -1, np.int64)
    filled = np.zeros(gpus, np.int64)
    carried = np.zeros(gpus)
    for expert in np.lexsort((-(loads / count), -count)):
        need = int(count[expert])
        room = np.flatnonzero(filled < slots)
        keys = (carried, filled) if need > 1 else (filled, carried)  # the last key sorts first
        chosen = room[np.lexsort(tuple(key[room] for key in keys))][:need]
        placed[chosen, filled[chosen]] = expert
        filled[chosen] += 1
        carried[chosen] += loads[expert] / need
    return placed


class _Search:
    """Steepest descent on the heaviest GPU, by exchanges and, failing those, replacements."""

    ROUNDS_MAX = 400
    GOOD_ENOUGH = 1.002

    def __init__(self, loads: Loads, start: Indices, moves_max: int | None) -> None:
        self._loads = loads
        self._start = start
        self._budget = moves_max
        self.slots = start.copy()
        self._count = np.bincount(start.ravel(), minlength=len(loads))
        if (self._count == 0).any():
            missing = np.flatnonzero(self._count == 0).tolist()
            raise ValueError(f"the previous placement lacks experts {missing}")
        self._holds = np.zeros((len(start), len(loads)), bool)
        self._holds[np.arange(len(start))[:, None], start] = True

    def run(self) -> None:
        for _ in range(self.ROUNDS_MAX):
            carried = self._carried()
            if carried.max() <= carried.mean() * self.GOOD_ENOUGH:
                return
            if not (self._exchange(carried) or self._replace(carried)):
                return

    def _carried(self) -> Loads:
        return np.asarray((self._loads / self._count)[self.slots].sum(-1))

    def _affordable(self, changed: int) -> bool:
        if self._budget is None:
            return True
        return int((self.slots != self._start).sum()) + changed <= self._budget

    def _exchange(self, carried: Loads) -> bool:
        """Swaps a slot of the heaviest GPU with one elsewhere where that lowers both peaks most."""
        if not self._affordable(2):
            return False
        heavy = int(carried.argmax())
        share = self._loads / self._count
        mine, theirs = self.slots[heavy], self.slots
        # gain[i, g, j]: what leaves the heavy GPU when its slot i goes to g's slot j.
        gain = share[mine][:, None, None] - share[theirs][None]
        after = np.maximum(carried[heavy] - gain, carried[None, :, None] + gain)
        allowed = (
            (gain > 0) & ~self._holds[:, mine].T[:, :, None] & ~self._holds[heavy][theirs][None]
        )
        after = np.where(allowed, after, np.inf)
        best = int(after.argmin())
        if after.flat[best] >= carried[heavy] * (1 - 1e-9):
            return False
        i, gpu, j = np.unravel_index(best, after.shape)
        a, b = int(mine[i]), int(theirs[gpu, j])
        self._put(heavy, int(i), b)
        self._put(int(gpu), int(j), a)
        return True

    def _replace(self, carried: Loads) -> bool:
        """Turns a slot elsewhere into one more replica of the heaviest GPU's hottest expert."""
        if not self._affordable(1):
            return False
        heavy = int(carried.argmax())
        peak = float(carried[heavy])
        best: tuple[float, int, int, int] | None = None
        for expert in self.slots[heavy][
            np.argsort(-(self._loads / self._count)[self.slots[heavy]])
        ]:
            for gpu in np.argsort(carried)[: max(4, len(carried) // 4)]:
                if self._holds[gpu, expert]:
                    continue
                for slot, victim in enumerate(self.slots[gpu]):
                    if self._count[victim] < 2:
                        continue
                    new_peak = self._peak_after(int(gpu), slot, int(expert))
                    if new_peak < peak * (1 - 1e-9) and (best is None or new_peak < best[0]):
                        best = (new_peak, int(gpu), slot, int(expert))
        if best is None:
            return False
        _, gpu, slot, expert = best
        self._replace_slot(gpu, slot, expert)
        return True

    def _peak_after(self, gpu: int, slot: int, expert: int) -> float:
        victim = int(self.slots[gpu, slot])
        self._replace_slot(gpu, slot, expert)
        peak = float(self._carried().max())
        self._replace_slot(gpu, slot, victim)
        return peak

    def _replace_slot(self, gpu: int, slot: int, expert: int) -> None:
        self._count[self.slots[gpu, slot]] -= 1
        self._count[expert] += 1
        self._put(gpu, slot, expert)

    def _put(self, gpu: int, slot: int, expert: int) -> None:
        self._holds[gpu, self.slots[gpu, slot]] = False
        self._holds[gpu, expert] = True
        self.slots[gpu, slot] = expert
