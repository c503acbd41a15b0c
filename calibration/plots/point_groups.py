"""What varies among measured points: the axis to lay them out on, and the groups to colour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from calibration.plots.style import CATEGORIES, ordered_colours
from specmodel.question import Configuration
from specmodel.units import KIBI

Array = NDArray[np.float64]
Index = NDArray[np.intp]

QUANTITY_LABELS: Final = {
    "batch_size": "batch (requests)",
    "num_steps": "draft depth (tokens)",
    "context_tokens": "context (tokens)",
    "num_draft_tokens": "draft tokens (verified, root included)",
    "topk": "topk (branches)",
}
"""Axis labels of the quantities of a configuration, in the order in which they are preferred."""

NOTATION_LABEL: Final = "depth-topk-draft tokens"
"""What `notation` is in."""

_SPREAD = 0.28
_MOST_GROUPS = 8


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointAxis:
    """Where points stand on the axis of what varies.

    Parameters
    ----------
    label : str
        Quantity and unit.
    position : numpy.ndarray, shape (n,)
        Of each point.
    ticks : tuple of float
        Where to write.
    tick_labels : tuple of str
        What to write there.
    """

    label: str
    position: Array
    ticks: tuple[float, ...]
    tick_labels: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointGroups:
    """Which points share a colour.

    Parameters
    ----------
    title : str
        What the names are of; empty where they say it themselves.
    names, colours : tuple of str
        Of each group.
    group : numpy.ndarray of int, shape (n,)
        Of each point.
    """

    title: str
    names: tuple[str, ...]
    colours: tuple[str, ...]
    group: Index


def varying(configurations: Sequence[Configuration]) -> tuple[str, ...]:
    """Names of the quantities that differ among configurations, preferred first.

    Verified tokens do not count where they follow from the depth.

    Examples
    --------
    >>> varying([Configuration(num_steps=steps, batch_size=1) for steps in (3, 5)])
    ('num_steps',)
    """
    names = [
        name
        for name in QUANTITY_LABELS
        if len({getattr(configuration, name) for configuration in configurations}) > 1
    ]
    if all(_is_chain(configuration) for configuration in configurations):
        names = [name for name in names if name != "num_draft_tokens"]
    return tuple(names)


def notation(configuration: Configuration) -> str:
    """Depth, topk and draft tokens in short.

    Examples
    --------
    >>> notation(Configuration(num_steps=5, topk=3, num_draft_tokens=6))
    '5-3-6'
    """
    parts = (configuration.num_steps, configuration.topk, configuration.num_draft_tokens)
    return "-".join("?" if part is None else f"{part:g}" for part in parts)


def point_axis(configurations: Sequence[Configuration], configuration: Index) -> PointAxis:
    """Axis of the quantity that varies: batch, else depth if nothing else does, else each its own.

    Parameters
    ----------
    configurations : sequence of Configuration
        Distinct ones.
    configuration : numpy.ndarray of int, shape (n,)
        Of each point.

    Returns
    -------
    PointAxis
        Points of one value stand side by side in their order.

    Examples
    --------
    >>> known = [Configuration(num_steps=steps) for steps in (3, 7)]
    >>> point_axis(known, np.array([1, 0])).tick_labels
    ('3', '7')
    """
    names = varying(configurations)
    if not names:
        only = configurations[0]
        return PointAxis(
            label="configuration",
            position=_side_by_side(np.zeros(configuration.size)),
            ticks=(0.0,),
            tick_labels=(str(only),),
        )
    name = names[0]
    if name != "batch_size" and len(names) > 1 and len(configurations) <= _MOST_GROUPS:
        order = sorted(range(len(configurations)), key=lambda index: _order(configurations[index]))
        rank = np.argsort(np.array(order))
        return PointAxis(
            label=NOTATION_LABEL,
            position=_side_by_side(rank[configuration].astype(np.float64)),
            ticks=tuple(float(place) for place in range(len(order))),
            tick_labels=tuple(notation(configurations[index]) for index in order),
        )
    values = sorted({getattr(one, name) for one in configurations}, key=_stated)
    place = {value: float(index) for index, value in enumerate(values)}
    at = np.array([place[getattr(one, name)] for one in configurations])
    return PointAxis(
        label=QUANTITY_LABELS[name],
        position=_side_by_side(at[configuration]),
        ticks=tuple(place.values()),
        tick_labels=tuple(_short(value) for value in values),
    )


def point_groups(configurations: Sequence[Configuration], configuration: Index) -> PointGroups:
    """Colours by configuration; where these are too many, by what the axis does not show.

    Parameters
    ----------
    configurations : sequence of Configuration
        Distinct ones.
    configuration : numpy.ndarray of int, shape (n,)
        Of each point.

    Returns
    -------
    PointGroups
        In the order of depth, topk, draft tokens and load.

    Examples
    --------
    >>> known = [Configuration(num_steps=3, batch_size=batch) for batch in (4, 1)]
    >>> point_groups(known, np.array([0, 1, 1])).names
    ('1', '4')
    """
    names = varying(configurations)
    if len(names) > 1 and len(configurations) <= len(CATEGORIES) and names[0] != "batch_size":
        order = sorted(range(len(configurations)), key=lambda index: _order(configurations[index]))
        rank = np.argsort(np.array(order))
        return PointGroups(
            title=NOTATION_LABEL,
            names=tuple(notation(configurations[index]) for index in order),
            colours=CATEGORIES[: len(order)],
            group=rank[configuration],
        )
    if not names:
        return PointGroups(
            title="",
            names=("",),
            colours=CATEGORIES[:1],
            group=np.zeros(configuration.size, dtype=np.intp),
        )
    name = names[min(1, len(names) - 1)]
    values = sorted({getattr(one, name) for one in configurations}, key=_stated)
    colours = ordered_colours(len(values))
    if len(values) <= _MOST_GROUPS:
        labels = [_short(value) for value in values]
    else:  # too many to list: write some
        step = -(-len(values) // _MOST_GROUPS)
        labels = [_short(value) if not at % step else "" for at, value in enumerate(values)]
    of = np.array([values.index(getattr(one, name)) for one in configurations], dtype=np.intp)
    return PointGroups(
        title=QUANTITY_LABELS[name],
        names=tuple(labels),
        colours=tuple(colours),
        group=of[configuration],
    )


def _is_chain(configuration: Configuration) -> bool:
    """Whether the verified tokens follow from the depth."""
    steps, tokens = configuration.num_steps, configuration.num_draft_tokens
    return configuration.topk == 1 and (steps is None or tokens == steps + 1)


def _stated(value: float | None) -> float:
    """Key to sort by, what is not stated first."""
    return -1.0 if value is None else value


def _order(configuration: Configuration) -> tuple[float, ...]:
    """Key to sort configurations by."""
    return tuple(
        _stated(getattr(configuration, name))
        for name in ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
    )


def _short(value: float | None) -> str:
    """Number on a tick: 16k for 16384."""
    if value is None:
        return "?"
    if value >= KIBI and value % KIBI == 0:
        return f"{value / KIBI:g}k"
    return f"{value:g}"


def _side_by_side(place: Array) -> Array:
    """Positions where points of one place do not lie on one another."""
    moved = place.copy()
    for value in np.unique(place):
        here = np.flatnonzero(place == value)
        if here.size > 1:
            moved[here] += np.linspace(-_SPREAD, _SPREAD, here.size)
    return moved
