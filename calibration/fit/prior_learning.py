"""Empirical Bayes: the prior of a new system from the systems that were measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from calibration.fit.posterior_mode import MapFit, fit_rows
from calibration.points.arrays import SystemRows, system_rows
from calibration.points.packaged import PackagedTable, packaged_tables
from calibration.points.reading import read_points
from calibration.points.systems import systems
from calibration.points.table import Points
from calibration.points.unsound import assess_soundness
from specmodel.constants import NUM_CONSTANTS, to_internal
from specmodel.cost import BatchCurve
from specmodel.posterior import Rows
from specmodel.prior import Noise, Prior, target_key

Array = NDArray[np.float64]

START = to_internal(np.array([1.1, 0.06, 0.12, 0.06, 0.1, 0.5, 0.95, 0.5, 0.9]))
"""Centre from which learning starts, in the order of `NAMES`; a weak pull towards it remains where
few systems speak. fixed_cost, step_cost, tree_cost and non_decode_share near theory.md part D."""

START_WEIGHT = 0.5
"""Systems' worth of weight of `START` in the centre."""

WEAK_SD = np.array([0.08, 0.20, 0.30, 0.50, 0.60, 0.80, 1.0, 0.60, 1.0])
"""Between-system spread, on the internal scale, that counts as `PSEUDO_SYSTEMS` systems."""


PSEUDO_SYSTEMS = 3.0
"""Systems that `WEAK_SD` counts as. [-]"""

NOISE_INFLATION = 1.05
"""Factor on the learned noise, for what was learned of it from few systems. Chosen by systems that were
left out: the log score of their predictions grows with it, and up to this value the intervals of every
calibrated split cover 87 to 93 % (`specmodel evaluate`). [-]"""

PSEUDO_EFFECTS = 10.0
"""Effects' worth of weight of `WEAK_NOISE` in each standard deviation of the noise."""

WEAK_NOISE = Noise(
    row_log_sd=0.02, configuration_log_sd=0.02, run_log_sd=0.03, degrees_of_freedom=8.0
)

OVER_LOADS = {
    "load_log_sd": 0.04,
    "rows_log_sd": 0.035,
    "depth_log_sd": 0.022,
    "tree_log_sd": 0.027,
    "workload_log_sd": 0.022,
    "growth_share": 1.0,
}
"""What near loads have in common (`specmodel.prior.Noise`), by the evidence of the packaged systems, half of
them left out (`scripts/learn_effects.py`). Constants are learned without it: few systems have many loads."""

WORKLOAD_LOG_SD = {"sglang": 0.02}
"""The same of a workload for engines with a prior of their own. [-]"""

RUN_SHARE = 0.75
"""Part of the standard deviation of a run that it does not share with its workload. [-]"""

_DEGREES_OF_FREEDOM = np.array([3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 14.0, 20.0, 30.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSystem:
    """One measured system to learn from."""

    name: str  # what it is called; the target model decides what is left out together
    target_model: str  # what it is called; the target model decides what is left out together
    rows: Rows  # its speculative rows
    log_speedup: Array  # measured, [-]
    curve: BatchCurve | None = None  # of its baselines


def learn_prior(
    systems: Sequence[LearningSystem], *, name: str, start: Prior | None = None, rounds: int = 40
) -> Prior:
    r"""Prior of the constants and the noise that make the measured systems most likely.

    .. math:: \mu = \frac{\sum_s w_s x_s + w_0 x_0}{\sum_s w_s + w_0},\quad
              \sigma^2 = \frac{\sum_s (x_s-\mu)^2 + c_s + n_0 s_0^2}{n_s + n_0}
              \left(1 + \frac{1}{\sum_s w_s + w_0}\right)

    Expectation-maximisation with a Gaussian (Laplace) posterior per system. Weak pseudo-systems keep the
    spread proper where few systems speak; constants are independent. The degrees of freedom of the noise
    are those that make the systems' own noise levels most likely, on a grid.
    """
    knows = np.zeros((1, NUM_CONSTANTS))
    prior = start or Prior(
        mean=START,
        covariance=np.diag((2 * WEAK_SD) ** 2),
        noise=WEAK_NOISE,
        name="weak",
        learned_from=(),
    )
    names = tuple(system.name for system in systems)
    for _ in range(rounds):
        fits = [
            fit_rows(system.rows, system.log_speedup, prior, curve=system.curve)
            for system in systems
        ]
        means = np.array([fit.posterior.mean[:NUM_CONSTANTS] for fit in fits])
        # A system counts by what it knows of a constant; one that knows nothing says nothing.
        spread = np.array([np.diag(fit.posterior.covariance)[:NUM_CONSTANTS] for fit in fits])
        # One that is unlike the others counts less: the prior is Student-t.
        weight = 1.0 / np.array([[fit.prior_width] for fit in fits])
        knows = weight * np.clip(1.0 - weight * spread / np.diag(prior.covariance), 0.0, 1.0)
        centre = (np.sum(knows * means, axis=0) + START_WEIGHT * START) / (
            knows.sum(axis=0) + START_WEIGHT
        )
        centred = means - centre
        # Few systems cannot tell how constants go together, so the prior keeps them independent.
        variance = (
            np.sum(weight * (centred**2 + spread), axis=0) + PSEUDO_SYSTEMS * WEAK_SD**2
        ) / (len(systems) + PSEUDO_SYSTEMS)
        prior = Prior(
            mean=centre,
            covariance=np.diag(variance),
            noise=_noise(fits, [len(system.rows) for system in systems], prior.noise),
            name=name,
            learned_from=names,
        )
    # A new system is away from the centre, and the centre is known from few systems.
    centre_variance = np.diag(prior.covariance) / (knows.sum(axis=0) + START_WEIGHT)
    noise = prior.noise
    inflated = replace(
        noise,
        row_log_sd=NOISE_INFLATION * noise.row_log_sd,
        configuration_log_sd=NOISE_INFLATION * noise.configuration_log_sd,
        run_log_sd=NOISE_INFLATION * noise.run_log_sd,
    )
    return replace(prior, covariance=prior.covariance + np.diag(centre_variance), noise=inflated)


def for_other_rigs(prior: Prior, family: str) -> Prior:
    """A learned prior as it is packaged: with what near loads have in common."""
    over_loads = OVER_LOADS | {"run_log_sd": RUN_SHARE * prior.noise.run_log_sd}
    if family in WORKLOAD_LOG_SD:
        over_loads |= {"workload_log_sd": WORKLOAD_LOG_SD[family]}
    return replace(prior, noise=replace(prior.noise, **over_loads))


def _noise(fits: Sequence[MapFit], counts: Sequence[int], noise: Noise) -> Noise:
    """Standard deviations of the noise that make residuals and effects most likely."""
    weak = np.array([WEAK_NOISE.row_log_sd, WEAK_NOISE.configuration_log_sd, WEAK_NOISE.run_log_sd])
    sums, sizes = np.zeros(3), np.zeros(3)
    for fit, count in zip(fits, counts, strict=True):
        posterior, split = fit.posterior, fit.posterior.num_configurations
        effects = posterior.mean[NUM_CONSTANTS:]
        # Only a system with more rows than effects tells the levels of noise apart.
        if count <= effects.size:
            continue
        rows = fit.weight * (fit.residual**2 + fit.fitted_variance) / posterior.noise_scale**2
        scale = posterior.effect_scale**2
        alone = np.repeat(
            [noise.configuration_log_sd**2, noise.run_log_sd**2], [split, effects.size - split]
        )
        # What each has alone, of an effect that it shares with its neighbours otherwise.
        precision = fit.effect_precision
        spread = precision @ posterior.covariance[NUM_CONSTANTS:, NUM_CONSTANTS:] @ precision
        own = scale * alone
        squares = (own * (precision @ effects)) ** 2 / scale
        squares += alone - own * alone * (np.diag(precision) - np.diag(spread))
        parts = (rows, squares[:split], squares[split:])
        sums += [part.sum() for part in parts]
        sizes += [part.size for part in parts]
    # The systems' own noise levels multiply these, so only their mean precision fixes the common
    # factor; setting it directly spares hundreds of rounds of expectation and maximisation.
    common = 1.0 / np.sqrt(np.mean([1.0 / fit.posterior.noise_scale**2 for fit in fits]))
    row, configuration, run = (
        common * np.sqrt((sums + PSEUDO_EFFECTS * weak**2) / (sizes + PSEUDO_EFFECTS))
    ).tolist()
    return replace(
        noise,
        row_log_sd=row,
        configuration_log_sd=configuration,
        run_log_sd=run,
        degrees_of_freedom=_degrees_of_freedom(fits),
    )


def _degrees_of_freedom(fits: Sequence[MapFit]) -> float:
    """Degrees of freedom that the systems' chi squares support, averaged over a grid."""
    chi_square = np.array([fit.chi_square for fit in fits])
    free = np.array([max(fit.redundant, 0.1) for fit in fits])
    grid = _DEGREES_OF_FREEDOM[:, None]
    log_likelihood = (
        gammaln((grid + free) / 2)
        - gammaln(grid / 2)
        - free / 2 * np.log(grid)
        - (grid + free) / 2 * np.log1p(chi_square / grid)
    ).sum(axis=1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    return float(np.exp(np.sum(weight * np.log(_DEGREES_OF_FREEDOM)) / np.sum(weight)))


MIN_ROWS_TO_LEARN = 5
"""Fewer rows cannot tell a system's constants from its noise. [rows]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSystem:
    """One packaged system."""

    name: str  # the table's name; with a number where the table holds several systems
    label: str  # what distinguishes it
    table: PackagedTable  # where it comes from
    points: Points  # all of its rows
    rows: SystemRows  # as arrays, rows of broken baselines left out
    sound: bool  # whether the tool finds its baselines sound

    @property
    def target_model(self) -> str:
        """The target model, as its rows name it."""
        return str(self.points.frame["target_model"].iloc[0])

    @property
    def engine(self) -> str:
        """The engine, as its rows name it."""
        return str(self.points.frame["engine"].iloc[0])

    @property
    def teaches(self) -> bool:
        """Whether priors are learned from it."""
        return (
            self.sound
            and self.table.usable_for_prior
            and self.table.sound
            and len(self.rows.rows) >= MIN_ROWS_TO_LEARN
        )


def public_systems(tables: tuple[PackagedTable, ...] | None = None) -> Iterator[PublicSystem]:
    """Every system of the packaged tables, in the order of the tables."""
    for table in packaged_tables() if tables is None else tables:
        found = systems(read_points(table.path))
        for number, system in enumerate(found, start=1):
            soundness = assess_soundness(system.points)
            yield PublicSystem(
                name=table.name if len(found) == 1 else f"{table.name}#{number}",
                label=system.label,
                table=table,
                points=system.points,
                rows=system_rows(system.points.where(soundness.kept).frame),
                sound=soundness.sound,
            )


def learning_targets(found: list[PublicSystem]) -> list[str]:
    """Keys of the target models that priors are learned from."""
    return sorted({target_key(system.target_model) for system in found if system.teaches})
