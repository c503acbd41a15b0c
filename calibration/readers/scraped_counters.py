"""Scrapes of vLLM, TensorRT-LLM and llama.cpp: their speculation counters, or the growth between several."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias, cast

from calibration.readers.acceptance_counts import ACCEPTANCE_MESSAGES, accuracy_notes, draft_counts
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.model_names import model_name, plain_name
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

# How deep a server drafts: the positions that it counts, and how its configuration says it.
_Shape: TypeAlias = tuple[tuple[int, ...], tuple[str, str]]

_ROUNDS, _DRAFTED, _ACCEPTED, _POSITION = "rounds", "drafted", "accepted", "position"
_DEEPEST = 1024
_WHOLE_TOLERANCE = 1e-6


@dataclass(kw_only=True, eq=False)
class ScrapeFormat:
    """What an engine calls its counters: a format that is read like every other."""

    FORMAT: str
    prefix: str  # of the names of its series
    engine: str
    stems: Mapping[str, str]  # what the counters count, by name without suffix
    needs: str = _ROUNDS  # the counter without which a model did not speculate
    configuration: str = ""  # a series whose labels say how deep it drafts

    @cached_property
    def counters(self) -> Mapping[str, str]:
        """What the counters count, by name."""
        return counter_names(self.stems)[0]

    @cached_property
    def names(self) -> Mapping[str, str]:
        """What every series that is read says, by name."""
        counters, created = counter_names(self.stems)
        known = {self.configuration: "configuration"} if self.configuration else {}
        return counters | created | known

    def recognise(self, head: str) -> bool:
        """Return whether a text is a scrape of the engine."""
        return is_exposition(head, self.prefix)

    def series_key(self, source: SourceText) -> tuple[str, ...]:
        """Return what the scrapes of one server share: its models, and how they draft."""
        kinds: dict[str, set[str]] = defaultdict(set)
        for scrape in read_exposition(source, self.names).scrapes:
            for sample in scrape.samples:
                position = self.position(sample)
                depth = () if position is None else (str(position),)
                kinds[sample.model].update(
                    map(str, _kind(sample)) if sample.name == self.configuration else depth
                )
        parts = ((model, ",".join(sorted(kinds[model]))) for model in sorted(kinds))
        return (self.FORMAT, *(part for pair in parts for part in pair))

    def read(self, source: SourceText) -> Reading:
        """Return the rows of one file: since the server started, or between scrapes appended to it."""
        return self.read_series([source])

    def read_series(self, sources: Sequence[SourceText]) -> Reading:
        """Return the rows of several scrapes of one server: a row for each pair and model."""
        findings = Findings(sources[0].path, {**ACCEPTANCE_MESSAGES, **messages(self.FORMAT)})
        found = windows_of_models(sources, self.names, self.moments, self.is_usable, findings)
        for model, window in found:
            self.add_row(window, model, findings)
        reading = findings.reading(
            self.FORMAT,
            f"no {self.prefix}spec_decode counters: the server did not speculate",
            advice="scrape a server that speculates before and after a run",
            conventions=conventions(self.FORMAT),
        )
        return of_series(reading, sources)

    def moments(self, scrape: Scrape) -> Iterable[tuple[str, Moment]]:
        """Yield the counters of each model in a scrape."""
        by_model: dict[str, list[Sample]] = defaultdict(list)
        active: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for sample in filter(self.is_usable, scrape.samples):
            if sample.name != self.configuration:
                by_model[sample.model].append(sample)
            elif sample.value > 0:
                active[sample.model].add(_kind(sample))
        alone = next(iter(active.values())) if len(active) == 1 else set()
        for model, samples in by_model.items():
            counters = [sample for sample in samples if sample.name in self.counters]
            if not any(self.counters[sample.name] == self.needs for sample in counters):
                continue
            kinds = active.get(model, alone)
            positions = {self.position(sample) for sample in counters} - {None}
            yield (
                model,
                Moment(
                    path=scrape.path,
                    line=min(sample.line for sample in counters),
                    time_s=latest_time(samples),
                    counts={self.key(sample): sample.value for sample in counters},
                    created_s={
                        self.key(sample): sample.value
                        for sample in samples
                        if sample.name not in self.counters
                    },
                    shape=(
                        tuple(sorted(one for one in positions if one is not None)),
                        next(iter(kinds)) if len(kinds) == 1 else ("", ""),
                    ),
                ),
            )

    def is_usable(self, sample: Sample) -> bool:
        """Return whether a sample is a count, or a number that is none of a counter."""
        return sample.is_count or (sample.name not in self.counters and math.isfinite(sample.value))

    def position(self, sample: Sample) -> int | None:
        """Return the position of a series of accepted tokens, from 0; None where it has none."""
        written = sample.labels.get("position", "")
        if self.names[sample.name] != _POSITION or not (written.isascii() and written.isdigit()):
            return None
        known = len(written) <= len(str(_DEEPEST)) and int(written) < _DEEPEST
        return int(written) if known else None

    def key(self, sample: Sample) -> SeriesKey:
        """Return what tells a counter from the others of its model."""
        meaning, position = self.names[sample.name], self.position(sample)
        name = meaning if position is None else f"{meaning} {position}"
        return (name, *sample.label_texts())

    def add_row(self, window: Window, model: str, findings: Findings) -> None:
        """Add the row of one window, or why there is none."""
        line = window.later.line
        positions, (method, written) = cast("_Shape", window.later.shape)
        rounds, drafted = window.total(_ROUNDS), window.total(_DRAFTED)
        stated = _num_steps(written)
        if self.configuration:
            if stated is None:
                message = f"no {self.configuration} with one spec_num_tokens: without the depth, "
                message += "drafted tokens give no rounds"
                findings.drop("missing_depth", line, message)
                return
            rounds = None if drafted is None else drafted / stated
        counts = draft_counts(rounds, drafted, window.total(_ACCEPTED))
        if counts is None:
            message = f"the {self.prefix}spec_decode counter of accepted tokens is missing"
            findings.drop("malformed", line, message)
            return
        if isinstance(counts, LeftOut):
            findings.refuse(line, counts)
            return
        num_steps = stated if self.configuration else counts.depth(len(positions))
        accepted = [window.total(f"{_POSITION} {position}") for position in positions]
        accuracy: tuple[float, ...] = ()
        if num_steps is not None and positions == tuple(range(num_steps)):
            accuracy = tuple(tokens / counts.rounds for tokens in accepted if tokens is not None)
            accuracy = accuracy if len(accuracy) == num_steps else ()
        row = measured_row(
            line,
            {
                "accept_length": counts.accept_length,
                "full_accuracy": accuracy,
                "verify_rounds": counts.rounds,
                "num_steps": None if num_steps is None else float(num_steps),
                "topk": 1.0,
                "algorithm": plain_name(method),
                "engine": self.engine,
                "target_model": model_name(model),
            },
            details={"rounds": counts.rounds},
        )
        part_of_a_round = abs(counts.rounds - round(counts.rounds)) > _WHOLE_TOLERANCE
        varies = part_of_a_round if self.configuration else counts.varies(num_steps)
        notes = {
            "assumed_drafts": bool(self.configuration),
            "lifetime_accept_length": window.earlier is None,
            "no_speculation_flags": num_steps is None,
            "variable_draft_length": varies,
            **dict.fromkeys(accuracy_notes(accuracy, counts.accept_length), True),
        }
        findings.keep(line, row, (note for note, applies in notes.items() if applies))


def _kind(sample: Sample) -> tuple[str, str]:
    """Return how a server drafts, and how deep, as the labels of its configuration say it."""
    return sample.labels.get("spec_method", ""), sample.labels.get("spec_num_tokens", "")


def _num_steps(written: str) -> int | None:
    """Return a depth as a label gives it, None where it is none."""
    whole = written.removesuffix(".0")
    if not (whole.isascii() and whole.isdigit()) or len(whole) > len(str(_DEEPEST)):
        return None
    return int(whole) if 0 < int(whole) <= _DEEPEST else None


_BY_ROUND: Final = {
    "spec_decode_num_drafts": _ROUNDS,
    "spec_decode_num_draft_tokens": _DRAFTED,
    "spec_decode_num_accepted_tokens": _ACCEPTED,
    "spec_decode_num_accepted_tokens_per_pos": _POSITION,
}
VLLM: Final = ScrapeFormat(
    FORMAT="vllm_prometheus",
    prefix="vllm:",
    engine="vllm",
    stems={f"vllm:{stem}": meaning for stem, meaning in _BY_ROUND.items()},
)
LLAMACPP: Final = ScrapeFormat(
    FORMAT="llamacpp_prometheus",
    prefix="llamacpp:",
    engine="llama.cpp",
    stems={f"llamacpp:{stem}": meaning for stem, meaning in _BY_ROUND.items()},
)
TRTLLM: Final = ScrapeFormat(
    FORMAT="trtllm_prometheus",
    prefix="trtllm_",
    engine="tensorrt-llm",
    stems={
        "trtllm_spec_decode_num_draft_tokens": _DRAFTED,
        "trtllm_spec_decode_num_accepted_tokens": _ACCEPTED,
    },
    needs=_DRAFTED,
    configuration="trtllm_speculative_config_info",
)
