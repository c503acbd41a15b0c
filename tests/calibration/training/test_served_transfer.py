import math

import pytest

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


def test_unlawful_points_are_refused() -> None:
    for offline, served in ((1.0, 1.5), (2.0, 1.0), (math.nan, 1.5), (2.0, math.inf)):
        with pytest.raises(ParameterError):
            updated_transfer([ServedPoint(offline=offline, served=served)])
