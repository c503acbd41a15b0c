"""What a llama.cpp log says between two starts of a server: requests, busy slots, drafters."""

from dataclasses import dataclass, field, replace
from typing import Final

from calibration.readers.findings import Findings
from calibration.readers.llamacpp_launch import Launch
from calibration.readers.llamacpp_pool import RequestPool, Served


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
