"""The report that ``trtllm-bench`` writes: one JSON object for a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.json_text import at, json_keys, json_objects, number_at, text_at
from calibration.readers.model_names import model_name, plain_name
from calibration.readers.reading import Cell, Reading, Row, SourceText
from specmodel.errors import LeftOut

# Name of the engine in rows.
ENGINE: Final = "tensorrt-llm"

# What the numbers of these files mean.
CONVENTIONS: Final = conventions("trtllm_bench_report")

RUN_MESSAGES: Final = messages("trtllm_bench_report")

_TREE_MODES = ("medusa", "lookahead", "explicit", "redrafter")  # draft length counts tree nodes
_MOST_STEPS = 1024
_WHOLE = 0.01  # how far a derived depth may be from a whole number


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """The figures of one run; None where the file does not have one."""

    line: int = 1  # where the run begins, 1-based
    speculated: bool = False  # whether there are decoding statistics
    mode: str | None = None  # how it drafted, in the engine's words
    accept_length: float | None = None  # means over requests
    acceptance_rate: float | None = None
    drafted_tokens: float | None = None  # mean of a request, [tokens]
    accepted_tokens: float | None = None
    accept_length_rounding: float = 0.0  # half a unit of the last digit that is printed
    acceptance_rate_rounding: float = 0.0
    labelled_rate: bool = False  # whether the accept length stands under the name of a rate
    output_tokens_per_s: float | None = None  # of the whole system, [tokens/s]
    time_per_token_ms: float | None = None  # means over requests, [ms]
    ttft_ms: float | None = None
    concurrency: float | None = None  # mean number of requests in flight
    num_requests: float | None = None  # requests of the run, and tokens of one in the mean
    input_tokens: float | None = None
    output_tokens: float | None = None
    model: str | None = None  # as written
    version: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    gpu: str | None = None
    tp_size: float | None = None  # ranks of the tensor parallel group and of the whole
    world_size: float | None = None

    @property
    def load(self) -> tuple[object, ...] | None:
        """What the run was asked for, which its baseline shares; None where too little is known."""
        if self.concurrency is None or self.model is None:
            return None
        tokens = (self.num_requests, self.input_tokens, self.output_tokens)
        system = (self.model, self.dtype, self.quantization, self.tp_size, self.world_size)
        return (ENGINE, *system, *tokens, round(self.concurrency))


def keep_run(findings: Findings, run: BenchRun) -> None:
    """Add the row of a run and what is odd about it, or say why there is none."""
    if run.output_tokens_per_s is None and not run.speculated:
        findings.drop(
            "malformed", run.line, "neither a throughput nor decoding statistics; is it cut off?"
        )
        return
    if not run.speculated:
        findings.keep(run.line, _row(run, 1.0, {"num_steps": 0.0}), ["baseline_inferred"])
        return
    accept_length, notes = run.accept_length, ["first_token_counted"]
    if accept_length is None:
        accept_length = _pooled_accept_length(run)
    else:
        notes.append("mean_of_ratios")
    if accept_length is None:
        findings.drop(
            "malformed",
            run.line,
            "decoding statistics without an average accept length, which a rate alone does not "
            "give; is it cut off?",
        )
        return
    if run.labelled_rate:
        notes.append("length_labelled_rate")
    depth, varied = _drafts_per_round(run, accept_length)
    tree = (run.mode or "").casefold().startswith(_TREE_MODES)
    if varied:
        notes.append("variable_draft_length")
    if depth is None or tree:
        notes.append("no_speculation_flags")
    findings.keep(run.line, _row(run, accept_length, _depth_cells(depth, tree=tree)), notes)


def _row(run: BenchRun, accept_length: float, depth: dict[str, Cell | None]) -> Row | LeftOut:
    """Return the row of a run."""
    time_ms = run.time_per_token_ms
    word = plain_name(run.quantization)
    return measured_row(
        run.line,
        {
            **depth,
            "accept_length": accept_length,
            "output_tokens_per_s": run.output_tokens_per_s,
            "step_time_ms": None if time_ms is None else time_ms * accept_length,
            "ttft_ms": run.ttft_ms,
            "batch_size": run.concurrency,
            "context_tokens": run.input_tokens,
            "output_tokens": run.output_tokens,
            "engine": ENGINE,
            "engine_version": plain_name(run.version),
            "target_model": model_name(run.model),
            "algorithm": plain_name(run.mode) if run.speculated else None,
            "dtype": plain_name((run.dtype or "").removeprefix("torch.")),
            "variant": (None if word is None or word.casefold() == "none" else word),
            "gpu": plain_name(run.gpu),
            "num_gpus": run.world_size,
            "tp_size": run.tp_size,
        },
        load=run.load,
        details={"requests": run.num_requests},
    )


def _pooled_accept_length(run: BenchRun) -> float | None:
    """Return tokens over rounds from the mean counts of a request, None where they do not give it."""
    if run.output_tokens is None or run.accepted_tokens is None:
        return None
    rounds = run.output_tokens - run.accepted_tokens
    return run.output_tokens / rounds if rounds > 0 else None


def _depth_cells(depth: float | None, *, tree: bool) -> dict[str, Cell | None]:
    """Return the cells of a draft length: of a tree it is the number of its nodes."""
    if depth is None:
        return {}
    return {"num_draft_tokens": depth + 1} if tree else {"num_steps": depth, "topk": 1.0}


def _drafts_per_round(run: BenchRun, accept_length: float) -> tuple[float | None, bool]:
    """Return the one draft length that the means allow, and whether they allow none at all."""
    rate, accepted = run.acceptance_rate, accept_length - 1
    rounds = (run.output_tokens or 0.0) - (run.accepted_tokens or 0.0)
    if rate is not None and 0 < rate <= 1 and accepted > 0:
        lowest_rate = rate - run.acceptance_rate_rounding
        low = (accepted - run.accept_length_rounding) / (rate + run.acceptance_rate_rounding)
        high = (
            (accepted + run.accept_length_rounding) / lowest_rate if lowest_rate > 0 else math.inf
        )
    elif rate is None and run.drafted_tokens and run.accepted_tokens is not None and rounds > 0:
        low = high = run.drafted_tokens / rounds
    else:
        return None, False
    if not 0 < high < _MOST_STEPS:
        return None, False
    first, last = math.ceil(low - _WHOLE), math.floor(high + _WHOLE)
    if first > last:
        return None, True
    return (float(first), False) if first == last and first > 0 else (None, False)


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
