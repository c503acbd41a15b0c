"""The text that ``trtllm-bench`` prints at the end of a run, old and new labels."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from calibration.readers.findings import Findings
from calibration.readers.reading import Reading, SourceText
from calibration.readers.trtllm_bench_report import CONVENTIONS, RUN_MESSAGES, BenchRun, keep_run

FORMAT: Final = "trtllm_bench_console"

_RECOGNISED = re.compile(
    r'^[^"\n]{0,200}(?:= (?:PERFORMANCE OVERVIEW|DECODING STATISTICS)'
    r"|\[(?:AL|AR|DAR)\][ \t]{1,8}(?:MINIMUM|AVERAGE)[ \t]{0,8}:)",
    re.MULTILINE,
)
_TITLE = re.compile(r"(?:^|[|\]>:\s])= ([A-Z][A-Z0-9_+&/ -]{2,60}?)\s*(?:\(([^()]{0,60})\))?\s*$")
_HEADING = re.compile(r"-- ([A-Z][A-Za-z\[\]() -]{2,60}?) ?-{3,}")
_AVERAGE = re.compile(r"\[(DT|ADT|DAR|AR|AL)\]\s+AVERAGE\s*:\s*([-+.\deE]{1,40})\s*$")
_MACHINE = re.compile(r"((?:NVIDIA|AMD)[\w .-]{1,60}), memory")
_LONGEST_LINE = 2000
_ALONE = r"(?<![A-Za-z])(?<![A-Za-z] )"
_TEXTS: Final = {
    "model": re.compile(_ALONE + r"Model:\s+(\S.*)"),
    "version": re.compile(r"TensorRT[- ]LLM Version:\s+(\S+)"),
    "dtype": re.compile(_ALONE + r"Dtype:\s+(\S+)"),
    "quantization": re.compile(_ALONE + r"Quantization:\s+(\S+)"),
}
_NUMBERS: Final = {
    name: re.compile(_ALONE + label + r":\s+([-+.\deE]{1,40})\s*$")
    for name, label in (
        ("output_tokens_per_s", r"(?:Total )?Output Throughput \(tokens/sec\)"),
        ("ttft_ms", r"Average time-to-first-token \[TTFT\] \(ms\)"),
        ("time_per_token_ms", r"Average time-per-output-token \[TPOT\] \(ms\)"),
        ("num_requests", r"Number of requests"),
        ("concurrency", r"Number of concurrent requests"),
        ("input_tokens", r"Average Input Length \(tokens\)"),
        ("output_tokens", r"Average Output Length \(tokens\)"),
        ("tp_size", r"TP Size"),
    )
}


@dataclass(slots=True)
class _Printed:
    """What was printed of one run so far."""

    line: int
    titles: set[str] = field(default_factory=set)
    mode: str | None = None
    heading: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    averages: dict[str, str] = field(default_factory=dict)  # by tag, as printed
    rate_headings: set[str] = field(default_factory=set)  # tags that stand under one

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a run was printed."""
        return not (self.titles or self.averages or self.numbers)


def recognise(head: str) -> bool:
    """Return whether a text has the sections of ``trtllm-bench``, not quoted in another format."""
    return _RECOGNISED.search(head) is not None


def read(source: SourceText) -> Reading:
    """Return a row for each run of which the end was printed."""
    findings = Findings(source.path, RUN_MESSAGES)
    for printed in _runs(source.text):
        keep_run(findings, _run(printed))
    return findings.reading(FORMAT, "sections without figures", conventions=CONVENTIONS)


def _runs(text: str) -> Iterator[_Printed]:
    """Yield what was printed of each run: a section that comes again begins another one."""
    printed = _Printed(line=1)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        if len(line) > _LONGEST_LINE:
            continue
        title = _TITLE.search(line)
        if title is None:
            _take(printed, line)
            continue
        if title[1] in printed.titles:
            yield printed
            printed = _Printed(line=number)
        printed.line = number if printed.is_empty else printed.line
        printed.titles.add(title[1])
        printed.heading = ""
        if title[1] == "DECODING STATISTICS":
            printed.mode = title[2]
    if not printed.is_empty:
        yield printed


def _take(printed: _Printed, line: str) -> None:
    """Take what a line says."""
    heading = _HEADING.search(line)
    if heading:
        printed.heading = heading[1].casefold()
    average = _AVERAGE.search(line)
    if average and _number(average[2]) is not None:
        printed.averages[average[1]] = average[2]
        if "rate" in printed.heading:
            printed.rate_headings.add(average[1])
    for name, pattern in _NUMBERS.items():
        found = pattern.search(line)
        value = _number(found[1]) if found else None
        if value is not None:
            printed.numbers[name] = value
    for name, pattern in _TEXTS.items():
        found = pattern.search(line)
        if found:
            printed.texts.setdefault(name, found[1])
    machine = _MACHINE.search(line)
    if machine and "MACHINE DETAILS" in printed.titles:
        printed.texts["gpu"] = machine[1]


def _run(printed: _Printed) -> BenchRun:
    """Return the figures of a run."""
    averages = printed.averages
    rate_tag = next((tag for tag in ("DAR", "AR") if tag in averages), "")
    rate = _number(averages.get(rate_tag))
    length_tag = "AL" if "AL" in averages else ""
    if not length_tag:
        length_tag = next(
            (tag for tag in ("AR", "DAR") if (_number(averages.get(tag)) or 0) > 1), ""
        )
    length = _number(averages.get(length_tag))
    labelled_rate = length is not None and (length_tag != "AL" or "AL" in printed.rate_headings)
    return BenchRun(
        line=printed.line,
        speculated="DECODING STATISTICS" in printed.titles or bool(averages),
        mode=printed.mode,
        accept_length=length,
        acceptance_rate=rate if rate is not None and rate <= 1 else None,
        drafted_tokens=_number(averages.get("DT")),
        accepted_tokens=_number(averages.get("ADT")),
        accept_length_rounding=_half_unit(averages.get(length_tag, "")),
        acceptance_rate_rounding=_half_unit(averages.get(rate_tag, "")),
        labelled_rate=labelled_rate,
        **printed.numbers,  # type: ignore[arg-type]
        **printed.texts,  # type: ignore[arg-type]
    )


def _number(printed: str | None) -> float | None:
    """Return a printed number that is not negative, None where there is none."""
    try:
        value = float(printed) if printed else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < _LARGEST else None


_LARGEST = 1e15


def _half_unit(printed: str) -> float:
    """Return half a unit of the last digit of a printed number."""
    _, point, digits = printed.partition(".")
    return 0.5 / 10 ** len(digits) if point and digits.isdigit() else 0.0
