import re

import pytest

from calibration.training.lines import Bars, bar_states
from calibration.training.records import RawLog, Split


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
    raw = RawLog()
    bars = Bars(raw, "a", "F3", re.compile(r"epoch (\d)"), "acc", {"acc": "mean_marginal"})
    for stream, counter, accuracy in (
        ("r0", 1, 0.1),
        ("r1", 2, 0.2),
        ("r0", 2, 0.3),
        ("r0", 2, 0.4),
    ):
        bars.take(1, stream, f"epoch 0: 1%|x| {counter}/9 [00:11<18:01, acc={accuracy}]")
    bars.end()
    bars.end()
    table = raw.table("a", Split.TRAIN)
    assert table.column("mean_marginal").tolist() == [0.1, 0.4, 0.2]
    assert table.column("step").tolist() == [1.0, 2.0, 2.0]
