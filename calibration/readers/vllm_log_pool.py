"""Windows of a vLLM log added up: rounds, accepted drafts and the acceptance of each position."""

from dataclasses import dataclass
from typing import Final

from calibration.readers.draft_counts import accuracy_notes
from calibration.readers.measured_row import measured_row
from calibration.readers.reading import Cell, Row
from calibration.readers.row_checks import Refusal
from calibration.readers.vllm_banner import ServerSettings
from calibration.readers.vllm_log_line import Counters, Window

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

    def row(self) -> Row | Refusal:
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
