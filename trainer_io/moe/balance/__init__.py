"""Expert-parallel load balancing: which expert replicas live on which GPU.

`rebalance_experts` has the published EPLB interface and gives bit-identical placements.
`plan_placement` is the better one: even, no expert twice on a GPU, few moves.
"""

from trainer_io.moe.balance.plan import Placement, gpu_loads, peak_to_mean, plan_placement
from trainer_io.moe.balance.rebalance import rebalance_experts

__all__ = ["Placement", "gpu_loads", "peak_to_mean", "plan_placement", "rebalance_experts"]
