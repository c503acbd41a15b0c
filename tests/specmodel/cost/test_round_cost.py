from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specmodel.constants import NAMES, NUM_CONSTANTS
from specmodel.cost import (
    BatchCurve,
    RoundTerms,
    round_cost,
    round_cost_gradient,
    round_cost_parts,
    round_terms,
)

Array = NDArray[np.float64]


def of_constants(**named: float) -> Array:
    """Constants of which only the named ones do anything."""
    neutral = dict.fromkeys(NAMES, 0.0) | {"fixed_cost": 1.0, "expert_ratio": 0.0}
    return np.array([(neutral | named)[name] for name in NAMES])


def batch_curve() -> BatchCurve:
    batch, context = (grid.ravel() for grid in np.meshgrid([1, 4, 16, 64], [0, 16384]))
    time_s = 0.007 + 0.0004 * batch + 3e-9 * batch * context
    return BatchCurve.from_points(batch, context, time_s)


CASES = {
    "dense chains": round_terms(num_steps=[0, 1, 3, 7]),
    "dense trees": round_terms(num_steps=[3, 5], topk=[4, 8], num_draft_tokens=[16, 64]),
    "mixture": round_terms(
        num_steps=[1, 3, 3],
        topk=[1, 1, 4],
        batch_size=[1, 8, 32],
        num_experts=128,
        experts_per_token=8,
    ),
    "timed": round_terms(num_steps=[2, 5], topk=[1, 2], step_time_s=[0.004, 0.030]),
    "batch curve": round_terms(
        num_steps=[1, 3, 5, 3],
        topk=[1, 1, 4, 1],
        batch_size=[1, 8, 4, 64],
        context_tokens=[0, 8192, 16384, 1024],
        curve=batch_curve(),
    ),
}
each_case = pytest.mark.parametrize("terms", CASES.values(), ids=CASES.keys())


@each_case
def test_gradient_is_the_finite_difference(terms: RoundTerms, typical: Array) -> None:
    cost, gradient = round_cost_gradient(typical, terms)
    np.testing.assert_allclose(cost, round_cost(typical, terms), rtol=1e-14)
    for index in range(NUM_CONSTANTS):
        step = 1e-6 * typical[index]
        above, below = typical.copy(), typical.copy()
        above[index] += step
        below[index] -= step
        slope = (round_cost(above, terms) - round_cost(below, terms)) / (2 * step)
        np.testing.assert_allclose(gradient[:, index], slope, rtol=1e-6, atol=1e-8)


@each_case
def test_the_parts_add_up(terms: RoundTerms, typical: Array) -> None:
    parts = round_cost_parts(typical, terms)
    np.testing.assert_allclose(sum(parts), round_cost(typical, terms), rtol=1e-14)
    assert all(np.all(part >= 0) for part in parts)


@each_case
def test_many_constants_at_once_are_the_same_as_one_by_one(terms: RoundTerms) -> None:
    many = np.random.default_rng(1).uniform(0.1, 0.9, (5, NUM_CONSTANTS))
    together = round_cost(many[:, None, :], terms)
    assert together.shape == (5, len(terms))
    for row in range(5):
        np.testing.assert_allclose(together[row], round_cost(many[row], terms), rtol=1e-14)


def test_a_round_without_draft_tokens_costs_the_fixed_part() -> None:
    curve = batch_curve()
    terms = round_terms(num_steps=0, batch_size=8, context_tokens=8192, curve=curve)
    constants = of_constants(fixed_cost=1.2, step_cost=0.1, batch_growth_share=1, kv_row_share=1)
    assert round_cost(constants, terms)[0] == pytest.approx(1.2, rel=1e-12)


def test_a_dense_chain_is_linear_in_depth() -> None:
    constants = of_constants(fixed_cost=1.136, step_cost=0.069)
    found = round_cost(constants, round_terms(num_steps=np.arange(10)))
    np.testing.assert_allclose(found, 1.136 + 0.069 * np.arange(10), rtol=1e-12)


def test_a_tree_costs_its_own_constant_once() -> None:
    constants = of_constants(fixed_cost=1.1, step_cost=0.05, tree_cost=0.16)
    chain, tree = round_cost(constants, round_terms(num_steps=5, topk=[1, 4]))
    assert tree - chain == pytest.approx(0.16)


def test_a_mixture_pays_the_share_of_its_step_that_grows() -> None:
    ratio = 0.3
    terms = round_terms(num_steps=3, batch_size=8, num_experts=128, experts_per_token=8)
    before, after = terms.loads[0], terms.loads[0] + terms.loads_added[0]
    found = round_cost(of_constants(expert_ratio=ratio), terms)[0]
    assert found == pytest.approx((1 + ratio * after) / (1 + ratio * before), rel=1e-12)


def test_verification_that_pays_all_growth_costs_the_baseline_of_its_rows() -> None:
    curve = batch_curve()
    terms = round_terms(num_steps=3, batch_size=4, context_tokens=0, curve=curve)
    times = curve.at([4, 16], 0).step_time_s
    found = round_cost(of_constants(batch_growth_share=1.0), terms)[0]
    assert found == pytest.approx(
        times[1] / times[0], rel=1e-4
    )  # baselines are read to a thousandth


def test_kv_read_per_row_costs_more_with_context() -> None:
    terms = round_terms(
        num_steps=3, batch_size=4, context_tokens=[0, 4096, 16384], curve=batch_curve()
    )
    once, per_row = (
        round_cost(of_constants(kv_row_share=share, batch_growth_share=0.5), terms)
        for share in (0.0, 1.0)
    )
    assert np.all(np.diff(once) < 0.005)  # verification shares the KV reads of a request
    assert per_row[0] == pytest.approx(once[0])
    assert np.all(np.diff(per_row - once) > 0)


def test_a_draft_of_fixed_seconds_weighs_less_on_a_longer_step() -> None:
    terms = round_terms(num_steps=4, step_time_s=[0.010, 0.040])
    fixed_s = of_constants(fixed_cost=1.0, step_cost=0.1, draft_time_exponent=1.0)
    proportional = of_constants(fixed_cost=1.0, step_cost=0.1, draft_time_exponent=0.0)
    np.testing.assert_allclose(round_cost(fixed_s, terms), [1.4, 1.1], rtol=1e-12)
    np.testing.assert_allclose(round_cost(proportional, terms), [1.4, 1.4], rtol=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 0.4, 1.0])
def test_all_times_twice_as_long_leave_the_round_cost(exponent: float) -> None:
    """Draft steps are stated at a reference step, so their constants carry the factor 2**exponent."""
    curve = batch_curve()
    slower = replace(
        curve, step_time_s=2 * curve.step_time_s, kv_s_per_token=2 * curve.kv_s_per_token
    )
    constants = of_constants(
        fixed_cost=1.1, step_cost=0.07, tree_cost=0.1, batch_growth_share=0.7,
        draft_time_exponent=exponent, kv_row_share=0.6,
    )  # fmt: skip
    twice = constants.copy()
    twice[[NAMES.index("step_cost"), NAMES.index("tree_cost")]] *= 2**exponent
    where = {
        "num_steps": [1, 3, 5],
        "topk": [1, 1, 4],
        "batch_size": [1, 8, 32],
        "context_tokens": [0, 4096, 16384],
    }
    np.testing.assert_allclose(
        round_cost(twice, round_terms(**where, curve=slower)),
        round_cost(constants, round_terms(**where, curve=curve)),
        rtol=1e-12,
    )


@given(
    depth=st.integers(0, 12),
    batch=st.integers(1, 256),
    experts=st.integers(8, 512),
    per_token=st.integers(1, 8),
    constants=st.tuples(st.floats(1.0, 2.0), st.floats(0.01, 0.3), st.floats(0.0, 2.0)),
)
def test_a_deeper_round_costs_more_and_never_less_than_the_fixed_part(
    depth: int, batch: int, experts: int, per_token: int, constants: tuple[float, float, float]
) -> None:
    terms = round_terms(
        num_steps=[depth, depth + 1],
        batch_size=batch,
        num_experts=experts,
        experts_per_token=per_token,
    )
    fixed, step, ratio = constants
    shallow, deep = round_cost(
        of_constants(fixed_cost=fixed, step_cost=step, expert_ratio=ratio), terms
    )
    assert fixed * (1 - 1e-12) <= shallow < deep
