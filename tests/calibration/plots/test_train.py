from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calibration.fit.fit import fit
from calibration.plots import training_figure
from calibration.points.packaged import EXAMPLES
from calibration.training.assessment import Assessment, TrainingQuestion, assess
from calibration.training.reading import read_training_log
from specmodel.ask import Ask
from specmodel.errors import ParameterError

LOGS = Path(__file__).parents[2] / "fixtures" / "training"
BENCH = EXAMPLES / "bench.csv"


@cache
def assessed(name: str, *, depth: int | None = None, until: float | None = None) -> Assessment:
    question = TrainingQuestion(
        configuration=Ask(num_steps=None if depth is None else (depth,)), until=until
    )
    return assess(read_training_log(LOGS / name), fit([BENCH]), question)


@pytest.mark.parametrize("depth", [None, 3, 8])
def test_the_lower_panel_shows_the_numbers_of_the_table(depth: int | None) -> None:
    found = assessed("spec_long_ttt5.log.gz", depth=depth, until=7500)
    decision = found.decision
    assert decision is not None
    assert decision.end is not None
    _, below = training_figure(found).axes
    points, course = below.lines[0], below.lines[1]
    shown = np.asarray(course.get_xydata())
    assert shown[-1, 0] == 7500
    assert shown[-1, 1] == pytest.approx(decision.end.as_logged.accept_length.median, abs=0.01)
    assert shown[0, 1] == pytest.approx(decision.now.as_logged.accept_length.median, abs=0.01)
    last = np.asarray(points.get_xydata())[-1]
    assert last[1] == pytest.approx(decision.now.as_logged.accept_length.median, abs=0.06)


def test_the_speed_up_axis_is_the_formula_at_the_medians() -> None:
    found = assessed("spec_long_ttt5.log.gz", until=7500)
    decision = found.decision
    assert decision is not None
    assert decision.transfer is not None
    figure = training_figure(found)
    figure.draw_without_rendering()  # the second axis takes its limits then
    _, below = figure.axes
    (speedups,) = below.child_axes
    low, high = below.get_ylim()
    share = decision.prediction.non_decode_share
    expected = [
        1
        / (
            share
            + (1 - share)
            * decision.round_cost.median
            / (1 + decision.transfer.median * (length - 1))
        )
        for length in (low, high)
    ]
    assert speedups.get_ylim() == pytest.approx(expected)


def test_a_log_without_a_curve_shows_the_present() -> None:
    above, below = training_figure(assessed("spec_val_metrics.json")).axes
    assert len(above.lines) == 3
    # full accuracies of the file, by its expected.json
    assert np.asarray(below.lines[0].get_xydata())[0, 1] == pytest.approx(2.127, abs=0.001)


def test_what_says_nothing_about_serving_is_not_drawn() -> None:
    with pytest.raises(ParameterError, match="nothing about serving"):
        training_figure(assessed("automodel.log"))
