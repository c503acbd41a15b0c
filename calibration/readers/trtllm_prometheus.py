"""Scrapes of ``trtllm-serve``: drafted and accepted tokens, or their growth between scrapes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from calibration.readers.acceptance_counts import draft_counts
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.model_names import model_name, plain_name
from calibration.readers.prometheus_text import (
    Moment,
    Sample,
    Scrape,
    Window,
    counter_names,
    is_exposition,
    latest_time,
    of_series,
    read_exposition,
    windows_of_models,
)
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import LeftOut

FORMAT: Final = "trtllm_prometheus"

_PREFIX = "trtllm_"
_DRAFTED, _ACCEPTED = "drafted", "accepted"
_STEMS: Final[Mapping[str, str]] = {
    "trtllm_spec_decode_num_draft_tokens": _DRAFTED,
    "trtllm_spec_decode_num_accepted_tokens": _ACCEPTED,
}
_COUNTERS, _CREATED = counter_names(_STEMS)
_CONFIGURATION = "trtllm_speculative_config_info"
_NAMES: Final = frozenset({*_COUNTERS, *_CREATED, _CONFIGURATION})
_DEEPEST = 1024
_WHOLE_TOLERANCE = 1e-6
_MESSAGES: Final = messages("trtllm_prometheus")
_CONVENTIONS: Final = conventions("trtllm_prometheus")


def recognise(head: str) -> bool:
    """Return whether a text is a scrape of TensorRT-LLM."""
    return is_exposition(head, _PREFIX)


def series_key(source: SourceText) -> tuple[str, ...]:
    """Return what the scrapes of one server share: its models, and how they draft."""
    samples = [s for scrape in read_exposition(source, _NAMES).scrapes for s in scrape.samples]
    labels = ("model_name", "spec_method", "spec_num_tokens")
    kinds = {
        tuple(s.labels.get(label, "") for label in labels)
        for s in samples
        if s.name == _CONFIGURATION
    }
    kinds |= {(s.model, "", "") for s in samples} if not kinds else set()
    return (FORMAT, *(part for kind in sorted(kinds) for part in kind))


def read(source: SourceText) -> Reading:
    """Return the rows of one file: since the server started, or between scrapes appended to it."""
    return read_series([source])


def read_series(sources: Sequence[SourceText]) -> Reading:
    """Return the rows of several scrapes of one server: a row for each pair and model."""
    findings = Findings(sources[0].path, _MESSAGES)
    for model, window in windows_of_models(sources, _NAMES, _moments, _is_usable, findings):
        _add_row(window, model, findings)
    reading = findings.reading(
        FORMAT,
        "no trtllm_spec_decode counters: the server did not speculate",
        advice="scrape a server that speculates before and after a run",
        conventions=_CONVENTIONS,
    )
    return of_series(reading, sources)


def _moments(scrape: Scrape) -> Iterable[tuple[str, Moment]]:
    """Yield the counters of each model in a scrape."""
    by_model: dict[str, list[Sample]] = {}
    active: dict[str, set[tuple[str, str]]] = {}
    for sample in filter(_is_usable, scrape.samples):
        if sample.name != _CONFIGURATION:
            by_model.setdefault(sample.model, []).append(sample)
        elif sample.value > 0:
            labels = sample.labels
            kind = (labels.get("spec_method", ""), labels.get("spec_num_tokens", ""))
            active.setdefault(sample.model, set()).add(kind)
    alone = next(iter(active.values())) if len(active) == 1 else set()
    for model, samples in by_model.items():
        counters = [sample for sample in samples if sample.name in _COUNTERS]
        if not any(_COUNTERS[sample.name] == _DRAFTED for sample in counters):
            continue
        kinds = active.get(model, alone)
        yield (
            model,
            Moment(
                path=scrape.path,
                line=min(sample.line for sample in counters),
                time_s=latest_time(samples),
                counts={(_COUNTERS[s.name], *s.label_texts()): s.value for s in counters},
                created_s={
                    (_CREATED[s.name], *s.label_texts()): s.value
                    for s in samples
                    if s.name in _CREATED
                },
                shape=next(iter(kinds)) if len(kinds) == 1 else (),
            ),
        )


def _is_usable(sample: Sample) -> bool:
    """Return whether a sample is a count, or no counter at all."""
    return sample.is_count or (sample.name not in _COUNTERS and math.isfinite(sample.value))


def _num_steps(written: str) -> int | None:
    """Return a depth as a label gives it, None where it is none."""
    whole = written.removesuffix(".0")
    if not (whole.isascii() and whole.isdigit()) or len(whole) > len(str(_DEEPEST)):
        return None
    return int(whole) if 0 < int(whole) <= _DEEPEST else None


def _add_row(window: Window, model: str, findings: Findings) -> None:
    """Add the row of one window, or why there is none."""
    line = window.later.line
    method, written = window.later.shape or ("", "")
    num_steps, drafted = _num_steps(str(written)), window.total(_DRAFTED)
    if num_steps is None:
        findings.drop(
            "missing_depth",
            line,
            "no trtllm_speculative_config_info with one spec_num_tokens: without the depth, drafted "
            "tokens give no rounds",
        )
        return
    rounds = None if drafted is None else drafted / num_steps
    counts = draft_counts(rounds, drafted, window.total(_ACCEPTED))
    if counts is None:
        findings.drop("malformed", line, "the counter of accepted tokens is missing")
        return
    if isinstance(counts, LeftOut):
        findings.refuse(line, counts)
        return
    row = measured_row(
        line,
        {
            "accept_length": counts.accept_length,
            "verify_rounds": counts.rounds,
            "num_steps": float(num_steps),
            "topk": 1.0,
            "algorithm": plain_name(str(method)),
            "engine": "tensorrt-llm",
            "target_model": model_name(model),
        },
        details={"rounds": counts.rounds},
    )
    notes = {
        "assumed_drafts": True,
        "lifetime_accept_length": window.earlier is None,
        "variable_draft_length": abs(counts.rounds - round(counts.rounds)) > _WHOLE_TOLERANCE,
    }
    findings.keep(line, row, (note for note, applies in notes.items() if applies))
