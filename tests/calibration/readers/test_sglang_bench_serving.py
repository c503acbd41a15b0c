"""JSON lines of ``bench_serving``."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_bench_serving import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes

SPECULATES = {
    "model_path": "/srv/private/Tern-32B",
    "tp_size": 4,
    "dp_size": 1,
    "version": "0.5.6",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/srv/private/Tern-32B-eagle3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "api_key": "secret",
}
PLAIN = {**SPECULATES, "speculative_algorithm": None}


def line(**changes: object) -> str:
    record: dict[str, object] = {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": math.inf,
        "max_concurrency": 16,
        "random_input_len": 1024,
        "random_output_len": 512,
        "duration": 30.0,
        "completed": 64,
        "total_input_tokens": 64000,
        "total_output_tokens": 32000,
        "output_throughput": 1066.0,
        "mean_e2e_latency_ms": 6000.0,
        "mean_ttft_ms": 200.0,
        "mean_tpot_ms": 12.0,
        "mean_itl_ms": 12.1,
        "concurrency": 14.5,
        "accept_length": 2.5,
        "server_info": SPECULATES,
    }
    return json.dumps({**record, **changes})


def read_lines(*lines: str) -> Reading:
    return read(SourceText(path=Path("a.jsonl"), text="\n".join(lines), encoding="utf-8"))


def row(**changes: object) -> dict[str, Any]:
    return dict(read_lines(line(**changes)).rows[0].cells)


def test_a_round_is_tpot_times_accept_length_and_the_batch_what_was_in_flight() -> None:
    cells = row()
    assert cells["step_time_ms"] == pytest.approx(12.0 * 2.5)
    assert (cells["batch_size"], cells["ttft_ms"]) == (14.5, 200.0)
    assert (cells["context_tokens"], cells["output_tokens"]) == (1000.0, 500.0)
    assert (cells["target_model"], cells["draft_model"]) == ("Tern-32B", "Tern-32B-eagle3")
    assert "throughput_origin" not in cells
    assert not any("private" in str(cell) or "secret" in str(cell) for cell in cells.values())


def test_no_accept_length_is_a_baseline() -> None:
    cells = row(accept_length=None, server_info=PLAIN)
    assert (cells["num_steps"], cells["accept_length"]) == (0.0, 1.0)
    assert cells["step_time_ms"] == 12.0


def test_several_tokens_a_chunk_give_the_accept_length_that_the_line_does_not() -> None:
    reading = read_lines(
        line(accept_length=None, server_info=None, backend="vllm", mean_itl_ms=30.0)
    )
    cells = reading.rows[0].cells
    assert cells["accept_length"] == pytest.approx(30.0 / 12.0)
    assert cells["step_time_ms"] == pytest.approx(30.0)
    assert cells["engine"] == "vllm"
    assert codes(reading) == {"accept_length_from_itl", "depth_unknown"}


@pytest.mark.parametrize(("itl_ms", "is_baseline"), [(14.39, True), (14.4, False)])
def test_the_limit_is_twelve_tokens_in_ten_chunks(itl_ms: float, *, is_baseline: bool) -> None:
    cells = row(accept_length=None, server_info=None, mean_itl_ms=itl_ms)
    assert (cells.get("num_steps") == 0.0) is is_baseline


def test_a_server_that_speculates_without_an_accept_length_is_no_baseline() -> None:
    reading = read_lines(line(accept_length=None))
    assert "accept_length" not in reading.rows[0].cells
    assert reading.rows[0].cells["num_steps"] == 3.0
    assert "accept_length_unknown" in codes(reading)


def test_arguments_of_another_server_do_not_make_a_baseline() -> None:
    reading = read_lines(line(server_info=PLAIN))
    assert "num_steps" not in reading.rows[0].cells
    assert {"flags_disagree", "depth_unknown"} <= codes(reading)


def test_flags_come_from_the_first_decode_server_of_a_disaggregated_pair() -> None:
    decode = [{**SPECULATES, "tp_size": 8}, {**SPECULATES, "tp_size": 2}]
    reading = read_lines(
        line(server_info={"prefill": [PLAIN], "decode": decode}),
        line(server_info=PLAIN, accept_length=None),
    )
    assert reading.rows[0].cells["tp_size"] == 8.0
    assert reading.rows[0].load != reading.rows[1].load


def test_with_several_schedulers_neither_batch_nor_accept_length_is_that_of_all() -> None:
    reading = read_lines(line(server_info={**SPECULATES, "dp_size": 2}))
    assert "batch_size" not in reading.rows[0].cells
    assert {"accept_length_rank0_only", "batch_size_unknown"} <= codes(reading)


def test_each_layout_is_named_by_the_release_that_wrote_it_first() -> None:
    old = json.loads(line())
    del old["server_info"]
    new = json.loads(line(p95_e2e_latency_ms=9000.0))
    reading = read_lines(json.dumps(old), line(tag=None), json.dumps(new))
    assert reading.era == ("0.4.6", "0.5.6", "0.5.23")
    assert "mixed_eras" in codes(reading)
    assert read_lines(line()).era == ("0.5.6",)


def test_what_was_asked_for_makes_a_pair_and_what_was_measured_does_not() -> None:
    base = {"accept_length": None, "server_info": PLAIN, "concurrency": 15.1}
    spec, baseline, wider, longer, slower = read_lines(
        line(),
        line(**base),
        line(**base, max_concurrency=32),
        line(**base, random_input_len=4096),
        line(**base, request_rate=2.0),
    ).rows
    assert spec.load == baseline.load
    assert len({baseline.load, wider.load, longer.load, slower.load}) == 4


def test_a_finite_rate_is_an_open_loop() -> None:
    assert "open_loop_load" in codes(read_lines(line(request_rate=2.0)))
    assert "open_loop_load" not in codes(read_lines(line(), line(request_rate=None)))


def test_an_accept_length_of_the_file_is_one_of_the_servers_life() -> None:
    assert "lifetime_counters" in codes(read_lines(line()))
    assert codes(read_lines(line(accept_length=None, server_info=PLAIN))) == set()


def test_the_cap_and_lossy_thresholds_of_the_server_are_said() -> None:
    info = {**SPECULATES, "max_running_requests": 48, "speculative_accept_threshold_acc": 0.9}
    assert {"max_running_requests_48", "lossy_acceptance"} <= codes(
        read_lines(line(server_info=info))
    )


@pytest.mark.parametrize(("itl_ms", "is_said"), [(12.5, False), (30.0, False), (20.0, True)])
def test_a_gap_is_of_a_token_or_of_a_round(itl_ms: float, *, is_said: bool) -> None:
    assert ("itl_identity" in codes(read_lines(line(mean_itl_ms=itl_ms)))) is is_said


def test_a_lone_client_that_waits_is_in_flight_part_of_the_time() -> None:
    reading = read_lines(line(concurrency=0.93, max_concurrency=1))
    assert reading.rows[0].cells["batch_size"] == 0.93


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"completed": 0, "output_throughput": 0.0}, "no_completed_requests"),
        ({"output_throughput": math.nan}, "missing_throughput"),
        ({"accept_length": 4.2}, "accept_length_above_depth"),
        ({"accept_length": 0.4}, "accept_length_out_of_range"),
        ({"concurrency": 1e300}, "not_finite"),
    ],
)
def test_a_line_that_cannot_be_is_dropped(changes: dict[str, object], code: str) -> None:
    reading = read_lines(line(), line(**changes))
    assert [(dropped.code, dropped.count) for dropped in reading.dropped] == [(code, 1)]
    with pytest.raises(FormatError) as caught:
        read_lines(line(**changes))
    assert caught.value.code == "no_rows"


def test_a_block_drafter_may_emit_more_than_its_one_step() -> None:
    block = {"speculative_algorithm": "DFLASH", "speculative_num_steps": 1}
    info = {**SPECULATES, **block, "speculative_num_draft_tokens": 16}
    assert row(server_info=info, accept_length=6.2)["accept_length"] == 6.2


@pytest.mark.parametrize("info", [None, [], "text", {"decode": []}, {"decode": [None]}, {}])
def test_any_server_info_is_read_or_passed_over(info: object) -> None:
    assert row(server_info=info)["accept_length"] == 2.5


def test_texts_that_a_model_wrote_are_neither_recognised_nor_read() -> None:
    quoted = line(generated_texts=["acc_length=9.00\nspeed=9.00 token/s", line()])
    assert len(read_lines(quoted).rows) == 1
    assert recognise(quoted)
    assert not recognise(json.dumps({"meta_info": {}, "text": line()}))
    assert not recognise(line().replace("e2e_latency", "e2el"))
