"""Requests of a llama.cpp server added up: what its log and its responses count in the same way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from calibration.readers.draft_counts import ACCEPTANCE_MESSAGES
from calibration.readers.findings import Findings
from calibration.readers.measured_row import measured_row
from calibration.readers.reading import Cell
from calibration.readers.row_checks import Refusal
from specmodel.units import MILLI

ENGINE: Final = "llama.cpp"
"""Name of the engine in rows."""

CONVENTIONS: Final = (
    "Rounds are predicted - accepted tokens: what was not drafted came from a round of its own.",
    "Accept length is predicted tokens / rounds, bonus token in; rounds without a draft count as one.",
    "A log's mean len leaves such rounds out and is not used.",
    "Step time is generation time / rounds, throughput predicted tokens / generation time: decode only.",
    "All requests are added up before anything is divided.",
)
"""What the numbers of these files mean."""

POOL_MESSAGES: Final[Mapping[str, str]] = {
    **ACCEPTANCE_MESSAGES,
    "baseline_inferred": "no request has draft figures: taken for a run without speculation",
    "concurrent_slots": "slots were busy together: the speed of a request is not the throughput of "
    "the server, and both are left out",
    "load_unknown": "the file does not tell how many requests ran together: batch_size is empty",
    "rounds_without_draft": "some rounds had no draft; the printed mean length leaves them out, the "
    "accept length here does not",
}
_MOST = 1e12  # tokens or ms of one request
_ENOUGH_ROUNDS = 20  # from which on a whole number of drafts a round is no accident
_HALF_UNIT = 0.005  # of the printed mean length


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that was answered.

    Parameters
    ----------
    line : int
        Where it stands, 1-based.
    predicted : float
        Tokens that it produced.
    predicted_ms : float
        Time that this took, [ms].
    drafted, accepted : float or None
        Draft tokens proposed and accepted; None without speculation.
    mean_length : float or None
        Mean length of rounds with a draft as printed, with two digits.
    """

    line: int
    predicted: float
    predicted_ms: float
    drafted: float | None = None
    accepted: float | None = None
    mean_length: float | None = None

    @property
    def rounds(self) -> float:
        """How many rounds it took."""
        return self.predicted - (self.accepted or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How the requests of a pool were served.

    Parameters
    ----------
    batch_size : float or None
        Requests that ran together; None where the file does not tell.
    concurrent : bool
        Whether requests are known to have run together.
    cells : mapping
        Further cells of the row.
    """

    batch_size: float | None = None
    concurrent: bool = False
    cells: Mapping[str, Cell | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Sums:
    """Requests of one kind added up."""

    line: int = 0
    requests: int = 0
    predicted: float = 0.0
    predicted_ms: float = 0.0
    accepted: float = 0.0

    def add(self, request: Request) -> None:
        """Add a request."""
        self.line = self.line or request.line
        self.requests += 1
        self.predicted += request.predicted
        self.predicted_ms += request.predicted_ms
        self.accepted += request.accepted or 0.0


class RequestPool:
    """Requests with the same settings.

    Parameters
    ----------
    depth : float, optional
        Most drafts of a round as configured.

    Examples
    --------
    >>> pool = RequestPool()
    >>> pool.add(Request(line=1, predicted=100, predicted_ms=900, drafted=180, accepted=40))
    >>> pool.speculated, pool.depth
    (True, 3.0)
    """

    def __init__(self, depth: float | None = None) -> None:
        self._configured = depth
        self._drafting, self._plain = _Sums(), _Sums()
        self._undrafted: list[int] = []
        self._impossible: list[tuple[int, Refusal]] = []
        self._whole: set[float] | None = None  # drafts of a round that fit every request
        self._whole_later: set[float] | None = None  # the same, the prefill not counted as a round
        self._fits_configured = True
        self.rounds_without_draft = False

    @property
    def speculated(self) -> bool:
        """Whether a request has draft figures."""
        return bool(self._drafting.predicted or self._undrafted)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not (self.speculated or self._plain.requests or self._impossible)

    @property
    def depth(self) -> float | None:
        """Drafts of a round: as configured, else the whole number that fits every request."""
        if self._configured is not None:
            return self._configured
        if self._whole:
            return max(self._whole)
        rounds = self._drafting.predicted - self._drafting.accepted
        return max(self._whole_later) if self._whole_later and rounds >= _ENOUGH_ROUNDS else None

    @property
    def varied(self) -> bool:
        """Whether the drafts of a round are not the same in every request."""
        return self.depth is None if self._configured is None else not self._fits_configured

    def add(self, request: Request) -> None:
        """Add a request."""
        refusal = _refused(request)
        if refusal is not None:
            self._impossible.append((request.line, refusal))
        elif request.drafted is None:
            self._plain.add(request)
        elif not request.drafted:
            self._undrafted.append(request.line)
        else:
            self._drafting.add(request)
            self._note_drafts(request.drafted, request.rounds)
            self.rounds_without_draft |= _leaves_rounds_out(request)

    def apply_totals(self, line: int, rounds: float, drafted: float, accepted: float) -> None:
        """Take the drafts of all requests together, where no request has its own.

        Without requests they stand alone: tokens are rounds + accepted drafts, and there is no time.
        """
        plain, self._plain = self._plain, _Sums()
        predicted = plain.predicted or rounds + accepted
        self.add(
            Request(
                line=plain.line or line,
                predicted=predicted,
                predicted_ms=plain.predicted_ms,
                drafted=drafted,
                accepted=accepted,
            )
        )
        if self._drafting.requests:
            self._drafting.requests = plain.requests

    def _note_drafts(self, drafted: float, rounds: float) -> None:
        """Keep what fits the drafts of this request and of those before."""
        whole = _whole(drafted, rounds)
        later = _whole(drafted, rounds - 1)
        self._whole = whole if self._whole is None else self._whole & whole
        self._whole_later = later if self._whole_later is None else self._whole_later & later
        self._fits_configured &= self._configured in whole | later

    def keep(self, findings: Findings, served: Served, *, baseline: bool = True) -> None:
        """Keep the row of the pool, and say what was left out of it and why.

        Parameters
        ----------
        findings : Findings
            Told everything.
        served : Served
            How the requests were served.
        baseline : bool
            Whether requests without draft figures can be a run without speculation.
        """
        for line, refusal in self._impossible:
            findings.refuse(line, refusal)
        for line in self._undrafted:
            findings.drop("no_verify_rounds", line, "requests left out: no draft in any round")
        if self.speculated or not baseline:
            for _ in range(self._plain.requests):
                findings.drop(
                    "no_speculation",
                    self._plain.line,
                    "requests left out: no draft figures, although others have them",
                )
            if self._drafting.predicted:
                self._keep_speculative(findings, served)
        elif self._plain.requests:
            cells: dict[str, Cell | None] = {"num_steps": 0.0, "accept_length": 1.0}
            self._keep(findings, served, self._plain, cells, ["baseline_inferred"])

    def _keep_speculative(self, findings: Findings, served: Served) -> None:
        """Keep the row of the requests with drafts."""
        depth, sums = self.depth, self._drafting
        rounds = sums.predicted - sums.accepted
        cells: dict[str, Cell | None] = {
            "num_steps": depth,
            "topk": 1.0 if depth else None,
            "accept_length": sums.predicted / rounds,
            "verify_rounds": rounds,
        }
        notes = ["no_speculation_flags"] if depth is None else []
        notes += ["variable_draft_length"] if self.varied else []
        notes += ["rounds_without_draft"] if self.rounds_without_draft else []
        self._keep(findings, served, sums, cells, notes)

    def _keep(
        self,
        findings: Findings,
        served: Served,
        sums: _Sums,
        acceptance: Mapping[str, Cell | None],
        notes: list[str],
    ) -> None:
        """Keep the row of some requests, with times where they are those of the server."""
        rounds = sums.predicted - sums.accepted
        times: dict[str, Cell | None] = {}
        if not served.concurrent and sums.predicted_ms > 0:
            times = {
                "output_tokens_per_s": sums.predicted / (sums.predicted_ms * MILLI),
                "step_time_ms": sums.predicted_ms / rounds,
                "throughput_origin": "step_time",
                "batch_size": served.batch_size,
            }
        notes += ["concurrent_slots"] if served.concurrent else []
        alone = served.batch_size is not None and not served.concurrent
        notes += ["load_unknown"] if not alone and not served.concurrent else []
        target, gate = served.cells.get("target_model"), served.cells.get("variant")
        row = measured_row(
            sums.line,
            {
                "engine": ENGINE,
                "output_tokens": sums.predicted / sums.requests if sums.requests else None,
                **served.cells,
                **acceptance,
                **times,
            },
            load=(ENGINE, target, gate, served.batch_size) if target and alone else None,
            details={"requests": float(sums.requests) or None, "rounds": rounds},
        )
        findings.keep(sums.line, row, notes)


def _refused(request: Request) -> Refusal | None:
    """Return why no request can have these figures."""
    accepted, drafted = request.accepted or 0.0, request.drafted or 0.0
    numbers = (request.predicted, request.predicted_ms, accepted, drafted)
    if all(0 <= number <= _MOST for number in numbers) and accepted <= drafted:
        if request.rounds > 0:
            return None
        message = f"{accepted:g} drafts accepted of {request.predicted:g} tokens: no round is left"
    else:
        message = "a count or a time that cannot be"
    return Refusal(code="impossible_counts", column="", message=f"requests left out: {message}")


def _whole(drafted: float, rounds: float) -> set[float]:
    """Return the drafts of a round if they are a whole number."""
    return {drafted / rounds} if rounds > 0 and not drafted % rounds else set()


def _leaves_rounds_out(request: Request) -> bool:
    """Return whether the printed mean length counts fewer rounds than there were.

    The token of the prefill may count as a round here and not there.
    """
    if request.mean_length is None or not request.accepted:
        return False
    shortest = request.mean_length - _HALF_UNIT - 1
    return shortest > 0 and request.accepted / shortest < request.rounds - 1
