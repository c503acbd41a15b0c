from pathlib import Path

import pytest

from calibration.training.serving import served_as
from specmodel.ask import Ask
from specmodel.calibration import Calibration
from specmodel.errors import UsageError


def test_points_without_a_depth_are_served_as_deep_as_trained(reference: Path) -> None:
    found = served_as(Calibration.load(reference), trained_depth=5)
    assert (found.num_steps, found.points_depth) == (5, 5)


def test_the_calibrated_depth_goes_before_the_trained_one(reference_at_depth_3: Path) -> None:
    found = served_as(Calibration.load(reference_at_depth_3), trained_depth=5)
    assert (found.num_steps, found.configuration.num_steps) == (3, 3.0)


def test_the_asked_depth_goes_before_all(reference_at_depth_3: Path) -> None:
    asked = Ask(num_steps=(7,))
    assert served_as(Calibration.load(reference_at_depth_3), asked, trained_depth=5).num_steps == 7


def test_one_depth_is_asked_for(reference: Path) -> None:
    with pytest.raises(UsageError):
        served_as(Calibration.load(reference), Ask(num_steps=(3, 5)))
    with pytest.raises(UsageError):
        served_as(Calibration.load(reference))
    with pytest.raises(UsageError):
        served_as(Calibration.from_prior())
