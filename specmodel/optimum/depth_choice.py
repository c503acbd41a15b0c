"""The depth to run, with the probability that it is best and what is lost if it is not."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError
from specmodel.optimum.round_draws import draw_rounds
from specmodel.posterior import Posterior, Rows

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DepthChoice:
    r"""Candidate depths with what is lost by choosing each, and the one to run.

    .. math:: \text{regret}_k = \operatorname{E}\left[1 - \frac{S_k}{\max_j S_j}\right]

    Parameters
    ----------
    num_steps : numpy.ndarray, shape (n,)
        Candidate depths, in the order of the rows, [tokens].
    speedup : numpy.ndarray, shape (draws, n)
        Equally likely speed-ups, without measurement noise, [-].
    probability_best : numpy.ndarray, shape (n,)
        Share of draws in which a depth is the fastest, [-].
    expected_regret : numpy.ndarray, shape (n,)
        Mean loss of throughput relative to the fastest depth of each draw, [0, 1).
    best : int
        Position of the candidate with the smallest expected regret; of equals the smallest depth.

    Notes
    -----
    Made by `choose_depth`. The recommended depth need not be the one most often best: a depth that is
    never far behind has less to lose.

    Examples
    --------
    >>> choice = DepthChoice(
    ...     num_steps=np.array([2.0, 4.0]), speedup=np.array([[1.5, 1.4], [1.5, 1.6]]),
    ...     probability_best=np.array([0.5, 0.5]), expected_regret=np.array([0.031, 0.033]), best=0,
    ... )
    >>> choice.best_num_steps, choice.probability, choice.regret
    (2, 0.5, 0.031)
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

    @property
    def median_speedup(self) -> Array:
        """Median speed-up at each depth."""
        return self.quantile(0.5)

    @property
    def probability_faster(self) -> Array:
        """Probability that each depth is faster than no speculation; 0 for no speculation itself."""
        return np.asarray(np.mean(self.speedup > 1.0, axis=0))

    def quantile(self, probability: float) -> Array:
        """Speed-up below which each depth stays with this probability, measurement noise aside."""
        return np.asarray(np.quantile(self.speedup, probability, axis=0))


def choose_depth(
    posterior: Posterior,
    rows: Rows,
    *,
    accept_log_sd: ArrayLike = 0.0,
    accept_length_draws: Array | None = None,
    num_draws: int = 2000,
    rng: np.random.Generator,
) -> DepthChoice:
    r"""Depth with the least expected loss of throughput, by draws of the posterior.

    .. math:: k^* = \arg\min_k \operatorname{E}\left[1 - \frac{S_k}{\max_j S_j}\right]

    Parameters
    ----------
    posterior : Posterior
        Constants and effects of the system.
    rows : Rows
        One row per candidate, all else equal, with the accept length expected at that depth. A row with
        ``num_steps`` 0 is no speculation: its speed-up is exactly 1.
    accept_log_sd : array-like, shape () or (n,)
        Standard deviation of the logarithm of the accept length at each depth. One error is shared by
        all depths of a draw: a drafter that is better than expected is better at every depth, [-].
    accept_length_draws : numpy.ndarray, shape (num_draws, n), optional
        Equally likely accept lengths, where their joint spread is known better than that, [tokens].
    num_draws : int
        Number of draws.
    rng : numpy.random.Generator
        Source of randomness; equal seeds give equal choices.

    Returns
    -------
    DepthChoice

    Raises
    ------
    ParameterError
        If an argument is outside its range, of the wrong shape, or both spreads are given.

    Notes
    -----
    Accept lengths are held between 1 and ``num_steps + 1`` (or the given value where that is longer, as
    a block drafter's may be). What all depths have in common, the run above all, does not move the
    choice among them, only against no speculation. theory.md B2.

    Examples
    --------
    >>> from specmodel.cost import round_terms
    >>> from specmodel.posterior import NEW
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
    ...     configuration=np.full(4, NEW), run=np.full(4, NEW),
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
    r"""Depth with the least expected loss of throughput among equally likely speed-ups.

    .. math:: k^* = \arg\min_k \operatorname{E}\left[1 - \frac{S_k}{\max_j S_j}\right]

    Parameters
    ----------
    num_steps : numpy.ndarray, shape (n,)
        Candidate depths; 0 is no speculation, [tokens].
    speedup : numpy.ndarray, shape (draws, n)
        Positive, [-].

    Returns
    -------
    DepthChoice

    Raises
    ------
    ParameterError
        If the shapes do not fit.

    Notes
    -----
    Of equals the smallest depth.

    Examples
    --------
    >>> choose_among(np.array([2.0, 4.0]), np.array([[1.5, 1.4], [1.5, 1.55]])).best_num_steps
    2
    """
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
        raise ParameterError(
            "accept_log_sd", accept_log_sd, "0 with accept_length_draws, which hold the spread"
        )
    given = np.asarray(draws, dtype=np.float64)
    if given.shape != shape:
        raise ParameterError("accept_length_draws", f"shape {given.shape}", f"of shape {shape}")
    if not np.all(np.isfinite(given) & (given >= 1)):
        raise ParameterError("accept_length_draws", f"{np.min(given):g}", "finite and at least 1")
    return given
