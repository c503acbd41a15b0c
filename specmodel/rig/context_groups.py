"""Rounds of many configurations and draws: one pricing per context, and what draws say."""

from collections.abc import Callable
from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.cost.physical_round import RoundParts
from specmodel.cost.step_multipliers import PRIOR_LOG_SD, StepMultipliers
from specmodel.cost.step_time import StepParts
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

MOST_DRAWS: Final = 1_000_000
"""Bound of the memory that draws take (judgement). [-]"""

MOST_CONTEXTS: Final = 4096
"""Different contexts that one call prices: each has its own work. [-]"""


def central_interval(values: Array) -> tuple[Array, Array, Array]:
    r"""Median and bounds of the central 90 % of draws.

    .. math:: q_{0.05}, q_{0.5}, q_{0.95}

    Parameters
    ----------
    values : numpy.ndarray, shape (d, ...)
        Draws along the first axis.

    Returns
    -------
    low, median, high : numpy.ndarray, shape (...)
        In the unit of the values.

    Raises
    ------
    ParameterError
        If there is no draw.

    Notes
    -----
    Quantiles between draws are interpolated.

    Examples
    --------
    >>> [float(each) for each in central_interval(np.arange(101.0))]
    [5.0, 50.0, 95.0]
    """
    draws = np.asarray(values, dtype=np.float64)
    if draws.ndim == 0 or draws.shape[0] == 0:
        raise ParameterError("values", draws.shape, "at least one draw along the first axis")
    low, median, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    return np.asarray(low), np.asarray(median), np.asarray(high)


def prior_draws(num_draws: int, *, allreduce_log_sd: float, seed: int) -> StepMultipliers:
    r"""Draws of every factor that has a prior.

    .. math:: \ln m_i \sim \mathcal N(0, \sigma_i^2)

    Parameters
    ----------
    num_draws : int
        From 1 to 1,000,000, [-].
    allreduce_log_sd : float
        :math:`\sigma` of the all-reduce, not negative, [-].
    seed : int
        Of the generator, not negative.

    Returns
    -------
    StepMultipliers
        Arrays of shape (`num_draws`,).

    Raises
    ------
    ParameterError
        If a number is out of bounds.

    Notes
    -----
    The other spreads are `PRIOR_LOG_SD`; the exponent of the routing stays at most 1.5.

    Examples
    --------
    >>> prior_draws(2, allreduce_log_sd=0.0, seed=0).allreduce.tolist()
    [1.0, 1.0]
    """
    if not 1 <= num_draws <= MOST_DRAWS:
        raise ParameterError("num_draws", num_draws, f"from 1 to {MOST_DRAWS}")
    if seed < 0:
        raise ParameterError("seed", seed, "at least 0")
    generator = np.random.default_rng(seed)
    draws = {
        name: np.exp(generator.normal(0.0, log_sd, num_draws))
        for name, log_sd in {**PRIOR_LOG_SD, "allreduce": allreduce_log_sd}.items()
    }
    return StepMultipliers(**{**draws, "routing": np.minimum(draws["routing"], 1.5)})


def draw_columns(multipliers: StepMultipliers) -> StepMultipliers:
    r"""Draws along a first axis, before the configurations.

    .. math:: (d,) \mapsto (d, 1)

    Parameters
    ----------
    multipliers : StepMultipliers
        Numbers, or draws of shape (d,).

    Returns
    -------
    StepMultipliers

    Raises
    ------
    ParameterError
        If a factor has more axes.

    Notes
    -----
    Numbers stay numbers.

    Examples
    --------
    >>> draw_columns(StepMultipliers(bandwidth=np.ones(3))).bandwidth.shape
    (3, 1)
    """
    values = {each.name: getattr(multipliers, each.name) for each in fields(multipliers)}
    if any(np.ndim(value) > 1 for value in values.values()):
        raise ParameterError("multipliers", "a table", "numbers or draws of shape (d,)")
    return StepMultipliers(
        **{name: value[:, None] if np.ndim(value) else value for name, value in values.items()}
    )


def priced_by_context(
    contexts: Array, priced: Callable[[float, NDArray[np.intp]], RoundParts]
) -> RoundParts:
    r"""Rounds of every context, put back in the order of the configurations.

    .. math:: T_r(C_i)

    Parameters
    ----------
    contexts : numpy.ndarray
        :math:`C_i` of every configuration, [tokens].
    priced : callable
        Rounds at a context of the configurations with these flat positions, draws first.

    Returns
    -------
    RoundParts
        Of the shape of `contexts`, draws first.

    Raises
    ------
    ParameterError
        If there are more than 4096 different contexts, or none.

    Notes
    -----
    What a model reads of its cache is not linear in the context, so each has its own work.

    Examples
    --------
    >>> from specmodel.cost.forward_work import DeviceRates, ForwardWork
    >>> from specmodel.cost.physical_round import round_parts
    >>> device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e14)
    >>> rounds = priced_by_context(np.array([2.0, 1.0]), lambda context, chosen: round_parts(
    ...     ForwardWork(weight_bytes=context * 1e9), device, num_steps=np.zeros(chosen.size)))
    >>> rounds.total_s.tolist()
    [0.002, 0.001]
    """
    unique, inverse = np.unique(contexts.ravel(), return_inverse=True)
    if not 1 <= unique.size <= MOST_CONTEXTS:
        allowed = f"from 1 to {MOST_CONTEXTS} different contexts in a call"
        raise ParameterError("context_tokens", unique.size, allowed)
    order = np.argsort(inverse, kind="stable")
    chosen = np.split(order, np.cumsum(np.bincount(inverse, minlength=1))[:-1])
    pieces = [priced(float(value), index) for value, index in zip(unique, chosen, strict=False)]
    sizes = [index.size for index in chosen]
    back = np.argsort(order, kind="stable")

    def together(arrays: list[Array]) -> Array:
        lead = np.broadcast_shapes(*(each.shape[:-1] for each in arrays))
        wide = [np.broadcast_to(a, (*lead, n)) for a, n in zip(arrays, sizes, strict=False)]
        joined = np.concatenate(wide, axis=-1)
        return joined[..., back].reshape((*lead, *contexts.shape))

    def steps(parts: list[StepParts]) -> StepParts:
        return StepParts(
            **{
                each.name: together([getattr(part, each.name) for part in parts])
                for each in fields(StepParts)
            }
        )

    return RoundParts(
        draft=steps([each.draft for each in pieces]),
        verify=steps([each.verify for each in pieces]),
        host_s=together([np.atleast_1d(each.host_s) for each in pieces]),
    )
