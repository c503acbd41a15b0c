import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import FullAccuracy, required_conditional
from specmodel.errors import ParameterError

REFERENCE = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])


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
