"""Results of ``vllm bench serve``: one JSON object for a run, alone, appended, in a list; or printed."""

import math
from collections.abc import Mapping
from typing import Any, Final

from calibration.readers.acceptance_counts import (
    ACCEPTANCE_MESSAGES,
    SEVERAL_TOKENS,
    ChainAcceptance,
    chain_acceptance,
    tokens_per_chunk,
)
from calibration.readers.check import measured_row
from calibration.readers.console_blocks import serving_labels, serving_records
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import (
    JsonRecord,
    json_keys,
    json_objects,
    number_at,
    numbers_at,
    positive_at,
    text_at,
)
from calibration.readers.model_names import model_name, plain_name
from calibration.readers.reading import Cell, Reading, SourceText
from specmodel.errors import LeftOut
from specmodel.units import MILLI

FORMAT: Final = "vllm_bench_serve"

_RESULT = frozenset({"completed", "num_prompts", "model_id"})
_END_TO_END = ("mean_e2el_ms", "median_e2el_ms", "std_e2el_ms", "p99_e2el_ms")
_DETAILED = frozenset({"input_lens", "output_lens", "ttfts", "itls"})  # before the latencies
_DEFAULT = ("_ttft_ms", "_tpot_ms", "_itl_ms")  # what is written when no metrics are asked for
_ENGINES: Final[Mapping[str, str]] = {
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt_llm",
    "llama.cpp": "llama_cpp",
    "lmdeploy": "lmdeploy",
    "tgi": "tgi",
    "modular": "max",
}
_IDENTITY_TOLERANCE = 0.1
_LOAD_TOLERANCE = 0.1  # of the mean in flight against the limit, for the limit to be the load
_CONVENTIONS: Final = conventions("vllm_bench_serve")
_MESSAGES = {
    **ACCEPTANCE_MESSAGES,
    "accept_length_from_itl": "no counters of speculation, but chunks of more than one token: the "
    "accept length is mean ITL / mean TPOT",
    "baseline_inferred": "no counters of speculation and one token a chunk: taken for a run "
    "without speculation, though the file does not say so",
    "failed_requests": "some requests failed, so the load was lower than asked for",
    "itl_identity": "mean inter-token latency differs by more than 10 % from the round time (TPOT x "
    "accept length; the median latency where the accept length is inferred): rounds were mixed with "
    "prefill, or chunks are no rounds",
    "open_loop_load": "requests came at a finite rate: the batch was not fixed",
    "speculation_unknown": "neither counters of speculation nor both latencies: it is not known "
    "whether the server speculated",
}


def recognise(head: str) -> bool:
    """Return whether a text holds results of ``vllm bench serve``, as JSON or as it prints them."""
    keys = json_keys(head)
    if not keys & _RESULT:
        return "output token throughput (tok/s)" in serving_labels(head)
    if any(key.endswith("_e2el_ms") for key in keys):
        return True
    if "total_token_throughput" not in keys or any("e2e_latency" in key for key in keys):
        return False
    return bool(keys & _DETAILED) or any(key.endswith(_DEFAULT) for key in keys)


def read(source: SourceText) -> Reading:
    """Return a row for each result."""
    findings = Findings(source.path, _MESSAGES)
    for record in serving_records(source.text, FORMAT) or json_objects(source, findings):
        _read_result(record, findings)
    return findings.reading(FORMAT, "no result of a run", conventions=_CONVENTIONS)


def _read_result(record: JsonRecord, findings: Findings) -> None:
    """Keep the row of a result, or say why there is none."""
    result, line = record.fields, record.line
    completed = number_at(result, "completed")
    if not any(key in result for key in _END_TO_END) and not _RESULT & result.keys():
        findings.drop("malformed", line, "no result of a run: no latencies and no counts")
        return
    if completed is not None and completed <= 0:
        findings.drop("no_completed_requests", line, "no request was completed")
        return
    acceptance = _counted(result) or _inferred(result)
    if isinstance(acceptance, LeftOut):
        findings.refuse(line, acceptance)
        return
    time_per_token_ms = positive_at(result, "mean_tpot_ms")
    step_time_ms = None
    if time_per_token_ms is not None and acceptance.accept_length is not None:
        step_time_ms = time_per_token_ms * acceptance.accept_length
    median_ms = positive_at(result, "median_itl_ms")
    if "accept_length_from_itl" in acceptance.notes and step_time_ms and median_ms:
        # that product is the mean latency of a chunk, which prefills of other requests stretch
        stretched = step_time_ms > (1 + _IDENTITY_TOLERANCE) * median_ms
        step_time_ms = median_ms if stretched else step_time_ms
    throughput = positive_at(result, "output_throughput")
    if throughput is None and step_time_ms is None and acceptance.rounds is None:
        findings.drop("malformed", line, "neither a throughput nor a latency nor an acceptance")
        return
    cells: dict[str, Cell | None] = {
        **acceptance.cells,
        "engine": _engine(result),
        "target_model": model_name(text_at(result, "model_id")),
        "tp_size": _whole(result, "tensor_parallel_size") or _whole(result, "tp"),
        "workload": plain_name(text_at(result, "dataset_name")),
        "batch_size": _batch_size(result, completed),
        "output_tokens_per_s": throughput,
        "ttft_ms": positive_at(result, "mean_ttft_ms"),
        "context_tokens": _per_request(result, "total_input_tokens", completed),
        "output_tokens": _per_request(result, "total_output_tokens", completed),
        "step_time_ms": step_time_ms,
    }
    limit, rate = number_at(result, "max_concurrency"), number_at(result, "request_rate")
    at_once = number_at(result, "num_prompts") if limit is None and rate is None else None
    model = model_name(text_at(result, "model_id"))
    findings.keep(
        line,
        measured_row(line, cells, load=(FORMAT, _engine(result), model, limit, rate, at_once)),
        (*acceptance.notes, *_load_notes(result), *_identity(result, step_time_ms)),
    )


def _counted(result: Mapping[str, Any]) -> ChainAcceptance | LeftOut | None:
    """Return what the counters say about the acceptance, None where there are none."""
    rates = numbers_at(result, "spec_decode_per_position_acceptance_rates")
    return chain_acceptance(
        rounds=number_at(result, "spec_decode_num_drafts"),
        drafted=number_at(result, "spec_decode_draft_tokens"),
        accepted=number_at(result, "spec_decode_accepted_tokens"),
        printed_length=number_at(result, "spec_decode_acceptance_length"),
        rates=rates or (),
    )


def _inferred(result: Mapping[str, Any]) -> ChainAcceptance:
    """Return what the latencies say about the acceptance of a result without counters."""
    tokens = tokens_per_chunk(number_at(result, "mean_itl_ms"), number_at(result, "mean_tpot_ms"))
    if tokens is None or not math.isfinite(tokens):
        return ChainAcceptance(notes=("speculation_unknown",))
    if tokens < SEVERAL_TOKENS:
        return ChainAcceptance(accept_length=1.0, num_steps=0, notes=("baseline_inferred",))
    return ChainAcceptance(
        accept_length=tokens, notes=("accept_length_from_itl", "no_speculation_flags")
    )


def _batch_size(result: Mapping[str, Any], completed: float | None) -> float | None:
    """Return how many requests were decoded together: the limit where it was reached."""
    limit, in_flight = positive_at(result, "max_concurrency"), _in_flight(result, completed)
    if in_flight is None:
        return limit
    if limit is not None and abs(in_flight / limit - 1) <= _LOAD_TOLERANCE:
        return limit
    return max(in_flight, 1.0)  # below one, the server was idle in between


def _in_flight(result: Mapping[str, Any], completed: float | None) -> float | None:
    """Return the mean of requests at once, by Little's law from the latency that is written."""
    end_to_end_ms, duration_s = positive_at(result, "mean_e2el_ms"), positive_at(result, "duration")
    if end_to_end_ms is not None and duration_s is not None and completed is not None:
        return completed * end_to_end_ms * MILLI / duration_s
    time_per_token_ms = positive_at(result, "mean_tpot_ms")
    throughput = positive_at(result, "output_throughput")
    if any(key in result for key in _END_TO_END) or time_per_token_ms is None or throughput is None:
        return None
    return throughput * time_per_token_ms * MILLI  # those that decode


def _load_notes(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is to be said about the load."""
    failed, rate = number_at(result, "failed") or 0, number_at(result, "request_rate")
    open_loop = rate is not None and number_at(result, "max_concurrency") is None
    return (
        *(("failed_requests",) if failed > 0 else ()),
        *(("open_loop_load",) if open_loop else ()),
    )


def _identity(result: Mapping[str, Any], step_time_ms: float | None) -> tuple[str, ...]:
    """Return the code of a chunk that does not take as long as a round."""
    chunk_ms = positive_at(result, "mean_itl_ms")
    if step_time_ms is None or chunk_ms is None:
        return ()
    return ("itl_identity",) if abs(chunk_ms / step_time_ms - 1) > _IDENTITY_TOLERANCE else ()


def _engine(result: Mapping[str, Any]) -> str:
    """Return the engine that answered: vLLM where the client's name for it says no other."""
    backend = (text_at(result, "backend") or text_at(result, "endpoint_type") or "").casefold()
    return next((name for word, name in _ENGINES.items() if backend.startswith(word)), "vllm")


def _whole(result: Mapping[str, Any], key: str) -> float | None:
    """Return a whole number above zero, None where there is none."""
    found = positive_at(result, key)
    return found if found is not None and found.is_integer() else None


def _per_request(result: Mapping[str, Any], key: str, completed: float | None) -> float | None:
    """Return a total over the completed requests, None where it cannot be said."""
    total = positive_at(result, key)
    return total / completed if total is not None and completed else None
