import pytest

from calibration.training.log_acceptance import printed_acceptance
from specmodel.acceptance import carry_accept_length
from specmodel.errors import ParameterError


def test_a_printed_accept_length_of_unknown_depth_is_taken_as_it_is() -> None:
    found = printed_acceptance(2.436, 3)
    assert found.accept_length is not None
    assert found.accept_length.estimate.median == 2.436
    assert found.codes == ("mean-only", "printed-depth-unknown")


def test_an_unknown_bonus_gives_no_accept_length() -> None:
    found = printed_acceptance(None, 3)
    assert found.accept_length is None
    assert "bonus-unknown" in found.codes


def test_another_depth_is_reached_by_the_tail_model() -> None:
    found = printed_acceptance(2.5, 7, printed_depth=4)
    carried = carry_accept_length(2.5, 4, [7])
    assert found.accept_length is not None
    assert found.accept_length.estimate.median == pytest.approx(float(carried.value[0]))
    assert found.num_steps == 7
    assert "beyond-trained-depth" in found.codes


def test_the_printed_depth_needs_no_carrying() -> None:
    found = printed_acceptance(2.5, 4, printed_depth=4)
    assert found.accept_length is not None
    assert found.accept_length.log_sd == 0.0
    assert found.codes == ("mean-only",)


@pytest.mark.parametrize("value", [0.38, 5.5, float("nan")])
def test_an_impossible_accept_length_is_refused(value: float) -> None:
    with pytest.raises(ParameterError):
        printed_acceptance(value, 4, printed_depth=4)
