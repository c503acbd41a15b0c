"""A record as text: what stands in it, and what is said of the bar."""

from dataclasses import replace

import pytest

from drafter.report import record_json, record_text
from specmodel.measurement import DraftRecord, StepTiming
from tests.specmodel.measurement.example_record import example_record

RECORD = example_record()


def with_step(**changes: float | None) -> DraftRecord:
    step: StepTiming = replace(RECORD.steps[0], **changes)  # type: ignore[arg-type]
    return replace(RECORD, steps=(step,))


def test_every_time_stands_beside_its_floor_in_80_columns() -> None:
    text = record_text(RECORD)
    assert max(map(len, text.splitlines())) <= 80
    line = next(each for each in text.splitlines() if each.split()[:3] == ["1", "8192", "1"])
    assert line.split()[3:6] == ["220", "180", "1.22"]
    assert "4.3 TB/s" in text
    assert "1.98, memory 3.20 GHz" in text
    assert "embed_tokens.weight: random" in text
    assert "linear_matvec_kernel" in text


def test_a_dry_record_says_so_first() -> None:
    text = record_text(replace(RECORD, kind="dry"))
    assert text.splitlines()[0].startswith("DRY RUN")
    assert "Against torch" not in text


def test_the_json_is_the_record_with_its_schema() -> None:
    answer = record_json(RECORD)
    assert answer["schema_version"] == 1
    assert answer["steps"][0]["time_s"] == 2.0e-4
    (first, second) = answer["comparisons"]
    assert first["step_us"] == pytest.approx(200.0)
    assert first["baseline_us"] == pytest.approx(230.0)
    assert (first["verdict"], second["verdict"]) == ("faster", "not separable")


def test_the_baseline_stands_beside_the_step_with_ratio_range_and_verdict() -> None:
    text = record_text(RECORD)
    lines = [each.split() for each in text.splitlines()]
    # 230 over 200; the spreads are 1.2 % and 1 %: 1.15 / 1.022 to 1.15 * 1.022
    assert ["1", "2048", "1", "200", "230", "1.15", "1.13-1.18", "faster"] in lines
    assert ["1", "8192", "1", "220", "221", "1.00", "0.98-1.03", "not", "separable"] in lines


def test_a_record_without_a_baseline_has_no_such_table() -> None:
    assert "Against torch" not in record_text(with_step(baseline_s=None, baseline_spread=None))
