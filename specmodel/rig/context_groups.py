"""Rounds of many configurations and draws: one pricing per context."""

from collections.abc import Callable
from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.cost.physical_round import RoundParts
from specmodel.cost.step_multipliers import StepMultipliers
from specmodel.cost.step_time import StepParts
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

MOST_CONTEXTS: Final = 4096
"""Different contexts that one call prices: each has its own work. [-]"""


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
