"""Draws of what a round may cost: constants and effects of a posterior, jointly, without noise."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.constants import NUM_CONSTANTS, index_of, to_natural
from specmodel.cost import round_cost
from specmodel.errors import ParameterError
from specmodel.posterior import NEW, Posterior, Rows
from specmodel.speedup import non_decode_share_from_baselines

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_SHARE, _BASELINE = index_of("non_decode_share"), index_of("baseline_share")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDraws:
    r"""Equally likely values of what decides a speed-up, one line per draw, one column per row.

    .. math:: S = e^{v} \left(f + (1-f)\frac{R}{\tau}\right)^{-1}

    Parameters
    ----------
    round_cost : numpy.ndarray, shape (draws, n)
        :math:`R`, effect of the configuration included, [-].
    non_decode_share : numpy.ndarray, shape (draws, n)
        :math:`f`, [-].
    run_effect : numpy.ndarray, shape (draws, n)
        :math:`v`, what the run's speed-up has beyond the formula, on its logarithm, [-].

    Notes
    -----
    Made by `draw_rounds`. Values of one draw belong together: differences between columns keep what
    they have in common.

    Examples
    --------
    >>> one = np.full((1, 1), 1.0)
    >>> draws = RoundDraws(round_cost=2.2965 * one, non_decode_share=0.1 * one, run_effect=0.0 * one)
    >>> float(draws.break_even_accept_length()[0, 0])
    2.2965
    """

    round_cost: Array
    non_decode_share: Array
    run_effect: Array

    def speedup(self, accept_length: ArrayLike) -> Array:
        """Speed-up of each draw at accept lengths that broadcast against (draws, n)."""
        ratio = self.round_cost / np.asarray(accept_length, dtype=np.float64)
        share = self.non_decode_share
        return np.asarray(np.exp(self.run_effect) / (share + (1.0 - share) * ratio))

    def accept_length_for(self, target_speedup: ArrayLike) -> Array:
        """Accept length that each draw needs for a speed-up; infinite where none is enough."""
        target = np.asarray(target_speedup, dtype=np.float64)
        if not np.all(target > 0):
            raise ParameterError("target_speedup", f"{np.min(target):g}", "positive")
        share = self.non_decode_share
        room = np.exp(self.run_effect) / target - share
        needed: Array = np.full(room.shape, np.inf)
        cost = np.broadcast_to((1.0 - share) * self.round_cost, room.shape)
        np.divide(cost, room, out=needed, where=room > 0)
        return needed

    def break_even_accept_length(self) -> Array:
        """Accept length at which each draw is as fast as the baseline."""
        return self.accept_length_for(1.0)


def draw_rounds(
    posterior: Posterior, rows: Rows, *, num_draws: int = 2000, rng: np.random.Generator
) -> RoundDraws:
    r"""Draws of round cost, non-decode share and run effect of each row.

    .. math:: x = \mu + \sqrt{\nu/\chi^2_\nu}\, C^{1/2} z

    Parameters
    ----------
    posterior : Posterior
        Constants and effects, with their joint covariance and degrees of freedom.
    rows : Rows
        n rows; their accept lengths are not used.
    num_draws : int
        At least 1.
    rng : numpy.random.Generator
        Source of randomness; equal seeds give equal draws.

    Returns
    -------
    RoundDraws

    Raises
    ------
    ParameterError
        If there is no row or no draw.

    Notes
    -----
    Constants and effects that the points hold are drawn from their joint normal. Configurations
    that are new get an effect of their own; new runs share one among chains and one among trees, as in
    the fit. The error of a batch curve read away from its points is one for all rows, larger where it
    was carried further. Measurement noise of single rows is left out: it is not part of the truth.

    Examples
    --------
    >>> from specmodel.cost import round_terms
    >>> from specmodel.prior import Noise
    >>> noise = Noise(row_log_sd=0.02, configuration_log_sd=0.02, run_log_sd=0.03, degrees_of_freedom=8)
    >>> posterior = Posterior(
    ...     mean=np.log([1.1, 0.06, 0.1, 0.1, 0.05, 0.5, 0.9, 0.5, 0.9]), covariance=0.01 * np.eye(9),
    ...     num_configurations=0, noise=noise, noise_scale=1.0, effect_scale=1.0, degrees_of_freedom=8,
    ...     prior_covariance=0.01 * np.eye(9),
    ... )
    >>> rows = Rows(
    ...     terms=round_terms(num_steps=[3, 5]), accept_length=np.array([2.5, 3.0]),
    ...     baseline_deficit=np.zeros(2), measured_share=np.full(2, np.nan),
    ...     configuration=np.full(2, NEW), run=np.full(2, NEW),
    ... )
    >>> draws = draw_rounds(posterior, rows, num_draws=4000, rng=np.random.default_rng(0))
    >>> np.median(draws.round_cost, axis=0).round(1).tolist()
    [1.3, 1.4]
    """
    count = len(rows)
    if num_draws < 1:
        raise ParameterError("num_draws", num_draws, "at least 1")
    if count == 0:
        raise ParameterError("rows", "none", "at least one row")
    drawn, configuration_effect, run_effect = _learned(posterior, rows, num_draws, rng)
    noise, freedom = posterior.noise, posterior.degrees_of_freedom
    level = posterior.effect_scale * np.sqrt(freedom / rng.chisquare(freedom, (num_draws, 1)))
    new = np.where(rows.configuration == NEW, noise.configuration_log_sd, 0.0)
    configuration_effect += level * new * rng.standard_normal((num_draws, count))
    chain_or_tree = rng.standard_normal((num_draws, 2))
    of_kind = chain_or_tree[:, (rows.terms.tree > 0).astype(np.intp)]
    run_effect += level * np.where(rows.run == NEW, noise.run_log_sd, 0.0) * of_kind
    away = np.where(rows.configuration == NEW, rows.terms.carried, 0.0)
    carried = away * rng.standard_normal((num_draws, 1))
    constants = to_natural(drawn)[:, None, :]
    modelled = non_decode_share_from_baselines(
        constants[..., _SHARE], constants[..., _BASELINE], rows.baseline_deficit
    )
    known = np.isfinite(rows.measured_share)
    return RoundDraws(
        round_cost=round_cost(constants, rows.terms) * np.exp(configuration_effect + carried),
        non_decode_share=np.where(known, rows.measured_share, modelled),
        run_effect=run_effect,
    )


def _learned(
    posterior: Posterior, rows: Rows, num_draws: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Draws of the constants (internal) and of each row's effects, 0 where the effect is new."""
    first_run = NUM_CONSTANTS + posterior.num_configurations
    columns = np.stack(
        [
            np.where(rows.configuration == NEW, NEW, NUM_CONSTANTS + rows.configuration),
            np.where(rows.run == NEW, NEW, first_run + rows.run),
        ]
    )
    used = np.concatenate([np.arange(NUM_CONSTANTS), np.unique(columns[columns != NEW])])
    covariance = posterior.covariance[np.ix_(used, used)]
    variance, direction = np.linalg.eigh(0.5 * (covariance + covariance.T))
    root = direction * np.sqrt(np.maximum(variance, 0.0))
    drawn = posterior.mean[used] + rng.standard_normal((num_draws, used.size)) @ root.T
    padded = np.concatenate([drawn, np.zeros((num_draws, 1))], axis=1)  # the last stands for NEW
    at = np.where(columns == NEW, used.size, np.searchsorted(used, columns))
    return drawn[:, :NUM_CONSTANTS], padded[:, at[0]], padded[:, at[1]]
