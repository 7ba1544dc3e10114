"""The better placement: even, complete, without duplicates, within its budget of moves."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_io.moe.balance import gpu_loads, peak_to_mean, plan_placement, rebalance_experts


def assert_valid(slots: np.ndarray, experts: int) -> None:
    for layer in slots:
        assert set(layer.ravel()) == set(range(experts)), "every expert is somewhere"
        for gpu in layer:
            assert len(set(gpu)) == len(gpu), "no expert twice on a GPU"


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5])
def test_log_normal_loads_are_even(sigma: float) -> None:
    loads = np.random.default_rng(7).lognormal(0, sigma, (58, 256)) * 1000
    slots = plan_placement(loads, 32, 9).slots
    assert_valid(slots, 256)
    assert peak_to_mean(loads, slots).mean() <= 1.03
    published, _, _ = rebalance_experts(torch.from_numpy(loads), 288, 8, 4, 32)
    theirs = peak_to_mean(loads, published.numpy().reshape(58, 32, 9))
    assert (peak_to_mean(loads, slots) < theirs).all()


@pytest.mark.parametrize("budget", [0, 1, 8, 32])
def test_moves_stay_within_budget_and_pay_off(budget: int) -> None:
    random = np.random.default_rng(8)
    loads = random.lognormal(0, 1, (12, 64)) * 1000
    before = plan_placement(loads, 8, 10).slots
    drifted = loads * random.lognormal(0, 0.4, loads.shape)
    plan = plan_placement(drifted, 8, 10, previous=before, moves_max=budget)
    assert_valid(plan.slots, 64)
    assert plan.moves is not None
    assert plan.moves.max() <= budget
    assert (peak_to_mean(drifted, plan.slots) <= peak_to_mean(drifted, before) + 1e-9).all()
    if budget == 0:
        assert (plan.slots == before).all()
    if budget == 32:
        assert peak_to_mean(drifted, plan.slots).mean() < 1.1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_shape_gives_a_valid_placement(data: st.DataObject) -> None:
    gpus = data.draw(st.integers(1, 8))
    slots = data.draw(st.integers(1, 6))
    experts = data.draw(st.integers(slots, gpus * slots))
    values = st.sampled_from([0.0, 1.0, 1.0, 5.0, 1000.0])
    loads = np.array([data.draw(st.lists(values, min_size=experts, max_size=experts))])
    plan = plan_placement(loads, gpus, slots)
    assert_valid(plan.slots, experts)
    assert gpu_loads(loads, plan.slots).sum() == pytest.approx(loads.sum())


def test_one_hot_expert_is_spread_over_all_gpus() -> None:
    loads = np.array([[8000.0] + [1.0] * 7])
    plan = plan_placement(loads, 4, 4)
    assert all(0 in gpu for gpu in plan.slots[0])
    assert peak_to_mean(loads, plan.slots)[0] < 1.01


@pytest.mark.parametrize(
    ("loads", "gpus", "slots", "message"),
    [
        ([[1.0, 2.0]], 1, 1, "do not fit"),
        ([[1.0]], 1, 2, "do not fit"),
        ([1.0, 2.0], 1, 2, "must be"),
        ([[-1.0, 2.0]], 1, 2, "not negative"),
    ],
)
def test_impossible_requests_are_explained(
    loads: list[object], gpus: int, slots: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan_placement(np.array(loads), gpus, slots)
