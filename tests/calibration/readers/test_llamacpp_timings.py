"""Timings in responses of llama.cpp's server."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.llamacpp_timings import read, recognise
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped


def response(
    decoded: int,
    accepted: int | None = None,
    drafted: int = 0,
    *,
    created: float | None = None,
    ms: float = 1000.0,
    model: str = "wren-8b.gguf",
) -> dict[str, Any]:
    drafts = {} if accepted is None else {"draft_n": drafted, "draft_n_accepted": accepted}
    stamp = {} if created is None else {"created": created}
    timings = {"prompt_n": 9, "prompt_ms": 100.0, "predicted_n": decoded + 1, "predicted_ms": ms}
    return {"model": model, "content": "...", **stamp, "timings": {**timings, **drafts}}


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("timings.json"), text=text, encoding="utf-8"))


def reading_of(*responses: dict[str, Any]) -> Reading:
    return read_text("\n".join(map(json.dumps, responses)))


def test_tokens_and_rounds_are_summed_before_they_are_divided() -> None:
    (row,) = reading_of(response(100, 60, 120), response(50, 10, 120, ms=3000)).rows
    assert row.cells["accept_length"] == 150 / 80
    assert row.cells["step_time_ms"] == 4000 / 80
    assert row.cells["output_tokens_per_s"] == 150 / 4
    assert row.cells["verify_rounds"] == 80
    assert row.cells["num_steps"] == 3  # 120 drafts in 40 rounds, twice


def test_one_response_ran_alone() -> None:
    reading = reading_of(response(100, 60, 120))
    assert reading.rows[0].cells["batch_size"] == 1
    assert codes(reading) == set()


@pytest.mark.parametrize("created", [(10, 12), (10, 11), (10, 10)])
def test_a_list_reads_like_lines(created: tuple[int, int]) -> None:
    both = [response(100, 60, 120, created=stamp) for stamp in created]
    assert read_text(json.dumps(both)).rows[0].cells == reading_of(*both).rows[0].cells


def test_responses_one_after_the_other_are_a_batch_of_one() -> None:
    apart = [response(100, 60, 120, created=stamp) for stamp in (1000, 1040)]
    assert reading_of(*apart).rows[0].cells["batch_size"] == 1


def test_responses_that_overlap_have_no_time() -> None:
    together = [response(100, 60, 120, created=1000 + i, ms=30_000) for i in range(3)]
    reading = reading_of(*together)
    assert reading.rows[0].cells["accept_length"] == 2.5
    assert not {"step_time_ms", "output_tokens_per_s", "batch_size"} & reading.rows[0].cells.keys()
    assert codes(reading) == {"concurrent_slots"}


def test_responses_without_a_stamp_have_no_batch_size() -> None:
    reading = reading_of(response(100, 60, 120), response(100, 60, 120))
    assert "batch_size" not in reading.rows[0].cells
    assert reading.rows[0].cells["step_time_ms"] == 25
    assert codes(reading) == {"load_unknown"}


def test_drafts_that_are_no_whole_number_a_round_varied() -> None:
    reading = reading_of(response(100, 60, 121))
    assert "num_steps" not in reading.rows[0].cells
    assert codes(reading) == {"no_speculation_flags", "variable_draft_length"}


def test_whole_numbers_that_differ_between_requests_varied_too() -> None:
    reading = reading_of(
        response(100, 60, 120, created=10), response(100, 60, 160, created=90)
    )  # 3 and 4 a round
    assert codes(reading) == {"no_speculation_flags", "variable_draft_length"}


def test_the_token_of_the_prefill_is_in_no_round() -> None:
    (row,) = read_text(
        """{"predicted_n": 101, "predicted_ms": 1000.0, "draft_n": 120, "draft_n_accepted": 60}"""
    ).rows
    assert (row.cells["accept_length"], row.cells["num_steps"]) == (2.5, 3)
    assert (row.cells["step_time_ms"], row.cells["output_tokens"]) == (25, 101)


def test_a_depth_in_the_settings_bounds_what_varied() -> None:
    one = {**response(100, 60, 110), "generation_settings": {"speculative.n_max": 4}}
    reading = reading_of(one)
    assert reading.rows[0].cells["num_steps"] == 4
    assert codes(reading) == {"variable_draft_length"}


def test_what_did_not_speculate_is_left_out_where_others_did() -> None:
    reading = reading_of(response(30), response(100, 60, 120), response(20, 0, 0), {"error": "x"})
    assert dropped(reading) == {"no_speculation": 1, "no_verify_rounds": 1, "no_timings": 1}
    assert reading.rows[0].cells["accept_length"] == 2.5


def test_no_draft_figures_at_all_are_a_baseline() -> None:
    reading = reading_of(response(40))
    (row,) = reading.rows
    assert (row.cells["num_steps"], row.cells["accept_length"]) == (0, 1)
    assert (row.cells["step_time_ms"], row.cells["output_tokens_per_s"]) == (25, 40)
    assert codes(reading) == {"baseline_inferred"}
    assert row.load == reading_of(response(100, 60, 120)).rows[0].load


def test_models_are_not_pooled() -> None:
    reading = reading_of(response(100, 60, 120), response(100, 75, 75, model="/srv/tern.gguf"))
    assert {row.cells["target_model"]: row.cells["accept_length"] for row in reading.rows} == {
        "wren-8b.gguf": 2.5,
        "tern.gguf": 4.0,
    }


def test_the_last_piece_of_a_stream_has_all_of_it() -> None:
    pieces = [
        {**response(n, n // 2, n), "id": "chatcmpl-1", "object": "chat.completion.chunk"}
        for n in (10, 50, 100)
    ]
    (row,) = reading_of(*pieces).rows
    assert row.details["rounds"] == 50


def test_bare_timings_are_read() -> None:
    (row,) = read_text('{"predicted_n": 101, "predicted_per_second": 50.5}').rows
    assert row.cells["step_time_ms"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"timings": {"predicted_n": 5', "malformed_json"),
        ('{"timings": {"predicted_n": -5, "predicted_ms": 3}}', "no_points"),
        ('{"timings": {"predicted_n": null, "predicted_ms": 3}}', "no_points"),
        (json.dumps(response(60, 60, 60)), "no_points"),
        (json.dumps(response(60, 30, 20)), "no_points"),
        (json.dumps(response(60, 0, 0)), "no_points"),
    ],
)
def test_figures_that_cannot_be_are_refused(text: str, code: str) -> None:
    with pytest.raises(FormatError) as error:
        read_text(text)
    assert error.value.code == code


def test_timings_are_recognised_in_json_only() -> None:
    assert recognise(json.dumps(response(5)))
    assert not recognise('predicted_n": 5, "predicted_ms": 4')
    assert not recognise('{"text": "\\"predicted_n\\": 5, \\"predicted_ms\\": 4"}')
