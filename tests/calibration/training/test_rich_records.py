"""Wrapped records; training_logs.md section 3, step 5."""

from itertools import pairwise

import pytest

from calibration.training.lines import physical_lines
from calibration.training.speculators_log import PAIR, JoinedRecord, RichRecords

PAIRS = (
    "train/loss_0=2.022, train/full_acc_0=0.574, train/cond_acc_0=0.574, train/loss_1=2.593, "
    "train/full_acc_1=2.99e-04, train/cond_acc_1=0.521, train/loss=7.890, epoch=0, lr=9.90e-05, global_step=41"
)
INDENT = " " * 20


def wrapped(
    message: str, columns: int, *, time: str = "[08:53:20]", path: str = "trainer.py:220"
) -> list[str]:
    """Return a record as Rich lays it out; words longer than the message column are broken."""
    width = columns - 21 - len(path)
    lines = [""]
    for word in message.split(" "):
        rest = word
        if lines[-1] and len(lines[-1]) + 1 + len(rest) <= width:
            lines[-1] += f" {rest}"
            continue
        if lines[-1]:
            lines.append("")
        while len(rest) > width:
            lines[-1], rest = rest[:width], rest[width:]
            lines.append("")
        lines[-1] = rest
    first = f"{time:10} INFO     {lines[0]:{width}} {path}"
    return [first, *(f"{INDENT}{line:{width}} {'':{len(path)}}" for line in lines[1:])]


def joined(lines: list[str], *, end: str = "\n") -> list[JoinedRecord]:
    records = RichRecords()
    found: list[JoinedRecord] = []
    for number, stream, text in physical_lines([("\n".join(lines) + end).encode()]):
        found += records.feed(number, stream, text)
    return found + list(records.finish())


@pytest.mark.parametrize("columns", [36, 40, 45, 60, 80, 100, 120, 160, 200, 400])
def test_a_record_of_any_width_is_put_together(columns: int) -> None:
    lines = wrapped(PAIRS, columns) + wrapped(PAIRS.replace("=41", "=42"), columns, time="")
    first, second = joined(lines)
    assert first.text == PAIRS
    assert second.text == PAIRS.replace("=41", "=42")
    assert (first.line, second.line) == (1, 1 + len(lines) // 2)
    assert not first.interleaved
    longest = max(map(len, PAIRS.split()))
    assert first.hard_wrap == (longest > columns - 21 - len("trainer.py:220"))


def test_lines_of_several_streams_are_put_together_for_each() -> None:
    one = [f"worker-0 | {line}" for line in wrapped(PAIRS, 80)]
    other = [f"worker-1 | {line}" for line in wrapped(PAIRS.replace("=41", "=42"), 80)]
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    found = {record.stream: record.text for record in joined(mixed)}
    assert found == {"worker-0": PAIRS, "worker-1": PAIRS.replace("=41", "=42")}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "noise",
    [
        ["Epoch 0 ━━━━━╸━━━━ 41/2656 [ 0:00:29 < 0:31:02 , 1 it/s ]"],
        [" 12%|###   | 41/2656 [00:29<31:02, 1.4it/s, loss=2.3]"],
        ["[08:53:20] WARNING  another library says so    dataset.py:88", INDENT + "on two lines"],
        ["plain print"],
    ],
)
def test_what_stands_inside_a_record_does_not_end_it(columns: int, noise: list[str]) -> None:
    lines = wrapped(PAIRS, columns)
    for place in range(1, len(lines)):
        (record,) = joined(lines[:place] + noise + lines[place:])
        assert record.text == PAIRS
        assert record.interleaved


def test_noise_behind_a_record_is_no_part_of_it() -> None:
    noise = ["[08:53:20] WARNING  epoch is long    dataset.py:88", INDENT + "on two lines"]
    (record,) = joined(wrapped(PAIRS, 80) + noise)
    assert record.text == PAIRS
    assert not record.interleaved


def test_keys_that_were_seen_do_not_go_on_with_an_interrupted_record() -> None:
    noise = ["a bar 3/9", INDENT + "train/loss_0=9.000, epoch=3"]
    (record,) = joined([*wrapped(PAIRS, 80)[:3], *noise])
    assert "9.000" not in record.text
    assert not record.interleaved


def test_a_new_record_ends_the_one_before_it_where_it_was_cut() -> None:
    lines = wrapped(PAIRS, 80)
    first, second = joined(lines[:3] + lines)
    assert "global_step" not in first.text
    assert second.text == PAIRS


def test_records_of_other_loggers_are_none() -> None:
    assert (
        joined(["[08:53:20] INFO     Loading the model    build.py:7", INDENT + "from a=b"]) == []
    )


@pytest.mark.parametrize(
    ("end", "cut"), [("", True), ("\n", False), (" ", False), ("   trainer.py:220", False)]
)
def test_a_record_is_cut_where_the_file_ends_behind_its_last_character(end: str, cut: bool) -> None:
    (record,) = joined([f"[08:53:20] INFO     {PAIRS}"], end=end)
    assert record.cut is cut


def test_a_damaged_line_below_a_record_is_not_glued_to_its_last_number() -> None:
    found = joined(
        [
            f"[08:53:20] INFO     {PAIRS}  trainer.py:220",
            "171, epoch=4, lr=5.00e-05, global_step=3000",
        ]
    )
    assert [record.text for record in found] == [PAIRS]


def test_lines_whose_blanks_were_lost_go_on() -> None:
    (record,) = joined([line.strip() for line in wrapped(PAIRS, 100)])
    assert record.text == PAIRS


def test_an_open_record_stays_small() -> None:
    records = RichRecords()
    records.feed(1, "", "[08:53:20] INFO     train/loss_0=1.0,")
    for number in range(2, 20_000):
        records.feed(number, "", f"{INDENT}train/x_{number}=1.0,")
    (record,) = records.finish()
    assert len(record.text) < 1 << 15


def test_pairs_stand_in_the_order_in_which_they_were_printed() -> None:
    keys = [found[1] for found in PAIR.finditer(PAIRS)]
    assert keys[0] == "train/loss_0"
    assert keys[-1] == "global_step"
    assert all(one != other for one, other in pairwise(keys))
