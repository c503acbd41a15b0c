import math

import pytest

from calibration.training.records import Kind
from calibration.training.serving import ServedPoint, updated_transfer
from specmodel.acceptance import TRANSFER_PRIOR, TransferFactor
from specmodel.errors import ParameterError

PRIOR = TransferFactor(median=0.85, sd=0.17, scatter=0.1)


def test_no_points_leave_the_prior() -> None:
    assert updated_transfer([]) is TRANSFER_PRIOR


def test_one_point_is_weighed_against_the_prior_by_their_variances() -> None:
    learned = updated_transfer([ServedPoint(offline=2.5, served=1.9)], PRIOR)
    weight = 0.17**2 / (0.17**2 + 0.1**2)
    expected = (1 - weight) * math.log(0.85) + weight * math.log(0.6)
    assert math.log(learned.median) == pytest.approx(expected)
    assert learned.sd == pytest.approx((1 / 0.17**2 + 1 / 0.1**2) ** -0.5)
    assert learned.scatter == pytest.approx(0.1)


def test_points_of_one_drafter_count_once() -> None:
    point = ServedPoint(offline=2.5, served=1.9, drafter="a")
    assert updated_transfer([point] * 20, PRIOR).sd == pytest.approx(
        updated_transfer([point], PRIOR).sd
    )
    others = [ServedPoint(offline=2.5, served=1.9, drafter=str(one)) for one in range(20)]
    assert updated_transfer(others, PRIOR).sd < 0.03


def test_rates_by_position_are_the_accept_length_at_their_depth() -> None:
    point = ServedPoint.from_rates(
        (0.58, 0.372, 0.244), Kind.JOINT, served_rates=(0.317, 0.088, 0.026)
    )
    assert (point.offline, point.served) == pytest.approx((2.196, 1.431))
    cut = ServedPoint.from_rates((0.463, 0.364, 0.32), Kind.CONDITIONAL, served=1.45, num_steps=2)
    assert cut.offline == pytest.approx(1 + 0.463 + 0.463 * 0.364)


def test_disagreement_at_the_first_position_is_told_from_one_that_begins_later() -> None:
    accuracies = (0.6, 0.4, 0.3)

    def gate(*rates: float) -> str:
        return ServedPoint.from_rates(accuracies, Kind.JOINT, served_rates=rates).gate

    assert gate(0.59, 0.39, 0.29) == "agrees"
    assert gate(0.31, 0.2, 0.1) == "first-position"
    assert gate(0.59, 0.2, 0.05) == "deeper-than-first"
    assert ServedPoint(offline=2.3, served=2.0).gate == "unknown"


def test_unlawful_points_are_refused() -> None:
    for offline, served in ((1.0, 1.5), (2.0, 1.0), (math.nan, 1.5), (2.0, math.inf)):
        with pytest.raises(ParameterError):
            updated_transfer([ServedPoint(offline=offline, served=served)])
    with pytest.raises(ParameterError):
        ServedPoint.from_rates((0.5,), Kind.JOINT)
    with pytest.raises(ParameterError):
        ServedPoint.from_rates((0.5,), Kind.JOINT, served=1.4, served_rates=(0.4,))
    with pytest.raises(ParameterError):
        ServedPoint.from_rates((0.5, 0.3), Kind.JOINT, served=2.0, num_steps=3)
