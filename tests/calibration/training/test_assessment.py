import math
from pathlib import Path

import numpy as np
import pytest

from calibration.fit.fit import fit
from calibration.training.accept_length_path import AcceptLengthPath
from calibration.training.assessment import Assessment, TrainingQuestion, assess
from calibration.training.decision import VerdictCode
from calibration.training.offline_acceptance import spread_normal
from calibration.training.reading import read_training_log
from specmodel.acceptance import TransferFactor
from specmodel.ask import Ask
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError, UsageError
from specmodel.question import AcceptLength, Estimate
from tests.calibration.training.log_texts import train_line, val_line

LOGS = Path(__file__).parents[2] / "fixtures" / "training"
EXAMPLES = Path(__file__).parents[3] / "calibration" / "data" / "examples"
EXACT = TransferFactor(median=1.0, sd=0.0, scatter=0.0)


def rising(step: float) -> list[float]:
    """Full accuracies of a run that saturates."""
    first = 0.7 - 0.4 * math.exp(-step / 1500)
    return [first, 0.8 * first**2]


def run_text(joint_by: float = 1.0) -> str:
    """Return a run of 3,000 steps whose conditional accuracies belong to joint ones `joint_by` higher."""
    lines = []
    for number, step in enumerate(range(100, 3001, 100)):
        joint = rising(step)
        conditional = [joint[0], joint[1] / joint[0]]
        lines.append(train_line(step, joint, conditional=conditional))
        if step % 300 == 0:
            shown = [one * joint_by for one in joint]
            lines.append(val_line(shown, conditional=conditional, epoch=number // 3))
    return "".join(lines)


def assessed(
    path: Path, *, depth: int | None = None, until: float | None = None, target: float = 1.3
) -> Assessment:
    question = TrainingQuestion(
        configuration=Ask(num_steps=None if depth is None else (depth,)),
        until=until,
        target_speedup=target,
        transfer=EXACT,
    )
    return assess(read_training_log(path), Calibration.from_prior(), question)


@pytest.fixture
def run_log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(run_text())
    return path


def test_what_is_decided_on_is_what_the_log_shows_now(run_log: Path) -> None:
    found = assessed(run_log, until=6000)
    assert found.decision is not None
    expected = 1.0 + sum(rising(3000))
    assert found.decision.now.as_logged.accept_length.median == pytest.approx(expected, abs=0.01)
    assert found.decision.now.step == 3000
    assert found.decision.end is not None
    assert found.decision.end.step == 6000


def test_a_served_depth_below_the_trained_one_cuts_the_sum(run_log: Path) -> None:
    found = assessed(run_log, depth=1, until=6000)
    assert found.decision is not None
    expected = 1.0 + rising(3000)[0]
    assert found.decision.now.as_logged.accept_length.median == pytest.approx(expected, abs=0.01)
    assert len(found.courses) == 2


def test_a_deeper_served_depth_lies_below_holding_the_last_conditional(run_log: Path) -> None:
    found = assessed(run_log, depth=4, until=6000)
    assert found.decision is not None
    full = rising(3000)
    held = full[1] / full[0]
    upper = 1.0 + sum(full) + full[1] * (held + held**2)
    assert 1.0 + sum(full) < found.decision.now.as_logged.accept_length.median < upper


def test_routes_that_disagree_widen_a_projection_by_what_they_disagree(tmp_path: Path) -> None:
    widths = []
    for joint_by in (1.0, 0.8):
        path = tmp_path / f"{joint_by}.log"
        path.write_text(run_text(joint_by))
        course = assessed(path, until=6000).path
        assert course is not None
        low, high = np.log(np.quantile(course.draws[:, 0], [0.05, 0.95]) - 1.0)
        widths.append((high - low) / (2 * 1.6449))
    # ln(1 / 0.8) between two measurements of one quantity: each is off by that over sqrt(2)
    assert widths[1] ** 2 - widths[0] ** 2 == pytest.approx(math.log(0.8) ** 2 / 2, rel=0.1)


def test_the_tail_is_counted_once(run_log: Path) -> None:
    projected, plain = assessed(run_log, depth=6, until=6000), assessed(run_log, depth=6)
    assert projected.path is not None
    assert plain.acceptance.acceptance.accept_length is not None
    alone = plain.acceptance.acceptance.accept_length.estimate
    low, high = np.quantile(projected.path.draws[:, 0], [0.05, 0.95])
    assert high - low < 1.25 * (alone.high - alone.low)


def test_findings_are_those_of_the_step_that_was_asked_for(run_log: Path) -> None:
    codes = {one.code for one in assessed(run_log, until=6000).findings}
    assert not codes & {"total-steps-unknown", "end-inferred", "flat"}
    assert assessed(run_log).findings == ()


def test_a_step_beyond_the_end_of_the_schedule_is_said() -> None:
    log = LOGS / "spec_long_ttt5.log.gz"  # a schedule that ends at 7,500
    inside, beyond = (assessed(log, until=until) for until in (5000, 20000))
    assert "beyond-the-end" not in {one.code for one in inside.findings}
    assert "beyond-the-end" in {one.code for one in beyond.findings}


def test_without_an_end_it_is_said_how_to_give_one(run_log: Path) -> None:
    found = assessed(run_log)
    assert found.decision is not None
    assert found.decision.end is None
    assert "--until" in found.why_not_projected


def test_accuracies_are_named_by_their_kind() -> None:
    assert assessed(LOGS / "specforge_cutover_dict.log").chained_kind == "marginal"
    assert assessed(LOGS / "spec_07_wide.log").chained_kind == "conditional"


def test_a_log_of_means_has_no_course_by_depth() -> None:
    found = assessed(LOGS / "automodel.log", depth=3)
    assert found.refused is not None
    assert "4 usable points" in found.refused.reason  # of its printed accept lengths
    assert found.courses == ()


def test_the_first_depth_alone_gives_no_accept_length_but_at_depth_one() -> None:
    log = LOGS / "eagle1_hass_epoch.log"
    assert "--depth 1" in assessed(log, depth=3).undecided
    found = assessed(log, depth=1)
    assert found.decision is not None
    chained = found.courses[0].chained
    assert chained is not None
    assert found.decision.now.as_logged.accept_length.median == pytest.approx(1 + chained)


def test_an_unlawful_question_is_refused_and_not_called_unknown(run_log: Path) -> None:
    with pytest.raises(ParameterError, match="target_speedup"):
        assessed(run_log, target=math.nan)
    with pytest.raises(ParameterError, match="--until"):
        assessed(run_log, until=10)
    question = TrainingQuestion(configuration=Ask(num_steps=(2, 3)))
    with pytest.raises(UsageError, match="--depth"):
        assess(read_training_log(run_log), Calibration.from_prior(), question)


def test_equal_questions_have_equal_answers(run_log: Path) -> None:
    first, second = (assessed(run_log, until=6000).decision for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.now, first.end, first.gain) == (second.now, second.end, second.gain)


def test_the_best_depth_is_judged_beside_that_of_the_log() -> None:
    rig = fit(EXAMPLES / "bench.csv")
    log = read_training_log(EXAMPLES / "train.log")
    found = assess(log, rig, TrainingQuestion(configuration=Ask(), until=7500))
    assert found.decision is not None
    assert (found.decision.num_steps, found.decision.code) == (5, VerdictCode.ROUND_COST_TOO_HIGH)
    by_depth = {
        depth: assess(log, rig, TrainingQuestion(configuration=Ask(num_steps=(depth,)), until=7500))
        for depth in range(1, 6)
    }
    ends = {
        depth: one.decision.end.expected.speedup.median
        for depth, one in by_depth.items()
        if one.decision is not None and one.decision.end is not None
    }
    assert found.better is not None
    assert ends[found.better.num_steps] > 0.98 * max(ends.values()) > ends[5]
    alone = by_depth[found.better.num_steps]
    assert alone.decision is not None
    assert alone.decision.verdict == found.better.verdict
    assert alone.better is None  # who names a depth asks for it


@pytest.mark.parametrize(
    "first", [(0.1, 0.15, 0.2, 0.3, 0.45, 0.7), (0.1, 0.12, 0.15, 0.2, 0.4, 0.7)]
)
def test_a_short_steep_run_is_now_what_its_last_record_says(
    tmp_path: Path, first: tuple[float, ...]
) -> None:
    lines = []
    for epoch, accuracy in enumerate(first):
        joint = [accuracy, 0.9 * accuracy**2, 0.8 * accuracy**3]
        conditional = [accuracy, 0.9 * accuracy, 8 / 9 * accuracy]
        lines.append(train_line(100 * epoch + 100, joint, conditional=conditional))
        lines.append(val_line(joint, conditional=conditional, epoch=epoch))
    (path := tmp_path / "train.log").write_text("".join(lines))
    found = assessed(path, until=1200)
    assert found.decision is not None
    assert found.decision.end is not None
    now = found.decision.now.as_logged.accept_length
    assert now.low < 1 + sum(joint) < now.high
    assert now.median == pytest.approx(1 + sum(joint), abs=0.06)


def test_courses_that_miss_the_log_go_through_the_mean_of_both() -> None:
    steps, rise = np.array([10.0, 20.0]), np.array([0.0, 0.3])
    draws = 2.0 + 0.1 * spread_normal(4000, np.random.default_rng(1))[:, None] + rise
    path = AcceptLengthPath(steps=steps, draws=draws)
    logged = AcceptLength(estimate=Estimate(median=2.5, low=2.5, high=2.5), log_sd=0.0)
    moved = path.through(logged, 0.1)
    # equal variances: halfway; chi is 0.5 / (0.1 sqrt 2), of a mean with a spread of 0.1 / sqrt 2
    assert moved.draws[:, 0].mean() == pytest.approx(2.25, abs=1e-3)
    assert moved.draws[:, 0].std() == pytest.approx(0.25, rel=1e-2)
    assert moved.draws[:, 1] - moved.draws[:, 0] == pytest.approx(0.3)
    near = AcceptLength(estimate=Estimate(median=2.1, low=2.1, high=2.1), log_sd=0.0)
    assert path.through(near, 0.1) is path


def test_a_run_that_prints_accept_lengths_alone_has_a_course(tmp_path: Path) -> None:
    def true(step: float) -> float:
        return 2.8 - 1.2 * math.exp(-step / 800)  # bonus in

    chance = np.random.default_rng(3)
    lines = [
        f"epoch=0 step={step} loss=4.0 acc=0.5 lr=1e-04\n"
        f"  dflash2: base_loss=4.0 accept_len={true(step) + chance.normal(0, 0.02):.3f}\n"
        for step in range(50, 2001, 50)
    ]
    (path := tmp_path / "train.log").write_text("".join(lines))
    found = assessed(path, depth=7, until=4000)
    assert found.decision is not None
    assert found.decision.end is not None
    now, end = found.decision.now.as_logged, found.decision.end.as_logged
    for one, expected in ((now, true(2000)), (end, true(4000))):
        assert one.accept_length.low < expected < one.accept_length.high
        assert one.accept_length.high - one.accept_length.low < 0.5
