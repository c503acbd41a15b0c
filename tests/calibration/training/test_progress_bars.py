import pytest

from calibration.training.lines import LatestBars, bar_states


def test_a_bar_of_unknown_total_has_its_counter() -> None:
    (state,) = bar_states("Training Epoch 3: 120it [02:02,  1.00s/it, acc=0.55]")
    assert (state.description, state.counter, state.total) == ("Training Epoch 3", 120, None)
    assert dict(state.pairs) == {"acc": "0.55"}


def test_a_pair_that_may_be_cut_is_left_out() -> None:
    (state,) = bar_states("T:  1%|x| 1/2 [00:11<18:01, 1.1s/it, loss=7.9, acc=0.1")
    assert dict(state.pairs) == {"loss": "7.9"}
    assert not state.is_closed


@pytest.mark.parametrize(
    "text",
    ["", "no bar [1]", "T: 100%|", "T: 1%|x| 1/2", "1/2 [00:11, acc=0.5]", "T: 1%|x| a/b [acc=1]"],
)
def test_what_is_no_bar_has_no_states(text: str) -> None:
    assert list(bar_states(text)) == []


def test_what_stands_before_a_bar_is_no_part_of_another() -> None:
    one = "epoch 0:  1%|x| 1/2 [00:11<18:01, acc=0.1]"
    assert [state.description for state in bar_states(one + one)] == ["epoch 0", "epoch 0"]


def test_streams_have_bars_of_their_own() -> None:
    bars: LatestBars[str] = LatestBars()
    assert bars.replace("rank0", 1, "a") is None
    assert bars.replace("rank1", 2, "b") is None
    assert bars.replace("rank0", 2, "c") == "a"
    assert bars.take_all() == ["c", "b"]
    assert bars.take_all() == []
