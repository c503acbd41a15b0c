"""JSON lines of ``bench_one_batch_server``."""

import json
import math
from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_bench_one_batch_server import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes


def line(**changes: object) -> str:
    record: dict[str, object] = {
        "run_name": "a",
        "batch_size": 8,
        "input_len": 1000,
        "output_len": 200,
        "latency": 3.5,
        "input_throughput": 30000.0,
        "output_throughput": 500.0,
        "overall_throughput": 2500.0,
        "last_ttft": 0.25,
        "last_gen_throughput": 505.0,
    }
    return json.dumps({**record, **changes})


NEW = {
    "acc_length": 2.5,
    "cache_hit_rate": None,
    "total_output_tokens": 1600,
    "num_early_stopped": 0,
    "steady_state_output_throughput": 510.0,
    "steady_state_window_s": 2.0,
}


def read_lines(*lines: str) -> Reading:
    return read(SourceText(path=Path("result.jsonl"), text="\n".join(lines), encoding="utf-8"))


def test_a_round_is_what_the_batch_takes_to_emit_an_accept_length_each() -> None:
    reading = read_lines(line(acc_length=2.5))
    cells = reading.rows[0].cells
    assert cells["step_time_ms"] == pytest.approx(1000 * 8 * 2.5 / 500)
    assert cells["context_tokens"] == 1000 + 200 / 2
    assert (cells["ttft_ms"], cells["output_tokens"]) == (250.0, 200.0)
    assert cells["throughput_origin"] == "step_time"
    assert "num_steps" not in cells
    assert codes(reading) == {"depth_unknown"}


@pytest.mark.parametrize("none", [-1, -1.0, 0, None, "n/a"])
def test_no_accept_length_is_a_baseline(none: object) -> None:
    reading = read_lines(line(acc_length=none))
    cells = reading.rows[0].cells
    assert (cells["num_steps"], cells["accept_length"]) == (0.0, 1.0)
    assert cells["step_time_ms"] == pytest.approx(1000 * 8 / 500)
    assert codes(reading) == set()


def test_a_layout_without_accept_lengths_says_nothing_of_speculation() -> None:
    reading = read_lines(line())
    cells = reading.rows[0].cells
    assert not cells.keys() & {"accept_length", "num_steps", "step_time_ms"}
    assert reading.rows[0].load is None
    assert codes(reading) == {"speculation_unknown"}


def test_the_steady_window_is_preferred_where_it_was_measured() -> None:
    assert read_lines(line(**NEW)).rows[0].cells["output_tokens_per_s"] == 510.0
    without = {**NEW, "steady_state_output_throughput": None}
    assert read_lines(line(**without)).rows[0].cells["output_tokens_per_s"] == 500.0


def test_early_stops_are_said_with_and_without_a_steady_window() -> None:
    stopped = {**NEW, "num_early_stopped": 3, "total_output_tokens": 1400}
    reading = read_lines(line(**stopped))
    assert "early_stopped" in codes(reading)
    assert reading.rows[0].cells["output_tokens"] == 1400 / 8
    reading = read_lines(line(**{**stopped, "steady_state_output_throughput": None}))
    assert "early_stopped" in codes(reading)
    assert reading.rows[0].cells["output_tokens_per_s"] == 500.0


def test_each_layout_is_named_by_the_release_that_wrote_it_first() -> None:
    lines = (line(), line(acc_length=-1), line(acc_length=-1, cache_hit_rate=0.0), line(**NEW))
    reading = read_lines(*lines)
    assert reading.era == ("0.4.6", "0.5.6", "0.5.9", "0.5.23")
    assert "mixed_eras" in codes(reading)


def test_pairs_have_equal_loads_whatever_the_runs_are_called() -> None:
    spec, baseline, longer = read_lines(
        line(acc_length=2.5),
        line(run_name="base", acc_length=-1),
        line(acc_length=-1, input_len=4000),
    ).rows
    assert spec.load == baseline.load
    assert spec.load != longer.load


def test_an_appended_repetition_is_kept_and_said() -> None:
    again = read_lines(line(acc_length=2.5), line(acc_length=2.6))
    assert len(again.rows) == 2
    assert "repeated_run" in codes(again)
    assert "repeated_run" not in codes(read_lines(line(acc_length=2.5), line(acc_length=-1)))


def test_the_list_of_older_reports_is_read_too() -> None:
    old = json.loads(line(acc_length=2.5, ttft=0.1))
    del old["last_ttft"]
    assert read_lines(json.dumps([old])).rows[0].cells["ttft_ms"] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"run_name": "warmup"}, "warmup"),
        ({"acc_length": math.nan}, "not_a_number"),
        ({"acc_length": 0.3}, "accept_length_out_of_range"),
        ({"acc_length": 2.5, "output_throughput": 0.0}, "missing_throughput"),
        ({"acc_length": 2.5, "output_throughput": math.inf}, "missing_throughput"),
        ({"acc_length": 2.5, "output_throughput": 1e-300}, "not_positive"),
        ({"batch_size": "many"}, "missing_batch_size"),
        ({"batch_size": 0.25}, "out_of_range"),
    ],
)
def test_a_line_that_cannot_be_is_dropped(changes: dict[str, object], code: str) -> None:
    reading = read_lines(line(), line(**changes))
    assert [(dropped.code, dropped.count) for dropped in reading.dropped] == [(code, 1)]


def test_a_file_with_nothing_left_is_refused() -> None:
    for text in ("", "[1, 2", line(output_throughput=None), "[[[]]]"):
        with pytest.raises(FormatError) as caught:
            read_lines(text)
        assert caught.value.code == "no_rows"


def test_the_offline_benchmark_is_another_format() -> None:
    assert recognise(line())
    assert not recognise('{"run_name": "a", "batch_size": 1, "median_decode_throughput": 9.0')
