"""Accept lengths over the rest of a run, as draws: what a decision is made from."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.training.offline_acceptance import carried_draws, spread_normal
from specmodel.acceptance import ConditionalAccuracy
from specmodel.errors import ParameterError
from specmodel.question import AcceptLength

if TYPE_CHECKING:
    from calibration.training.projection import Projection

Array = NDArray[np.float64]

# Steps of a path, the present and the end among them.
NUM_STEPS: Final = 41

_SEED: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AcceptLengthPath:
    """Equally likely courses of the accept length that the log implies, at the served depth."""

    # rising; now first, the end last. One step, which may be nan, where nothing is projected
    steps: Array
    draws: Array  # at least 1, bonus token included; one course a row, [tokens]

    def __post_init__(self) -> None:
        shape = self.draws.shape
        if self.steps.ndim != 1 or not self.steps.size or shape[1:] != self.steps.shape:
            raise ParameterError(
                "draws", f"shape {shape}", f"of shape (draws, {self.steps.size}), one column a step"
            )
        if not shape[0]:
            raise ParameterError("draws", "none", "at least one")
        if self.steps.size > 1 and not np.all(np.diff(self.steps) > 0):
            raise ParameterError("steps", self.steps.tolist()[:4], "finite and rising")
        if not np.all(np.isfinite(self.draws) & (self.draws >= 1.0)):
            raise ParameterError("accept length", f"{np.min(self.draws):g}", "finite, at least 1")

    @classmethod
    def of_now(cls, draws: ArrayLike, step: float | None = None) -> "AcceptLengthPath":
        """Return the path of a run of which only the present is known."""
        now = math.nan if step is None else float(step)
        values = np.asarray(draws, dtype=np.float64).reshape(-1, 1)
        return cls(steps=np.array([now]), draws=values)

    @property
    def projected(self) -> bool:
        """Whether there is more than the present."""
        return self.steps.size > 1

    @property
    def now_step(self) -> int | None:
        """Step of the present; None where it is not known."""
        return round(float(self.steps[0])) if np.isfinite(self.steps[0]) else None

    @property
    def end_step(self) -> int | None:
        """Last step; None where nothing is projected."""
        return round(float(self.steps[-1])) if self.projected else None

    def through(self, logged: AcceptLength, noise: float) -> "AcceptLengthPath":
        r"""Return the courses moved to what the log shows now, where they miss it by more than errors.

        .. math:: w = \frac{\sigma^2}{\sigma^2 + s^2}, \qquad \chi^2 = \frac{(\tau_\text{log} - \bar\tau)^2}{\sigma^2 + s^2}

        No form fits every run, a short steep one least. The present becomes the mean of the two by
        their variances, that of the courses and that of one measurement, and its spread grows by
        :math:`\chi` (Birge); the courses go on from there.
        """
        now = self.draws[:, :1]
        mean, variance = float(now.mean()), float(now.var())
        median = logged.estimate.median
        total = variance + (logged.log_sd * median) ** 2 + noise**2
        if not total > 0.0 or (median - mean) ** 2 <= total:
            return self
        weight, chi = variance / total, abs(median - mean) / math.sqrt(total)
        spread = max(chi * math.sqrt(1.0 - weight), 1.0)  # of the mean of the two, over that of now
        moved = mean + weight * (median - mean) + spread * (now - mean)
        return replace(self, draws=np.maximum(self.draws + moved - now, 1.0))

    def at(self, step: float) -> Array:
        """Return the accept lengths at a step, in a straight line between those that are known."""
        first, last = float(self.steps[0]), float(self.steps[-1])
        if not first <= step <= last:
            raise ParameterError("step", f"{step:g}", f"from {first:g} to {last:g}")
        right = min(max(int(np.searchsorted(self.steps, step)), 1), self.steps.size - 1)
        if not self.projected:
            return np.asarray(self.draws[:, 0])
        low, high = float(self.steps[right - 1]), float(self.steps[right])
        share = (step - low) / (high - low)
        below, above = self.draws[:, right - 1], self.draws[:, right]
        return np.asarray(below + share * (above - below))


def projected_path(
    projection: "Projection", num_steps: int, *, until: float | None = None, log_sd: float = 0.0
) -> AcceptLengthPath:
    r"""Return the accept length at the served depth over the rest of a projected run.

    .. math:: \tau_k^{(d)}(t) = 1 + e^{s z^{(d)}} \sum_{i \le k} \prod_{j \le i} a_j^{(d)}(t)
    """
    if num_steps < 1:
        raise ParameterError("num_steps", num_steps, "at least 1")
    rng = np.random.default_rng(_SEED)
    now = projection.last_step
    end = until or projection.end_step or projection.target.step
    steps = np.linspace(now, end, NUM_STEPS) if end > now else np.array([now])
    trained = projection.now.conditional.shape[1]
    depth = min(num_steps, trained)
    later = [projection.at(float(step)).accept_lengths(depth) for step in steps[1:]]
    draws = np.stack([projection.now.accept_lengths(depth), *later], axis=1)
    if num_steps > trained and projection.now.scale == 1.0:  # a printed one has no depths
        curve = ConditionalAccuracy(projection.now.accuracies()).to_full()
        draws = carried_draws(draws, curve, num_steps, rng)
    shared = np.exp(log_sd * spread_normal(len(draws), rng))[:, None]
    draws = np.clip(1.0 + shared * (draws - 1.0), 1.0, num_steps + 1.0)
    return AcceptLengthPath(steps=steps, draws=draws)
