"""Log of a vLLM server: acceptance from its metrics lines, pooled over each stretch of settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibration.readers.acceptance_counts import ACCEPTANCE_MESSAGES, accuracy_notes
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.log_file import LogFile
from calibration.readers.reading import Cell, Reading, Row
from calibration.readers.vllm_log_line import (
    V0,
    V1,
    Banner,
    BannerKind,
    Counters,
    LogLine,
    ServerSettings,
    Window,
    is_metrics,
    log_line,
    read_banner,
    read_metrics,
)
from specmodel.errors import LeftOut

# Fewest rounds of a window whose accept length says anything.
ROUNDS_OF_A_WINDOW: Final = 10

# Deepest draft that is believed.
MOST_STEPS: Final = 1024

_MEAN_TOLERANCE = 0.01  # of the printed mean, which has two decimals
_WHOLE_TOLERANCE = 0.03  # of a depth that comes from the printed mean


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRounds:
    """How many rounds a window had."""

    rounds: float  # rounds with a draft
    num_steps: int | None  # depth; None where it is not known
    varied: bool = False  # whether not every round drafted that many
    assumed: bool = False  # whether every round is only assumed to have drafted that many


def count_rounds(window: Window, configured: int | None) -> CountedRounds | str:
    """Return the rounds of a window in which something was drafted, or a code where nothing can."""
    accepted, drafted, mean = window.accepted, window.drafted, window.mean
    highest = max(window.rates, default=0.0)
    if accepted > drafted or (mean is not None and mean < 1) or not 0 <= highest <= 1:
        return "impossible_counts"
    num_steps = len(window.rates) or configured
    if num_steps is None:
        return "depth_unknown" if mean is None else _rounds_without_depth(accepted, drafted, mean)
    rounds = drafted / num_steps
    if mean is None:
        return CountedRounds(rounds=rounds, num_steps=num_steps, assumed=True)
    if abs(1 + accepted / rounds - mean) <= _MEAN_TOLERANCE:
        return CountedRounds(rounds=rounds, num_steps=num_steps)
    if mean == 1 or not accepted:
        return "impossible_counts"
    return CountedRounds(rounds=accepted / (mean - 1), num_steps=num_steps, varied=True)


def _rounds_without_depth(accepted: float, drafted: float, mean: float) -> CountedRounds | str:
    """Return the rounds from the mean alone, and the depth where that makes it a whole number."""
    if mean == 1 or not accepted:
        return "depth_unknown"
    rounds = accepted / (mean - 1)
    whole = round(drafted / rounds)
    fits = 0 < whole <= MOST_STEPS and abs(drafted / rounds / whole - 1) <= _WHOLE_TOLERANCE
    return CountedRounds(rounds=rounds, num_steps=whole if fits else None, varied=not fits)


@dataclass(slots=True)
class Life:
    """Counters of a V0 server since its start."""

    num_steps: int
    rounds: float = 0.0
    drafted: float = 0.0
    emitted: float = 0.0

    def goes_on(self, counters: Counters) -> bool:
        """Return whether counters can follow these: none of them falls, the depth stays."""
        grows = counters.drafted >= self.drafted and counters.emitted >= self.emitted
        return grows and counters.num_steps == self.num_steps

    def take(self, counters: Counters) -> None:
        """Replace the counters."""
        self.rounds = counters.drafted / counters.num_steps
        self.drafted, self.emitted = counters.drafted, counters.emitted


class Pool:
    """Everything that was counted under equal settings and depth."""

    def __init__(self, line: int, settings: ServerSettings, num_steps: int | None) -> None:
        self.line = line
        self._settings = settings
        self._num_steps = num_steps
        self._lives: list[Life] = []
        self._window_rounds = 0.0
        self._accepted = 0.0
        self._passed = [0.0] * (num_steps or 0)  # rounds that accepted all drafts so far
        self._rounds_with_rates = 0.0
        self._windows = 0
        self._varied = self._assumed = False

    @property
    def rounds(self) -> float:
        """Rounds of all windows or lives."""
        return self._window_rounds + sum(life.rounds for life in self._lives)

    def add(self, window: Window, counted: CountedRounds) -> None:
        """Add a window."""
        self._windows += 1
        self._window_rounds += counted.rounds
        self._accepted += window.accepted
        self._varied = self._varied or counted.varied
        self._assumed = self._assumed or counted.assumed
        if window.rates:
            self._rounds_with_rates += counted.rounds
            for index, rate in enumerate(window.rates):
                self._passed[index] += counted.rounds * rate

    def begin_life(self) -> Life:
        """Return the counters of a server that begins to count."""
        life = Life(self._num_steps or 0)
        self._lives.append(life)
        return life

    def row(self) -> Row | LeftOut:
        """Return the row of all windows or lives."""
        settings = self._settings
        parallel = bool(settings.parallel)
        notes = [
            word
            for word, said in (
                ("synthetic acceptance", settings.synthetic),
                ("parallel drafting", parallel),
            )
            if said
        ]
        cells: dict[str, Cell | None] = {
            "num_steps": 1.0 if parallel and self._num_steps else self._num_steps,
            "topk": 1.0,
            "num_draft_tokens": self._num_steps + 1 if self._num_steps else None,
            "accept_length": self._accept_length,
            "full_accuracy": self._accuracy or None,
            "verify_rounds": self.rounds,
            "engine": "vllm",
            "engine_version": settings.engine_version,
            "target_model": settings.target_model,
            "draft_model": settings.draft_model,
            "algorithm": settings.algorithm,
            "tp_size": settings.tp_size,
            "variant": "eager" if settings.eager else None,
            "notes": "; ".join(notes) or None,
        }
        details: dict[str, Cell | None] = {
            "lines": float(self._windows or len(self._lives)),
            "rounds": self.rounds,
        }
        return measured_row(self.line, cells, details=details)

    def notes(self) -> tuple[str, ...]:
        """Return the codes of what is to be said about the row."""
        settings = self._settings
        said = {
            "accept_length_given_a_draft": settings.varies,
            "assumed_drafts": self._assumed,
            "lifetime_accept_length": bool(self._lives),
            "no_speculation_flags": self._num_steps is None,
            "post_rejection_rate": bool(self._lives),
            "synthetic_acceptance": bool(settings.synthetic),
            "variable_draft_length": self._varied or settings.varies,
        }
        codes = tuple(code for code, holds in said.items() if holds)
        return (*codes, *accuracy_notes(self._accuracy, self._accept_length))

    @property
    def _accept_length(self) -> float:
        """Tokens of a round, bonus included."""
        if self._lives:
            return sum(life.emitted for life in self._lives) / self.rounds
        return 1 + self._accepted / self.rounds

    @property
    def _accuracy(self) -> tuple[float, ...]:
        """Share of rounds that accepted all drafts so far; empty where a window does not say it."""
        if not self._windows or self._rounds_with_rates < self.rounds:
            return ()
        return tuple(min(passed / self.rounds, 1.0) for passed in self._passed)


FORMAT: Final = "vllm_log"

_THROUGHPUT = "Avg prompt throughput:"
_BANNERS = ("vLLM API server", "args: ", "LLM engine (v", "vllm serve", "vllm.entrypoints")
_LOGO_BLOCK = "\N{FULL BLOCK}"
_CONVENTIONS: Final = conventions("vllm_log")
_MESSAGES = {
    **ACCEPTANCE_MESSAGES,
    "accept_length_given_a_draft": "rounds without a draft are not in these counts: tokens per "
    "step are fewer than the accept length says",
    "assumed_drafts": "rounds are taken as drafted tokens / configured depth, as if every round "
    "drafted that many",
    "lifetime_accept_length": "an average since the server started, warm-up included",
    "post_rejection_rate": "the printed acceptance rate counts matches after a rejection; it was "
    "not used",
}
_DROPS = {
    "idle": "nothing was drafted",
    "malformed": "cut off before all fields were written",
    "tiny_window": f"fewer than {ROUNDS_OF_A_WINDOW} rounds, whose accept length says nothing",
    "impossible_counts": "the counts contradict one another",
    "depth_unknown": "no acceptance by position and no depth in the file, so rounds are unknown; "
    "keep the lines that the server prints when it starts",
}


def recognise(head: str) -> bool:
    """Return whether a text is the log of a vLLM server."""
    return any(_is_of_vllm(line) for line in _interesting(head))


def read_log(log: LogFile) -> Reading:
    """Return a row for each stretch of equal settings and depth."""
    pass_ = _Pass(log)
    for number, line in log.lines():
        if not _may_matter(line):
            continue
        found = log_line(line)
        if found is not None:
            pass_.take(number, found)
    return pass_.reading()


class _Server:
    """One stream of lines: the server that is running in it."""

    def __init__(self) -> None:
        self.settings = ServerSettings()
        self.kinds: set[BannerKind] = set()
        self.measured = False
        self.life: Life | None = None

    def take(self, banner: Banner) -> None:
        """Learn from a line about the server; a line of another start begins a new server."""
        again = banner.kind is BannerKind.ARGUMENTS and banner.kind in self.kinds
        start = banner.kind is BannerKind.START and self.kinds - {BannerKind.LAUNCH}
        if self.measured or again or start or banner.kind is BannerKind.LAUNCH:
            self.settings, self.kinds, self.measured = ServerSettings(), set(), False
            self.life = None
        self.kinds.add(banner.kind)
        self.settings = self.settings.filled_from(banner.settings)


class _Pass:
    """One pass through a log."""

    def __init__(self, log: LogFile) -> None:
        self._findings = Findings(log.path, _MESSAGES)
        self._servers: dict[str, _Server] = {}
        self._pools: dict[tuple[ServerSettings, int | None, bool], Pool] = {}
        self._eras: dict[str, None] = {}
        self._lists = False  # whether a window had acceptance by position

    def take(self, number: int, line: LogLine) -> None:
        """Learn from a line."""
        server = self._servers.setdefault(line.stream, _Server())
        if is_metrics(line):
            found = read_metrics(line.text)
            server.measured = True
            if found is None:
                self._drop("malformed", number)
            elif isinstance(found, Window):
                self._take_window(number, found, server.settings)
            else:
                self._take_counters(number, found, server)
            return
        banner = read_banner(line)
        if banner is not None:
            server.take(banner)

    def reading(self) -> Reading:
        """Return what was found."""
        for pool in self._pools.values():
            if pool.rounds < ROUNDS_OF_A_WINDOW:
                self._drop("tiny_window", pool.line)
            else:
                self._findings.keep(pool.line, pool.row(), pool.notes())
        return self._findings.reading(
            FORMAT,
            "a vLLM log without a line of acceptance metrics: the server ran without speculation, "
            "answered nothing, or with --disable-log-stats; a run without speculation is read from "
            "`vllm bench serve --save-result`",
            era=tuple(self._eras),
            conventions=_CONVENTIONS,
        )

    def _take_window(self, number: int, window: Window, settings: ServerSettings) -> None:
        """Add a window to its pool, or leave it out."""
        if not window.rates and self._lists:
            self._drop("malformed", number)  # the list was there before: it is cut off
            return
        self._lists = self._lists or bool(window.rates)
        self._eras.setdefault(window.era)
        if not window.drafted:
            self._drop("idle", number)
            return
        counted = count_rounds(window, settings.num_steps)
        if isinstance(counted, str):
            self._drop(counted, number)
        elif counted.rounds < ROUNDS_OF_A_WINDOW:
            self._drop("tiny_window", number)
        else:
            self._pool(number, settings, counted.num_steps, cumulative=False).add(window, counted)

    def _take_counters(self, number: int, counters: Counters, server: _Server) -> None:
        """Put the counters of a server's life in the place of its last ones."""
        self._eras.setdefault("v0")
        if not counters.drafted:
            server.life = None  # counters at zero are those of a server that has just started
            self._drop("idle", number)
        elif not 0 < counters.num_steps <= MOST_STEPS or not counters.emitted:
            self._drop("impossible_counts", number)
        else:
            pool = self._pool(number, server.settings, counters.num_steps, cumulative=True)
            if server.life is None or not server.life.goes_on(counters):
                server.life = pool.begin_life()
            server.life.take(counters)

    def _pool(
        self, number: int, settings: ServerSettings, num_steps: int | None, *, cumulative: bool
    ) -> Pool:
        """Return the pool of some settings and depth."""
        key = (settings, num_steps, cumulative)
        if key not in self._pools:
            self._pools[key] = Pool(number, settings, num_steps)
        return self._pools[key]

    def _drop(self, code: str, number: int) -> None:
        """Leave a window out."""
        self._findings.drop(code, number, _DROPS[code])


def _may_matter(line: str) -> bool:
    """Return whether a line may be about acceptance or about the server; cheap."""
    return (
        V1 in line
        or V0 in line
        or any(words in line for words in _BANNERS)
        or (_LOGO_BLOCK in line and ("version" in line or "model" in line))
    )


def _interesting(head: str) -> Iterator[str]:
    """Yield the lines of a text that may be those of a vLLM server."""
    for line in head.split("\n"):
        if _may_matter(line) or _THROUGHPUT in line:
            yield line


def _is_of_vllm(line: str) -> bool:
    """Return whether a line can only be one of a vLLM server."""
    found = log_line(line)
    if found is None:
        return False
    if is_metrics(found):
        return found.logged or ":" in found.text.partition("metrics:")[2]
    if not found.logged:
        return False
    return read_banner(found) is not None or _THROUGHPUT in found.text[:60]
