import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.training.accept_length_path import AcceptLengthPath
from calibration.training.decision import TrainingDecision, VerdictCode, decide
from calibration.training.offline_acceptance import offline_acceptance
from calibration.training.records import Kind
from calibration.training.serving import served_as
from specmodel.acceptance import TRANSFER_PRIOR, TransferFactor
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.prediction import predict
from specmodel.prior import Noise
from specmodel.question import AcceptLength, Question

FULL = (0.742, 0.47, 0.29, 0.15, 0.097)
CONDITIONAL = (0.77, 0.65, 0.60, 0.57, 0.53)
EXACT = TransferFactor(median=0.85, sd=0.0, scatter=0.0)


def straight(now: float, end: float, spread: float = 0.0, columns: int = 11) -> AcceptLengthPath:
    """Courses in straight lines from step 3,000 to 7,500, accepted drafts times one factor each."""
    factor = np.exp(spread * np.random.default_rng(0).standard_normal((2000, 1)))
    return AcceptLengthPath(
        steps=np.linspace(3000, 7500, columns),
        draws=1.0 + factor * np.linspace(now - 1.0, end - 1.0, columns),
    )


@pytest.fixture(scope="module")
def certain() -> Calibration:
    """A system without any uncertainty; decoding alone is measured, so that S = tau / R."""
    prior = Calibration.from_prior()
    posterior = prior.posterior
    quiet = Noise(row_log_sd=1e-7, configuration_log_sd=0.0, run_log_sd=0.0, degrees_of_freedom=8.0)
    return replace(
        prior,
        decode_only=True,
        posterior=replace(posterior, covariance=np.zeros_like(posterior.covariance), noise=quiet),
    )


def round_cost(calibration: Calibration, depth: int = 5) -> float:
    question = Question(
        accept_length=AcceptLength.exact(1.0),
        configuration=served_as(calibration, trained_depth=depth).configuration,
    )
    return predict(calibration, [question])[0].round_cost.median


def decided(
    calibration: Calibration,
    path: AcceptLengthPath,
    *,
    target_speedup: float = 1.3,
    transfer: TransferFactor | None = TRANSFER_PRIOR,
) -> TrainingDecision:
    served = served_as(calibration, trained_depth=5)
    return decide(calibration, path, served, target_speedup=target_speedup, transfer=transfer)


def test_the_reference_case(reference: Path) -> None:
    calibration = Calibration.load(reference)
    logged = offline_acceptance({Kind.JOINT: FULL, Kind.CONDITIONAL: CONDITIONAL})
    path = AcceptLengthPath.of_now(logged.draws(2000, np.random.default_rng(0)), 2656)
    found = decided(calibration, path)
    now = found.now
    assert now.as_logged.accept_length.median == pytest.approx(2.749, abs=1e-3)
    assert now.expected.accept_length.median == pytest.approx(2.487, abs=0.005)
    rates = now.as_logged.output_tokens_per_s, now.expected.output_tokens_per_s
    assert rates[0] is not None
    assert rates[1] is not None
    # by hand: tau / 2.2965 x 90
    assert rates[0].median == pytest.approx(107.7, abs=1.0)
    assert rates[1].median == pytest.approx(97.5, abs=0.6)
    assert rates[0].low < rates[0].median < rates[0].high
    assert rates[1].low < 90.0 < rates[1].high
    assert found.break_even_accept_length.median == pytest.approx(2.2965, abs=0.02)
    assert found.accept_length_for_target.median == pytest.approx(2.2965 * 1.3, abs=0.06)
    assert found.code is VerdictCode.ROUND_COST_TOO_HIGH
    assert found.end is None
    assert found.gain is None
    assert found.probability_of_target is None


def test_the_speed_up_is_accept_length_over_round_cost(certain: Calibration) -> None:
    found = decided(certain, straight(2.2, 3.0), transfer=EXACT)
    cost = round_cost(certain)
    assert found.end is not None
    for outlook, length in (
        (found.now.as_logged, 2.2),
        (found.now.expected, 1 + 0.85 * 1.2),
        (found.end.as_logged, 3.0),
        (found.end.expected, 1 + 0.85 * 2.0),
    ):
        assert outlook.accept_length.median == pytest.approx(length)
        assert outlook.speedup.median == pytest.approx(length / cost, rel=1e-4)
        assert outlook.speedup.high == pytest.approx(outlook.speedup.low)


def test_the_transfer_alone_gives_quantiles_of_its_log_normal(certain: Calibration) -> None:
    transfer = TransferFactor(median=0.8, sd=0.15, scatter=0.2)
    speed = decided(certain, straight(2.2, 3.0), transfer=transfer).now.expected.speedup
    cost = round_cost(certain)
    for value, shift in ((speed.low, -1.6449), (speed.median, 0.0), (speed.high, 1.6449)):
        expected = (1 + 0.8 * math.exp(0.25 * shift) * 1.2) / cost
        assert value == pytest.approx(expected, rel=1e-3)


def test_no_transfer_leaves_served_accept_lengths_alone(certain: Calibration) -> None:
    found = decided(certain, straight(2.2, 3.0), transfer=None)
    assert found.now.expected == found.now.as_logged
    assert not [note for note in found.notes if note.code == "transfer"]


def test_independent_parts_add_as_squares_and_none_counts_twice() -> None:
    calibration = replace(Calibration.from_prior(), decode_only=True)
    transfer = TransferFactor(median=0.8, sd=0.1, scatter=0.05)

    def log_width(spread: float, factor: TransferFactor | None) -> float:
        speed = decided(calibration, straight(2.5, 3.0, spread), transfer=factor).now.expected
        return math.log(speed.speedup.high / speed.speedup.low)

    exact = TransferFactor(median=0.8, sd=0.0, scatter=0.0)
    alone = log_width(0.0, exact)
    path = log_width(0.1, exact)
    factor = log_width(0.0, transfer)
    both = log_width(0.1, transfer)
    assert both**2 == pytest.approx(path**2 + factor**2 - alone**2, rel=0.04)
    assert alone < path < both


def test_a_straight_course_reaches_the_target_where_the_line_does(certain: Calibration) -> None:
    target = (1 + 0.85 * 1.5) / round_cost(certain)  # accept length 2.5 in the log
    found = decided(certain, straight(2.2, 3.0), target_speedup=target, transfer=EXACT)
    reached = found.step_reaching_target
    assert reached is not None
    expected = 3000 + 4500 * 0.3 / 0.8
    assert reached.median == pytest.approx(expected, rel=2e-3)
    assert reached.low == pytest.approx(reached.high, rel=1e-5)
    assert reached.probability == 1.0
    assert found.probability_of_target == 1.0


def test_the_step_of_the_target_has_the_distribution_of_its_courses(certain: Calibration) -> None:
    target = 2.5 / round_cost(certain)
    found = decided(certain, straight(2.2, 3.0, 0.1, 41), target_speedup=target, transfer=None)
    factor = np.exp(0.1 * np.random.default_rng(0).standard_normal(2000))
    where = 3000 + 4500 * (1.5 / factor - 1.2) / 0.8
    where = np.where(where > 7500, np.inf, np.maximum(where, 3000))
    reached = found.step_reaching_target
    assert reached is not None
    low, median = np.quantile(where, [0.05, 0.5], method="higher")
    assert reached.median == pytest.approx(median, rel=0.01)
    assert reached.low == pytest.approx(low, rel=0.01)
    assert reached.probability == pytest.approx(np.mean(np.isfinite(where)), abs=0.005)


def test_a_target_that_no_draw_reaches_is_never_reached(certain: Calibration) -> None:
    found = decided(certain, straight(2.2, 2.6), target_speedup=3.0)
    reached = found.step_reaching_target
    assert reached is not None
    assert (reached.median, reached.high, found.probability_of_target) == (None, None, 0.0)
    assert found.code in {VerdictCode.CANNOT_REACH_TARGET, VerdictCode.ROUND_COST_TOO_HIGH}


def test_what_now_and_the_end_share_does_not_blur_the_gain(reference: Path) -> None:
    found = decided(Calibration.load(reference), straight(2.5, 3.0))
    assert found.gain is not None
    assert found.end is not None
    apart = math.hypot(
        found.now.expected.speedup.high - found.now.expected.speedup.low,
        found.end.expected.speedup.high - found.end.expected.speedup.low,
    )
    assert found.gain.speedup.high - found.gain.speedup.low < 0.3 * apart
    assert found.gain.speedup.low > 0.0


def test_the_gain_is_given_over_steps_and_hours(certain: Calibration) -> None:
    served = served_as(certain, trained_depth=5)
    found = decide(
        certain, straight(2.2, 3.0), served, transfer=EXACT, seconds_per_step=8.0, at_step=5250
    )
    gain = found.gain
    assert gain is not None
    added = 0.85 * 0.8 / round_cost(certain)
    assert gain.speedup.median == pytest.approx(added, rel=1e-3)
    assert gain.per_thousand_steps.median == pytest.approx(added / 4.5, rel=1e-3)
    assert gain.remaining_hours == pytest.approx(10.0)
    assert gain.per_hour is not None
    assert gain.per_hour.median == pytest.approx(added / 10.0, rel=1e-3)
    assert found.at_step is not None
    assert found.at_step.step == 5250
    assert found.at_step.as_logged.accept_length.median == pytest.approx(2.6)


def test_hours_are_not_made_up(certain: Calibration) -> None:
    gain = decided(certain, straight(2.2, 3.0)).gain
    assert gain is not None
    assert gain.per_hour is None
    assert gain.remaining_hours is None


def test_no_round_emits_more_than_depth_plus_one(certain: Calibration) -> None:
    wide = TransferFactor(median=1.3, sd=0.3, scatter=0.1)
    found = decided(certain, straight(5.0, 5.9), transfer=wide)
    assert found.now.expected.accept_length.high <= 6.0


def test_a_prior_without_points_gives_no_throughput() -> None:
    found = decided(Calibration.from_prior(), straight(2.2, 3.0))
    assert found.now.expected.output_tokens_per_s is None
    assert found.baseline_tokens_per_s is None


def test_what_the_log_has_to_show_is_what_serving_needs_before_the_transfer(
    certain: Calibration,
) -> None:
    found = decided(certain, straight(2.2, 3.0), transfer=EXACT)
    needed, logged = found.accept_length_for_target, found.logged_accept_length_for_target
    assert needed.median == pytest.approx(1.3 * round_cost(certain), rel=1e-6)
    assert logged.median == pytest.approx(1 + (needed.median - 1) / 0.85)


def test_a_finished_run_is_judged_by_what_it_is(certain: Calibration) -> None:
    path = AcceptLengthPath.of_now(np.full(100, 1.6), 7500)
    served = served_as(certain, trained_depth=5)
    found = decide(certain, path, served, transfer=EXACT, finished=True)
    assert found.code is VerdictCode.CANNOT_REACH_TARGET
    assert decide(certain, path, served, transfer=EXACT).code is VerdictCode.UNKNOWN


def test_equal_questions_have_equal_answers(reference: Path) -> None:
    calibration = Calibration.load(reference)
    first, second = (decided(calibration, straight(2.2, 3.0, 0.05)) for _ in range(2))
    assert first.now == second.now
    assert first.verdict == second.verdict


def test_unlawful_questions_are_refused(certain: Calibration) -> None:
    served = served_as(certain, trained_depth=5)
    path = straight(2.2, 3.0)
    for target in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ParameterError):
            decide(certain, path, served, target_speedup=target)
    with pytest.raises(ParameterError):
        decide(certain, path, served, seconds_per_step=0.0)
    with pytest.raises(ParameterError):
        decide(certain, path, served, at_step=9000)
