"""Logs of llama.cpp's server, old and new, and the summary of its command-line examples."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from calibration.readers.findings import Findings
from calibration.readers.llamacpp_pool import (
    CONVENTIONS,
    POOL_MESSAGES,
    Request,
    RequestPool,
    Served,
)
from calibration.readers.log_file import LogFile, without_escapes
from calibration.readers.model_names import model_name, plain_name
from calibration.readers.reading import Cell, Reading
from specmodel.units import MILLI

_PROGRAM = re.compile(
    r"(?:^|[\s/\\\"'])llama-(?:server|cli|speculative(?:-simple)?)(?:\.exe)?[\"']?(?=\s|$)"
)
_WORD = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s\"']+")
_LONGEST = 20_000
_WHOLE_NUMBER = re.compile(r"\d{1,6}", re.ASCII)
_NUMBER = re.compile(r"\d{0,6}\.?\d{1,9}", re.ASCII)

_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "depth": ("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft", "LLAMA_ARG_DRAFT_MAX"),
    "gate": ("--spec-draft-p-min", "--draft-p-min", "LLAMA_ARG_DRAFT_P_MIN"),
    "slots": ("--parallel", "-np", "LLAMA_ARG_N_PARALLEL"),
    "kind": ("--spec-type",),
    "target": ("--model", "-m", "--hf-repo", "-hf", "-hfr", "LLAMA_ARG_MODEL"),
    "draft": (
        *("--model-draft", "-md", "--spec-draft-model", "--hf-repo-draft", "-hfd", "-hfrd"),
        *("--spec-draft-hf", "LLAMA_ARG_MODEL_DRAFT"),
    ),
}
_MEANING: Final = {flag: meaning for meaning, flags in _FLAGS.items() for flag in flags}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Settings of a server."""

    depth: float | None = None  # most drafts of a round
    # least probability of a draft; rounds may stop drafting before the depth
    gate: float | None = None
    slots: float | None = None  # requests that can run together
    kind: str | None = None  # how it drafts, and the names of the models without where they lie
    target: str | None = None
    draft: str | None = None

    @property
    def speculates(self) -> bool:
        """Whether it was told to draft."""
        told = self.kind is not None and self.kind.casefold() != "none"
        return told or self.draft is not None or self.depth is not None

    @property
    def cells(self) -> dict[str, Cell | None]:
        """The cells of a row that it fills."""
        return {
            "target_model": self.target,
            "draft_model": self.draft,
            "algorithm": self.kind,
            "variant": f"{self.slots:g} slots" if self.slots and self.slots > 1 else None,
            "notes": f"drafts only above a probability of {self.gate:g}" if self.gate else None,
        }


def launched(line: str) -> bool:
    """Return whether a line shows how a program of llama.cpp was started, not quoted in a text."""
    found = _PROGRAM.search(line)
    return found is not None and '"' not in line[: found.start()]


def parse_launch(line: str) -> Launch:
    """Return the settings in a command."""
    values: dict[str, str] = {}
    meaning = None
    for word in _WORD.findall(line[:_LONGEST]):
        written = word.strip("\"'")
        flag, equals, value = written.partition("=")
        if meaning is not None and not (written.startswith("-") and written in _MEANING):
            values[meaning] = written
            meaning = None
            continue
        meaning = _MEANING.get(flag)
        if meaning is not None and equals:
            values[meaning] = value
            meaning = None
    slots, depth = values.get("slots", ""), values.get("depth", "")
    gate = values.get("gate", "")
    return Launch(
        depth=float(depth) if _WHOLE_NUMBER.fullmatch(depth) and int(depth) else None,
        gate=float(gate) if _NUMBER.fullmatch(gate) and float(gate) else None,
        slots=float(slots) if _WHOLE_NUMBER.fullmatch(slots) and int(slots) else None,
        kind=plain_name(values.get("kind")),
        target=model_name(values.get("target")),
        draft=model_name(values.get("draft")),
    )


@dataclass(slots=True)
class DrafterTotals:
    """What the statistics of one drafter add up to.

    They grow over the life of a server, or begin again with each request: where one of them falls,
    they are per request.
    """

    lines: int = 0
    _sums: tuple[float, ...] = (0.0, 0.0, 0.0)
    _last: tuple[float, ...] = (0.0, 0.0, 0.0)
    _falls: bool = False

    def add(self, calls: float, drafted: float, accepted: float) -> None:
        """Add a line."""
        counts = (calls, drafted, accepted)
        self._falls |= any(new < old for new, old in zip(counts, self._last, strict=True))
        self._sums = tuple(a + b for a, b in zip(self._sums, counts, strict=True))
        self._last = counts
        self.lines += 1

    @property
    def counts(self) -> tuple[float, ...]:
        """Rounds, drafted and accepted tokens of all requests."""
        return self._sums if self._falls else self._last


@dataclass(slots=True)
class LogSection:
    """Requests of a server with the same settings."""

    launch: Launch  # the settings
    shown: bool  # whether the log shows them
    line: int  # where it begins, 1-based
    pool: RequestPool = field(init=False)
    drafters: dict[str, DrafterTotals] = field(init=False, default_factory=dict)
    slots: float | None = field(init=False, default=None)
    _busy: set[int] = field(init=False, default_factory=set)
    _timed: set[int] = field(init=False, default_factory=set)
    _watched: bool = field(init=False, default=False)
    _concurrent: bool = field(init=False, default=False)
    _rounds_without_draft: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        """Make the pool for the depth of the settings."""
        self.pool = RequestPool(self.launch.depth)

    def restart(self) -> None:
        """Forget which slots are busy: the server was started again."""
        self._busy.clear()

    def begin(self, slot: int) -> None:
        """Note that a slot began a request."""
        self._watched = True
        self._busy.add(slot)
        self._concurrent |= len(self._busy) > 1

    def end(self, slot: int) -> None:
        """Note that a slot is free."""
        self._busy.discard(slot)

    def timed(self, slot: int) -> None:
        """Note that a slot finished a request."""
        if len(self._timed) < _ENOUGH_SLOTS:
            self._timed.add(slot)

    def add_drafter(
        self, kind: str, calls: float, drafts: float, drafted: float, accepted: float
    ) -> None:
        """Add a line of statistics of a drafter: ``drafts`` of its calls gave one."""
        if kind in self.drafters or len(self.drafters) < _ENOUGH_SLOTS:
            self.drafters.setdefault(kind, DrafterTotals()).add(calls, drafted, accepted)
        if drafts < calls:
            self._rounds_without_draft.add(kind)

    def finish(self, findings: Findings, *, others_speculate: bool) -> None:
        """Keep the row of the section."""
        alone = len(self.drafters) == 1
        if alone and self._rounds_without_draft:
            self.pool.rounds_without_draft = True
        if alone and not self.pool.speculated:
            (totals,) = self.drafters.values()
            self.pool.apply_totals(self.line, *totals.counts)
        launch = self.launch if self.launch.slots else replace(self.launch, slots=self.slots)
        unknown = not self._watched and len(self._timed) > 1 and launch.slots != 1
        served = Served(
            batch_size=None if unknown or self._concurrent else 1.0,
            concurrent=self._concurrent,
            cells=launch.cells,
        )
        baseline = not launch.speculates and (self.shown or not others_speculate)
        self.pool.keep(findings, served, baseline=baseline)


_ENOUGH_SLOTS: Final = 64  # distinct ids or drafters that are remembered


FORMAT: Final = "llamacpp_server_log"

_RECOGNISED = re.compile(
    r'^[^"\n]{0,300}?(?:draft acceptance(?: rate)? = +[\w.]{1,12} +\( *\d+ accepted / +\d+ generated\)'
    r"|slot +(?:print_timing|launch_slot_\w{0,20}|update_slots|release): +id +\d+ \| task +-?\d+ \|"
    r"|statistics +[\w-]{1,40}: +#calls[^\n]{1,80}#gen drafts = "
    r"|n_accept {1,8}= +\d+[ \t\r]*$)",
    re.MULTILINE,
)
_MARK = re.compile(
    r"eval time +=|total time +=|draft acceptance|slot +print_timing:|slot +launch_slot_"
    r"|slot +release:|statistics +[\w-]{1,40}: |llama-(?:server|cli|speculative)|n_slots += +\d"
    r"|\bn_(?:draft|predict|drafted|accept) {1,8}=|decoded +\d+ tokens in"
    r"|adding speculative implementation '|- n_max=\d|acc per pos = "
)
_SLOT = re.compile(r"id +(\d{1,9}) \| task +(-?\d{1,18}) \|")
_EVAL = re.compile(r"(?<!prompt )eval time += +(\d{1,15}(?:\.\d+)?) ms / +(\d{1,15}) tokens")
_DRAFT = re.compile(
    r"draft acceptance(?P<rate> rate)? += +\S{1,12} +\( *(?P<accepted>\d{1,15}) accepted / +"
    r"(?P<drafted>\d{1,15}) generated\)(?:, mean len += +(?P<mean>\d{1,6}\.\d\d))?"
)
_CALLS = re.compile(r"#calls(?:\(b,g,a\))? += +([\d ]{1,60}),")
_GENERATED = re.compile(r"#gen drafts += +(\d{1,15})")
_DRAFTED = re.compile(r"#gen tokens += +(\d{1,15})")
_ACCEPTED = re.compile(r"#acc tokens += +(\d{1,15})")
_KIND = re.compile(r"statistics +([\w-]{1,40}): ")
_SLOTS = re.compile(r"n_slots += +(\d{1,6})\b")
_SUMMARY = re.compile(r"\b(n_draft|n_predict|n_drafted|n_accept) += +(\d{1,15})\s*$")
_DECODED = re.compile(r"decoded +(\d{1,15}) tokens in +(\d{1,12}(?:\.\d+)?) seconds")
_IMPLEMENTATION = re.compile(r"adding speculative implementation '([\w-]{1,40})'")
_SETTINGS = re.compile(r"- n_max=(\d{1,6})\b(?:.{0,80}?\bp_min=(\d{0,6}\.?\d{1,9}))?", re.ASCII)
_POSITIONS = re.compile(r"acc per pos = \(([^()]{1,2000})\)")
_LONGEST_LINE = 20_000
_ERAS: Final = {" rate": "old", None: "new"}


@dataclass(slots=True)
class _Block:
    """The timing lines of one request so far."""

    line: int
    last_line: int
    key: tuple[str, ...] = ()
    prompt: bool = False
    predicted: float | None = None
    predicted_ms: float = 0.0
    draft: re.Match[str] | None = None
    broken: bool = False


def recognise(head: str) -> bool:
    """Return whether a text is a log of llama.cpp, not one that is quoted in another format."""
    return _RECOGNISED.search(head) is not None


def read_log(log: LogFile) -> Reading:
    r"""Return a row for each setting of the server, of all its requests together.

    .. math:: R = \sum (N - A), \qquad \mathrm{AL} = \frac{\sum N}{R}, \qquad T = \frac{\sum t}{R}

    with the tokens :math:`N` that a request produced after the one of its prefill, its accepted
    drafts :math:`A` and the time :math:`t` of its generation.
    """
    findings = Findings(log.path, POOL_MESSAGES)
    scan = _Scan(findings)
    for number, line in log.lines():
        scan.take(number, line)
    scan.finish()
    return findings.reading(
        FORMAT,
        "no finished request",
        advice="timings are logged when a request ends",
        era=tuple(scan.eras),
        conventions=CONVENTIONS,
    )


class _Scan:
    """A walk through a log, line by line."""

    def __init__(self, findings: Findings) -> None:
        self.eras: dict[str, None] = {}
        self._findings = findings
        self._section = LogSection(launch=Launch(), shown=False, line=1)
        self._sections = {self._section.launch: self._section}
        self._block: _Block | None = None
        self._summary: dict[str, float] = {}
        self._command: tuple[int, str] | None = None  # goes on in the next line
        self._last_line = 0

    def take(self, number: int, line: str) -> None:
        """Take what a line says."""
        if line and not line.isspace():
            self._last_line = number
        if self._command is not None:
            self._continue_command(line)
            return
        mark = _MARK.search(line)
        if mark is None or len(line) > _LONGEST_LINE:
            return
        if "\x1b" in line:
            line = without_escapes(line)
            mark = _MARK.search(line)
        if mark is None or '"' in line[: mark.start()]:
            return
        if launched(line):
            self._command = (number, "")
            self._continue_command(line)
        elif "slot" in mark[0]:
            self._take_slot(number, line)
        elif "implementation" in mark[0] or "n_max" in mark[0]:
            kind, settings = _IMPLEMENTATION.search(line), _SETTINGS.search(line)
            launch, slots = self._section.launch, self._section.slots
            if kind is not None:
                launch = replace(launch, kind=kind[1])
            if settings is not None:
                gate = launch.gate if settings[2] is None else float(settings[2]) or None
                launch = replace(launch, depth=float(settings[1]) or None, gate=gate)
            self._close()
            self._enter(launch, number)
            self._section.slots = slots or self._section.slots
        elif not _is_other_timing(line[: mark.start()]):
            self._take_figures(number, line)

    def finish(self) -> None:
        """Keep the rows."""
        if self._command is not None:
            self._launch()
        block = self._block
        cut = block is not None and block.last_line == self._last_line
        if block is not None and cut and block.draft is None and self._section.pool.speculated:
            block.broken = True  # its last line is where the draft figures would begin
        self._close()
        sections = self._sections.values()
        speculate = any(section.pool.speculated or section.drafters for section in sections)
        for section in sections:
            section.finish(self._findings, others_speculate=speculate)

    def _continue_command(self, line: str) -> None:
        """Take a line of a command, which goes on while lines end in a backslash."""
        number, command = self._command or (self._last_line, "")
        text = line.rstrip()
        more = text.endswith("\\") and len(command) < _LONGEST_LINE
        self._command = (number, f"{command} {text.removesuffix(chr(92))}")
        if not more:
            self._launch()

    def _launch(self) -> None:
        """Begin the section of a command, or go on with the one of equal settings."""
        number, command = self._command or (self._last_line, "")
        self._command = None
        self._close()
        self._enter(parse_launch(command), number)

    def _enter(self, launch: Launch, number: int) -> None:
        """Go on with the section of some settings."""
        section = self._sections.get(launch)
        if section is None:
            section = LogSection(launch=launch, shown=True, line=number)
            self._sections[launch] = section
        section.shown = True
        section.restart()
        self._section = section

    def _take_positions(self, line: str) -> None:
        """Take how many positions a line of acceptance by position names."""
        found = _POSITIONS.search(line)
        if found is not None:
            pool = self._section.pool
            pool.positions = max(pool.positions, float(len(found[1].split(","))))

    def _take_slot(self, number: int, line: str) -> None:
        """Take a line about a slot."""
        found = _SLOT.search(line)
        if found is None:
            return
        slot = int(found[1])
        if "print_timing" in line:
            key = found.groups()
            if self._block is None or self._block.key != key:
                self._begin(number, key)
            self._section.timed(slot)
            self._take_figures(number, line)
        elif "processing task" in line:
            self._close()
            self._section.begin(slot)
        elif "release:" in line:
            self._close()
            self._section.end(slot)

    def _begin(self, number: int, key: tuple[str, ...] = ()) -> _Block:
        """Begin the timings of a request."""
        self._close()
        self._block = _Block(line=number, last_line=number, key=key)
        return self._block

    def _take_figures(self, number: int, line: str) -> None:
        """Take a line of timings, of draft figures, of a drafter or of a summary."""
        block = self._block
        if block is not None:
            block.last_line = number
        if "prompt eval time" in line:
            if block is None or block.prompt or block.predicted is not None:
                block = self._begin(number, block.key if block else ())
            block.prompt = True
        elif "eval time" in line:
            if block is None or block.predicted is not None:
                block = self._begin(number)
            found = _EVAL.search(line)
            block.broken |= found is None
            if found is not None:
                block.predicted_ms, block.predicted = float(found[1]), float(found[2])
        elif "draft acceptance" in line:
            self._take_draft(number, line)
        elif "acc per pos" in line:
            self._take_positions(line)
        elif "statistics" in line:
            self._take_drafter(line)
        elif "n_slots" in line:
            slots = _SLOTS.search(line)
            self._section.slots = float(slots[1]) if slots else None
        else:
            self._take_summary(number, line)

    def _take_draft(self, number: int, line: str) -> None:
        """Take the draft figures of a request."""
        block = self._block
        if block is None or block.draft is not None:
            block = self._begin(number)
        found = _DRAFT.search(line)
        block.broken |= found is None  # the counts are all that is needed, whatever follows them
        block.draft = found
        if found is not None:
            self.eras.setdefault(_ERAS[found["rate"]])

    def _take_drafter(self, line: str) -> None:
        """Take the statistics of a drafter."""
        kind, calls = _KIND.search(line), _CALLS.search(line)
        counts = [pattern.search(line) for pattern in (_GENERATED, _DRAFTED, _ACCEPTED)]
        numbers = calls[1].split() if calls else []
        if kind is None or not numbers or None in counts:
            return
        generating = float(numbers[1] if len(numbers) == 3 else numbers[0])
        drafts, drafted, accepted = (float(one[1]) for one in counts if one is not None)
        self._section.add_drafter(kind[1], generating, drafts, drafted, accepted)

    def _take_summary(self, number: int, line: str) -> None:
        """Take the summary of a command-line example."""
        decoded = _DECODED.search(line)
        if decoded is not None:
            self._summary = {"decoded_ms": float(decoded[2]) / MILLI}
        found = _SUMMARY.search(line)
        if found is None:
            return
        self._summary[found[1]] = float(found[2])
        summary = self._summary
        if found[1] != "n_accept" or not {"n_predict", "n_drafted"} <= summary.keys():
            return
        self._summary = {}
        self._enter(replace(self._section.launch, depth=summary.get("n_draft") or None), number)
        self.eras.setdefault("cli")
        self._section.pool.add(
            Request(
                line=number,
                predicted=summary["n_predict"],
                prefills=0.0,
                predicted_ms=summary.get("decoded_ms", 0.0),
                drafted=summary["n_drafted"],
                accepted=summary["n_accept"],
            )
        )

    def _close(self) -> None:
        """Add the request whose timings end here."""
        block, self._block = self._block, None
        if block is None:
            return
        draft = block.draft
        if block.broken or block.predicted is None:
            self._findings.drop(
                "malformed",
                block.line,
                "timings of a request that are not complete; is it cut off?",
            )
            return
        self._section.pool.add(
            Request(
                line=block.line,
                predicted=block.predicted,
                predicted_ms=block.predicted_ms,
                drafted=float(draft["drafted"]) if draft else None,
                accepted=float(draft["accepted"]) if draft else None,
                mean_length=float(draft["mean"]) if draft and draft["mean"] else None,
            )
        )


def _is_other_timing(before: str) -> bool:
    """Return whether timings are those of the library, which count calls and not tokens."""
    return "perf" in before or "llama_" in before
