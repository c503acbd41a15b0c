"""Files with DSPARK cost tables."""

import json
from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_dspark_cost_table import read, recognise, table
from specmodel.errors import FormatError

ADDITIVE = {
    "bias_seconds": 0.01,
    "bs_probes": [1, 8],
    "alpha_seconds": [0.0, 0.001],
    "m_probes": [2, 16],
    "theta_seconds": [0.0, 0.003],
}
SAMPLED = {"sample_batch_tokens": [1, 4], "sample_steps_per_sec": [100.0, 80.0]}


def source(value: object) -> SourceText:
    text = value if isinstance(value, str) else json.dumps(value)
    return SourceText(path=Path("table.json"), text=text, encoding="utf-8")


def reading(value: object) -> Reading:
    return read(source(value))


def code(value: object) -> str:
    with pytest.raises(FormatError) as error:
        reading(value)
    return error.value.code


def test_steps_per_second_become_milliseconds() -> None:
    found = reading(SAMPLED)
    assert found.era == ("steps_per_sec",)
    assert found.rows == ()
    assert [v["step_time_ms"] for v in found.cost_table] == pytest.approx([10.0, 12.5])


def test_beyond_the_last_sample_its_time_holds() -> None:
    assert table(source(SAMPLED)).step_time_s(batch_tokens=999) == pytest.approx(0.0125)


def test_the_additive_form_adds_its_parts() -> None:
    found = reading(ADDITIVE)
    assert found.era == ("additive",)
    assert found.cost_table[-1] == pytest.approx(
        {"num_reqs": 8, "budget_tokens": 8, "step_time_ms": 10 + 1 + 3}
    )


@pytest.mark.parametrize("name", ["alpha_seconds", "theta_seconds"])
def test_lists_of_different_length_are_refused(name: str) -> None:
    assert code({**ADDITIVE, name: [0.001]}) == "length_mismatch"


@pytest.mark.parametrize(
    "change",
    [
        {"sample_steps_per_sec": [100.0, 0.0]},
        {"sample_steps_per_sec": [100.0, -5]},
        {"sample_steps_per_sec": [100.0, "fast"]},
        {"sample_steps_per_sec": [100.0, None]},
        {"sample_batch_tokens": [4, 1]},
        {"sample_batch_tokens": [4, 4]},
        {"sample_steps_per_sec": [100.0, float("nan")]},
    ],
)
def test_numbers_that_cannot_be_are_refused(change: dict[str, object]) -> None:
    assert code({**SAMPLED, **change}) == "invalid_value"


def test_a_negative_time_is_refused() -> None:
    assert code({**ADDITIVE, "bias_seconds": -0.01}) == "invalid_value"


@pytest.mark.parametrize(
    "value", [{}, [], {"sample_batch_tokens": []}, {**SAMPLED, "sample_steps_per_sec": "none"}]
)
def test_a_table_without_samples_is_refused(value: object) -> None:
    assert code(value) == "no_rows"


def test_a_cut_table_is_refused() -> None:
    assert code(json.dumps(ADDITIVE)[:60]) == "bad_json"


def test_a_step_that_takes_less_time_with_more_tokens_is_told() -> None:
    found = reading({**SAMPLED, "sample_steps_per_sec": [80.0, 100.0]})
    assert [warning.code for warning in found.warnings] == ["step_time_falls"]


def test_both_forms_are_recognised_and_a_quotation_is_not() -> None:
    assert recognise(json.dumps(SAMPLED)[:40])
    assert recognise(json.dumps(ADDITIVE))
    assert not recognise(json.dumps({"text": json.dumps(SAMPLED)}))
    assert not recognise("sample_batch_tokens 3")
