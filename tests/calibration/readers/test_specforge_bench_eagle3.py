"""Results of SpecForge's ``bench_eagle3.py``."""

import json
from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.specforge_bench_eagle3 import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes


def setting(*accept_lengths: float | None, **changes: object) -> dict[str, object]:
    metrics = [
        {"latency": 9.0, "output_throughput": 170.0, "accept_length": length, "accuracy": 0.9}
        for length in accept_lengths
    ]
    record = {"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4, "metrics": metrics}
    return {**record, **changes}


def read_object(value: object, indent: int | None = None) -> Reading:
    text = json.dumps(value, indent=indent)
    return read(SourceText(path=Path("results.jsonl"), text=text, encoding="utf-8"))


BASELINE = {"steps": 0, "topk": 0, "num_draft_tokens": 0}


@pytest.mark.parametrize("indent", [None, 0, 4])
def test_each_entry_of_metrics_is_a_row_however_the_object_is_laid_out(indent: int | None) -> None:
    value = {
        "model": "/data/models/Tern-8B",
        "gsm8k": [setting(1.0, **BASELINE), setting(2.5, 2.6)],
        "mtbench": [setting(2.2)],
    }
    reading = read_object(value, indent)
    assert [row.cells["accept_length"] for row in reading.rows] == [1.0, 2.5, 2.6, 2.2]
    assert [row.cells["workload"] for row in reading.rows] == ["gsm8k"] * 3 + ["mtbench"]
    assert {row.cells["target_model"] for row in reading.rows} == {"Tern-8B"}
    assert not any("step_time_ms" in row.cells for row in reading.rows)


def test_a_baseline_belongs_to_its_benchmark_and_batch() -> None:
    value = {
        "gsm8k": [setting(None, **BASELINE), setting(2.5), setting(None, **BASELINE, batch_size=8)],
        "mtbench": [setting(None, **BASELINE)],
    }
    baseline, spec, wider, other = read_object(value).rows
    assert (baseline.cells["num_steps"], baseline.cells["accept_length"]) == (0.0, 1.0)
    assert baseline.load == spec.load
    assert len({baseline.load, wider.load, other.load}) == 3


def test_a_server_started_by_hand_has_no_depth() -> None:
    unknown = {"steps": None, "topk": None, "num_draft_tokens": None}
    reading = read_object({"gsm8k": [setting(2.17, **unknown)]})
    assert "num_steps" not in reading.rows[0].cells
    assert codes(reading) == {"depth_unknown"}
    for length in (1.0, None):
        reading = read_object({"gsm8k": [setting(length, **unknown)]})
        assert not reading.rows[0].cells.keys() & {"num_steps", "accept_length"}
        assert codes(reading) == {"speculation_unknown"}


def test_a_chain_that_asked_for_other_draft_tokens_is_corrected() -> None:
    reading = read_object({"gsm8k": [setting(2.5, num_draft_tokens=16)]})
    assert reading.rows[0].cells["num_draft_tokens"] == 4.0
    assert codes(reading) == {"draft_tokens_forced"}


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (setting(4.5), "accept_length_above_depth"),
        (setting(2.5, **BASELINE), "accept_length_above_depth"),
        (setting(None), "missing_accept_length"),
        (setting(2.5, metrics=[{"output_throughput": 0}]), "missing_throughput"),
        (setting(2.5, metrics=None), "missing_throughput"),
        (
            setting(metrics=[{"output_throughput": 5.0, "num_questions": 0}]),
            "no_completed_requests",
        ),
    ],
)
def test_an_entry_that_cannot_be_is_dropped(broken: dict[str, object], code: str) -> None:
    reading = read_object({"gsm8k": [setting(2.5), broken]})
    assert [(dropped.code, dropped.count) for dropped in reading.dropped] == [(code, 1)]


def test_an_object_that_is_cut_off_is_refused() -> None:
    text = json.dumps({"model": "a", "gsm8k": [setting(2.5)]}, indent=2)[:-5]
    with pytest.raises(FormatError) as caught:
        read(SourceText(path=Path("results.jsonl"), text=text, encoding="utf-8"))
    assert caught.value.code == "bad_json"


@pytest.mark.parametrize("value", [{}, [], {"gsm8k": []}, {"gsm8k": [1, None, {}]}, {"a": 3}, 7])
def test_an_object_without_measurements_is_refused(value: object) -> None:
    with pytest.raises(FormatError) as caught:
        read_object(value)
    assert caught.value.code == "no_rows"


def test_it_is_recognised_without_a_model_and_not_when_quoted() -> None:
    text = json.dumps({"gsm8k": [setting(2.5)]})
    assert recognise(text)
    assert recognise(text[:-20])
    assert not recognise(json.dumps({"text": text}))
