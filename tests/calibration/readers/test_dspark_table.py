"""Cost tables of DSPARK, against numpy's interpolation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers.sglang_dspark_cost_table import DsparkTable, Probes
from specmodel.errors import ParameterError

THETA = Probes(at=(2.0, 8.0, 32.0), times_s=(0.001, 0.004, 0.02))
ALPHA = Probes(at=(1.0, 4.0), times_s=(0.0, 0.002))


@given(place=st.floats(0, 100))
def test_probes_are_joined_by_straight_lines_and_held_beyond(place: float) -> None:
    expected = np.interp(place, THETA.at, THETA.times_s)
    assert THETA.time_s(place) == pytest.approx(expected, rel=1e-12)


@given(num_reqs=st.integers(1, 9), budget=st.integers(0, 60))
def test_the_additive_form_is_a_sum(num_reqs: int, budget: int) -> None:
    table = DsparkTable(theta=THETA, alpha=ALPHA, bias_s=0.01)
    expected = (
        0.01
        + np.interp(num_reqs, ALPHA.at, ALPHA.times_s)
        + np.interp(num_reqs + budget, THETA.at, THETA.times_s)
    )
    assert table.step_time_s(num_reqs=num_reqs, budget_tokens=budget) == pytest.approx(expected)


def test_values_stand_at_every_probe_that_a_batch_can_reach() -> None:
    values = DsparkTable(theta=THETA, alpha=ALPHA, bias_s=0.01).values()
    assert [(v["num_reqs"], v["budget_tokens"]) for v in values] == [
        *((1, 1), (1, 7), (1, 31)),
        *((4, 4), (4, 28)),
    ]
    assert values[3]["step_time_ms"] == pytest.approx(10 + 2 + 4)


def test_the_number_of_values_is_bounded() -> None:
    many = Probes(at=tuple(range(1, 1001)), times_s=(0.1,) * 1000)
    assert len(DsparkTable(theta=many, alpha=many, bias_s=0.1).values()) <= 10_000


@pytest.mark.parametrize(
    ("at", "times_s"),
    [
        *(((), ()), ((1.0,), ()), ((2.0, 1.0), (0.1, 0.1)), ((1.0, 1.0), (0.1, 0.1))),
        *(((1.0,), (-0.1,)), ((1.0,), (math.nan,)), ((math.inf,), (0.1,))),
    ],
)
def test_impossible_probes_are_refused(at: tuple[float, ...], times_s: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError):
        Probes(at=at, times_s=times_s)


def test_a_step_takes_time() -> None:
    with pytest.raises(ParameterError, match="step time"):
        DsparkTable(theta=Probes(at=(1.0,), times_s=(0.0,)))


def test_a_curve_that_falls_is_noticed() -> None:
    assert DsparkTable(theta=Probes(at=(1.0, 2.0), times_s=(0.2, 0.1))).falls
    assert not DsparkTable(theta=THETA, alpha=ALPHA).falls
