"""Scrapes of SGLang's ``/metrics``: the counters of one moment, or their growth between several."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.model_names import model_name, plain_name
from calibration.readers.prometheus_text import (
    NO_SAMPLE,
    Moment,
    Sample,
    Scrape,
    SeriesKey,
    Window,
    is_exposition,
    latest_time,
    moments_of_servers,
    of_series,
    read_exposition,
    windows,
)
from calibration.readers.reading import Cell, Reading, SourceText
from specmodel.errors import FormatError
from specmodel.units import MILLI

FORMAT: Final = "sglang_prometheus"

_PREFIX = "sglang:"
_VERIFY, _GENERATED, _PROMPT = "verify", "generated", "prompt"
_COUNTERS: Final[Mapping[str, str]] = {
    "sglang:spec_verify_calls_total": _VERIFY,
    "sglang:generation_tokens_total": _GENERATED,
    "sglang:prompt_tokens_total": _PROMPT,
}
_RUNNING, _NUM_STEPS, _NUM_DRAFT_TOKENS = "running", "num_steps", "num_draft_tokens"
_GAUGES: Final[Mapping[str, str]] = {
    "sglang:num_running_reqs": _RUNNING,
    "sglang:spec_num_steps": _NUM_STEPS,
    "sglang:spec_num_draft_tokens": _NUM_DRAFT_TOKENS,
}
_NAMES: Final[Mapping[str, str]] = {**_COUNTERS, **_GAUGES}
_ERA = "0.5.16"  # the oldest release with the verify counter; without it there are no rows
_RANK_LABELS = ("tp_rank", "pp_rank", "moe_ep_rank")  # of one scheduler: they count the same
_INSTANCE_LABELS = ("instance", "pod")  # several servers behind one endpoint
_MESSAGES: Final = messages("sglang_prometheus")
_CONVENTIONS: Final = conventions("sglang_prometheus")


@dataclass(frozen=True, slots=True, order=True)
class _Scheduler:
    """Whose counters these are: of one data-parallel rank, or of a server as a whole."""

    model: str
    instance: str
    rank: str  # empty where no label names ranks


def recognise(head: str) -> bool:
    """Return whether a text is a scrape of SGLang."""
    return is_exposition(head, _PREFIX)


def series_key(source: SourceText) -> tuple[str, ...]:
    """Return what the scrapes of one server share: the models and where they run."""
    scrapes = read_exposition(source, _NAMES).scrapes
    servers = {_server(sample) for scrape in scrapes for sample in scrape.samples}
    return (FORMAT, *(part for server in sorted(servers) for part in server))


def read(source: SourceText) -> Reading:
    """Return the rows of one file: since the server started, or between scrapes appended to it."""
    return read_series([source])


def read_series(sources: Sequence[SourceText]) -> Reading:
    """Return the rows of several scrapes of one server: a row for each pair and rank."""
    findings = Findings(sources[0].path, _MESSAGES, SGLANG_CODES)
    moments, expositions = moments_of_servers(sources, _NAMES, _moments)
    for source, exposition in zip(sources, expositions, strict=True):
        findings.path = source.path
        findings.drop_cut_off(exposition.broken, NO_SAMPLE)
    ranks = Counter((one.model, one.instance) for one in moments if one.rank)
    for scheduler in sorted(moments):
        per_rank = ranks[scheduler.model, scheduler.instance] > 1
        for window in windows(moments[scheduler]):
            findings.path = window.later.path
            _add_row(window, scheduler, findings, per_rank=per_rank)
    findings.path = sources[0].path
    if not moments:
        raise FormatError(
            sources[0].path,
            "no sglang:spec_verify_calls_total and sglang:generation_tokens_total; the gauges of a "
            "scrape show one interval only. Scrape SGLang 0.5.16 or newer before and after a run",
            code="no_rows",
        )
    reading = findings.reading(FORMAT, era=(_ERA,), conventions=_CONVENTIONS)
    return of_series(reading, sources)


def _moments(scrape: Scrape) -> Iterable[tuple[_Scheduler, Moment]]:
    """Yield the counters of each scheduler in a scrape."""
    by_server: dict[tuple[str, str], list[Sample]] = {}
    for sample in scrape.samples:
        if sample.name in _COUNTERS and not sample.is_count:
            raise FormatError(
                scrape.path,
                f"{sample.name} is {sample.value:g}, but a counter is a whole number, not negative",
                line=sample.line,
                code="invalid_value",
            )
        if math.isfinite(sample.value):
            by_server.setdefault(_server(sample), []).append(sample)
    for (model, instance), every in by_server.items():
        samples = _lowest_ranks(every)
        verify_ranks = {_rank(s) for s in samples if _NAMES[s.name] == _VERIFY}
        ranks = {_rank(s) for s in samples if _NAMES[s.name] == _GENERATED}
        if not verify_ranks or not ranks:
            continue
        for rank in sorted(ranks) if ranks == verify_ranks and "" not in ranks else [""]:
            chosen = [s for s in samples if not rank or _rank(s) == rank or _of_all_ranks(s)]
            yield _Scheduler(model, instance, rank), _moment(scrape, chosen)


def _server(sample: Sample) -> tuple[str, str]:
    """Return the model of a series and the server it runs on."""
    instance = next((sample.labels[n] for n in _INSTANCE_LABELS if n in sample.labels), "")
    return sample.model, instance


def _rank(sample: Sample) -> str:
    """Return the data-parallel rank of a series, empty where no label names it."""
    return sample.labels.get("dp_rank", "")


def _of_all_ranks(sample: Sample) -> bool:
    """Return whether a series says something of every rank: prompts that any of them may read."""
    return not _rank(sample) and _NAMES[sample.name] != _RUNNING


def _lowest_ranks(samples: Iterable[Sample]) -> list[Sample]:
    """Return one series for each scheduler: its ranks count the same tokens."""
    lowest: dict[object, tuple[tuple[tuple[int, str], ...], Sample]] = {}
    for sample in samples:
        key = (sample.name, _labels(sample))
        written = [sample.labels.get(label, "") for label in _RANK_LABELS]
        ranks = tuple((len(rank), rank) for rank in written)  # orders whole numbers as such
        if key not in lowest or ranks < lowest[key][0]:
            lowest[key] = (ranks, sample)
    return [sample for _, sample in lowest.values()]


def _labels(sample: Sample) -> tuple[str, ...]:
    """Return the labels of a series without the ranks that count the same."""
    return sample.label_texts(without=_RANK_LABELS)


def _moment(scrape: Scrape, samples: Sequence[Sample]) -> Moment:
    """Return the counters and gauges of one scheduler."""
    counts: dict[SeriesKey, float] = {}
    gauges: dict[str, list[float]] = {}
    for sample in samples:
        meaning = _NAMES[sample.name]
        if sample.name in _COUNTERS:
            counts[meaning, *_labels(sample)] = sample.value
        else:
            gauges.setdefault(meaning, []).append(sample.value)
    return Moment(
        path=scrape.path,
        line=min(sample.line for sample in samples if sample.name in _COUNTERS),
        time_s=latest_time(samples),
        counts=counts,
        gauges={
            name: values[0]
            for name, values in gauges.items()
            if len(values) == 1 or (name != _RUNNING and len(set(values)) == 1)
        },
    )


def _add_row(window: Window, scheduler: _Scheduler, findings: Findings, *, per_rank: bool) -> None:
    """Add the row of one window, or why there is none."""
    line = window.later.line
    verify_calls, generated = window.total(_VERIFY), window.total(_GENERATED)
    if verify_calls is None or generated is None:
        findings.drop("counter_reset", line, window.restarted)
        return
    if not verify_calls:
        findings.drop("no_rounds", line, "no verify call in the window: nothing was speculated")
        return
    accept_length = generated / verify_calls
    cells, notes = _depth(window)
    cells = {
        "accept_length": accept_length,
        "verify_rounds": verify_calls,
        **cells,
        **_speed(window, generated, accept_length, notes),
        "engine": "sglang",
        "target_model": model_name(scheduler.model),
    }
    if per_rank:
        notes.append("per_rank")
    rank = f"DP{plain_name(scheduler.rank)}" if scheduler.rank else None
    row = measured_row(line, cells, details={"rounds": verify_calls, "rank": rank})
    findings.keep(line, row, notes)


def _depth(window: Window) -> tuple[dict[str, Cell | None], list[str]]:
    """Return the depth of a window and what is to be said about it."""
    moments = [m for m in (window.earlier, window.later) if m is not None]
    cells: dict[str, Cell | None] = {}
    for name in (_NUM_STEPS, _NUM_DRAFT_TOKENS):
        values = {moment.gauges[name] for moment in moments if name in moment.gauges}
        if len(values) > 1 or 0.0 in values:  # it drafts, so a depth of 0 is one of several
            return {}, ["adaptive_steps"]
        cells[name] = next(iter(values), None)
    if cells[_NUM_STEPS] is None:
        return cells, ["depth_unknown"]
    return cells, []


def _speed(
    window: Window, generated: float, accept_length: float, notes: list[str]
) -> dict[str, Cell | None]:
    """Return batch size, throughput and round time of a window; add what is to be said."""
    if window.earlier is None:
        notes += ["lifetime_counters", "no_throughput"]
        return {}
    prompts, seconds = window.total(_PROMPT), window.seconds
    if prompts:
        notes.append("prefill_in_window")
    cells: dict[str, Cell | None] = {"batch_size": _batch_size(window.earlier, window.later)}
    if seconds is None or not generated:
        notes += ["no_scrape_time", "no_throughput"]
        return cells
    output_tokens_per_s = generated / seconds
    cells["output_tokens_per_s"] = output_tokens_per_s
    batch_size = cells["batch_size"]
    if prompts is None:
        notes.append("prefill_unknown")
    elif not prompts and isinstance(batch_size, float):
        cells["step_time_ms"] = batch_size * accept_length / output_tokens_per_s / MILLI
        cells["throughput_origin"] = "step_time"
    return cells


def _batch_size(earlier: Moment, later: Moment) -> float | None:
    """Return the number of running requests where both scrapes agree."""
    running = earlier.gauges.get(_RUNNING)
    return running if running and running > 0 and running == later.gauges.get(_RUNNING) else None
