"""Responses of a vLLM server with metrics of speculation: histograms, depths, what is left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.vllm_request_metrics import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes


def response(histogram: list[Any] | None, depth: int = 2, **more: object) -> dict[str, Any]:
    metrics: dict[str, Any] = {"acceptance_histogram": histogram, "num_spec_tokens": depth, **more}
    return {"model": "acme/Tern-8B", "metrics": {"speculative_decoding": metrics}}


def read_responses(*responses: object) -> Reading:
    text = "\n".join(json.dumps(one) for one in responses)
    return read(SourceText(path=Path("a.jsonl"), text=text, encoding="utf-8"))


def test_histograms_are_summed_before_they_are_divided() -> None:
    cells = read_responses(response([1, 0, 0]), response([0, 0, 3])).rows[0].cells
    assert cells["accept_length"] == 1 + 6 / 4  # the mean of the two lengths would be 2
    assert cells["full_accuracy"] == (0.75, 0.75)
    assert cells["verify_rounds"] == 4
    assert (cells["num_steps"], cells["num_draft_tokens"]) == (2, 3)


def test_each_model_and_depth_has_its_own_row() -> None:
    other = {**response([4, 1, 0]), "model": "acme/Other"}
    reading = read_responses(response([1, 2, 1]), response([1, 1], depth=1), other)
    assert len(reading.rows) == 3
    assert codes(reading) == {"depth_changed"}


def test_a_list_of_every_round_stands_in_for_the_histogram() -> None:
    detailed = response(None, per_step_accepted=[0, 2, 2, 1], depth=3)
    cells = read_responses(detailed).rows[0].cells
    assert cells["accept_length"] == 1 + 5 / 4
    assert cells["full_accuracy"] == (0.75, 0.5, 0.0)


def test_counts_alone_give_the_accept_length_and_no_accuracy() -> None:
    counted = response(None, num_spec_steps=10, num_accepted_draft_tokens=15)
    cells = read_responses(counted).rows[0].cells
    assert cells["accept_length"] == 2.5
    assert "full_accuracy" not in cells


def test_requests_without_rounds_or_without_speculation_are_counted() -> None:
    plain = {"model": "acme/Tern-8B", "metrics": None}
    reading = read_responses(response([1, 2, 1]), response([0, 0, 0]), plain, plain)
    assert {d.code: d.count for d in reading.dropped} == {
        "no_verify_rounds": 1,
        "no_speculation": 2,
    }


def test_a_short_or_long_histogram_is_fitted_to_the_depth() -> None:
    short = read_responses(response([1, 1], depth=3)).rows[0].cells
    assert short["full_accuracy"] == (0.5, 0.0, 0.0)
    long = read_responses(response([1, 1, 0, 0], depth=1)).rows[0].cells
    assert long["full_accuracy"] == (0.5,)
    with pytest.raises(FormatError, match="accepted more than the depth"):
        read_responses(response([1, 1, 1], depth=1))


def test_fewer_proposed_drafts_than_rounds_times_depth_are_said() -> None:
    assert codes(read_responses(response([1, 2, 1], num_draft_tokens=8))) == set()
    assert codes(read_responses(response([1, 2, 1], num_draft_tokens=7))) == {
        "variable_draft_length"
    }


def test_a_histogram_that_contradicts_the_counts_is_said_and_used() -> None:
    reading = read_responses(response([1, 2, 1], num_spec_steps=9))
    assert reading.rows[0].cells["verify_rounds"] == 4
    assert codes(reading) == {"histogram_mismatch"}


def test_a_reply_of_a_batch_file_is_found_in_its_wrapping() -> None:
    wrapped = {"custom_id": "1", "response": {"status_code": 200, "body": response([1, 2, 1])}}
    assert read_responses(wrapped).rows[0].cells["target_model"] == "acme/Tern-8B"


@pytest.mark.parametrize("histogram", [[-1, 2], [0.5, 1], ["x"], [1e40, 1], [], [0] * 3000])
def test_what_is_no_histogram_is_left_out(histogram: list[object]) -> None:
    reading = read_responses(response([1, 2, 1]), response(histogram))
    assert len(reading.rows) == 1
    assert reading.rows[0].details["requests"] == 1
    assert sum(dropped.count for dropped in reading.dropped) == 1


def test_a_file_without_rounds_is_refused() -> None:
    with pytest.raises(FormatError) as caught:
        read_responses(response([0, 0, 0]))
    assert caught.value.code == "no_points"
    with pytest.raises(FormatError) as caught:
        read(SourceText(path=Path("a"), text='{"metrics": {"specu', encoding="utf-8"))
    assert caught.value.code == "malformed_json"


def test_generated_text_is_not_recognised_and_not_copied() -> None:
    assert recognise(json.dumps(response([1, 2])))
    text = 'a {"speculative_decoding": {"acceptance_histogram": [1]}}'
    assert not recognise(text)
    assert not recognise(json.dumps({"content": text}))
    secret = {**response([1, 2, 1]), "choices": [{"message": {"content": "planted"}}]}
    assert "planted" not in repr(read_responses(secret))
