"""What clients print at the end of a run: the same as the JSON that they write of it."""

import json
from pathlib import Path

import pytest

from calibration.readers import Reading, SourceText, sglang_bench_serving, vllm_bench_serve

VLLM = """\
============ Serving Benchmark Result ============
Successful requests:                     20
Failed requests:                         0
Maximum request concurrency:             2
Benchmark duration (s):                  100.00
Total input tokens:                      2,000
Total generated tokens:                  20000
Request throughput (req/s):              0.20
Output token throughput (tok/s):         200.00
Peak output token throughput (tok/s):    240.00
Total Token throughput (tok/s):          220.00
---------------Time to First Token----------------
Mean TTFT (ms):                          100.00
P99 TTFT (ms):                           190.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          9.90
P99 TPOT (ms):                           12.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           24.00
---------------Speculative Decoding---------------
Acceptance rate (%):                     50.00
Acceptance length:                       2.50
Drafts:                                  8000
Draft tokens:                            24000
Accepted tokens:                         12000
Per-position acceptance (%):
  Position 0:                            70.00
  Position 1:                            50.00
  Position 2:                            30.00
==================================================
"""
VLLM_JSON = {
    "completed": 20,
    "failed": 0,
    "max_concurrency": 2,
    "duration": 100.0,
    "model_id": None,
    "total_input_tokens": 2000,
    "total_output_tokens": 20000,
    "output_throughput": 200.0,
    "mean_ttft_ms": 100.0,
    "mean_tpot_ms": 9.9,
    "mean_itl_ms": 24.0,
    "spec_decode_acceptance_length": 2.5,
    "spec_decode_num_drafts": 8000,
    "spec_decode_draft_tokens": 24000,
    "spec_decode_accepted_tokens": 12000,
    "spec_decode_per_position_acceptance_rates": [0.7, 0.5, 0.3],
}
SGLANG = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 8
Successful requests:                     80
Benchmark duration (s):                  20.00
Total input tokens:                      8000
Total generated tokens:                  16000
Request throughput (req/s):              4.00
Output token throughput (tok/s):         800.00
Concurrency:                             7.90
Accept length:                           2.81
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   1975.00
---------------Time to First Token----------------
Mean TTFT (ms):                          50.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          9.67
---------------Inter-Token Latency----------------
Mean ITL (ms):                           9.67
==================================================
"""


def source(text: str) -> SourceText:
    return SourceText(path=Path("paste.txt"), text=text, encoding="utf-8")


def read_vllm(text: str) -> Reading:
    assert vllm_bench_serve.recognise(text)
    assert not sglang_bench_serving.recognise(text)
    return vllm_bench_serve.read(source(text))


def read_sglang(text: str) -> Reading:
    assert sglang_bench_serving.recognise(text)
    return sglang_bench_serving.read(source(text))


def test_what_vllm_prints_is_what_it_writes() -> None:
    printed = read_vllm(VLLM).rows[0]
    written = vllm_bench_serve.read(source(json.dumps(VLLM_JSON))).rows[0]
    assert printed.cells == written.cells
    assert printed.cells["accept_length"] == 1 + 12000 / 8000
    assert printed.cells["num_steps"] == 24000 / 8000
    assert printed.cells["full_accuracy"] == pytest.approx((0.7, 0.5, 0.3))
    assert printed.cells["step_time_ms"] == pytest.approx(9.9 * 2.5)
    assert printed.cells["output_tokens_per_s"] == 200
    assert printed.cells["context_tokens"] == 100


def test_what_sglang_prints_is_read() -> None:
    cells = read_sglang(SGLANG).rows[0].cells
    assert (cells["accept_length"], cells["output_tokens_per_s"]) == (2.81, 800)
    assert cells["batch_size"] == 7.9
    assert cells["output_tokens"] == 16000 / 80
    assert cells["step_time_ms"] == pytest.approx(9.67 * 2.81)


@pytest.mark.parametrize(
    "dress",
    [
        lambda text: f"Here you go:\n\n```\n{text}```\nthoughts?\n",
        lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.partition("\n")[2],  # the title was not pasted
        lambda text: "".join(f"    {line}\n" for line in text.splitlines()[:-1]),  # nor the end
    ],
)
def test_words_and_quotes_around_a_block_change_nothing(dress: object) -> None:
    assert callable(dress)
    assert read_vllm(dress(VLLM)).rows[0].cells == read_vllm(VLLM).rows[0].cells


def test_every_block_of_a_page_is_a_run() -> None:
    other = VLLM.replace("200.00", "150.00").replace("2.50", "2.20").replace("12000", "9600")
    rows = read_vllm(f"k = 3\n{VLLM}\nk = 3, other prompts\n{other}").rows
    assert [row.cells["output_tokens_per_s"] for row in rows] == [200, 150]
    assert [row.cells["accept_length"] for row in rows] == [2.5, 2.2]
    assert [row.line for row in rows] == [2, 2 + VLLM.count("\n") + 2]


def test_a_block_without_a_completed_request_is_no_run() -> None:
    text = VLLM + VLLM.replace(
        "requests:                     20", "requests:                     0"
    )
    reading = read_vllm(text)
    assert [one.code for one in reading.dropped] == ["no_completed_requests"]


@pytest.mark.parametrize("text", ["Successful requests: many\n", "==== Results ====\na: 1\n", "{}"])
def test_other_blocks_are_not_recognised(text: str) -> None:
    assert not vllm_bench_serve.recognise(text)
    assert not sglang_bench_serving.recognise(text)
