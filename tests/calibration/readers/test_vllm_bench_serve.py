"""Results of ``vllm bench serve``: counters, latencies, baselines, loads."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.vllm_bench_serve import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes

PLAIN: dict[str, Any] = {
    "backend": "openai-chat",
    "model_id": "acme/Tern-8B",
    "num_prompts": 80,
    "request_rate": "inf",
    "max_concurrency": 8,
    "duration": 20.0,
    "completed": 80,
    "failed": 0,
    "total_input_tokens": 16000,
    "total_output_tokens": 20000,
    "output_throughput": 1000.0,
    "total_token_throughput": 1800.0,
    "mean_ttft_ms": 70.0,
    "mean_tpot_ms": 7.5,
    "mean_itl_ms": 7.5,
    "mean_e2el_ms": 1950.0,
}
COUNTED: dict[str, Any] = {
    **PLAIN,
    "mean_tpot_ms": 4.0,
    "mean_itl_ms": 10.0,
    "spec_decode_acceptance_rate": 50.0,
    "spec_decode_acceptance_length": 2.5,
    "spec_decode_num_drafts": 8000,
    "spec_decode_draft_tokens": 24000,
    "spec_decode_accepted_tokens": 12000,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.45, 0.25],
}


def source(text: str) -> SourceText:
    return SourceText(path=Path("bench.json"), text=text, encoding="utf-8")


def read_results(*results: dict[str, Any]) -> Reading:
    return read(source("\n".join(json.dumps(result, indent=1) for result in results)))


def test_a_round_takes_the_time_per_token_times_the_accept_length() -> None:
    reading = read_results(COUNTED)
    row = reading.rows[0]
    assert row.cells["accept_length"] == 1 + 12000 / 8000
    assert row.cells["step_time_ms"] == 4.0 * 2.5
    assert row.cells["full_accuracy"] == (0.8, 0.45, 0.25)
    assert [row.cells[n] for n in ("num_steps", "topk", "num_draft_tokens")] == [3, 1, 4]
    assert row.cells["verify_rounds"] == 8000
    assert row.cells["output_tokens_per_s"] == 1000.0
    assert row.cells["ttft_ms"] == 70.0
    assert row.cells["output_tokens"] == 250.0
    assert row.cells["engine"] == "vllm"
    assert "throughput_origin" not in row.cells
    assert codes(reading) == set()


def test_the_default_metrics_are_recognised_and_the_batch_is_throughput_times_time_per_token() -> (
    None
):
    default = {key: cell for key, cell in COUNTED.items() if not key.endswith("_e2el_ms")}
    default = {**default, "max_concurrency": None, "output_throughput": 900.0}
    assert recognise(json.dumps(default))
    assert read_results(default).rows[0].cells["batch_size"] == pytest.approx(900 * 0.004)
    limited = {**default, "max_concurrency": 4}  # 3.6 of 4 decode, the others prefill
    assert read_results(limited).rows[0].cells["batch_size"] == 4


def test_one_token_a_chunk_is_a_baseline_and_more_are_an_accept_length() -> None:
    baseline = read_results({**PLAIN, "mean_itl_ms": 7.5 * 1.19})
    assert baseline.rows[0].cells["num_steps"] == 0
    assert baseline.rows[0].cells["step_time_ms"] == 7.5
    assert "baseline_inferred" in codes(baseline)
    unseen = read_results({**PLAIN, "mean_itl_ms": 7.5 * 1.2})
    assert unseen.rows[0].cells["accept_length"] == pytest.approx(1.2)
    assert "num_steps" not in unseen.rows[0].cells
    assert codes(unseen) == {"accept_length_from_itl", "no_speculation_flags"}


def test_without_both_latencies_nobody_knows_whether_it_speculated() -> None:
    reading = read_results({k: v for k, v in PLAIN.items() if k != "mean_itl_ms"})
    assert not {"accept_length", "num_steps", "step_time_ms"} & reading.rows[0].cells.keys()
    assert codes(reading) == {"speculation_unknown"}


def test_an_inter_token_latency_that_is_no_round_is_said_and_not_used() -> None:
    reading = read_results({**COUNTED, "mean_itl_ms": 11.1})
    assert codes(reading) == {"itl_identity"}
    assert reading.rows[0].cells["step_time_ms"] == 10.0


def test_percentages_are_converted_only_where_the_accept_length_proves_it() -> None:
    key = "spec_decode_per_position_acceptance_rates"
    proved = read_results({**COUNTED, key: [80.0, 45.0, 25.0]})
    assert proved.rows[0].cells["full_accuracy"] == pytest.approx((0.8, 0.45, 0.25))
    assert codes(proved) == {"percent_converted"}
    unproved = read_results({**COUNTED, key: [90.0, 80.0, 70.0]})
    assert "full_accuracy" not in unproved.rows[0].cells
    assert codes(unproved) == {"accuracy_above_one"}


def test_the_load_is_the_limit_where_it_was_reached_and_the_mean_in_flight_elsewhere() -> None:
    assert read_results(PLAIN).rows[0].cells["batch_size"] == 8
    half = read_results({**PLAIN, "mean_e2el_ms": 1000.0})
    assert half.rows[0].cells["batch_size"] == 4  # 80 x 1 s / 20 s
    free = read_results({**PLAIN, "max_concurrency": None, "request_rate": 4.0})
    assert free.rows[0].cells["batch_size"] == pytest.approx(7.8)
    assert "open_loop_load" in codes(free)
    slow = read_results({**PLAIN, "max_concurrency": None, "mean_e2el_ms": 100.0})
    assert slow.rows[0].cells["batch_size"] == 1


def test_runs_of_a_model_at_a_concurrency_are_a_pair_and_others_are_not() -> None:
    rows = read_results(
        COUNTED, PLAIN, {**PLAIN, "max_concurrency": 16}, {**PLAIN, "model_id": "acme/Other"}
    ).rows
    assert rows[0].load == rows[1].load
    assert len({row.load for row in rows}) == 3


def test_results_that_are_appended_are_rows_and_a_cut_one_is_dropped() -> None:
    text = json.dumps(COUNTED) + "\n" + json.dumps(PLAIN) + "\n" + json.dumps(PLAIN)[:90]
    reading = read(source(text))
    assert len(reading.rows) == 2
    assert [(d.code, d.count, d.line) for d in reading.dropped] == [("malformed", 1, 3)]


def test_a_cut_result_is_refused() -> None:
    with pytest.raises(FormatError) as caught:
        read(source(json.dumps(COUNTED, indent=1)[:300]))
    assert caught.value.code == "malformed_json"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"completed": 0}, "no_completed_requests"),
        ({"spec_decode_num_drafts": 0}, "no_verify_rounds"),
        ({"spec_decode_accepted_tokens": 25000}, "impossible_counts"),
        ({"spec_decode_num_drafts": -1}, "impossible_counts"),
        ({"spec_decode_num_drafts": 3000}, "accept_length_above_depth"),
        ({"output_throughput": 1e40}, "not_finite"),
    ],
)
def test_a_run_that_cannot_be_used_is_dropped(changes: dict[str, Any], code: str) -> None:
    changed = {**COUNTED, **changes}
    if code == "accept_length_above_depth":
        changed["spec_decode_draft_tokens"] = None
    reading = read_results(PLAIN, changed)
    assert [dropped.code for dropped in reading.dropped] == [code]
    assert len(reading.rows) == 1


def test_drafts_that_are_fewer_than_the_depth_are_said() -> None:
    reading = read_results({**COUNTED, "spec_decode_draft_tokens": 20000})
    assert reading.rows[0].cells["num_steps"] == 3
    assert codes(reading) == {"variable_draft_length"}


def test_a_printed_length_that_is_not_that_of_the_counts_is_said() -> None:
    reading = read_results({**COUNTED, "spec_decode_acceptance_length": 1.5})
    assert reading.rows[0].cells["accept_length"] == 2.5
    assert codes(reading) == {"accept_length_mismatch"}


def test_another_server_behind_the_same_client_is_named() -> None:
    assert read_results({**PLAIN, "backend": "sglang"}).rows[0].cells["engine"] == "sglang"


def test_it_is_recognised_by_content_even_where_details_come_before_the_latencies() -> None:
    assert recognise(json.dumps(PLAIN))
    detailed = {"model_id": "a/B", "completed": 1, "total_token_throughput": 3.0, "ttfts": [0.1]}
    assert recognise(json.dumps(detailed))
    assert not recognise('{"completed": 8, "mean_e2e_latency_ms": 900.0}')
    assert not recognise('{"completed": 8, "note": "\\"mean_e2el_ms\\": 3"}')
    assert not recognise("mean_e2el_ms,completed\n3,4\n")


def test_nothing_but_other_objects_is_refused() -> None:
    with pytest.raises(FormatError) as caught:
        read(source('[{"a": 1}, 3, null, {"completed": "many", "mean_e2el_ms": null}]'))
    assert caught.value.code == "no_points"


def test_without_counters_a_round_lasts_as_the_median_chunk() -> None:
    """Prefills of other requests stretch the mean: 2 x 3 tokens in 24 ms are 250 tok/s of decoding."""
    result = {
        "model_id": "m",
        "backend": "vllm",
        "num_prompts": 20,
        "completed": 20,
        "max_concurrency": 2,
        "duration": 100.0,
        "total_input_tokens": 2000,
        "total_output_tokens": 20000,
        "output_throughput": 200.0,
        "mean_ttft_ms": 100.0,
        "mean_tpot_ms": 9.9,
        "mean_itl_ms": 29.7,
        "median_itl_ms": 24.0,
        "mean_e2el_ms": 10000.0,
    }
    text = json.dumps(result)
    reading = read(SourceText(path=Path("result.json"), text=text, encoding="utf-8"))
    assert reading.rows[0].cells["accept_length"] == pytest.approx(3.0)
    assert reading.rows[0].cells["step_time_ms"] == 24.0
    assert "itl_identity" in codes(reading)
