import numpy as np
import pytest

from calibration.training.accept_length_path import AcceptLengthPath, projected_path
from calibration.training.curves import accuracy_curves
from calibration.training.projection import Projection, project
from calibration.training.records import Kind
from specmodel.acceptance import ConditionalAccuracy, tail_spread
from specmodel.errors import ParameterError


@pytest.fixture(scope="module")
def projection() -> Projection:
    steps = np.arange(200.0, 4001.0, 200.0)
    generator = np.random.default_rng(4)
    top = np.array([0.75, 0.68, 0.62])
    values = top - 0.4 * np.exp(-steps / 1200.0)[:, None]
    values = values + 0.004 * generator.standard_normal(values.shape)
    curves = accuracy_curves(
        steps, values, kind=Kind.CONDITIONAL, total_steps=6000, learning_rate=np.full(20, 1e-4)
    )
    return project(curves)


def test_between_known_steps_a_course_is_straight() -> None:
    path = AcceptLengthPath(
        steps=np.array([0.0, 10.0, 30.0]), draws=np.array([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]])
    )
    assert path.at(5).tolist() == [1.5, 2.0]
    assert path.at(20).tolist() == [2.5, 2.0]
    assert path.at(30).tolist() == [3.0, 2.0]
    with pytest.raises(ParameterError):
        path.at(31)


def test_a_path_of_the_present_has_no_end() -> None:
    path = AcceptLengthPath.of_now([2.0, 2.1])
    assert (path.now_step, path.end_step, path.projected) == (None, None, False)
    assert AcceptLengthPath.of_now([2.0], 2656).now_step == 2656


@pytest.mark.parametrize(
    ("steps", "draws"),
    [
        ([0.0, 1.0], [[2.0]]),
        ([0.0], np.empty((0, 1))),
        ([1.0, 1.0], [[2.0, 2.0]]),
        ([0.0, 1.0], [[2.0, 0.5]]),
        ([0.0, 1.0], [[2.0, np.nan]]),
    ],
)
def test_what_is_no_path_is_refused(steps: list[float], draws: list[list[float]]) -> None:
    with pytest.raises(ParameterError):
        AcceptLengthPath(steps=np.array(steps), draws=np.array(draws))


def test_a_projected_path_starts_now_and_ends_at_the_end(projection: Projection) -> None:
    path = projected_path(projection, 3)
    assert (path.now_step, path.end_step) == (4000, 6000)
    assert np.array_equal(path.draws[:, 0], projection.now.accept_lengths(3))
    assert projection.end is not None
    assert np.median(path.draws[:, -1]) == pytest.approx(projection.end.accept_length(3), abs=1e-9)


def test_a_projected_path_is_cut_at_the_served_depth(projection: Projection) -> None:
    shallow, deep = projected_path(projection, 1), projected_path(projection, 3)
    assert np.all(shallow.draws <= 2.0)
    assert np.all(shallow.draws[:, 0] <= deep.draws[:, 0])


def test_beyond_the_trained_depth_the_tail_model_carries_a_projected_path(
    projection: Projection,
) -> None:
    path = projected_path(projection, 6)
    curve = ConditionalAccuracy(projection.now.accuracies()).to_full()
    expected = float(tail_spread(curve, [6]).value[0])
    assert np.median(path.draws[:, 0]) == pytest.approx(expected, abs=0.04)


def test_a_shared_spread_moves_all_steps_of_a_draw_alike(projection: Projection) -> None:
    plain = projected_path(projection, 3)
    wide = projected_path(projection, 3, log_sd=0.05)
    factor = (wide.draws - 1.0) / (plain.draws - 1.0)
    assert np.allclose(factor, factor[:, :1])
    assert np.std(np.log(factor[:, 0])) == pytest.approx(0.05, rel=0.02)


def test_a_run_that_is_over_has_no_path(projection: Projection) -> None:
    assert not projected_path(projection, 3, until=4000).projected
