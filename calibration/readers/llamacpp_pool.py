"""Requests of a llama.cpp server added up: what its log and its responses count in the same way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from calibration.readers.acceptance_counts import ACCEPTANCE_MESSAGES
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.reading import Cell
from specmodel.errors import LeftOut
from specmodel.units import MILLI

# Name of the engine in rows.
ENGINE: Final = "llama.cpp"

# What the numbers of these files mean.
CONVENTIONS: Final = conventions("llamacpp_pool")

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
_MOST_CUT = 0.05  # of the drafts, by the ends of requests, where the depth is derived


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that was answered."""

    line: int  # where it stands, 1-based
    predicted: float  # tokens that it produced
    predicted_ms: float  # time that this took, [ms]
    prefills: float = 1.0  # how many of them came from a prefill, so in no round
    drafted: float | None = None  # draft tokens proposed and accepted; None without speculation
    accepted: float | None = None
    # mean length of rounds with a draft as printed, with two digits
    mean_length: float | None = None

    @property
    def rounds(self) -> float:
        """How many rounds it took."""
        return self.predicted - self.prefills - (self.accepted or 0.0)

    def missing(self, depth: float) -> float:
        """Return how many drafts fewer than ``depth`` a round there were, less what ends can cut off.

        The last rounds of a request draft no more than the tokens that are left to produce.
        """
        short = depth * self.rounds - (self.drafted or 0.0)
        return (
            short
            if short < 0
            else max(short - max(self.prefills, 1.0) * depth * (depth + 1) / 2, 0.0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How the requests of a pool were served."""

    batch_size: float | None = None  # requests that ran together; None where the file does not tell
    concurrent: bool = False  # whether requests are known to have run together
    cells: Mapping[str, Cell | None] = field(default_factory=dict)  # further cells of the row


@dataclass(slots=True)
class _Sums:
    """Requests of one kind added up."""

    line: int = 0
    requests: int = 0
    predicted: float = 0.0
    predicted_ms: float = 0.0
    rounds: float = 0.0
    decoded: float = 0.0
    drafted: float = 0.0

    def add(self, request: Request) -> None:
        """Add a request."""
        self.line = self.line or request.line
        self.requests += 1
        self.predicted += request.predicted
        self.predicted_ms += request.predicted_ms
        self.rounds += request.rounds
        self.decoded += request.predicted - request.prefills
        self.drafted += request.drafted or 0.0


class RequestPool:
    """Requests with the same settings."""

    def __init__(self, depth: float | None = None) -> None:
        self._configured = depth
        self._drafting, self._plain = _Sums(), _Sums()
        self._undrafted: list[int] = []
        self._impossible: list[tuple[int, LeftOut]] = []
        self.positions = 0.0  # as many as a line of acceptance by position names
        self._whole: set[float] | None = None  # drafts of a round that fit every request
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
        """Drafts of a round: as configured or printed by position, else what fits every request."""
        if self._configured is not None or self.positions:
            return self._configured or self.positions
        if not self._whole:
            return None
        depth, sums = min(self._whole), self._drafting
        cut = depth * sums.rounds - sums.drafted
        enough = sums.rounds >= _ENOUGH_ROUNDS and cut <= _MOST_CUT * sums.drafted
        return depth if enough or not cut else None

    @property
    def varied(self) -> bool:
        """Whether the drafts of a round are not the same in every request."""
        if self._configured is not None:
            return not self._fits_configured
        return self.depth is None or self.depth not in (self._whole or ())

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
            least = float(-(-(request.drafted or 0.0) // request.rounds))
            whole = {depth for depth in (least, least + 1) if not request.missing(depth)}
            self._whole = whole if self._whole is None else self._whole & whole
            if self._configured is not None:
                self._fits_configured &= not request.missing(self._configured)
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
                prefills=float(plain.requests),
                predicted_ms=plain.predicted_ms,
                drafted=drafted,
                accepted=accepted,
            )
        )
        if self._drafting.requests:
            self._drafting.requests = plain.requests

    def keep(self, findings: Findings, served: Served, *, baseline: bool = True) -> None:
        """Keep the row of the pool, and say what was left out of it and why."""
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
        cells: dict[str, Cell | None] = {
            "num_steps": depth,
            "topk": 1.0 if depth else None,
            "accept_length": sums.decoded / sums.rounds,
            "verify_rounds": sums.rounds,
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
        times: dict[str, Cell | None] = {}
        if not served.concurrent and sums.predicted_ms > 0:
            times = {
                "output_tokens_per_s": sums.decoded / (sums.predicted_ms * MILLI),
                "step_time_ms": sums.predicted_ms / sums.rounds,
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
            details={"requests": float(sums.requests) or None, "rounds": sums.rounds},
        )
        findings.keep(sums.line, row, notes)


def _refused(request: Request) -> LeftOut | None:
    """Return why no request can have these figures."""
    accepted, drafted = request.accepted or 0.0, request.drafted or 0.0
    numbers = (request.predicted, request.predicted_ms, accepted, drafted)
    if all(0 <= number <= _MOST for number in numbers) and accepted <= drafted:
        if request.predicted == request.prefills and not drafted:
            message = "requests left out: their only token came from the prefill"
            return LeftOut(code="no_verify_rounds", column="", message=message)
        if request.rounds > 0:
            return None
        message = f"{accepted:g} drafts accepted of {request.predicted:g} tokens: no round is left"
    else:
        message = "a count or a time that cannot be"
    return LeftOut(code="impossible_counts", column="", message=f"requests left out: {message}")


def _leaves_rounds_out(request: Request) -> bool:
    """Return whether the printed mean length counts fewer rounds than there were, but for the last."""
    if request.mean_length is None or not request.accepted:
        return False
    shortest = request.mean_length - _HALF_UNIT - 1
    return shortest > 0 and request.accepted / shortest < request.rounds - 1
