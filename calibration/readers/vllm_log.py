"""Log of a vLLM server: acceptance from its metrics lines, pooled over each stretch of settings."""

from collections.abc import Iterator
from typing import Final

from calibration.readers.draft_counts import ACCEPTANCE_MESSAGES
from calibration.readers.findings import Findings
from calibration.readers.log_file import LogFile
from calibration.readers.reading import Reading
from calibration.readers.vllm_banner import Banner, BannerKind, ServerSettings, read_banner
from calibration.readers.vllm_log_line import (
    V0,
    V1,
    Counters,
    LogLine,
    Window,
    is_metrics,
    log_line,
    read_metrics,
)
from calibration.readers.vllm_log_pool import (
    MOST_STEPS,
    ROUNDS_OF_A_WINDOW,
    Life,
    Pool,
    count_rounds,
)

FORMAT: Final = "vllm_log"

_THROUGHPUT = "Avg prompt throughput:"
_BANNERS = ("vLLM API server", "args: ", "LLM engine (v", "vllm serve", "vllm.entrypoints")
_LOGO_BLOCK = "\N{FULL BLOCK}"
_CONVENTIONS = (
    (
        "Accept length is 1 + accepted drafts / rounds with a draft, bonus token included; windows are "
        "added up before anything is divided."
    ),
    (
        "Rounds are drafted tokens / depth; where that contradicts the printed mean, accepted / (mean "
        "- 1)."
    ),
    "The acceptance of a position is the share of rounds that accepted all drafts up to it.",
    "Depth K is served with K + 1 draft tokens, the root counted.",
    (
        "V0 counters run since the start: the last line of each life counts, and the printed "
        "acceptance rate is not used."
    ),
    "Throughputs of these lines hold idle time, so nothing about time is read from them.",
)
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
