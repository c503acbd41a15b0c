"""The depth to run, with the probability that it is best and what is lost if it is not."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.constants import NAMES, NUM_CONSTANTS, to_natural
from specmodel.cost import round_cost
from specmodel.errors import ParameterError
from specmodel.posterior import Posterior, Rows
from specmodel.speedup import non_decode_share_from_baselines

Array = NDArray[np.float64]

_SHARE, _BASELINE = NAMES.index("non_decode_share"), NAMES.index("baseline_share")


@dataclass(frozen=True)
class DepthChoice:
    r"""Candidate depths with what is lost by choosing each, and the one to run.

    .. math:: \text{regret}_k = \operatorname{E}\left[1 - \frac{S_k}{\max_j S_j}\right]

    `speedup` has one line per draw, without measurement noise; `best` is the position of the candidate with
    the smallest expected regret, of equals the smallest depth. It need not be the one most often best: a
    depth that is never far behind has less to lose.
    """

    num_steps: Array
    speedup: Array
    probability_best: Array
    expected_regret: Array
    best: int

    @property
    def best_num_steps(self) -> int:
        """Recommended depth."""
        return int(self.num_steps[self.best])

    @property
    def probability(self) -> float:
        """Probability that the recommended depth is the fastest candidate."""
        return float(self.probability_best[self.best])

    @property
    def regret(self) -> float:
        """Expected relative loss of throughput at the recommended depth."""
        return float(self.expected_regret[self.best])


def choose_depth(
    posterior: Posterior,
    rows: Rows,
    *,
    accept_log_sd: ArrayLike = 0.0,
    accept_length_draws: Array | None = None,
    num_draws: int = 2000,
    rng: np.random.Generator,
) -> DepthChoice:
    """Depth with the least expected loss of throughput, by draws of the posterior (theory.md B2).

    One row per candidate, with the accept length expected at that depth; ``num_steps`` 0 is no speculation,
    whose speed-up is exactly 1. Accept lengths are given as draws, or with one error that all depths of a
    draw share: a drafter that is better than expected is better at every depth. They are held between 1 and
    ``num_steps + 1``, or the given value where that is longer, as a block drafter's may be.

    >>> from specmodel.cost import round_terms
    >>> from specmodel.prior import Noise
    >>> noise = Noise(row_log_sd=0.02, configuration_log_sd=0.0, run_log_sd=0.0, degrees_of_freedom=8)
    >>> posterior = Posterior(
    ...     mean=np.array([0.086, -2.33, -2.0, -3.0, -5.0, 0.0, 2.0, 0.0, 2.0]),
    ...     covariance=np.zeros((9, 9)), num_configurations=0, noise=noise, noise_scale=1.0, effect_scale=1.0,
    ...     degrees_of_freedom=8, prior_covariance=0.01 * np.eye(9),
    ... )
    >>> rows = Rows(
    ...     terms=round_terms(num_steps=[0, 2, 3, 4]), accept_length=np.array([1, 2.10, 2.29, 2.39]),
    ...     baseline_deficit=np.zeros(4), measured_share=np.full(4, np.nan),
    ...     configuration=np.full(4, -1), run=np.full(4, -1),
    ... )
    >>> choose_depth(posterior, rows, rng=np.random.default_rng(0)).best_num_steps
    3
    """
    rounds = draw_rounds(posterior, rows, num_draws=num_draws, rng=rng)
    num_steps = rows.terms.num_steps
    if accept_length_draws is None:
        accept = _accept_length_draws(rows, accept_log_sd, num_draws, rng)
    else:
        accept = _checked_draws(accept_length_draws, accept_log_sd, (num_draws, len(rows)))
    return choose_among(num_steps, np.where(num_steps == 0, 1.0, rounds.speedup(accept)))


def choose_among(num_steps: Array, speedup: Array) -> DepthChoice:
    """Depth with the least expected loss of throughput among equally likely speed-ups, (draws, n)."""
    if speedup.ndim != 2 or speedup.shape[1:] != num_steps.shape:
        raise ParameterError("speedup", speedup.shape, f"of shape (draws, {num_steps.size})")
    loss = 1.0 - speedup / speedup.max(axis=1, keepdims=True)
    shallow_first = np.argsort(num_steps, kind="stable")
    fastest = shallow_first[np.argmax(speedup[:, shallow_first], axis=1)]
    regret = loss.mean(axis=0)
    return DepthChoice(
        num_steps=num_steps,
        speedup=speedup,
        probability_best=np.bincount(fastest, minlength=num_steps.size) / speedup.shape[0],
        expected_regret=regret,
        best=int(shallow_first[np.argmin(regret[shallow_first])]),
    )


def _accept_length_draws(
    rows: Rows, accept_log_sd: ArrayLike, num_draws: int, rng: np.random.Generator
) -> Array:
    """Accept lengths with one common error per draw, held to what a depth can emit."""
    spread = np.asarray(accept_log_sd, dtype=np.float64)
    if not np.all(np.isfinite(spread) & (spread >= 0)):
        raise ParameterError("accept_log_sd", f"{np.min(spread):g}", "finite and not negative")
    if spread.shape not in {(), (len(rows),)}:
        raise ParameterError("accept_log_sd", f"shape {spread.shape}", f"one number or {len(rows)}")
    length = rows.accept_length
    if not np.all(np.isfinite(length) & (length >= 1)):
        raise ParameterError("accept_length", f"{np.min(length):g}", "finite and at least 1")
    longest = np.maximum(rows.terms.num_steps + 1.0, length)
    drawn = length * np.exp(spread * rng.standard_normal((num_draws, 1)))
    return np.clip(drawn, 1.0, longest)


def _checked_draws(draws: Array, accept_log_sd: ArrayLike, shape: tuple[int, int]) -> Array:
    """Accept lengths as given, checked."""
    if np.any(np.asarray(accept_log_sd) != 0):
        allowed = "0 with accept_length_draws, which hold the spread"
        raise ParameterError("accept_log_sd", accept_log_sd, allowed)
    given = np.asarray(draws, dtype=np.float64)
    if given.shape != shape:
        raise ParameterError("accept_length_draws", f"shape {given.shape}", f"of shape {shape}")
    if not np.all(np.isfinite(given) & (given >= 1)):
        raise ParameterError("accept_length_draws", f"{np.min(given):g}", "finite and at least 1")
    return given


@dataclass(frozen=True)
class RoundDraws:
    r"""Equally likely values of what decides a speed-up, one line per draw, one column per row.

    .. math:: S = e^{v} \left(f + (1-f)\frac{R}{\tau}\right)^{-1}

    Round cost with the effect of the configuration, non-decode share, and effect of the run on the logarithm
    of its speed-up. Values of one draw belong together: differences between columns keep what is common.
    """

    round_cost: Array
    non_decode_share: Array
    run_effect: Array

    def speedup(self, accept_length: ArrayLike) -> Array:
        """Speed-up of each draw at accept lengths that broadcast against (draws, n)."""
        ratio = self.round_cost / np.asarray(accept_length, dtype=np.float64)
        share = self.non_decode_share
        return np.asarray(np.exp(self.run_effect) / (share + (1.0 - share) * ratio))


def draw_rounds(
    posterior: Posterior, rows: Rows, *, num_draws: int = 2000, rng: np.random.Generator
) -> RoundDraws:
    r"""Draws of round cost, non-decode share and run effect of each row, without measurement noise.

    .. math:: x = \mu + \sqrt{\nu/\chi^2_\nu}\, C^{1/2} z

    Constants and effects that the points hold are drawn from their joint normal. Configurations that are new
    get what their neighbours say and an effect of their own; new runs share one among chains and one among
    trees, as in the fit. What nobody measured of the growth of a step is one error for all rows.
    """
    count = len(rows)
    if num_draws < 1:
        raise ParameterError("num_draws", num_draws, "at least 1")
    if count == 0:
        raise ParameterError("rows", "none", "at least one row")
    freedom, split = posterior.degrees_of_freedom, NUM_CONSTANTS + posterior.num_configurations
    level = np.sqrt(freedom / rng.chisquare(freedom, (num_draws, 1)))
    effects = posterior.effects(rows)
    weights = np.hstack([effects.by_configuration, effects.by_run])
    touched = np.flatnonzero(np.any(weights != 0.0, axis=0))
    used = np.concatenate([np.arange(NUM_CONSTANTS), NUM_CONSTANTS + touched])
    root = covariance_root(posterior.covariance[np.ix_(used, used)])
    drawn = posterior.mean[used] + rng.standard_normal((num_draws, used.size)) @ root.T
    of_cost = used[NUM_CONSTANTS:] < split
    known = drawn[:, NUM_CONSTANTS:]
    configuration_effect = known[:, of_cost] @ weights[:, touched[of_cost]].T
    run_effect = known[:, ~of_cost] @ weights[:, touched[~of_cost]].T
    for effect, left in (
        (configuration_effect, effects.cost_covariance),
        (run_effect, effects.run_covariance),
    ):
        if np.any(left):
            alone = rng.standard_normal((num_draws, count)) @ covariance_root(left).T
            np.add(effect, level * alone, out=effect)
    drawn = drawn[:, :NUM_CONSTANTS]
    constants = to_natural(drawn)[:, None, :]
    modelled = non_decode_share_from_baselines(
        constants[..., _SHARE], constants[..., _BASELINE], rows.baseline_deficit
    )
    known = np.isfinite(rows.measured_share)
    return RoundDraws(
        round_cost=round_cost(constants, rows.terms) * np.exp(configuration_effect),
        non_decode_share=np.where(known, rows.measured_share, modelled),
        run_effect=run_effect,
    )


def covariance_root(covariance: Array) -> Array:
    """Matrix L with L L^T a covariance, also where it is singular."""
    variance, direction = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return np.asarray(direction * np.sqrt(np.maximum(variance, 0.0)))
