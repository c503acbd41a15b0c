"""JSON lines of ``bench_speculative.py``."""

import json
from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_bench_speculative import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import dropped


def line(**changes: object) -> str:
    record: dict[str, object] = {
        "batch_size": 4,
        "steps": 3,
        "topk": 1,
        "num_draft_tokens": 4,
        "acc_length": 2.5,
        "step_time": 0.02,
        "speed": 125.0,
        "completion_tokens": 480.5,
    }
    return json.dumps({**record, **changes})


BASELINE = {"steps": 0, "topk": 0, "num_draft_tokens": 0, "acc_length": 1.0, "speed": 50.0}


def read_lines(*lines: str) -> Reading:
    return read(SourceText(path=Path("output.jsonl"), text="\n".join(lines), encoding="utf-8"))


def codes(reading: Reading) -> list[str]:
    return [warning.code for warning in reading.warnings]


def test_speed_is_of_one_request_and_the_step_time_in_seconds() -> None:
    cells = read_lines(line()).rows[0].cells
    assert cells["output_tokens_per_s"] == pytest.approx(4 * 125.0)
    assert cells["step_time_ms"] == pytest.approx(20.0)
    assert cells["output_tokens"] == 480.5
    assert cells["throughput_origin"] == "step_time"


def test_three_zeros_are_a_baseline() -> None:
    cells = read_lines(line(**BASELINE)).rows[0].cells
    assert (cells["num_steps"], cells["accept_length"]) == (0.0, 1.0)
    assert "num_draft_tokens" not in cells


def test_a_second_baseline_at_a_batch_starts_a_run_that_shares_nothing() -> None:
    first, spec, other, second, late = read_lines(
        line(**BASELINE), line(), line(**BASELINE, batch_size=8), line(**BASELINE), line()
    ).rows
    assert first.load == spec.load
    assert second.load == late.load
    assert first.load != second.load
    assert other.load != first.load


def test_a_chain_that_asked_for_other_draft_tokens_ran_with_steps_and_root() -> None:
    reading = read_lines(line(steps=5, num_draft_tokens=4))
    assert reading.rows[0].cells["num_draft_tokens"] == 6.0
    assert codes(reading) == ["draft_tokens_forced"]


def test_a_half_written_line_is_dropped_and_blank_lines_are_nothing() -> None:
    reading = read_lines(line(), "", '{"batch_size": 8, "steps": 3, "topk"', "", line())
    assert len(reading.rows) == 2
    assert dropped(reading) == {"truncated_line": 1}
    assert reading.dropped[0].line == 3


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"acc_length": 4.01}, "accept_length_above_depth"),
        ({**BASELINE, "acc_length": 2.4}, "accept_length_above_depth"),
        ({"acc_length": 0.5}, "accept_length_out_of_range"),
        ({"acc_length": None}, "missing_accept_length"),
        ({"step_time": 0.0}, "missing_step_time"),
        ({"step_time": None}, "missing_step_time"),
        ({"step_time": float("nan")}, "missing_step_time"),
        ({"batch_size": None}, "missing_batch_size"),
        ({"batch_size": -4}, "not_positive"),
        ({"steps": 2.5}, "not_a_number"),
    ],
)
def test_a_line_that_cannot_be_is_dropped(changes: dict[str, object], code: str) -> None:
    assert dropped(read_lines(line(), line(**changes))) == {code: 1}


def test_the_longest_accept_length_is_the_depth_and_the_bonus_token() -> None:
    assert read_lines(line(acc_length=4.0, speed=200.0)).dropped == ()


def test_a_speed_that_does_not_fit_is_said() -> None:
    assert codes(read_lines(line(speed=140.0))) == ["speed_mismatch"]
    assert codes(read_lines(line(speed=126.0))) == []


def test_a_missing_speed_is_what_it_is_made_of() -> None:
    cells = read_lines(line(speed=None)).rows[0].cells
    assert cells["output_tokens_per_s"] == pytest.approx(4 * 2.5 / 0.02)


def test_a_file_with_nothing_left_is_refused() -> None:
    for text in (line(step_time=0), '{"batch_size": 1, "steps"', "[]", "{}", "null"):
        with pytest.raises(FormatError) as caught:
            read_lines(text)
        assert caught.value.code == "no_rows"


def test_quoted_lines_are_not_recognised() -> None:
    assert recognise(line())
    assert not recognise(json.dumps({"text": line()}))
    assert not recognise(f"[2026-01-05 11:00:00] {line()}")
