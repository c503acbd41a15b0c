"""Iteration statistics of trtllm-serve."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.trtllm_iteration_stats import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped


def iteration(
    requests: int, accepted: int, latency_ms: float, *, depth: int = 3, context: int = 0
) -> dict[str, Any]:
    return {
        "iter": 1,
        "iterLatencyMS": latency_ms,
        "inflightBatchingStats": {"numContextRequests": context, "numGenRequests": requests},
        "specDecodingStats": {
            "numDraftTokens": depth * requests,
            "numAcceptedTokens": accepted,
            "numRequestsWithDraftTokens": requests,
            "acceptanceLength": 9.9,
            "iterLatencyMS": latency_ms,
            "draftOverhead": 0.2,
        },
    }


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("stats.json"), text=text, encoding="utf-8"))


def reading_of(*iterations: dict[str, Any]) -> Reading:
    return read_text(json.dumps(iterations))


FIVE = [iteration(2, accepted, ms) for accepted, ms in ((1, 9), (2, 10), (3, 30), (4, 11), (5, 8))]


def test_acceptance_is_summed_and_time_is_the_median() -> None:
    (row,) = reading_of(*FIVE).rows
    assert row.cells["accept_length"] == 1 + 15 / 10
    assert row.cells["step_time_ms"] == 10
    assert row.cells["batch_size"] == 2
    assert row.cells["output_tokens_per_s"] == pytest.approx(2 * 2.5 / 0.010)
    assert row.cells["verify_rounds"] == 10
    assert (row.cells["num_steps"], row.cells["num_draft_tokens"]) == (3, 4)


def test_an_even_number_of_times_has_the_mean_of_the_middle_two() -> None:
    (row,) = reading_of(*FIVE, iteration(2, 0, 12)).rows  # 8 9 10 11 12 30
    assert row.cells["step_time_ms"] == 10.5


def test_what_cannot_be_a_round_is_left_out_and_counted() -> None:
    reading = reading_of(
        *FIVE,
        iteration(0, 0, 1.2),
        iteration(2, 3, 40, context=1),
        *[iteration(7, 3, 10)] * 4,
        {"iter": 3, "iterLatencyMS": 1.0, "specDecodingStats": None},
        iteration(2, 9, 10),
        iteration(2, 3, -1),
    )
    assert len(reading.rows) == 1
    assert dropped(reading) == {
        "no_verify_rounds": 2,
        "prefill_mixed": 1,
        "short_run": 4,
        "impossible_counts": 2,
    }


def test_a_depth_that_was_changed_makes_a_row_each() -> None:
    reading = reading_of(*FIVE, *[iteration(2, 2, 12, depth=5)] * 6)
    assert sorted(row.cells["num_steps"] for row in reading.rows) == [3, 5]
    assert codes(reading) == {"depth_changed"}


def test_a_depth_that_comes_and_goes_is_no_depth() -> None:
    reading = reading_of(*[iteration(2, 2, 12, depth=depth) for depth in (1, 4, 2, 4, 1, 3)])
    (row,) = reading.rows
    assert "num_steps" not in row.cells
    assert codes(reading) == {"variable_draft_length", "no_speculation_flags"}


def test_lists_that_were_polled_and_one_object_a_line_read_the_same() -> None:
    lines = "\n".join(map(json.dumps, FIVE))
    polled = json.dumps(FIVE[:2]) + "\n[]\n" + json.dumps(FIVE[2:])
    assert read_text(lines).rows[0].cells == read_text(polled).rows[0].cells
    assert read_text(lines + '\n{"iter": 9, "iter').dropped[0].code == "malformed"


def test_iterations_without_draft_statistics_are_a_baseline() -> None:
    plain = [{**one, "specDecodingStats": None} for one in FIVE]
    reading = reading_of(*plain)
    (row,) = reading.rows
    assert (row.cells["num_steps"], row.cells["accept_length"]) == (0, 1)
    assert row.cells["step_time_ms"] == 10
    assert row.load == reading_of(*FIVE).rows[0].load
    assert codes(reading) == {"baseline_inferred"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (json.dumps(FIVE)[:-5], "malformed_json"),
        (json.dumps(FIVE[:3]), "no_points"),
        ('[{"specDecodingStats": {"numRequestsWithDraftTokens": 1e400}}]', "no_points"),
        ("[]", "no_points"),
    ],
)
def test_what_holds_no_row_is_refused(text: str, code: str) -> None:
    with pytest.raises(FormatError) as error:
        read_text(text)
    assert error.value.code == code


def test_iterations_are_recognised_by_their_fields() -> None:
    assert recognise(json.dumps(FIVE))
    assert not recognise('{"iterLatencyMS": 3.0}')
