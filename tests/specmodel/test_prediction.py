"""Predictions: scopes, batches that no point has, and bounds of what is said."""

from dataclasses import replace

import numpy as np
import pytest

from calibration import fit, read_points
from calibration.points.packaged import packaged_table
from calibration.points.table import Points
from specmodel import AcceptLength, Calibration, Configuration, Question, predict


@pytest.fixture(scope="module")
def points() -> Points:
    return read_points(packaged_table("vllm-20780-eagle3").path)


@pytest.fixture(scope="module")
def sweep(points: Points) -> Calibration:
    return fit(points)


def ask(calibration: Calibration, accept: float = 2.8, **configuration: float) -> Question:
    """A question at one batch with the baseline of the points."""
    asked = {"num_steps": 3.0, "batch_size": 1.0, **configuration}
    return Question(
        accept_length=AcceptLength.exact(accept),
        configuration=Configuration(**asked),
        baseline_tokens_per_s=calibration.baselines.entries[0].tokens_per_s,
    )


def width(calibration: Calibration, question: Question) -> float:
    answer = predict(calibration, [question])[0].speedup
    return answer.high / answer.low


def test_the_speedup_rises_with_accept_length(sweep: Calibration) -> None:
    accepts = np.linspace(1.0, 4.0, 13)
    answers = predict(sweep, [ask(sweep, accept=float(value)) for value in accepts])
    gains = [answer.speedup.median for answer in answers]
    chances = [answer.probability_faster for answer in answers]
    assert gains == sorted(gains)
    assert chances == sorted(chances)


def test_a_batch_that_no_point_has_is_less_certain_the_further_it_is(sweep: Calibration) -> None:
    widths = [width(sweep, ask(sweep, batch_size=batch)) for batch in (1.0, 2.0, 8.0, 64.0)]
    assert widths == sorted(widths)
    assert widths[-1] > 1.4 * widths[0]


def test_more_verified_tokens_than_a_chain_are_less_certain(sweep: Calibration) -> None:
    widths = [
        width(sweep, ask(sweep, topk=4.0, num_draft_tokens=tokens)) for tokens in (4.0, 8.0, 64.0)
    ]
    assert widths == sorted(widths)
    assert widths[-1] > widths[0]


def test_a_round_is_never_said_to_cost_less_than_a_step(sweep: Calibration) -> None:
    answer = predict(sweep, [ask(sweep, batch_size=512.0)])[0]
    assert answer.round_cost.low >= 1.0
    assert answer.break_even_accept_length.low >= 1.0


@pytest.mark.parametrize(
    ("scope", "per_user"), [("aggregate", 1 / 8), ("per_user", 1.0), ("per_gpu", None)]
)
def test_the_scope_of_throughputs_is_kept(
    sweep: Calibration, scope: str, per_user: float | None
) -> None:
    calibration = replace(sweep, throughput_scope=scope)
    answer = predict(calibration, [ask(sweep, batch_size=8.0)])[0]
    assert answer.output_tokens_per_s is not None
    if per_user is None:
        assert answer.per_user_tokens_per_s is None
        assert answer.tpot_s is None
        assert all(term.time_s is None for term in answer.breakdown)
        return
    assert answer.per_user_tokens_per_s is not None
    assert answer.tpot_s is not None
    rate = per_user * answer.output_tokens_per_s.median
    assert answer.per_user_tokens_per_s.median == pytest.approx(rate)
    assert answer.tpot_s.median == pytest.approx(1 / rate)


def test_the_breakdown_adds_up_to_the_round(sweep: Calibration) -> None:
    answer = predict(sweep, [ask(sweep)])[0]
    assert sum(term.share for term in answer.breakdown) == pytest.approx(1.0)
    times = [term.time_s for term in answer.breakdown]
    assert None not in times
    baseline = sweep.baselines.entries[0].tokens_per_s
    step_s = (1.0 - answer.non_decode_share) / baseline
    total = sum(time for time in times if time is not None)
    assert total == pytest.approx(answer.round_cost.median * step_s, rel=1e-6)


def test_break_even_is_where_the_speedup_is_one(sweep: Calibration) -> None:
    needed = predict(sweep, [ask(sweep)])[0].break_even_accept_length.median
    at_it = predict(sweep, [ask(sweep, accept=needed)])[0]
    assert at_it.speedup.median == pytest.approx(1.0, rel=1e-6)
    assert at_it.probability_faster == pytest.approx(0.5, abs=1e-6)


def test_one_baseline_rounded_differently_is_one_baseline(points: Points) -> None:
    """A file with a speed-up column gives each row its own, slightly different baseline."""
    frame = points.frame.copy()
    frame["baseline_tokens_per_s"] *= 1.0 + 1e-4 * np.arange(len(frame))
    calibration = fit(replace(points, frame=frame), profile=False)
    question = Question(
        accept_length=AcceptLength.exact(2.8),
        configuration=Configuration(num_steps=3.0, batch_size=1.0),
    )
    assert predict(calibration, [question])[0].output_tokens_per_s is not None


def test_a_prior_alone_is_never_nearly_certain() -> None:
    for accept in (1.05, 2.0, 3.5, 5.9):
        found = Calibration.from_prior().predict(accept, depth=5)
        assert 0.04 < found.probability_faster < 0.96
