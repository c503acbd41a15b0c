"""Reports of trtllm-bench."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.reading import Reading, Row, SourceText
from calibration.readers.trtllm_bench_report import read, recognise
from specmodel.errors import FormatError


def report(**decoding: float | str) -> dict[str, Any]:
    """Return a report; requests of 100 tokens, 40 rounds each, unless it says otherwise."""
    statistics = {
        name: {"average": value, "p50": 0.0}
        for name, value in decoding.items()
        if isinstance(value, float)
    }
    return {
        "engine": {"model": "acme/Wren-8B", "version": "1.1.0", "backend": "PyTorch"},
        "world_info": {"tp_size": 2, "world_size": 4},
        "request_info": {
            "num_requests": 32,
            "avg_num_concurrent_requests": 7.9,
            "avg_input_length": 500.0,
            "avg_output_length": 100.0,
        },
        "performance": {
            "system_output_throughput_tok_s": 2000.0,
            "system_total_throughput_tok_s": 9000.0,
            "output_throughput_per_user_tok_s": 260.0,
            "output_throughput_per_gpu_tok_s": 500.0,
        },
        "streaming_metrics": {"avg_ttft_ms": 40.0, "avg_tpot_ms": 4.0},
        **({"decoding_stats": {"mode": decoding.get("mode"), **statistics}} if decoding else {}),
    }


SPECULATIVE = {"acceptance_length_percentiles": 2.5, "draft_acceptance_rate_percentiles": 0.5}


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("report.json"), text=text, encoding="utf-8"))


def only(one: dict[str, Any]) -> Row:
    (row,) = read_text(json.dumps(one)).rows
    return row


def codes(one: dict[str, Any]) -> set[str]:
    return {warning.code for warning in read_text(json.dumps(one)).warnings}


def test_the_throughput_is_that_of_the_system_not_of_a_user_or_a_gpu() -> None:
    assert only(report(**SPECULATIVE)).cells["output_tokens_per_s"] == 2000


def test_the_depth_is_what_makes_the_rate_give_the_length() -> None:
    cells = only(report(**SPECULATIVE)).cells
    assert (cells["num_steps"], cells["num_draft_tokens"], cells["topk"]) == (3, 4, 1)  # 1.5 / 0.5


def test_the_step_is_the_time_per_token_times_the_accept_length() -> None:
    assert only(report(**SPECULATIVE)).cells["step_time_ms"] == pytest.approx(4.0 * 2.5)


def test_a_mean_over_requests_with_the_prefill_in_it_is_said() -> None:
    assert codes(report(**SPECULATIVE)) == {"mean_of_ratios", "first_token_counted"}


def test_a_report_without_decoding_statistics_is_a_baseline() -> None:
    row = only(report())
    assert (row.cells["num_steps"], row.cells["accept_length"]) == (0, 1)
    assert row.cells["step_time_ms"] == 4.0
    assert codes(report()) == {"baseline_inferred"}


def test_a_run_and_its_baseline_share_their_load_and_another_concurrency_does_not() -> None:
    baseline, other = report(), report()
    baseline["request_info"]["avg_num_concurrent_requests"] = 7.95
    other["request_info"]["avg_num_concurrent_requests"] = 15.8
    loads = [only(one).load for one in (report(**SPECULATIVE), baseline, other)]
    assert loads[0] == loads[1] != loads[2]


def test_no_whole_depth_means_that_it_varied() -> None:
    one = report(acceptance_length_percentiles=2.5, draft_acceptance_rate_percentiles=0.42)
    assert "num_steps" not in only(one).cells
    assert {"variable_draft_length", "no_speculation_flags"} <= codes(one)


def test_a_length_under_the_name_of_a_rate_is_a_length() -> None:
    one = report(draft_acceptance_rate_percentiles=1.86)
    assert only(one).cells["accept_length"] == 1.86
    assert {"length_labelled_rate", "no_speculation_flags"} <= codes(one)


def test_mean_counts_give_the_accept_length_where_none_is_printed() -> None:
    one = report(num_draft_tokens_percentiles=120.0, num_accepted_draft_tokens_percentiles=60.0)
    cells = only(one).cells  # 100 tokens - 60 accepted = 40 rounds of 3 drafts
    assert (cells["accept_length"], cells["num_steps"]) == (2.5, 3)
    assert codes(one) == {"first_token_counted"}


def test_a_tree_has_nodes_but_no_depth() -> None:
    one = report(mode="MEDUSA", **SPECULATIVE)
    assert only(one).cells["num_draft_tokens"] == 4
    assert "num_steps" not in only(one).cells


def test_a_path_to_a_model_is_cut_to_its_name() -> None:
    one = report()
    one["engine"]["model"] = "/home/ann/private/Wren-8B"
    assert only(one).cells["target_model"] == "Wren-8B"


def test_reports_of_two_depths_are_said_to_be() -> None:
    two = [report(**SPECULATIVE), report(**{**SPECULATIVE, "acceptance_length_percentiles": 3.5})]
    reading = read_text("\n".join(map(json.dumps, two)))
    assert [row.cells["num_steps"] for row in reading.rows] == [3, 5]
    assert "depth_changed" in {warning.code for warning in reading.warnings}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (json.dumps(report(**SPECULATIVE))[:-20], "malformed_json"),
        ('{"performance": {}, "engine": {}}', "no_points"),
        ('{"performance": {"system_output_throughput_tok_s": -3}}', "no_points"),
        ('{"performance": null, "decoding_stats": {"mode": "EAGLE"}}', "no_points"),
    ],
)
def test_a_broken_report_is_refused(text: str, code: str) -> None:
    with pytest.raises(FormatError) as error:
        read_text(text)
    assert error.value.code == code


def test_other_json_is_not_taken_for_a_report() -> None:
    assert recognise(json.dumps(report()))
    assert not recognise('{"performance": {"gflops": 3.0}, "engine": "x"}')
    assert not recognise("performance system_output_throughput_tok_s engine")
