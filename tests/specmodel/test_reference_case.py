"""The reference case, worked by hand: Kimi-K2.5 on PCIe, accept length 2.1 at 82.3 tok/s against 90."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.fit.posterior_mode import fit_rows
from specmodel.constants import NAMES, to_internal
from specmodel.cost import round_cost, round_terms
from specmodel.posterior import Rows
from specmodel.prior import Noise, Prior
from specmodel.speedup import accept_length_for_speedup, round_cost_from_throughput, speedup

Array = NDArray[np.float64]

ACCEPT, RATE, BASELINE = 2.1, 82.3, 90.0
ASKED = np.array([2.75, 3.0, 3.3, 3.5])
ROUND_COST = float(round_cost_from_throughput(ACCEPT, RATE, BASELINE))


def test_the_point_is_slower_than_the_baseline() -> None:
    assert float(speedup(ACCEPT, ROUND_COST)) == pytest.approx(0.914, abs=5e-4)


def test_the_round_cost_is_the_identity() -> None:
    assert pytest.approx(2.2965, abs=5e-5) == ROUND_COST
    assert pytest.approx(25.52e-3, abs=5e-6) == ROUND_COST / BASELINE


def test_predictions_at_the_same_depth() -> None:
    np.testing.assert_allclose(
        BASELINE * speedup(ASKED, ROUND_COST), [107.8, 117.6, 129.3, 137.2], atol=0.05
    )


def test_the_break_even_is_the_round_cost() -> None:
    assert float(accept_length_for_speedup(1.0, ROUND_COST)) == pytest.approx(2.2965, abs=5e-5)
    assert BASELINE * float(speedup(2.1, 2.2)) == pytest.approx(85.9, abs=0.05)


def test_a_hoped_for_throughput_needs_a_far_longer_accept_length() -> None:
    assert float(accept_length_for_speedup(215.2 / 90, ROUND_COST)) == pytest.approx(5.49, abs=5e-3)


def test_the_hand_made_interval_is_not_what_the_point_says() -> None:
    rates = np.array([110.0, 120.0])
    costs = round_cost_from_throughput(2.75, rates, BASELINE)
    np.testing.assert_allclose(costs, [2.25, 2.06], atol=5e-3)
    needed = accept_length_for_speedup(rates / BASELINE, ROUND_COST)
    np.testing.assert_allclose(needed, [2.81, 3.06], atol=5e-3)


@pytest.mark.parametrize(
    ("measured_at", "run_at", "per_step", "cost", "rates"),
    [
        (3, 3, 0.10, 2.297, [107.8, 117.6, 129.3, 137.2]),
        (3, 5, 0.07, 2.436, [101.6, 110.8, 121.9, 129.3]),
        (3, 5, 0.14, 2.576, [96.1, 104.8, 115.3, 122.3]),
        (3, 7, 0.10, 2.696, [91.8, 100.1, 110.1, 116.8]),
        (5, 3, 0.14, 2.016, [122.7, 133.9, 147.3, 156.2]),
        (5, 4, 0.10, 2.196, [112.7, 122.9, 135.2, 143.4]),
    ],
)
def test_another_depth_moves_along_the_line(
    measured_at: int, run_at: int, per_step: float, cost: float, rates: list[float]
) -> None:
    constants = np.zeros(9)
    constants[NAMES.index("fixed_cost")] = ROUND_COST - per_step * measured_at
    constants[NAMES.index("step_cost")] = per_step
    found = round_cost(constants, round_terms(num_steps=run_at))
    assert float(found[0]) == pytest.approx(cost, abs=5.5e-4)
    np.testing.assert_allclose(BASELINE * speedup(ASKED, found), rates, atol=0.06)


def test_time_outside_decoding_makes_gains_smaller() -> None:
    decode_cost = round_cost_from_throughput(ACCEPT, RATE, BASELINE, 0.1)
    assert float(decode_cost) == pytest.approx(2.318, abs=5e-4)
    found = BASELINE * speedup([2.75, 3.5], decode_cost, 0.1)
    np.testing.assert_allclose(found, [104.8, 129.3], atol=0.05)


# Priors of theory.md part D: class free, one noise; constants that do nothing for a chain are arbitrary.
SECTION_D = Prior(
    mean=np.array([np.log(1.31), np.log(0.056), np.log(0.081), 0.0, -2.22, 0.0, 0.0, 0.0, 0.0]),
    covariance=np.diag(np.array([0.22, 0.64, 1.08, 1.0, 1.27, 1.0, 1.0, 1.0, 1.0]) ** 2),
    noise=Noise(
        row_log_sd=0.05, configuration_log_sd=1e-4, run_log_sd=1e-4, degrees_of_freedom=1e9
    ),
    name="theory.md part D",
    learned_from=(),
)


@pytest.mark.parametrize(
    ("measured_at", "run_at", "rates"),
    [
        (3, 3, [107.8, 116.4, 126.6, 133.2]),
        (3, 5, [100.8, 109.0, 118.6, 124.9]),
        (5, 5, [107.0, 115.6, 125.7, 132.3]),
    ],
)
def test_one_point_with_the_published_prior(
    make_rows: Callable[..., Rows], measured_at: int, run_at: int, rates: list[float]
) -> None:
    rows = make_rows(num_steps=measured_at, accept_length=ACCEPT, configuration=0, run=0)
    fit = fit_rows(rows, np.log(np.array([RATE / BASELINE])), SECTION_D)
    asked = make_rows(num_steps=np.full(4, run_at), accept_length=ASKED)
    found = BASELINE * np.exp(fit.posterior.predict(asked).location)
    np.testing.assert_allclose(found, rates, atol=0.3)


def test_the_prior_constants_are_those_of_the_table() -> None:
    assert SECTION_D.median["fixed_cost"] == pytest.approx(1.31)
    assert to_internal(np.full(9, 0.5))[NAMES.index("non_decode_share")] == 0.0
