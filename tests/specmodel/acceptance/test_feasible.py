import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import FullAccuracy, check_shape, required_conditional
from specmodel.acceptance.feasible import check_accept_length
from specmodel.errors import ParameterError

REFERENCE = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])


def test_lawful_lengths_come_back() -> None:
    assert check_accept_length([1.0, 2.75, 6.0], 5).tolist() == [1.0, 2.75, 6.0]


def test_printed_rounding_is_not_refused() -> None:
    assert float(check_accept_length(4.004, 3)) == 4.004


def test_too_long_says_what_to_do() -> None:
    with pytest.raises(
        ParameterError, match=r"accept_length\[1\] must be between 1 and 3 .* depth"
    ):
        check_accept_length([2.5, 3.1], 2)


def test_below_one_suggests_the_bonus_token() -> None:
    with pytest.raises(ParameterError, match="bonus token is left out, add 1"):
        check_accept_length(0.9, 3)


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ParameterError, match="finite"):
        check_accept_length(np.nan, 3)


@pytest.mark.parametrize(("depth", "claim"), [(10, 3.1), (16, 3.3), (16, 3.1)])
def test_hand_estimates_need_conditionals_above_0_79(depth: int, claim: float) -> None:
    needed = required_conditional(REFERENCE, depth, claim)
    assert needed > 0.79
    assert needed > REFERENCE.to_conditional().values[1:].max()


def test_endless_depth_needs_the_least() -> None:
    share = (3.1 - 2.749) / 0.097
    assert required_conditional(REFERENCE, 5000, 3.1) == pytest.approx(
        share / (1 + share), abs=1e-6
    )


@given(st.floats(0.0, 1.0), st.integers(6, 20))
def test_answer_reaches_the_claim(conditional: float, depth: int) -> None:
    claim = 2.749 + 0.097 * sum(conditional**j for j in range(1, depth - 4))
    found = required_conditional(REFERENCE, depth, claim)
    reached = 2.749 + 0.097 * sum(found**j for j in range(1, depth - 4))
    assert reached == pytest.approx(claim, abs=1e-9)


def test_claim_below_the_measured_needs_nothing() -> None:
    assert required_conditional(REFERENCE, 10, 2.5) == 0.0


def test_claim_out_of_reach_names_the_most_possible() -> None:
    with pytest.raises(ParameterError, match=r"at most 3\.234 at depth 10.*only 0\.097"):
        required_conditional(REFERENCE, 10, 3.3)


def test_claim_inside_the_measured_depth_is_refused() -> None:
    with pytest.raises(ParameterError, match="beyond the measured depth 5"):
        required_conditional(REFERENCE, 5, 2.8)


def test_reference_full_list_jumps_up_by_25_percent_at_its_end() -> None:
    (finding,) = check_shape(REFERENCE)
    assert finding.code == "conditional-jump"
    assert "25%" in finding.message
    assert "depth 5" in finding.message


def test_smoothly_rising_conditionals_are_not_a_jump() -> None:
    ngram_on_edits = FullAccuracy([0.81, 0.74, 0.70, 0.68, 0.66])
    assert check_shape(ngram_on_edits) == ()


def test_jump_that_rounding_explains_is_not_one() -> None:
    two_decimals = FullAccuracy([0.5, 0.25, 0.08, 0.03, 0.02])
    assert check_shape(two_decimals, rounding=5e-3) == ()
