"""What drawn accept lengths are worth in serving: at a checkpoint, and over the rest of a run."""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from calibration.training.accept_length_path import AcceptLengthPath
from calibration.training.offline_acceptance import spread_normal
from calibration.training.speedup_draws import SpeedupDraws, draw_speedups
from specmodel.acceptance import TransferFactor
from specmodel.calibration import Calibration
from specmodel.prediction import baseline_of
from specmodel.question import Estimate, Question, longest_accept_length
from specmodel.units import KILO

Array = NDArray[np.float64]

# Draws of calibration, transfer and accept length together. [-]
NUM_DRAWS: Final = 10_000

_SEED: Final = 4
_HOUR_S: Final = timedelta(hours=1).total_seconds()
_LEVELS: Final = (0.05, 0.5, 0.95)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What accept lengths are worth."""

    accept_length: Estimate  # at the served depth, [tokens]
    speedup: Estimate  # of a new measurement
    output_tokens_per_s: Estimate | None  # where the baseline is known, [tokens/s]
    # that a new measurement is above the baseline, and above the target, [0, 1]
    probability_faster: float
    probability_of_target: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOutlook:
    """One checkpoint, as its log shows it and as serving is expected to."""

    step: int | None  # where it is; None where the log has no steps
    as_logged: Outlook  # with the accept length of the log, and with that expected in serving
    expected: Outlook


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepReachingTarget:
    """When the target is reached in serving."""

    probability: float  # that it is reached by the end, [0, 1]
    # step by which it is reached with probability 0.5, 0.05 and 0.95; None where that is not before
    # the end
    median: float | None
    low: float | None
    high: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What the rest of the run adds to the speed-up in serving."""

    speedup: Estimate  # speed-up at the end minus that of now
    per_thousand_steps: Estimate  # the same over the remaining steps, [1/1000 steps]
    per_hour: Estimate | None  # over the remaining hours, where the time of a step is known, [1/h]
    remaining_steps: float  # to the end
    remaining_hours: float | None  # to the end, [h]


class Worth(NamedTuple):
    """Draws of everything but the accept length, and what accept lengths are worth with them."""

    speedups: SpeedupDraws
    factor: Array | None
    row: NDArray[np.intp]
    longest: float
    target: float
    baseline: float | None

    @classmethod
    def drawn(
        cls,
        calibration: Calibration,
        question: Question,
        path: AcceptLengthPath,
        *,
        transfer: TransferFactor | None,
        num_steps: int,
        target: float,
    ) -> "Worth":
        """Draws that belong together: a system, a factor and a course of the accept length."""
        rng = np.random.default_rng(_SEED)
        longest = longest_accept_length(question.configuration) or num_steps + 1.0
        longest = max(longest, 1.0 + 1e-9)
        factor = None
        if transfer is not None:
            factor = transfer.median * np.exp(transfer.total_sd * spread_normal(NUM_DRAWS, rng))
        return cls(
            speedups=draw_speedups(
                calibration, question, longest=longest, num_draws=NUM_DRAWS, rng=rng
            ),
            factor=factor,
            row=rng.permutation(np.resize(np.arange(len(path.draws)), NUM_DRAWS)),
            longest=longest,
            target=target,
            baseline=baseline_of(calibration, question),
        )

    @property
    def fastest(self) -> float:
        """Median speed-up with every draft token accepted."""
        return float(np.median(self.speedups.at(np.full(NUM_DRAWS, self.longest))))

    def logged(self, accept_length: Array) -> Array:
        """Accept lengths of the log, one for each draw."""
        return np.minimum(accept_length[self.row], self.longest)

    def served(self, accept_length: Array) -> Array:
        """The same in serving."""
        logged = accept_length[self.row]
        if self.factor is not None:
            logged = 1.0 + self.factor * (logged - 1.0)
        return np.minimum(logged, self.longest)

    def checkpoint(self, accept_length: Array, step: int | None) -> CheckpointOutlook:
        """What one checkpoint is worth."""
        return CheckpointOutlook(
            step=step,
            as_logged=self._outlook(self.logged(accept_length)),
            expected=self._outlook(self.served(accept_length)),
        )

    def _outlook(self, accept_length: Array) -> Outlook:
        """What accept lengths, one for each draw, are worth."""
        gained = self.speedups.at(accept_length)
        speed = estimate_of(gained)
        return Outlook(
            accept_length=estimate_of(accept_length),
            speedup=speed,
            output_tokens_per_s=None if self.baseline is None else speed.scaled(self.baseline),
            probability_faster=float(np.mean(gained > 1.0)),
            probability_of_target=float(np.mean(gained >= self.target)),
        )

    def step_reaching_target(self, path: AcceptLengthPath) -> StepReachingTarget:
        """First step of each draw at which its speed-up in serving is the target."""
        reached = np.full(NUM_DRAWS, np.inf)
        before = self.speedups.at(self.served(path.draws[:, 0]))
        reached[before >= self.target] = path.steps[0]
        for column in range(1, path.steps.size):
            after = self.speedups.at(self.served(path.draws[:, column]))
            now = np.isinf(reached) & (after >= self.target)
            start, width = path.steps[column - 1], path.steps[column] - path.steps[column - 1]
            rise = after[now] - before[now]
            reached[now] = start + width * (self.target - before[now]) / rise
            before = after
        ordered = np.sort(reached)
        low, median, high = (float(ordered[int(level * NUM_DRAWS)]) for level in _LEVELS)
        return StepReachingTarget(
            probability=float(np.mean(np.isfinite(reached))),
            median=_finite(median),
            low=_finite(low),
            high=_finite(high),
        )


def gain_of(worth: Worth, path: AcceptLengthPath, seconds_per_step: float | None) -> Gain:
    """What the rest of the run adds; errors that now and the end share are not in it."""
    now, end = (worth.speedups.at(worth.served(path.draws[:, column])) for column in (0, -1))
    added = estimate_of(end - now)
    steps = float(path.steps[-1] - path.steps[0])
    hours = None if seconds_per_step is None else steps * seconds_per_step / _HOUR_S
    return Gain(
        speedup=added,
        per_thousand_steps=added.scaled(KILO / steps),
        per_hour=None if hours is None else added.scaled(1.0 / hours),
        remaining_steps=steps,
        remaining_hours=hours,
    )


def estimate_of(draws: Array) -> Estimate:
    """Median and central 90 % of draws."""
    low, median, high = np.quantile(draws, _LEVELS).tolist()
    return Estimate(median=median, low=low, high=high)


def _finite(value: float) -> float | None:
    """A number; None where it is infinite."""
    return value if math.isfinite(value) else None
