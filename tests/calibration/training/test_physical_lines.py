"""Lines as terminals and containers leave them; training_logs.md section 3, steps 1 to 4."""

import pytest

from calibration.training.lines import (
    CutText,
    physical_lines,
    split_prefix,
    without_control_sequences,
)


def texts(content: bytes) -> list[str]:
    return [text for _, _, text in physical_lines([content])]


def test_line_feeds_returns_and_both_end_lines_and_the_first_count() -> None:
    found = list(physical_lines([b"a\r\nb\rc\n\nd\n"]))
    assert found == [(1, "", "a"), (2, "", "b"), (2, "", "c"), (4, "", "d")]


def test_lines_are_counted_through_blocks() -> None:
    blocks = [b"a\nb\n", b"c\n"]
    assert [line for line, _, _ in physical_lines(blocks, first_line=5)] == [5, 6, 7]


def test_colours_that_split_a_number_and_links_leave_nothing() -> None:
    line = (
        "\x1b[2mloss\x1b[0m=\x1b[1;36m2\x1b[0m\x1b[1;36m.023\x1b[0m "
        "\x1b]8;id=1;file:///x/a.py\x1b\\a.py\x1b]8;;\x1b\\"
    )
    assert without_control_sequences(line) == "loss=2.023 a.py"


def test_what_erases_a_line_ends_it() -> None:
    assert texts(b"bar 3/9\x1b[2K\x1b[1Aloss=1\n") == ["bar 3/9", "loss=1"]


@pytest.mark.parametrize(
    ("line", "stream"),
    [
        ("[rank0]: X", "rank0"),
        ("[default3]:X", "default3"),
        ("[1,2]<stdout>: X", "1,2"),
        ("2026-05-02T10:11:12.123456789Z X", ""),
        ("2026-05-02T10:11:12+02:00 stdout F X", ""),
        ("(TrainerActor pid=4711, ip=10.0.0.7) X", "TrainerActor pid=4711, ip=10.0.0.7"),
        ("0: X", "0"),
        (" 3: X", "3"),
        ("worker-0   | X", "worker-0"),
        ("worker-0 | [rank1]: X", "worker-0/rank1"),
    ],
)
def test_a_label_of_a_stream_is_taken_off_and_kept(line: str, stream: str) -> None:
    assert split_prefix(line) == (stream, "X")


@pytest.mark.parametrize(
    "line",
    [
        "INFO | loss",
        "[08:53:20] INFO     loss",
        "step 12: {'acc_0': 0.5}",
        "12%|###  | 41/2656",
        "{'a': 1}",
        " " * 20 + "train/loss=1",
    ],
)
def test_what_only_looks_like_a_label_stays(line: str) -> None:
    assert split_prefix(line) == ("", line)


def test_blanks_behind_a_label_stay_as_columns_count() -> None:
    assert texts(b"w | " + b" " * 20 + b"lr=1\n") == [" " * 20 + "lr=1"]


def test_only_the_line_that_the_file_ends_in_is_cut() -> None:
    found = [text for _, _, text in physical_lines([b"a=1\nb=2\rc=3"])]
    assert [isinstance(text, CutText) for text in found] == [False, False, True]
    assert not any(isinstance(text, CutText) for text in texts(b"a=1\nb=2\r\n"))


def test_bytes_that_are_no_text_do_not_stop_reading() -> None:
    assert texts(b"\xff\xfe\x00 loss\n\x1b[\nlr\n") == [
        "\N{REPLACEMENT CHARACTER}" * 2 + "\x00 loss",
        "[",
        "lr",
    ]
