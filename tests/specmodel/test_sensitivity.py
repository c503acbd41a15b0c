from dataclasses import replace

import numpy as np
import pytest

from specmodel import AcceptLength, Calibration, Configuration, Question, load_prior, predict
from specmodel.constants import NAMES, NUM_CONSTANTS, to_internal
from specmodel.prediction import sensitivities

QUESTION = Question(
    accept_length=AcceptLength.exact(2.9),
    configuration=Configuration(num_steps=5.0, topk=4.0, num_draft_tokens=8.0, batch_size=8.0),
)


@pytest.fixture
def calibration() -> Calibration:
    prior = Calibration.from_prior(load_prior(experts_known=True))
    return replace(prior, num_experts=128.0, experts_per_token=8.0)


def moved(calibration: Calibration, index: int, factor: float) -> float:
    """Speed-up after one constant is multiplied."""
    natural = calibration.posterior.constants.copy()
    natural[index] *= factor
    mean = calibration.posterior.mean.copy()
    mean[:NUM_CONSTANTS] = to_internal(natural)
    other = replace(calibration, posterior=replace(calibration.posterior, mean=mean))
    return predict(other, [QUESTION])[0].speedup.median


@pytest.mark.parametrize("name", NAMES)
def test_elasticities_of_constants_are_numerical_derivatives(
    name: str, calibration: Calibration
) -> None:
    index, step = NAMES.index(name), 1e-4
    slope = np.log(moved(calibration, index, 1 + step) / moved(calibration, index, 1 - step)) / (
        np.log((1 + step) / (1 - step))
    )
    assert sensitivities(calibration, QUESTION)[name] == pytest.approx(slope, abs=1e-5)


def test_accept_length_and_round_cost_pull_equally_hard(calibration: Calibration) -> None:
    found = sensitivities(calibration, QUESTION)
    assert found["accept_length"] == -found["round_cost"]


def test_the_largest_comes_first(calibration: Calibration) -> None:
    sizes = [abs(value) for value in sensitivities(calibration, QUESTION).values()]
    assert sizes == sorted(sizes, reverse=True)
