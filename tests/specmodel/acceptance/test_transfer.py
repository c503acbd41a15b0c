from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import TRANSFER_PRIOR, TRANSFER_PRIOR_UNMATCHED, TransferFactor
from specmodel.errors import ParameterError

Rows = list[dict[str, str]]


def ratios(rows: Rows, *, matched: bool | None = None) -> list[float]:
    """One geometric-mean ratio per run."""
    runs: dict[str, list[float]] = {}
    for row in rows:
        if matched is None or (row["matched"] == "yes") is matched:
            ratio = (float(row["served_accept_length"]) - 1) / (
                float(row["offline_accept_length"]) - 1
            )
            runs.setdefault(row["run"], []).append(ratio)
    return [float(np.exp(np.mean(np.log(values)))) for values in runs.values()]


def test_prior_has_the_stated_width() -> None:
    assert TRANSFER_PRIOR.median == 0.85
    assert TRANSFER_PRIOR.total_sd == pytest.approx(0.2, abs=0.005)


def test_matching_runs_lie_inside_the_prior(golden: Callable[[str], Rows]) -> None:
    found = ratios(golden("paired_runs"), matched=True)
    assert len(found) == 3
    low, high = TRANSFER_PRIOR.interval(2.0)
    assert all(float(low) <= 1.0 + ratio <= float(high) for ratio in found)
    assert np.median(found) == pytest.approx(TRANSFER_PRIOR.median, abs=0.05)


def test_unmatched_runs_need_the_wide_prior(golden: Callable[[str], Rows]) -> None:
    every = ratios(golden("paired_runs"))
    low, high = TRANSFER_PRIOR.interval(2.0)
    outside = [r for r in every if not float(low) <= 1.0 + r <= float(high)]
    assert len(outside) == 3
    logs = np.log(every)
    assert TRANSFER_PRIOR_UNMATCHED.total_sd == pytest.approx(np.std(logs, ddof=1), abs=0.05)
    assert TRANSFER_PRIOR_UNMATCHED.median == pytest.approx(np.exp(np.mean(logs)), abs=0.06)
    low, high = TRANSFER_PRIOR_UNMATCHED.interval(2.0)
    assert all(float(low) <= 1.0 + ratio <= float(high) for ratio in every)


def test_factor_acts_on_accepted_drafts_only() -> None:
    factor = TransferFactor(median=0.5, sd=0.0, scatter=0.0)
    assert factor.apply([1.0, 3.0]).tolist() == [1.0, 2.0]


def test_served_length_cannot_pass_the_draft_depth() -> None:
    factor = TransferFactor(median=1.5, sd=0.3, scatter=0.1)
    assert float(factor.apply(3.8, 3)) == 4.0
    assert float(factor.interval(3.8, 3)[1]) == 4.0


def test_interval_has_its_coverage() -> None:
    generator = np.random.default_rng(2)
    factors = np.exp(np.log(0.85) + TRANSFER_PRIOR.total_sd * generator.standard_normal(200_000))
    low, high = TRANSFER_PRIOR.interval(2.749)
    served = 1.0 + factors * 1.749
    assert np.mean((served >= low) & (served <= high)) == pytest.approx(0.9, abs=0.005)


def test_many_equal_pairs_leave_only_the_scatter() -> None:
    offline = np.full(200, 2.5)
    learned = TRANSFER_PRIOR.update(offline, 1.0 + 0.7 * (offline - 1.0))
    assert learned.median == pytest.approx(0.7, abs=0.01)
    assert learned.sd < 0.01
    assert learned.scatter < TRANSFER_PRIOR.scatter


def test_update_equals_the_conjugate_formula_when_scatter_is_as_expected() -> None:
    prior = TransferFactor(median=1.0, sd=0.2, scatter=0.1)
    learned = prior.update([2.0], [1.0 + np.exp(-0.3)])
    weight = (1 / 0.1**2) / (1 / 0.1**2 + 1 / 0.2**2)
    assert np.log(learned.median) == pytest.approx(-0.3 * weight)
    assert learned.sd == pytest.approx((1 / 0.1**2 + 1 / 0.2**2) ** -0.5)


def test_disagreeing_pairs_widen_the_scatter() -> None:
    learned = TRANSFER_PRIOR.update([2.0, 2.0, 2.0], [1.4, 1.9, 2.3])
    assert learned.scatter > TRANSFER_PRIOR.scatter


@given(st.floats(1.0, 8.0), st.floats(0.5, 0.99))
def test_interval_holds_the_median(length: float, coverage: float) -> None:
    low, high = TRANSFER_PRIOR.interval(length, coverage=coverage)
    assert 1.0 <= float(low) <= float(TRANSFER_PRIOR.apply(length)) <= float(high)


def test_scalars_and_arrays_agree() -> None:
    lengths = np.array([1.5, 2.5])
    assert TRANSFER_PRIOR.apply(lengths)[1] == float(TRANSFER_PRIOR.apply(2.5))


def test_unlawful_input_is_refused() -> None:
    with pytest.raises(ParameterError):
        TRANSFER_PRIOR.update([], [])
    with pytest.raises(ParameterError):
        TRANSFER_PRIOR.update([1.0], [1.2])
    with pytest.raises(ParameterError):
        TRANSFER_PRIOR.interval(2.0, coverage=1.0)
    with pytest.raises(ParameterError):
        TransferFactor(median=0.0, sd=0.1, scatter=0.1)
