from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import ConditionalAccuracy, FullAccuracy, check_agreement, check_shape

REFERENCE_FULL = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])
REFERENCE_CONDITIONAL = ConditionalAccuracy([0.77, 0.65, 0.60, 0.57, 0.53])


def test_reference_lists_come_from_two_windows() -> None:
    findings = check_agreement(REFERENCE_FULL, REFERENCE_CONDITIONAL)
    codes = [finding.code for finding in findings]
    assert codes == ["cond0-differs", "identity-violated", "identity-violated"]
    assert "depth 4" in findings[1].message
    assert "depth 5" in findings[2].message


def test_reference_full_list_jumps_up_by_25_percent_at_its_end() -> None:
    (finding,) = check_shape(REFERENCE_FULL)
    assert finding.code == "conditional-jump"
    assert "25%" in finding.message
    assert "depth 5" in finding.message


def test_smoothly_rising_conditionals_are_not_a_jump() -> None:
    ngram_on_edits = FullAccuracy([0.81, 0.74, 0.70, 0.68, 0.66])
    assert check_shape(ngram_on_edits) == ()


def test_jump_that_rounding_explains_is_not_one() -> None:
    two_decimals = FullAccuracy([0.5, 0.25, 0.08, 0.03, 0.02])
    assert check_shape(two_decimals, rounding=5e-3) == ()


def test_only_common_depths_are_compared() -> None:
    assert check_agreement(FullAccuracy([0.7, 0.49]), ConditionalAccuracy([0.7])) == ()


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=8))
def test_lists_of_one_window_agree(values: list[float]) -> None:
    conditional = ConditionalAccuracy(values)
    assert check_agreement(conditional.to_full(), conditional) == ()


@given(st.lists(st.floats(0.2, 0.95), min_size=2, max_size=6))
def test_lists_of_one_window_agree_after_printing(values: list[float]) -> None:
    conditional = ConditionalAccuracy(values)
    printed_full = FullAccuracy([round(value, 3) for value in conditional.to_full()])
    printed_conditional = ConditionalAccuracy([round(value, 3) for value in values])
    assert check_agreement(printed_full, printed_conditional) == ()
