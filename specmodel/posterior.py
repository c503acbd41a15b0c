"""Posterior of a system's constants and effects, jointly normal, and its predictive distribution."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmodel.constants import NAMES, NUM_CONSTANTS, slope, to_natural
from specmodel.cost import RoundTerms, round_cost
from specmodel.errors import ParameterError
from specmodel.prior import Noise, Prior
from specmodel.speedup import LinearSpeedup, log_speedup_gradient, non_decode_share_from_baselines
from specmodel.statistics import student_t_cdf, student_t_quantile

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_SHARE, _BASELINE = NAMES.index("non_decode_share"), NAMES.index("baseline_share")

NEW = -1
"""Index of a configuration or run that the points do not hold."""


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
        return Rows(
            terms=self.terms.take(rows),
            **{one.name: getattr(self, one.name)[rows] for one in fields(self)[1:]},
        )


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

    def effects(self, rows: Rows) -> tuple[Array, Array]:
        """Effect of each row's configuration on ln R and of its run on ln S; 0 for new ones."""
        first_run = NUM_CONSTANTS + self.num_configurations
        of_cost = np.append(self.mean[NUM_CONSTANTS:first_run], 0.0)[rows.configuration]
        return of_cost, np.append(self.mean[first_run:], 0.0)[rows.run]

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
        of_cost, of_run = self.effects(rows)
        noise, scale = self.noise, self.effect_scale**2
        learned = self._variance(rows, gradient, -decode, 1.0)
        new = rows.configuration == NEW
        new_cost = np.where(new, scale * noise.configuration_log_sd**2 + rows.terms.carried**2, 0.0)
        new_run = np.where(rows.run == NEW, scale * noise.run_log_sd**2, 0.0)
        drawn = (
            (self.noise_scale * noise.row_log_sd) ** 2
            + new_cost * decode**2
            + new_run
            + (decode * np.asarray(accept_log_sd)) ** 2
        )
        # What remains of the prior is normal; what the points taught is as uncertain as their noise.
        # A variance v learned against a prior variance w keeps the share v/w of the prior.
        before = np.einsum("ij,ij->i", gradient @ self.prior_covariance, gradient)
        effects = scale * (
            np.where(new, 0.0, (noise.configuration_log_sd * decode) ** 2)
            + np.where(rows.run == NEW, 0.0, noise.run_log_sd**2)
        )
        normal = np.minimum(learned, learned**2 * before / (before + effects) ** 2)
        # Welch and Satterthwaite: a normal part, and a part of few degrees of freedom.
        total = learned + drawn
        freedom = self.degrees_of_freedom * (total / np.maximum(total - normal, 1e-300)) ** 2
        by_log_cost = found.cost_gradient * by_natural / found.round_cost[:, None]
        return LogSpeedup(
            location=found.log_speedup - decode * of_cost + of_run,
            log_sd=np.sqrt(total),
            degrees_of_freedom=freedom,
            by_accept_length=decode,
            non_decode_share=found.non_decode_share,
            log_round_cost=np.log(found.round_cost) + of_cost,
            round_cost_log_sd=np.sqrt(self._variance(rows, by_log_cost, 1.0, 0.0) + new_cost),
            run_effect=of_run,
            by_constant=gradient,
        )

    def _variance(
        self, rows: Rows, gradient: Array, by_configuration: Array | float, by_run: float
    ) -> Array:
        """J C J^T, where each row touches the constants and at most two effects."""
        covariance, first_run = self.covariance, NUM_CONSTANTS + self.num_configurations
        shared = covariance[:NUM_CONSTANTS, :NUM_CONSTANTS]
        variance: Array = np.einsum("ij,ij->i", gradient @ shared, gradient)
        if covariance.shape[0] == NUM_CONSTANTS:
            return variance
        seen_configuration, seen_run = rows.configuration != NEW, rows.run != NEW
        at_configuration = NUM_CONSTANTS + np.where(seen_configuration, rows.configuration, 0)
        at_run = np.where(seen_run, first_run + rows.run, NUM_CONSTANTS)
        of_cost = np.where(seen_configuration, by_configuration, 0.0)
        of_run = np.where(seen_run, by_run, 0.0)
        cross = covariance[:, :NUM_CONSTANTS]
        variance += of_cost**2 * covariance[at_configuration, at_configuration]
        variance += of_run**2 * covariance[at_run, at_run]
        variance += 2 * of_cost * of_run * covariance[at_configuration, at_run]
        variance += 2 * of_cost * np.einsum("ij,ij->i", gradient, cross[at_configuration])
        variance += 2 * of_run * np.einsum("ij,ij->i", gradient, cross[at_run])
        return np.asarray(np.maximum(variance, 0.0))
