import numpy as np
import pytest

from calibration.training.curves import accuracy_curves, edge_corrected, pooled_accuracy
from calibration.training.records import Kind, Split
from specmodel.errors import ParameterError


def test_conditional_accuracies_are_pooled_as_numerator_over_denominator() -> None:
    joint = np.array([[0.8, 0.4], [0.2, 0.15]])
    conditional = np.array([[0.8, 0.5], [0.2, 0.75]])
    pooled = pooled_accuracy(conditional, Kind.CONDITIONAL, joint)
    assert pooled == pytest.approx([0.5, (0.8 * 0.5 + 0.2 * 0.75) / 1.0])
    assert pooled == pytest.approx(pooled_accuracy(conditional, Kind.CONDITIONAL))


@pytest.mark.parametrize("kind", [Kind.JOINT, Kind.MARGINAL, Kind.OVERLAP])
def test_other_accuracies_are_pooled_as_means(kind: Kind) -> None:
    assert pooled_accuracy(np.array([[0.8, 0.4], [0.2, 0.1]]), kind) == pytest.approx([0.5, 0.25])


def test_joint_and_conditional_records_of_one_run_give_one_curve() -> None:
    rng = np.random.default_rng(1)
    conditional = rng.uniform(0.4, 0.9, size=(500, 4))
    steps = np.arange(500.0)
    one = accuracy_curves(steps, conditional, kind="conditional")
    other = accuracy_curves(steps, np.cumprod(conditional, axis=1), kind="joint")
    assert one.num_points == 48
    assert one.num_records.sum() == 500
    np.testing.assert_allclose(one.conditional, other.conditional, rtol=1e-12)


def test_a_record_that_is_not_finite_is_left_out_as_a_whole() -> None:
    curve = accuracy_curves([1, 2, 3], [[0.5, 0.5], [0.6, np.nan], [0.7, 0.5]], kind="conditional")
    assert curve.steps.tolist() == [1, 3]
    assert curve.num_dropped == 1
    assert curve.last_step == 3


def test_the_accept_length_counts_the_bonus_token() -> None:
    joint = [[0.742, 0.47, 0.29, 0.15, 0.097]]
    assert accuracy_curves([1], joint, kind="joint").accept_length == pytest.approx([2.749])
    conditional = [[0.77, 0.65, 0.60, 0.57, 0.53]]
    assert accuracy_curves([1], conditional, kind="conditional").accept_length == pytest.approx(
        [2.83269163]
    )


def test_the_edge_bias_of_the_reference_table_is_undone() -> None:
    """training_logs.md 5.1: R = 50, full accuracy at depth 4 logged as 0.166, true 0.181."""
    logged = np.array([0.7, 0.5, 0.36, 0.25, 0.166])
    corrected = edge_corrected(logged, Kind.JOINT, 50)
    assert corrected[4] == pytest.approx(0.181, abs=0.001)
    assert corrected[0] == 0.7


def test_both_routes_get_the_same_edge_correction() -> None:
    conditional = np.array([[0.7, 0.6, 0.5, 0.5]])
    joint = edge_corrected(np.cumprod(conditional, axis=1), Kind.JOINT, 60)
    chained = np.cumprod(edge_corrected(conditional, Kind.CONDITIONAL, 60), axis=1)
    np.testing.assert_allclose(joint, chained, rtol=1e-12)
    marginal = edge_corrected(conditional, Kind.MARGINAL, 60)
    np.testing.assert_array_equal(marginal, conditional)


def test_a_response_no_longer_than_the_draft_is_refused() -> None:
    with pytest.raises(ParameterError, match="response_length"):
        accuracy_curves([1], [[0.5, 0.4]], kind="joint", response_length=2)


def test_the_error_is_the_scatter_about_a_moving_curve() -> None:
    rng = np.random.default_rng(2)
    steps = np.arange(1.0, 4001.0)
    rising = 0.6 - 0.3 * np.exp(-steps / 1000.0)
    noisy = rising[:, None] + rng.normal(0.0, 0.03, size=(4000, 2))
    curve = accuracy_curves(steps, noisy, kind="marginal")
    expected = 0.03 / np.sqrt(4000 / 48)
    assert np.median(curve.error) == pytest.approx(expected, rel=0.3)


def test_one_bad_batch_gets_the_error_and_its_neighbours_do_not() -> None:
    rng = np.random.default_rng(3)
    values = 0.5 + rng.normal(0.0, 0.004, size=(40, 1))
    clean = accuracy_curves(np.arange(40.0), values, kind="marginal").error
    values[20] -= 0.2
    spoilt = accuracy_curves(np.arange(40.0), values, kind="marginal").error
    assert spoilt[20, 0] == pytest.approx(0.2, abs=0.01)
    assert np.delete(spoilt, 20).max() < 2.0 * clean.max()


def test_coarse_digits_widen_the_error() -> None:
    values = np.full((30, 1), 0.5)
    fine = accuracy_curves(np.arange(30.0), values, kind="marginal", rounding=0.0005).error[0, 0]
    coarse = accuracy_curves(np.arange(30.0), values, kind="marginal", rounding=0.005).error[0, 0]
    assert coarse**2 - fine**2 == pytest.approx((0.005**2 - 0.0005**2) / 3.0)


def test_depths_that_print_as_zero_are_cut() -> None:
    joint = [[0.3, 0.05, 0.001, 0.0, 0.0]] * 6
    curve = accuracy_curves(np.arange(6.0), joint, kind="joint", split=Split.TRAIN)
    assert (curve.depths, curve.num_printed_depths) == (4, 5)
    assert curve.num_points == 6


def test_rates_may_come_from_other_records() -> None:
    curve = accuracy_curves(
        [100, 200],
        [[0.5], [0.6]],
        kind="joint",
        learning_rate=[3.0, np.nan, 1.0],
        rate_steps=[50, 20, 10],
    )
    assert curve.rate_steps.tolist() == [10, 50]
    assert curve.rates.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("steps", "values"),
    [([1.0], [[1.2]]), ([1.0, 2.0], [[0.5]]), ([], np.empty((0, 2))), ([1.0], [[np.nan]])],
)
def test_impossible_input_is_refused(steps: list[float], values: list[list[float]]) -> None:
    with pytest.raises(ParameterError, match="accuracies"):
        accuracy_curves(steps, values, kind="conditional")
