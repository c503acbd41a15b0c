from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.training.speedup_draws import draw_speedups
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.optimum import draw_rounds
from specmodel.prediction import predict, question_rows
from specmodel.question import AcceptLength, Configuration, Question

NUM_DRAWS = 20_000


def question(configuration: Configuration, accept_length: float = 1.0) -> Question:
    return Question(accept_length=AcceptLength.exact(accept_length), configuration=configuration)


@pytest.mark.parametrize("accept_length", [1.1, 2.0, 2.749, 4.5])
@pytest.mark.parametrize("known", [True, False])
def test_intervals_are_those_of_a_prediction(
    reference: Path, accept_length: float, *, known: bool
) -> None:
    calibration = Calibration.load(reference) if known else Calibration.from_prior()
    configuration = Configuration() if known else Configuration(num_steps=5)
    predicted = predict(calibration, [question(configuration, accept_length)])[0].speedup
    draws = draw_speedups(
        calibration,
        question(configuration),
        longest=6.0,
        num_draws=NUM_DRAWS,
        rng=np.random.default_rng(1),
    )
    low, median, high = np.quantile(draws.at(np.full(NUM_DRAWS, accept_length)), [0.05, 0.5, 0.95])
    assert median == pytest.approx(predicted.median, rel=0.002)
    assert (low, high) == pytest.approx((predicted.low, predicted.high), rel=0.01)


def test_errors_of_one_draw_belong_together_as_draws_of_the_constants_do(reference: Path) -> None:
    calibration = Calibration.load(reference)
    lengths = np.tile([2.0, 2.5], (NUM_DRAWS, 1))
    draws = np.log(
        draw_speedups(
            calibration,
            question(Configuration()),
            longest=6.0,
            num_draws=NUM_DRAWS,
            rng=np.random.default_rng(1),
        ).at(lengths)
    )
    rows = question_rows(calibration, [question(Configuration())])
    rounds = draw_rounds(
        calibration.posterior, rows, num_draws=NUM_DRAWS, rng=np.random.default_rng(2)
    )
    exact = np.log(rounds.speedup(lengths))
    widths = [np.ptp(np.quantile(np.diff(one, axis=1), [0.25, 0.75])) for one in (draws, exact)]
    assert widths[0] == pytest.approx(widths[1], rel=0.25)
    assert widths[0] < 0.5 * np.ptp(np.quantile(draws[:, 0], [0.25, 0.75]))


def test_without_any_uncertainty_the_formula_is_left() -> None:
    prior = Calibration.from_prior()
    posterior = prior.posterior
    certain = replace(
        prior,
        posterior=replace(
            posterior,
            covariance=np.zeros_like(posterior.covariance),
            noise=replace(
                posterior.noise,
                **{name: 0.0 for name in vars(posterior.noise) if name.endswith(("_sd", "_share"))}
                | {"row_log_sd": 1e-7},
            ),
        ),
    )
    lengths = np.array([1.0, 1.7, 2.9, 5.99])
    draws = draw_speedups(
        certain,
        question(Configuration(num_steps=5)),
        longest=6.0,
        num_draws=4,
        rng=np.random.default_rng(1),
    ).at(lengths)
    first = predict(certain, [question(Configuration(num_steps=5), 2.0)])[0]
    share, cost = first.non_decode_share, first.round_cost.median
    assert draws == pytest.approx(1.0 / (share + (1.0 - share) * cost / lengths), rel=1e-4)


def test_accept_lengths_are_held_to_the_range() -> None:
    draws = draw_speedups(
        Calibration.from_prior(),
        question(Configuration(num_steps=5)),
        longest=6.0,
        num_draws=2,
        rng=np.random.default_rng(1),
    )
    assert np.array_equal(draws.at(np.full(2, 6.0)), draws.at(np.full(2, 9.0)))
    with pytest.raises(ParameterError):
        draw_speedups(
            Calibration.from_prior(),
            question(Configuration(num_steps=5)),
            longest=1.0,
            num_draws=2,
            rng=np.random.default_rng(1),
        )
