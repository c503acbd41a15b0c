"""Rounds of many configurations and draws: priced in blocks, so that memory does not grow with them."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.cost.physical_round import RoundParts
from specmodel.cost.step_multipliers import StepMultipliers
from specmodel.cost.step_time import StepParts
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

BLOCK: Final = 65_536
"""Configurations times draws that are priced at once: half a megabyte an array. [-]"""


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


def priced_in_blocks(
    shape: tuple[int, ...], priced: Callable[[slice], RoundParts], *, num_draws: int = 1
) -> RoundParts:
    r"""Rounds of every configuration, a block at a time.

    .. math:: T_r = (T_r^{(1)}, T_r^{(2)}, \ldots)

    Parameters
    ----------
    shape : tuple of int
        Of the configurations.
    priced : callable
        Rounds of a slice of the flat configurations, draws first.
    num_draws : int
        Draws of each, at least 1; blocks are shorter where there are more, [-].

    Returns
    -------
    RoundParts
        Of that shape, draws first.

    Raises
    ------
    ParameterError
        If there is no configuration.

    Notes
    -----
    A block does not know of the others, so their size changes no number.

    Examples
    --------
    >>> from specmodel.cost.forward_work import DeviceRates, ForwardWork
    >>> from specmodel.cost.physical_round import round_parts
    >>> device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e14)
    >>> work, batch = ForwardWork(weight_bytes=2e9), np.ones(2 * BLOCK)
    >>> rounds = priced_in_blocks((2, BLOCK), lambda rows: round_parts(
    ...     work, device, num_steps=0, batch_size=batch[rows]))
    >>> rounds.total_s.shape
    (2, 65536)
    """
    size = int(np.prod(shape))
    if not size:
        raise ParameterError("num_steps", "no configuration", "at least one")
    pieces = [priced(rows) for rows in _blocks(size, max(1, BLOCK // num_draws))]

    def together(arrays: Iterator[Array]) -> Array:
        found = [np.atleast_1d(each) for each in arrays]
        lead = np.broadcast_shapes(*(each.shape[:-1] for each in found))
        if len(found) == 1:
            return np.broadcast_to(found[0], (*lead, size)).reshape((*lead, *shape))
        joined = np.empty((*lead, size))
        for rows, each in zip(_blocks(size, max(1, BLOCK // num_draws)), found, strict=True):
            joined[..., rows] = each
        return joined.reshape((*lead, *shape))

    def steps(parts: list[StepParts]) -> StepParts:
        return StepParts(
            **{
                each.name: together(getattr(part, each.name) for part in parts)
                for each in fields(StepParts)
            }
        )

    return RoundParts(
        draft=steps([each.draft for each in pieces]),
        verify=steps([each.verify for each in pieces]),
        host_s=together(each.host_s for each in pieces),
    )


def _blocks(size: int, length: int) -> Iterator[slice]:
    """Slices that cover a range."""
    for first in range(0, size, length):
        yield slice(first, min(first + length, size))
