"""Expert-parallel load balancing: which expert replicas live on which GPU.

`rebalance_experts` has the published EPLB interface and gives bit-identical placements.
"""

from trainer_io.moe.balance.rebalance import rebalance_experts

__all__ = ["rebalance_experts"]
