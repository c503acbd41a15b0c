"""Exports of AIPerf."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.aiperf_summary import read, recognise
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes


def metric(mean: float, unit: str = "ms") -> dict[str, Any]:
    return {"unit": unit, "avg": mean, "p50": -1.0}


def export(**more: Any) -> dict[str, Any]:
    return {
        "output_token_throughput": metric(400.0, "tokens/sec"),
        "output_token_throughput_per_user": metric(150.0, "tokens/sec/user"),
        "time_to_first_token": metric(90.0),
        "inter_token_latency": metric(8.0),
        "request_count": metric(10.0, "requests"),
        "input_config": {
            "endpoint": {"model_names": ["acme/Wren-8B"], "api_key": "not-a-real-key"},
            "loadgen": {"concurrency": 4},
        },
        **more,
    }


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("aiperf.json"), text=text, encoding="utf-8"))


def reading_of(**more: Any) -> Reading:
    return read_text(json.dumps(export(**more)))


MEAN = {
    "spec_decode_acceptance_length": metric(2.2, "tokens"),
    "spec_decode_draft_acceptance_rate": metric(40.0, "%"),
}
WEIGHTED = {
    "spec_decode_token_weighted_acceptance_length": metric(2.5, "tokens"),
    "spec_decode_overall_draft_acceptance_rate": metric(50.0, "%"),
}
COUNTS = {
    "spec_decode_steps": metric(20.0, "steps"),
    "spec_decode_accepted_draft_tokens": metric(32.0, "tokens"),
    "spec_decode_draft_tokens": metric(80.0, "tokens"),
}
HISTOGRAM = {"pooled_spec_decode_acceptance_histogram": [40, 30, 10, 20]}


def test_the_pooled_histogram_comes_first() -> None:
    (row,) = reading_of(**MEAN, **HISTOGRAM).rows
    assert row.cells["accept_length"] == pytest.approx(1 + (30 + 20 + 60) / 100)
    assert row.cells["full_accuracy"] == pytest.approx((0.6, 0.3, 0.2))
    assert (row.cells["num_steps"], row.cells["verify_rounds"]) == (3, 100)


def test_the_token_weighted_length_comes_before_the_mean_and_with_its_own_rate() -> None:
    reading = reading_of(**MEAN, **WEIGHTED)
    (row,) = reading.rows
    assert (row.cells["accept_length"], row.cells["num_steps"]) == (2.5, 3)
    assert codes(reading) == set()


def test_counts_come_before_a_mean_of_ratios() -> None:
    (row,) = reading_of(**MEAN, **COUNTS).rows
    assert row.cells["accept_length"] == pytest.approx(1 + 32 / 20)
    assert (row.cells["num_steps"], row.cells["verify_rounds"]) == (4, 200)


def test_a_mean_over_requests_is_said_to_be_one() -> None:
    reading = reading_of(**MEAN)
    (row,) = reading.rows
    assert (row.cells["accept_length"], row.cells["num_steps"]) == (2.2, 3)  # 1.2 / 40 %
    assert codes(reading) == {"mean_of_ratios"}


def test_a_length_without_a_rate_has_no_depth() -> None:
    reading = reading_of(spec_decode_token_weighted_acceptance_length=metric(2.5))
    assert codes(reading) == {"no_speculation_flags"}


def test_fewer_drafts_than_the_depth_varied() -> None:
    counts = {**COUNTS, "spec_decode_draft_tokens": metric(50.0)}  # 2.5 a round
    assert codes(reading_of(**HISTOGRAM, **counts)) == {"variable_draft_length"}


def test_a_histogram_may_end_before_the_depth_or_go_on_in_zeros() -> None:
    for counts in ([40, 30, 30], [40, 30, 30, 0, 0, 0, 0]):
        histogram = {"pooled_spec_decode_acceptance_histogram": counts}
        (row,) = reading_of(**histogram, **COUNTS).rows  # 80 / 20 drafts a round
        assert row.cells["full_accuracy"] == pytest.approx((0.6, 0.3, 0, 0))


def test_load_and_times_are_those_of_the_run() -> None:
    (row,) = reading_of(**WEIGHTED).rows
    assert row.cells["output_tokens_per_s"] == 400
    assert row.cells["step_time_ms"] == pytest.approx(8 * 2.5)
    assert (row.cells["batch_size"], row.cells["ttft_ms"]) == (4, 90)
    assert row.cells["target_model"] == "acme/Wren-8B"
    assert "not-a-real-key" not in repr(row)


def test_a_time_in_seconds_is_converted() -> None:
    (row,) = reading_of(**WEIGHTED, time_to_first_token=metric(0.09, "s")).rows
    assert row.cells["ttft_ms"] == pytest.approx(90)


def test_a_chunk_that_is_no_round_is_said() -> None:
    assert codes(reading_of(**WEIGHTED, inter_chunk_latency=metric(20.0))) == set()  # 8 x 2.5
    assert codes(reading_of(**WEIGHTED, inter_chunk_latency=metric(9.0))) == {"itl_identity"}


def test_without_figures_the_chunks_tell_whether_it_speculated() -> None:
    plain = reading_of(inter_chunk_latency=metric(8.1))
    assert plain.rows[0].cells["num_steps"] == 0
    assert codes(plain) == {"baseline_inferred"}
    assert plain.rows[0].load == reading_of(**WEIGHTED).rows[0].load
    unseen = reading_of(inter_chunk_latency=metric(16.0))
    assert unseen.rows[0].cells["accept_length"] == 2
    assert codes(unseen) == {"accept_length_from_itl", "no_speculation_flags"}


def test_requests_of_a_run_are_summed() -> None:
    lines = [
        {"metadata": {}, "metrics": {tag: {"value": value} for tag, value in one.items()}}
        for one in (
            {
                "spec_decode_steps": 10,
                "spec_decode_accepted_draft_tokens": 20,
                "spec_decode_draft_tokens": 30,
            },
            {
                "spec_decode_steps": 30,
                "spec_decode_accepted_draft_tokens": 10,
                "spec_decode_draft_tokens": 90,
            },
            {"spec_decode_steps": 0},
            {"request_latency": 3.0},
        )
    ]
    text = "\n".join(map(json.dumps, lines))
    assert recognise(text)
    reading = read_text(text)
    (row,) = reading.rows
    assert row.cells["accept_length"] == 1 + 30 / 40
    assert (row.cells["num_steps"], row.cells["verify_rounds"]) == (3, 40)
    assert {one.code: one.count for one in reading.dropped} == {
        "no_verify_rounds": 1,
        "no_speculation": 1,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (json.dumps(export(**WEIGHTED))[:-9], "malformed_json"),
        (json.dumps(export()), "no_points"),
        (json.dumps(export(pooled_spec_decode_acceptance_histogram=[3, -1])), "no_points"),
        (json.dumps(export(pooled_spec_decode_acceptance_histogram=[0, 0])), "no_points"),
        (json.dumps(export(spec_decode_acceptance_length=metric(0.4))), "no_points"),
    ],
)
def test_what_gives_no_acceptance_is_refused(text: str, code: str) -> None:
    with pytest.raises(FormatError) as error:
        read_text(text)
    assert error.value.code == code


def test_results_of_other_clients_are_not_taken() -> None:
    assert recognise(json.dumps(export(**MEAN)))
    assert not recognise('{"model_id": "a", "spec_decode_acceptance_length": 2.1, "completed": 3}')
    assert not recognise('{"output_token_throughput": {"avg": 3.0}}')
