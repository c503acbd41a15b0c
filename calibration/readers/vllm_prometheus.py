"""Scrapes of vLLM's ``/metrics``: its speculation counters, or their growth between several."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from calibration.readers.acceptance_counts import ACCEPTANCE_MESSAGES, accuracy_notes, draft_counts
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.model_names import model_name
from calibration.readers.prometheus_text import (
    Moment,
    Sample,
    Scrape,
    SeriesKey,
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

FORMAT: Final = "vllm_prometheus"

_PREFIX = "vllm:"
_ROUNDS, _DRAFTED, _ACCEPTED, _POSITION = "rounds", "drafted", "accepted", "position"
_STEMS: Final[Mapping[str, str]] = {
    "vllm:spec_decode_num_drafts": _ROUNDS,
    "vllm:spec_decode_num_draft_tokens": _DRAFTED,
    "vllm:spec_decode_num_accepted_tokens": _ACCEPTED,
    "vllm:spec_decode_num_accepted_tokens_per_pos": _POSITION,
}
_COUNTERS, _CREATED = counter_names(_STEMS)
_NAMES: Final[Mapping[str, str]] = {**_COUNTERS, **_CREATED}
_MOST_POSITIONS = 1024
_MESSAGES: Final[Mapping[str, str]] = {
    **ACCEPTANCE_MESSAGES,
    "lifetime_accept_length": "one scrape: its counters are averages since the server started, "
    "warm-up included; two scrapes around a run give the run",
}
_CONVENTIONS: Final = conventions("vllm_prometheus")


def recognise(head: str) -> bool:
    """Return whether a text is a scrape of vLLM."""
    return is_exposition(head, _PREFIX)


def series_key(source: SourceText) -> tuple[str, ...]:
    """Return what the scrapes of one server share: its models, and how deep they draft."""
    samples = [s for scrape in read_exposition(source, _NAMES).scrapes for s in scrape.samples]
    depth: dict[str, set[int]] = {}
    for sample in samples:
        position = _position(sample)
        depth.setdefault(sample.model, set()).update(() if position is None else (position,))
    return (FORMAT, *(part for model in sorted(depth) for part in (model, str(len(depth[model])))))


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
        "no vllm:spec_decode counters: the server did not speculate",
        advice="scrape a server that speculates before and after a run",
        conventions=_CONVENTIONS,
    )
    return of_series(reading, sources)


def _moments(scrape: Scrape) -> Iterable[tuple[str, Moment]]:
    """Yield the counters of each model in a scrape."""
    by_model: dict[str, list[Sample]] = {}
    for sample in scrape.samples:
        if _is_usable(sample):
            by_model.setdefault(sample.model, []).append(sample)
    for model, samples in by_model.items():
        counters = [sample for sample in samples if sample.name in _COUNTERS]
        if not any(_COUNTERS[sample.name] == _ROUNDS for sample in counters):
            continue
        positions = sorted({one for one in map(_position, counters) if one is not None})
        yield (
            model,
            Moment(
                path=scrape.path,
                line=min(sample.line for sample in counters),
                time_s=latest_time(samples),
                counts={_key(sample): sample.value for sample in counters},
                created_s={_key(s): s.value for s in samples if s.name in _CREATED},
                shape=tuple(positions),
            ),
        )


def _is_usable(sample: Sample) -> bool:
    """Return whether a sample is a count, or a time of creation."""
    return sample.is_count or (sample.name in _CREATED and math.isfinite(sample.value))


def _position(sample: Sample) -> int | None:
    """Return the position of a series of accepted tokens, from 0; None where it has none."""
    written = sample.labels.get("position", "")
    if _NAMES[sample.name] != _POSITION or not (written.isascii() and written.isdigit()):
        return None
    known = len(written) <= len(str(_MOST_POSITIONS)) and int(written) < _MOST_POSITIONS
    return int(written) if known else None


def _key(sample: Sample) -> SeriesKey:
    """Return what tells a counter from the others of its model."""
    meaning, position = _NAMES[sample.name], _position(sample)
    name = meaning if position is None else f"{meaning} {position}"
    return (name, *sample.label_texts())


def _add_row(window: Window, model: str, findings: Findings) -> None:
    """Add the row of one window, or why there is none."""
    line = window.later.line
    counts = draft_counts(window.total(_ROUNDS), window.total(_DRAFTED), window.total(_ACCEPTED))
    if counts is None:
        findings.drop("malformed", line, "vllm:spec_decode_num_accepted_tokens is missing")
        return
    if isinstance(counts, LeftOut):
        findings.refuse(line, counts)
        return
    num_steps = counts.depth(len(window.later.shape))
    accuracy = _full_accuracy(window, counts.rounds, num_steps)
    row = measured_row(
        line,
        {
            "accept_length": counts.accept_length,
            "full_accuracy": accuracy,
            "verify_rounds": counts.rounds,
            "num_steps": None if num_steps is None else float(num_steps),
            "topk": 1.0,
            "engine": "vllm",
            "target_model": model_name(model),
        },
        details={"rounds": counts.rounds},
    )
    notes = {
        "lifetime_accept_length": window.earlier is None,
        "no_speculation_flags": num_steps is None,
        "variable_draft_length": counts.varies(num_steps),
        **dict.fromkeys(accuracy_notes(accuracy, counts.accept_length), True),
    }
    findings.keep(line, row, (note for note, applies in notes.items() if applies))


def _full_accuracy(window: Window, rounds: float, num_steps: int | None) -> tuple[float, ...]:
    """Return the share of rounds that accepted each position, empty where one is missing."""
    if num_steps is None or window.later.shape != tuple(range(num_steps)):
        return ()
    accepted = [window.total(f"{_POSITION} {position}") for position in range(num_steps)]
    return () if None in accepted else tuple((tokens or 0.0) / rounds for tokens in accepted)
