"""Posterior of a system's constants and effects, jointly normal, and its predictive distribution."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmodel.constants import NAMES, NUM_CONSTANTS, slope, to_natural
from specmodel.cost import RoundTerms, round_cost
from specmodel.effects import (
    NEW,
    Runs,
    Seen,
    configuration_covariance,
    prior_covariances,
    run_covariance,
)
from specmodel.errors import ParameterError
from specmodel.prior import Noise, Prior
from specmodel.speedup import LinearSpeedup, log_speedup_gradient, non_decode_share_from_baselines
from specmodel.statistics import student_t_cdf, student_t_quantile

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_SHARE, _BASELINE = NAMES.index("non_decode_share"), NAMES.index("baseline_share")


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows to fit or to predict, as arrays of one length."""

    terms: RoundTerms  # known quantities of the rounds
    accept_length: Array  # tokens per request and round, bonus token included, [tokens]
    # how much slower the workload's baseline is than the fastest at this load, [0, 1)
    baseline_deficit: Array
    measured_share: Array  # non-decode share where measured, NaN elsewhere, [-]
    # index into the effects of configurations and of runs; `NEW` for one not seen
    configuration: Index
    run: Index
    # which workload of the system; where it is not said, each run is one of its own
    workload: Index | None = None

    def __len__(self) -> int:
        return int(self.accept_length.size)

    def log_speedup(self, constants: Array) -> Array:
        r"""Logarithm of the speed-up of these rows.

        .. math:: \ln S = -\ln\left(f_w + (1-f_w)\frac{R}{\tau}\right)
        """
        modelled = non_decode_share_from_baselines(
            constants[_SHARE], constants[_BASELINE], self.baseline_deficit
        )
        share = np.where(self.measured_share >= 0.0, self.measured_share, modelled)
        ratio = round_cost(constants, self.terms) / self.accept_length
        return -np.log(share + (1.0 - share) * ratio)

    def linearised(self, constants: Array) -> LinearSpeedup:
        """The same with its derivatives, as `specmodel.speedup.log_speedup_gradient` gives them."""
        return log_speedup_gradient(
            constants, self.terms, self.accept_length, self.baseline_deficit, self.measured_share
        )

    def take(self, rows: NDArray[np.bool_] | Index) -> "Rows":
        """Some of the rows."""
        kept: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)[1:]}
        given = {name: each[rows] for name, each in kept.items() if each is not None}
        return Rows(terms=self.terms.take(rows), **given)

    @property
    def runs(self) -> Runs:
        """The run of each row."""
        return Runs(
            workload=self.run if self.workload is None else self.workload,
            tree=self.terms.tree,
            log_batch=self.terms.log_batch,
            context=self.terms.context,
        )


BATCH_LOG_SD = 0.15
"""Log-sd of the round cost one octave of batch away, growing as the square root of the octaves, where there
is no batch curve: the rms change between batches of one configuration in the packaged systems. [-]"""

PRIOR_BATCHES = np.array([1.0, 8.0])
"""Batches of most systems that taught the priors. [requests]"""

_TOGETHER = 32  # rows whose variance is computed at once


class LogSpeedup(NamedTuple):
    """Predictive distribution of the logarithm of the speed-up: Student-t per row."""

    location: Array  # centre and scale, [-]
    log_sd: Array
    degrees_of_freedom: Array  # of the Student-t distribution, [-]
    by_accept_length: Array  # elasticity of the speed-up with respect to accept length, [-]
    non_decode_share: Array  # used for each row, [-]
    log_round_cost: Array  # of the mean round, effect of the configuration included
    round_cost_log_sd: Array
    run_effect: Array  # of the run on ln S, 0 for new ones, [-]
    by_constant: Array  # derivative of ln S by each constant on its internal scale

    def quantile(self, probability: float) -> Array:
        """Speed-up below which the truth lies with this probability."""
        width = student_t_quantile(probability, self.degrees_of_freedom)
        return np.asarray(np.exp(self.location + width * self.log_sd))

    def probability_above(self, speedup: float) -> Array:
        """Probability that the speed-up is above a value."""
        standard = (self.location - np.log(speedup)) / self.log_sd
        return student_t_cdf(standard, self.degrees_of_freedom)


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """Posterior of constants and effects, jointly normal on their internal scale (Laplace approximation)."""

    # constants on the internal scale, then c configuration effects on ln R, then r run
    # effects on ln S
    mean: Array
    covariance: Array  # of the same vector
    num_configurations: int  # c; the others are runs
    noise: Noise  # the prior's noise
    # factors on the standard deviation of rows, and on those of configurations and runs,
    # learned from the points, [-]
    noise_scale: float
    effect_scale: float
    degrees_of_freedom: float  # of the noise, [-]
    # of the constants before the points; normal, so it does not make tails heavy
    prior_covariance: Array
    # where the effects were measured; without it each stands for itself
    seen: Seen | None = None

    def __post_init__(self) -> None:
        for name in ("noise_scale", "effect_scale", "degrees_of_freedom"):
            value = getattr(self, name)
            if not 0.0 < value < np.inf:
                raise ParameterError(name, f"{value:g}", "finite and positive")
        if not np.all(np.isfinite(self.mean)):
            raise ParameterError("mean", "one that is not", "finite")
        for name, size in (("covariance", self.mean.size), ("prior_covariance", NUM_CONSTANTS)):
            matrix = getattr(self, name)
            if matrix.shape != (size, size) or not np.all(np.isfinite(matrix)):
                raise ParameterError(name, f"shape {matrix.shape}", f"finite, {size} by {size}")

    @classmethod
    def from_prior(cls, prior: Prior) -> "Posterior":
        """The posterior of no points."""
        return cls(
            mean=prior.mean,
            covariance=prior.covariance,
            num_configurations=0,
            noise=prior.noise,
            noise_scale=1.0,
            effect_scale=1.0,
            degrees_of_freedom=prior.noise.degrees_of_freedom,
            prior_covariance=prior.covariance,
        )

    @property
    def constants(self) -> Array:
        """Medians of the constants in natural units."""
        return to_natural(self.mean[:NUM_CONSTANTS])

    @cached_property
    def _precisions(self) -> tuple[Array, Array]:
        """Inverse prior covariances of the effects where they were measured."""
        if self.seen is None:
            return np.zeros((0, 0)), np.zeros((0, 0))
        scale = self.effect_scale**2
        cost, run = prior_covariances(self.seen, self.noise, scale, self.constants)
        return np.asarray(np.linalg.inv(cost)), np.asarray(np.linalg.inv(run))

    def _octaves_away(self, asked: RoundTerms) -> Array:
        """Octaves to the nearest batch that rounds were measured at, where no batch curve tells how they grow."""
        if self.seen is not None and self.seen.curve is not None:
            return np.zeros(len(asked))
        known = np.log2(PRIOR_BATCHES) if self.seen is None else self.seen.terms.log_batch
        return np.asarray(np.min(np.abs(asked.log_batch[:, None] - known), axis=1))

    def effects(self, rows: Rows) -> "EffectsOfRows":
        """What the measured effects say of those of rows, and the covariance that they leave.

        A configuration or run that was measured has its own; a new one what lies between its neighbours.
        """
        count, noise, scale = len(rows), self.noise, self.effect_scale**2
        constants, terms = self.constants, rows.terms
        curve = None if self.seen is None else self.seen.curve
        each, new_cost, new_run = np.arange(count), rows.configuration == NEW, rows.run == NEW
        by_cost = np.zeros((count, self.num_configurations))
        num_runs = self.mean.size - NUM_CONSTANTS - self.num_configurations
        by_run = np.zeros((count, num_runs))
        by_cost[each[~new_cost], rows.configuration[~new_cost]] = 1.0
        by_run[each[~new_run], rows.run[~new_run]] = 1.0
        of_cost, of_run = np.zeros((count, count)), np.zeros((count, count))
        if new_cost.any():
            asked = terms.take(new_cost)
            left = configuration_covariance(asked, asked, noise, scale, constants, curve)
            left[np.diag_indices_from(left)] += scale * noise.configuration_log_sd**2
            away = np.sqrt(self._octaves_away(asked))
            left += (noise.growth_share * BATCH_LOG_SD) ** 2 * away[:, None] * away
            if self.seen is not None:
                across = configuration_covariance(
                    asked, self.seen.terms, noise, scale, constants, curve
                )
                by_cost[new_cost] = across @ self._precisions[0]
                left -= by_cost[new_cost] @ across.T
            of_cost[np.ix_(new_cost, new_cost)] = left
        if new_run.any():
            runs = rows.runs.take(new_run)
            left = run_covariance(runs, runs, noise, scale)
            # What an unknown run has alone is shared by all chains, and by all trees.
            left += scale * noise.run_log_sd**2 * (runs.tree[:, None] == runs.tree)
            if self.seen is not None:
                across = run_covariance(runs, self.seen.runs, noise, scale)
                by_run[new_run] = across @ self._precisions[1]
                left -= by_run[new_run] @ across.T
            of_run[np.ix_(new_run, new_run)] = left
        return EffectsOfRows(by_cost, by_run, of_cost, of_run)

    def predict(self, rows: Rows, *, accept_log_sd: Array | float = 0.0) -> LogSpeedup:
        r"""Predictive distribution of the speed-up of a new measurement of each row.

        .. math:: \operatorname{var} = J C J^\top + \lambda^2(\sigma_\text{row}^2 + \ldots)
        """
        constants = self.constants
        by_natural = slope(constants)
        found = log_speedup_gradient(
            constants, rows.terms, rows.accept_length, rows.baseline_deficit, rows.measured_share
        )
        decode, gradient = found.by_accept_length, found.gradient * by_natural
        noise, scale = self.noise, self.effect_scale**2
        effects = self.effects(rows)
        first_run = NUM_CONSTANTS + self.num_configurations
        of_cost = effects.by_configuration @ self.mean[NUM_CONSTANTS:first_run]
        of_run = effects.by_run @ self.mean[first_run:]
        new_cost, new_run = (
            np.maximum(np.diag(left), 0.0)
            for left in (effects.cost_covariance, effects.run_covariance)
        )
        of_speedup = np.concatenate(
            [gradient, -decode[:, None] * effects.by_configuration, effects.by_run], axis=1
        )
        learned = self._variance(of_speedup)
        drawn = (
            (self.noise_scale * noise.row_log_sd) ** 2
            + new_cost * decode**2
            + new_run
            + (decode * np.asarray(accept_log_sd)) ** 2
        )
        # What remains of the prior is normal; what the points taught is as uncertain as their noise.
        # A variance v learned against a prior variance w keeps the share v/w of the prior.
        before = np.einsum("ij,ij->i", gradient @ self.prior_covariance, gradient)
        cost_variance, run_variance = noise.effect_variances
        told = np.maximum(scale * cost_variance - new_cost, 0.0) * decode**2
        told += np.maximum(scale * run_variance - new_run, 0.0)
        normal = np.minimum(learned, learned**2 * before / (before + told) ** 2)
        # Welch and Satterthwaite: a normal part, and a part of few degrees of freedom.
        total = learned + drawn
        freedom = self.degrees_of_freedom * (total / np.maximum(total - normal, 1e-300)) ** 2
        by_log_cost = found.cost_gradient * by_natural / found.round_cost[:, None]
        of_round = np.concatenate(
            [by_log_cost, effects.by_configuration, np.zeros_like(effects.by_run)], axis=1
        )
        share, ratio = found.non_decode_share, found.round_cost / rows.accept_length
        return LogSpeedup(
            location=of_run - np.log(share + (1.0 - share) * ratio * np.exp(of_cost)),
            log_sd=np.sqrt(total),
            degrees_of_freedom=freedom,
            by_accept_length=decode,
            non_decode_share=share,
            log_round_cost=np.log(found.round_cost) + of_cost,
            round_cost_log_sd=np.sqrt(self._variance(of_round) + new_cost),
            run_effect=of_run,
            by_constant=gradient,
        )

    def _variance(self, jacobian: Array) -> Array:
        """J C J^T of each row; a measured one touches the constants and two effects."""
        found = []
        for start in range(0, len(jacobian), _TOGETHER):
            rows = jacobian[start : start + _TOGETHER]
            touched = np.flatnonzero(np.any(rows != 0.0, axis=0))
            used, covariance = rows[:, touched], self.covariance[np.ix_(touched, touched)]
            found.append(np.einsum("ij,ij->i", used @ covariance, used))
        return np.asarray(np.maximum(np.concatenate([np.empty(0), *found]), 0.0))


class EffectsOfRows(NamedTuple):
    """Effects of rows as weights on measured ones, and the covariance that is left of new ones."""

    by_configuration: Array
    by_run: Array
    cost_covariance: Array
    run_covariance: Array
