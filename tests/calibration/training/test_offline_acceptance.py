import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.training.offline_acceptance import (
    accept_length_routes,
    carried_draws,
    chained_accept_length,
    offline_acceptance,
)
from calibration.training.records import Kind
from specmodel.acceptance import FullAccuracy, tail_spread
from specmodel.errors import ParameterError

FULL = (0.742, 0.47, 0.29, 0.15, 0.097)
CONDITIONAL = (0.77, 0.65, 0.60, 0.57, 0.53)
BOTH = {Kind.JOINT: FULL, Kind.CONDITIONAL: CONDITIONAL}


def median_of(kinds: Mapping[Kind, tuple[float, ...]], num_steps: int | None = None) -> float:
    found = offline_acceptance(kinds, num_steps).accept_length
    assert found is not None
    return found.estimate.median


def test_the_worked_case_by_its_definitions() -> None:
    routes = accept_length_routes(BOTH)
    assert routes["joint"] == pytest.approx(2.749, abs=1e-9)
    assert routes["conditional"] == pytest.approx(2.83269163, abs=1e-9)
    consistent = chained_accept_length((0.742, *CONDITIONAL[1:]), Kind.CONDITIONAL)
    assert float(consistent) == pytest.approx(2.766048298, abs=1e-9)
    of_the_table = chained_accept_length((0.74, *CONDITIONAL[1:]), Kind.CONDITIONAL)
    assert float(of_the_table) == pytest.approx(2.76128806, abs=1e-9)


def test_kinds_of_unlike_depths_are_not_compared() -> None:
    joint_is_deeper = offline_acceptance({Kind.JOINT: (0.6, 0.3), Kind.CONDITIONAL: (0.6,)})
    assert joint_is_deeper.kind is Kind.JOINT
    assert joint_is_deeper.routes == {"joint": pytest.approx(1.9)}
    conditional = offline_acceptance({Kind.JOINT: (0.6,), Kind.CONDITIONAL: (0.6, 0.5)})
    assert conditional.kind is Kind.CONDITIONAL
    assert conditional.routes == {"conditional": pytest.approx(1 + 0.6 + 0.6 * 0.5)}
    both = offline_acceptance({Kind.JOINT: (0.6, 0.3), Kind.CONDITIONAL: (0.6,)}, 1)
    assert both.routes == {"joint": pytest.approx(1.6), "conditional": pytest.approx(1.6)}


def test_the_sum_is_cut_at_the_served_depth() -> None:
    assert median_of(BOTH, 3) == pytest.approx(1 + 0.742 + 0.47 + 0.29)
    assert accept_length_routes(BOTH, 2)["conditional"] == pytest.approx(1 + 0.77 + 0.77 * 0.65)


@given(st.floats(0.05, 0.95), st.integers(1, 8))
def test_a_constant_chain_is_a_geometric_series(rate: float, depth: int) -> None:
    for kind in (Kind.CONDITIONAL, Kind.MARGINAL, Kind.OVERLAP):
        found = float(chained_accept_length([rate] * depth, kind))
        assert found == pytest.approx((1 - rate ** (depth + 1)) / (1 - rate))


def test_joint_and_conditional_are_the_mean_of_simulated_rounds_and_marginals_are_below() -> None:
    generator = np.random.default_rng(3)
    ease = generator.beta(2.0, 1.2, size=(200_000, 1))  # shared by the depths of a start
    hits = generator.random((200_000, 5)) < ease
    reached = np.cumprod(hits, axis=1).astype(bool)
    truth = 1.0 + reached.sum(axis=1).mean()
    joint = reached.mean(axis=0)
    conditional = joint / np.concatenate([[1.0], joint[:-1]])
    assert float(chained_accept_length(joint, Kind.JOINT)) == pytest.approx(truth)
    assert float(chained_accept_length(conditional, Kind.CONDITIONAL)) == pytest.approx(truth)
    marginal = float(chained_accept_length(hits.mean(axis=0), Kind.MARGINAL))
    assert marginal < 0.95 * truth


def test_routes_that_disagree_widen_the_interval_to_hold_both() -> None:
    found = offline_acceptance(BOTH)
    assert found.accept_length is not None
    estimate = found.accept_length.estimate
    assert estimate.median == pytest.approx(2.749)
    assert estimate.low < found.routes["joint"] < found.routes["conditional"] < estimate.high
    assert found.accept_length.log_sd * 2.749 == pytest.approx(
        (2.83269163 - 2.749) / math.sqrt(2), rel=1e-6
    )


def test_routes_that_agree_leave_no_spread() -> None:
    chain = {Kind.JOINT: (0.8, 0.4), Kind.CONDITIONAL: (0.8, 0.5)}
    found = offline_acceptance(chain).accept_length
    assert found is not None
    assert found.log_sd == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", [Kind.JOINT, Kind.MARGINAL])
def test_rounding_reaches_the_accept_length_as_in_a_simulation(kind: Kind) -> None:
    values = np.array([0.68, 0.6, 0.5]) if kind is Kind.JOINT else np.array([0.68, 0.63, 0.61])
    found = offline_acceptance({kind: tuple(values)}, rounding=0.005).accept_length
    assert found is not None
    generator = np.random.default_rng(5)
    rounded = values + generator.uniform(-0.005, 0.005, size=(50_000, 3))
    simulated = float(np.std(chained_accept_length(rounded, kind)))
    assert found.log_sd * found.estimate.median == pytest.approx(simulated, rel=0.03)


def test_rounding_averages_out_over_pooled_records() -> None:
    one, many = (
        offline_acceptance({Kind.JOINT: FULL}, rounding=0.005, num_records=n).accept_length
        for n in (1, 100)
    )
    assert one is not None
    assert many is not None
    assert many.log_sd == pytest.approx(one.log_sd / 10)


def test_beyond_the_trained_depth_the_tail_model_carries_it() -> None:
    found = offline_acceptance({Kind.JOINT: FULL}, 10)
    spread = tail_spread(FullAccuracy(FULL), [10])
    assert found.accept_length is not None
    assert found.accept_length.estimate.median == pytest.approx(float(spread.value[0]))
    assert found.accept_length.estimate.high == pytest.approx(float(spread.high[0]))
    assert "beyond-trained-depth" in found.codes
    held = 2.749 + sum(0.097 * (0.097 / 0.15) ** depth for depth in range(1, 6))
    assert found.accept_length.estimate.median < held


def test_the_chosen_kind_is_the_exact_one_and_the_sampled_one_the_overlap() -> None:
    kinds = {Kind.MARGINAL: (0.7, 0.6), Kind.OVERLAP: (0.6, 0.5)}
    greedy, sampled = offline_acceptance(kinds), offline_acceptance(kinds, sampled=True)
    assert greedy.kind is Kind.MARGINAL
    assert sampled.kind is Kind.OVERLAP
    assert "marginal-approximation" in greedy.codes
    assert offline_acceptance({**kinds, Kind.JOINT: (0.7, 0.5)}).codes == ()
    assert "greedy-for-sampling" in offline_acceptance({Kind.JOINT: FULL}, sampled=True).codes
    assert "overlap-for-greedy" in offline_acceptance({Kind.OVERLAP: (0.5,)}).codes


def test_marginals_are_never_summed_and_joint_ones_never_multiplied() -> None:
    routes = accept_length_routes({Kind.JOINT: FULL, Kind.MARGINAL: CONDITIONAL})
    assert routes["marginal_product"] < 1 + sum(CONDITIONAL) - 1
    assert routes["joint"] > float(chained_accept_length(FULL, Kind.CONDITIONAL))


def test_the_first_depth_alone_gives_no_accept_length_but_at_depth_one() -> None:
    alone = offline_acceptance({Kind.MARGINAL: (0.6,)}, 3, depth_is_whole=False)
    assert alone.accept_length is None
    assert alone.codes == ("depth0-only",)
    first = offline_acceptance({Kind.MARGINAL: (0.6,)}, 1, depth_is_whole=False)
    assert first.accept_length is not None
    assert first.accept_length.estimate.median == pytest.approx(1.6)


def test_nothing_by_depth_gives_no_accept_length_and_no_draws() -> None:
    found = offline_acceptance({}, 3)
    assert (found.accept_length, found.codes) == (None, ("mean-only",))
    with pytest.raises(ParameterError, match="mean-only"):
        found.draws(10, np.random.default_rng(0))


def test_impossible_accuracies_and_depths_are_refused() -> None:
    with pytest.raises(ParameterError):
        offline_acceptance({Kind.JOINT: (1.42, 0.9)})
    with pytest.raises(ParameterError):
        offline_acceptance({Kind.JOINT: FULL}, 0)


def test_a_joint_list_that_rises_by_chance_keeps_its_sum() -> None:
    assert median_of({Kind.JOINT: (0.5, 0.2, 0.201)}) == pytest.approx(1.901)


def test_draws_have_the_median_and_the_interval_of_the_estimate() -> None:
    found = offline_acceptance(BOTH)
    drawn = found.draws(4000, np.random.default_rng(1))
    assert found.accept_length is not None
    estimate = found.accept_length.estimate
    low, median, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    assert median == pytest.approx(2.749, abs=1e-6)
    assert (low, high) == pytest.approx((estimate.low, estimate.high), abs=3e-3)
    certain = offline_acceptance({Kind.JOINT: (1.0, 1.0), Kind.CONDITIONAL: (1.0, 0.9)})
    assert np.max(certain.draws(1000, np.random.default_rng(1))) <= 3.0


def test_draws_are_carried_as_the_tail_model_carries_their_curve() -> None:
    curve = FullAccuracy(FULL)
    generator = np.random.default_rng(2)
    carried = carried_draws(np.full((20_000, 2), 2.749), curve, 10, generator)
    spread = tail_spread(curve, [10])
    assert np.median(carried[:, 0]) == pytest.approx(float(spread.value[0]), abs=0.03)
    assert np.quantile(carried[:, 0], 0.95) == pytest.approx(float(spread.high[0]), abs=0.05)
    assert np.array_equal(carried[:, 0], carried[:, 1])  # one error for all steps of a draw
    same = np.full(3, 2.5)
    assert np.array_equal(carried_draws(same, curve, 5, generator), same)
