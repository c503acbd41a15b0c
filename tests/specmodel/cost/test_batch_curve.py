import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.cost import BatchCurve
from specmodel.errors import ParameterError

KV_S_PER_TOKEN = 2e-8
BATCHES = np.array([1.0, 2.0, 8.0, 32.0])
CONTEXTS = np.array([0.0, 4096.0, 32768.0])


def linear_step_s(batch: float, context: float) -> float:
    """Step of a made-up server: launches, weights by batch, and KV reads."""
    return float(0.008 + 0.0004 * batch**0.8 + KV_S_PER_TOKEN * batch * context)


def made_up_curve() -> BatchCurve:
    batch, context = (grid.ravel() for grid in np.meshgrid(BATCHES, CONTEXTS))
    times = [linear_step_s(b, c) for b, c in zip(batch, context, strict=True)]
    return BatchCurve.from_points(batch, context, times)


def test_measured_points_are_kept_exactly_at_every_context() -> None:
    curve = made_up_curve()
    found = curve.at(curve.batch_size, curve.context_tokens)
    np.testing.assert_allclose(found.step_time_s, curve.step_time_s, rtol=1e-12)
    assert np.all(found.moved_share == 0)


def test_kv_time_per_token_is_recovered() -> None:
    assert made_up_curve().kv_s_per_token == pytest.approx(KV_S_PER_TOKEN, rel=1e-9)


def test_one_bad_cell_does_not_move_the_kv_time() -> None:
    batch, context = (grid.ravel() for grid in np.meshgrid(BATCHES, CONTEXTS))
    times = np.array([linear_step_s(b, c) for b, c in zip(batch, context, strict=True)])
    times[5] *= 1.5
    found = BatchCurve.from_points(batch, context, times).kv_s_per_token
    assert found == pytest.approx(KV_S_PER_TOKEN, rel=1e-6)


def test_one_context_says_nothing_about_kv() -> None:
    curve = BatchCurve.from_points([1, 8], [1024, 1024], [0.01, 0.02])
    assert curve.kv_s_per_token == 0.0
    assert float(curve.at(8, 65536).step_time_s) == pytest.approx(0.02)


def test_other_contexts_are_reached_by_kv_reads() -> None:
    curve = made_up_curve()
    for context in (1000.0, 10_000.0, 60_000.0):
        found = curve.at(8, context)
        assert float(found.step_time_s) == pytest.approx(linear_step_s(8, context), rel=1e-9)
        assert float(found.kv_time_s) == pytest.approx(KV_S_PER_TOKEN * 8 * context, rel=1e-9)


def test_between_two_batches_the_curve_is_a_power_law() -> None:
    curve = BatchCurve.from_points([2, 8], [0, 0], [0.010, 0.014])
    assert float(curve.at(4, 0).step_time_s) == pytest.approx(np.sqrt(0.010 * 0.014))


@pytest.mark.parametrize(
    ("times", "at_64"),
    [
        ([0.010, 0.009], 0.009),  # a step that shrinks is held constant
        ([0.010, 0.040], 0.160),  # faster than proportional is held proportional
        ([0.010, 0.012], 0.012 * 1.2**2),
    ],
)
def test_beyond_the_batches_growth_is_held_between_constant_and_proportional(
    times: list[float], at_64: float
) -> None:
    curve = BatchCurve.from_points([8, 16], [0, 0], times)
    assert float(curve.at(64, 0).step_time_s) == pytest.approx(at_64)


def test_below_the_batches_the_first_slope_continues() -> None:
    curve = BatchCurve.from_points([8, 16], [0, 0], [0.010, 0.012])
    assert float(curve.at(2, 0).step_time_s) == pytest.approx(0.010 / 1.2**2)


def test_a_staircase_is_kept_as_measured() -> None:
    batch, times = [1, 16, 17, 32, 33], [0.010, 0.010, 0.015, 0.015, 0.024]
    curve = BatchCurve.from_points(batch, np.zeros(5), times)
    np.testing.assert_allclose(curve.at(batch, 0).step_time_s, times, rtol=1e-12)
    np.testing.assert_allclose(curve.at([4, 24], 0).step_time_s, [0.010, 0.015], rtol=1e-12)


def test_the_fastest_of_several_baselines_at_one_load_counts() -> None:
    curve = BatchCurve.from_points([1, 1, 4], [0, np.nan, 0], [0.012, 0.010, 0.020])
    assert float(curve.at(1, 0).step_time_s) == pytest.approx(0.010)
    assert curve.num_batches == 2


def test_an_unknown_context_is_the_smallest_measured_one() -> None:
    curve = BatchCurve.from_points([1, 4, 1], [512, 512, 4096], [0.010, 0.016, 0.012])
    assert float(curve.at(1, np.nan).step_time_s) == pytest.approx(0.010)


def test_the_nearest_context_that_reaches_the_batch_is_used() -> None:
    curve = BatchCurve.from_points(
        [1, 8, 1, 64, 1, 64],
        [0, 0, 1000, 1000, 9000, 9000],
        [0.010, 0.012, 0.011, 0.05, 0.02, 0.09],
    )
    found = curve.at(10, 0)
    # At context 0 no batch above 8 was measured: the curve at 1000, less its KV reads, is carried.
    knots = 0.011 * (0.05 / 0.011) ** (np.log(10) / np.log(64))
    assert float(found.step_time_s) == pytest.approx(knots - curve.kv_s_per_token * 10 * 1000)
    assert float(found.moved_share) > 0


def test_a_query_does_not_depend_on_its_neighbours() -> None:
    curve = BatchCurve.from_points([1, 8, 1, 64], [0, 0, 1000, 1000], [0.010, 0.012, 0.011, 0.05])
    alone = float(curve.at(9, 0).step_time_s)
    together = curve.at([9, 9], [0, 1e6]).step_time_s
    assert float(together[0]) == pytest.approx(alone, rel=1e-12)


@given(
    st.lists(st.floats(1, 512), min_size=1, max_size=5),
    st.lists(st.floats(0, 1e5), min_size=1, max_size=3),
)
def test_scalars_and_arrays_agree(batches: list[float], contexts: list[float]) -> None:
    curve = made_up_curve()
    batch, context = np.array(batches)[:, None], np.array(contexts)[None, :]
    together = curve.at(batch, context).step_time_s
    assert together.shape == (len(batches), len(contexts))
    for row, one_batch in enumerate(batches):
        for column, one_context in enumerate(contexts):
            alone = float(curve.at(one_batch, one_context).step_time_s)
            assert float(together[row, column]) == pytest.approx(alone, rel=1e-12)


def test_no_query_gives_no_answer() -> None:
    assert made_up_curve().at([], []).step_time_s.size == 0


def test_order_of_the_points_does_not_matter() -> None:
    curve = made_up_curve()
    order = np.random.default_rng(0).permutation(curve.batch_size.size)
    again = BatchCurve.from_points(
        curve.batch_size[order], curve.context_tokens[order], curve.step_time_s[order]
    )
    np.testing.assert_array_equal(again.step_time_s, curve.step_time_s)
    assert again.kv_s_per_token == curve.kv_s_per_token


@pytest.mark.parametrize(
    ("batch", "time_s", "name"),
    [(0, 0.01, "batch_size"), (1, 0, "step_time_s"), (1, np.nan, "step_time_s")],
)
def test_batches_and_times_must_be_positive(batch: float, time_s: float, name: str) -> None:
    with pytest.raises(ParameterError) as refused:
        BatchCurve.from_points([1, batch], [0, 0], [0.01, time_s])
    assert refused.value.name == name
