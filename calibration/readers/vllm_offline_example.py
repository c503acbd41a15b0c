"""Summary that the offline example of vLLM prints: counts, and the acceptance of each position."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from calibration.readers.acceptance_counts import ACCEPTANCE_MESSAGES, chain_acceptance
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.reading import Cell, Reading, SourceText
from calibration.readers.vllm_log_line import ServerSettings, log_line, read_banner
from specmodel.errors import LeftOut

FORMAT: Final = "vllm_offline_example"

_NUMBER = r"(nan|\d{1,15}(?:\.\d{1,15})?)\s*$"
_COUNT = re.compile(
    r"(?:^|[|\]]\s|\s)((?:total[ _])?num[ _](?:output[ _]tokens|drafts|draft[ _]tokens"
    rf"|accepted[ _]tokens)|mean[ _]acceptance[ _]length)\s?:\s*{_NUMBER}",
    re.ASCII | re.IGNORECASE,
)
_POSITION = re.compile(
    rf"(?:^|\s)acceptance at (?:token|position) (\d{{1,4}})\s?:\s*{_NUMBER}",
    re.ASCII | re.IGNORECASE,
)
_STARTED = re.compile(
    r"\b(?:num[ _](?:drafts|draft[ _]tokens|accepted[ _]tokens)|acceptance at token \d+)\s*:",
    re.IGNORECASE,
)
_LONGEST_LINE = 400
_CONVENTIONS: Final = conventions("vllm_offline_example")


def recognise(head: str) -> bool:
    """Return whether a text holds a summary of the offline example."""
    names = set()
    for _, name, _ in _figures(head):
        names.add("position" if name.isdigit() else name)
    return "num_drafts" in names and len(names - {""}) > 1


def read(source: SourceText) -> Reading:
    """Return a row for each summary."""
    findings = Findings(source.path, ACCEPTANCE_MESSAGES)
    for summary in _summaries(source.text):
        _keep(summary, findings)
    return findings.reading(FORMAT, "no complete summary", conventions=_CONVENTIONS)


@dataclass(slots=True, kw_only=True)
class _Summary:
    """The figures of one run."""

    line: int
    settings: ServerSettings
    counts: dict[str, float | None] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    broken: bool = False


def _figures(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, name (digits for a position) and number of each line of a summary."""
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > _LONGEST_LINE or ":" not in line:
            continue
        written = line.rstrip()
        found = _COUNT.search(written)
        if found:
            yield number, _name(found[1]), found[2].casefold()
            continue
        found = _POSITION.search(written)
        if found:
            yield number, found[1], found[2].casefold()
        elif _STARTED.search(written) and "'" not in written and '"' not in written:
            yield number, "", ""


def _name(written: str) -> str:
    """Return a label as the example writes it."""
    name = written.casefold().replace(" ", "_")
    return "total_num_output_tokens" if name.endswith("output_tokens") else name


def _summaries(text: str) -> Iterator[_Summary]:
    """Yield the summaries; a label that comes again begins the next one."""
    banners = _banners(text)
    banner = next(banners, None)
    settings = ServerSettings()
    summary: _Summary | None = None
    for line, name, written in _figures(text):
        while banner is not None and banner[0] < line:
            settings, banner = banner[1], next(banners, None)
        place = int(name) if name.isdigit() else None
        again = summary is not None and (
            name in summary.counts or (place is not None and place in summary.rates)
        )
        if summary is None or again:
            if summary is not None:
                yield summary
            summary = _Summary(line=line, settings=settings)
        if not name:
            summary.broken = True
        elif place is not None:
            summary.rates[place] = float("nan") if written == "nan" else float(written)
            summary.broken = summary.broken or not re.search(r"\.\d\d|nan", written)
        else:
            summary.counts[name] = None if written == "nan" else float(written)
    if summary is not None:
        yield summary


def _banners(text: str) -> Iterator[tuple[int, ServerSettings]]:
    """Yield the lines on which an engine says what it is."""
    for number, line in enumerate(text.split("\n"), start=1):
        if "LLM engine (v" in line:
            found = log_line(line)
            banner = read_banner(found) if found else None
            if banner is not None:
                yield number, banner.settings


def _keep(summary: _Summary, findings: Findings) -> None:
    """Keep the row of a summary, or say why there is none."""
    counts, line = summary.counts, summary.line
    rates = [summary.rates[place] for place in sorted(summary.rates)]
    acceptance = chain_acceptance(
        rounds=counts.get("num_drafts"),
        drafted=counts.get("num_draft_tokens"),
        accepted=counts.get("num_accepted_tokens"),
        printed_length=counts.get("mean_acceptance_length"),
        rates=() if any(map(math.isnan, rates)) else rates,
    )
    if isinstance(acceptance, LeftOut):
        findings.refuse(line, acceptance)
        return
    cut = summary.broken or list(summary.rates) != list(range(len(rates)))
    if acceptance is None or cut or len(rates) < (acceptance.num_steps or 0):
        findings.drop("malformed", line, "cut off before all fields were written")
        return
    settings = summary.settings
    parallel = bool(settings.parallel) and bool(acceptance.num_steps)
    cells: dict[str, Cell | None] = {
        **acceptance.cells,
        "engine": "vllm",
        "engine_version": settings.engine_version,
        "target_model": settings.target_model,
        "draft_model": settings.draft_model,
        "algorithm": settings.algorithm,
        "tp_size": settings.tp_size,
    }
    if parallel:
        cells["num_steps"] = 1.0
    notes = set(acceptance.notes)
    notes |= {"synthetic_acceptance"} if settings.synthetic else set()
    notes |= {"variable_draft_length"} if settings.varies else set()
    details = {"rounds": acceptance.rounds}
    findings.keep(line, measured_row(line, cells, details=details), sorted(notes))
