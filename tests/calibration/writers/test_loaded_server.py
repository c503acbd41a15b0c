"""What depth 0 costs on a server that holds its draft model."""

import math

import pytest

from calibration.writers.loaded_server import loaded_overhead_at, overhead_note
from specmodel.errors import ParameterError


def test_the_two_published_shares_come_back() -> None:
    assert loaded_overhead_at(2) == 0.066
    assert loaded_overhead_at(189) == 0.216


def test_between_them_it_is_linear_in_the_logarithm_and_outside_constant() -> None:
    assert loaded_overhead_at(math.sqrt(2 * 189)) == pytest.approx((0.066 + 0.216) / 2)
    assert loaded_overhead_at(1) == 0.066
    assert loaded_overhead_at(1000) == 0.216


@pytest.mark.parametrize("overhead", [-0.1, float("nan"), {}, {0.0: 0.1}, {4.0: -1.0}])
def test_impossible_shares_are_refused(overhead: float | dict[float, float]) -> None:
    with pytest.raises(ParameterError, match="loaded_overhead"):
        loaded_overhead_at(4, overhead)


def test_the_default_is_called_an_assumption() -> None:
    assert "measured on another system" in overhead_note()
    assert overhead_note(0.066).endswith("by 6.6 %, as given")
    assert overhead_note(0.1).endswith("by 10 %, as given")
    assert overhead_note({4.0: 0.1}).endswith("as given")
