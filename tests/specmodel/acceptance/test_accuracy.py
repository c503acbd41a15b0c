import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import ConditionalAccuracy, FullAccuracy
from specmodel.errors import ParameterError

probabilities = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def test_reference_full_list_has_accept_length_2_749() -> None:
    assert FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]).accept_length() == pytest.approx(2.749)


def test_reference_full_list_by_depth() -> None:
    full = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])
    by_depth = [full.accept_length(k) for k in range(6)]
    assert by_depth == pytest.approx([1.0, 1.742, 2.212, 2.502, 2.652, 2.749])


def test_reference_conditional_list_has_accept_length_2_833() -> None:
    conditional = ConditionalAccuracy([0.77, 0.65, 0.60, 0.57, 0.53])
    assert conditional.accept_length() == pytest.approx(2.83269163)


def test_reference_full_list_implies_these_conditionals() -> None:
    conditional = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]).to_conditional()
    assert conditional.values == pytest.approx([0.742, 0.633, 0.617, 0.517, 0.647], abs=5e-4)


def test_percentage_is_suggested_and_never_assumed() -> None:
    with pytest.raises(ParameterError) as caught:
        FullAccuracy([0.8, 74.2])
    assert str(caught.value) == (
        "full_accuracy[1] must be in [0, 1], got 74.2; a percentage? divide by 100"
    )


def test_rising_full_accuracy_names_depth_and_both_values() -> None:
    with pytest.raises(ParameterError, match=r"depth 3 must be at most .* depth 2, 0\.5, got 0\.6"):
        FullAccuracy([0.7, 0.5, 0.6])


def test_floating_point_rise_is_levelled() -> None:
    full = FullAccuracy([0.5, 0.5 + 1e-12])
    assert full.values.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("kind", [FullAccuracy, ConditionalAccuracy])
@pytest.mark.parametrize("values", [[], [[0.5]], [float("nan")], [float("inf")], [-0.1], [1.1]])
def test_unlawful_lists_are_refused(kind: type[FullAccuracy], values: list[float]) -> None:
    with pytest.raises(ParameterError):
        kind(values)


def test_kinds_with_equal_numbers_are_not_equal() -> None:
    assert FullAccuracy([0.5]) != ConditionalAccuracy([0.5])
    assert FullAccuracy([0.5]) == FullAccuracy([0.5])
    assert len({FullAccuracy([0.5]), FullAccuracy([0.5]), ConditionalAccuracy([0.5])}) == 2


def test_values_cannot_be_changed() -> None:
    full = FullAccuracy([0.5, 0.25])
    with pytest.raises(ValueError, match="read-only"):
        full.values[0] = 0.9
    with pytest.raises(AttributeError):
        full.values = np.array([0.9])  # type: ignore[misc]


def test_accept_length_beyond_the_measured_depth_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"at most 2, the measured depth.*tail_spread"):
        FullAccuracy([0.5, 0.25]).accept_length(3)


def test_nothing_survives_a_zero_at_any_depth() -> None:
    full = FullAccuracy([0.263, 0.02, 0.0, 0.0])
    assert full.to_conditional().values.tolist() == pytest.approx([0.263, 0.02 / 0.263, 0.0])
    assert full.to_conditional().accept_length(50) == pytest.approx(full.accept_length())


def test_all_zero_list_is_a_drafter_that_is_never_right() -> None:
    assert FullAccuracy([0.0, 0.0]).to_conditional().accept_length() == 1.0


@given(probabilities)
def test_accept_length_is_between_one_and_depth_plus_one(values: list[float]) -> None:
    length = ConditionalAccuracy(values).accept_length()
    assert 1.0 <= length <= len(values) + 1.0


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12))
def test_conditional_and_full_round_trip(values: list[float]) -> None:
    back = ConditionalAccuracy(values).to_full().to_conditional()
    assert back.values == pytest.approx(values, rel=1e-9)


@given(probabilities, st.integers(0, 11), st.floats(0.0, 1.0))
def test_accept_length_rises_with_every_conditional(
    values: list[float], place: int, share: float
) -> None:
    better = list(values)
    place %= len(values)
    better[place] += share * (1.0 - better[place])
    before = ConditionalAccuracy(values).accept_length()
    assert ConditionalAccuracy(better).accept_length() >= before - 1e-12
