"""The report that ``trtllm-bench`` writes: one JSON object for a run."""

from collections.abc import Mapping
from typing import Any, Final

from calibration.readers.findings import Findings
from calibration.readers.json_objects import json_objects
from calibration.readers.json_text import at, json_keys, number_at, text_at
from calibration.readers.reading import Reading, SourceText
from calibration.readers.trtllm_bench_run import CONVENTIONS, RUN_MESSAGES, BenchRun, keep_run

FORMAT: Final = "trtllm_bench_report"


def recognise(head: str) -> bool:
    """Return whether a text is a report of ``trtllm-bench``."""
    keys = json_keys(head)
    blocks = {"decoding_stats", "world_info", "request_info", "engine"}
    return "performance" in keys and bool(keys & blocks) and bool(keys & _FIGURES)


_FIGURES: Final = frozenset(
    {"system_output_throughput_tok_s", "output_throughput_per_gpu_tok_s", "decoding_stats"}
)


def read(source: SourceText) -> Reading:
    """Return the row of a report; of several, one row each.

    With :math:`L` the mean accept length and :math:`r` the mean draft acceptance rate over
    requests, the depth is :math:`(L - 1) / r`.
    """
    findings = Findings(source.path, RUN_MESSAGES)
    for record in json_objects(source, findings):
        keep_run(findings, _run(record.line, record.fields))
    return findings.reading(FORMAT, "a report without figures", conventions=CONVENTIONS)


def _run(line: int, report: Mapping[str, Any]) -> BenchRun:
    """Return the figures of a report."""
    decoding = report.get("decoding_stats")
    length = _average(decoding, "acceptance_length_percentiles")
    rate = _average(decoding, "draft_acceptance_rate_percentiles")
    labelled_rate = length is None and rate is not None and rate > 1
    return BenchRun(
        line=line,
        speculated=isinstance(decoding, dict) and bool(decoding),
        mode=text_at(decoding, "mode"),
        accept_length=rate if labelled_rate else length,
        acceptance_rate=None if labelled_rate else rate,
        drafted_tokens=_average(decoding, "num_draft_tokens_percentiles"),
        accepted_tokens=_average(decoding, "num_accepted_draft_tokens_percentiles"),
        labelled_rate=labelled_rate,
        output_tokens_per_s=number_at(report, "performance", "system_output_throughput_tok_s"),
        time_per_token_ms=number_at(report, "streaming_metrics", "avg_tpot_ms"),
        ttft_ms=number_at(report, "streaming_metrics", "avg_ttft_ms"),
        concurrency=number_at(report, "request_info", "avg_num_concurrent_requests"),
        num_requests=number_at(report, "request_info", "num_requests"),
        input_tokens=number_at(report, "request_info", "avg_input_length"),
        output_tokens=number_at(report, "request_info", "avg_output_length"),
        model=text_at(report, "engine", "model") or text_at(report, "engine", "model_path"),
        version=text_at(report, "engine", "version"),
        dtype=text_at(report, "engine", "dtype"),
        quantization=text_at(report, "engine", "quantization"),
        gpu=text_at(report, "machine", "name"),
        tp_size=number_at(report, "world_info", "tp_size"),
        world_size=number_at(report, "world_info", "world_size"),
    )


def _average(decoding: object, name: str) -> float | None:
    """Return the mean over requests of one statistic, None where there is none."""
    mean = number_at(decoding, name, "average")
    return mean if mean is not None else number_at(at(decoding, name), "avg")
