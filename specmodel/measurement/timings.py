"""Rows of a drafter record: times of a draft step, an extend pass, a whole draft and a kernel."""

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, final

from specmodel.errors import ParameterError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    r"""Time of one decode step of the draft model, inside a draft and with cold weights.

    .. math:: t = \frac{\mathrm{d} T}{\mathrm{d} k}

    the slope of the time of a whole draft over its number of steps.

    Parameters
    ----------
    batch_size : int
        Requests, at least 1, [-].
    context_tokens : int
        Cached tokens of each request, [tokens].
    topk : int
        Branches, 1 for a chain, [-].
    time_s : float
        :math:`t`, [s].
    floor_s : float
        Bytes of the step over the read bandwidth that was measured on the same device, [s].
    hot_time_s : float or None
        Of a step repeated alone without a flush: what a cache that holds the weights would give, [s].
    cold_time_s : float or None
        Of a step alone right after a flush, launch of its kernels included, [s].
    baseline_s : float or None
        Slope of the same step in eager torch with library products, in a CUDA graph, [s].
    baseline_spread : float or None
        Relative difference of two identical runs of that, where there is one, [-].
    spread : float
        Relative difference of two identical runs, [-].
    num_samples : int
        Samples behind `time_s`, [-].

    Raises
    ------
    ParameterError
        If a count or a time is impossible, or a baseline has no spread.

    Notes
    -----
    Launch and extend pass cancel in the slope. drafter.md 20.

    Examples
    --------
    >>> row = StepTiming(batch_size=1, context_tokens=2048, topk=1, time_s=2e-4, floor_s=1.6e-4,
    ...                  spread=0.01, num_samples=40)
    >>> round(row.ratio, 2)
    1.25
    """

    batch_size: int
    context_tokens: int
    topk: int
    time_s: float
    floor_s: float
    hot_time_s: float | None = None
    cold_time_s: float | None = None
    baseline_s: float | None = None
    baseline_spread: float | None = None
    spread: float
    num_samples: int

    def __post_init__(self) -> None:
        check_counts(self, batch_size=1, context_tokens=0, topk=1, num_samples=1)
        check_times(self, "time_s", "floor_s", "hot_time_s", "cold_time_s", "baseline_s")
        check_spread(self.spread)
        if (self.baseline_s is None) != (self.baseline_spread is None):
            raise ParameterError(
                "baseline_spread", self.baseline_spread, "given where baseline_s is, and only there"
            )
        if self.baseline_spread is not None:
            check_spread(self.baseline_spread)

    @property
    def ratio(self) -> float:
        """Time over floor, [-]."""
        return self.time_s / self.floor_s


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendTiming:
    """Time of the pass over the newly accepted tokens, with cold weights, first guess included.

    Parameters
    ----------
    tokens : int
        Newly accepted tokens of each request, at least 1, [tokens].
    batch_size : int
        Requests, at least 1, [-].
    context_tokens : int
        Cached tokens of each request before the pass, [tokens].
    time_s : float
        [s].
    spread : float
        Relative difference of two identical runs, [-].
    num_samples : int
        Samples behind `time_s`, [-].

    Raises
    ------
    ParameterError
        If a count or a time is impossible.

    Notes
    -----
    The pass also drafts the first token of the round. drafter.md 6.

    Examples
    --------
    >>> ExtendTiming(tokens=4, batch_size=1, context_tokens=2048, time_s=3e-4, spread=0.0,
    ...              num_samples=20).tokens
    4
    """

    tokens: int
    batch_size: int
    context_tokens: int
    time_s: float
    spread: float
    num_samples: int

    def __post_init__(self) -> None:
        check_counts(self, tokens=1, batch_size=1, context_tokens=0, num_samples=1)
        check_times(self, "time_s")
        check_spread(self.spread)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTiming:
    """Time of one whole draft: extend pass, steps, and for a tree the selection.

    Parameters
    ----------
    batch_size : int
        Requests, at least 1, [-].
    context_tokens : int
        Cached tokens of each request, [tokens].
    topk : int
        Branches, 1 for a chain, [-].
    num_steps : int
        Draft depth, at least 1, [tokens].
    num_draft_tokens : int
        Tokens to verify, root included, [tokens].
    graph_s : float
        The whole graph with cold weights, [s].
    graph_nodes : int or None
        Nodes of the captured graph; None where nothing was captured, [-].
    selection_s : float or None
        Choice of the verified nodes of a tree, [s].
    baseline_s : float or None
        The same draft in eager torch with library products, in a CUDA graph, [s].
    spread : float
        Relative difference of two identical runs, [-].
    num_samples : int
        Samples behind `graph_s`, [-].

    Raises
    ------
    ParameterError
        If a count or a time is impossible.

    Notes
    -----
    What a round pays on the device; launch of the graph and host work come on top. drafter.md 14.

    Examples
    --------
    >>> DraftTiming(batch_size=1, context_tokens=2048, topk=1, num_steps=3, num_draft_tokens=4,
    ...             graph_s=7e-4, spread=0.0, num_samples=20).graph_nodes is None
    True
    """

    batch_size: int
    context_tokens: int
    topk: int
    num_steps: int
    num_draft_tokens: int
    graph_s: float
    graph_nodes: int | None = None
    selection_s: float | None = None
    baseline_s: float | None = None
    spread: float
    num_samples: int

    def __post_init__(self) -> None:
        check_counts(self, batch_size=1, context_tokens=0, topk=1, num_steps=1, num_samples=1)
        check_counts(self, num_draft_tokens=2)
        if self.graph_nodes is not None:
            check_counts(self, graph_nodes=1)
        check_times(self, "graph_s", "selection_s", "baseline_s")
        check_spread(self.spread)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTiming:
    """Mean time of one kernel inside a replayed draft.

    Parameters
    ----------
    name : str
        The kernel.
    calls : int
        Launches of it in one draft, at least 1, [-].
    time_s : float
        Mean of one launch, [s].

    Raises
    ------
    ParameterError
        If a count or a time is impossible.

    Notes
    -----
    From the device's own trace, gaps between kernels left out, so the sum is less than the graph.

    Examples
    --------
    >>> KernelTiming(name="linear_matvec_kernel", calls=9, time_s=2e-5).calls
    9
    """

    name: str
    calls: int
    time_s: float

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise ParameterError("name", repr(self.name), "the name of a kernel")
        check_counts(self, calls=1)
        check_times(self, "time_s")


def check_counts(row: object, **least: int) -> None:
    r"""Refuse a count that is no whole number or is too small.

    .. math:: n \ge n_{\min}

    Parameters
    ----------
    row : object
        Holder of the counts.
    **least : int
        Smallest possible value by attribute, [-].

    Raises
    ------
    ParameterError
        Naming the first attribute that is impossible.

    Examples
    --------
    >>> check_counts(KernelTiming(name="head", calls=1, time_s=1e-6), calls=2)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: calls must be a whole number of at least 2, got 1
    """
    for name, bound in least.items():
        value = getattr(row, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < bound:
            raise ParameterError(name, value, f"a whole number of at least {bound}")


def check_times(row: "DataclassInstance", *names: str) -> None:
    r"""Refuse a time that cannot have been measured.

    .. math:: 0 < t < \infty

    Parameters
    ----------
    row : object
        A row; a time that it may leave out is None where it was not measured.
    *names : str
        Attributes, [s].

    Raises
    ------
    ParameterError
        Naming the first attribute that is impossible.

    Examples
    --------
    >>> check_times(KernelTiming(name="head", calls=1, time_s=1e-6), "time_s")
    """
    optional = {field.name for field in fields(row) if field.default is None}
    for name in names:
        value = getattr(row, name)
        if value is None and name in optional:
            continue
        if not _is_number(value) or not 0.0 < value < math.inf:
            raise ParameterError(name, value, "a positive number of seconds")


def check_spread(spread: float) -> None:
    r"""Refuse a spread that is none.

    .. math:: 0 \le s < \infty

    Parameters
    ----------
    spread : float
        Relative difference of two identical runs, [-].

    Raises
    ------
    ParameterError
        If it is negative or not finite.

    Examples
    --------
    >>> check_spread(0.01)
    """
    if not _is_number(spread) or not 0.0 <= spread < math.inf:
        raise ParameterError("spread", spread, "a number of at least 0")


def _is_number(value: object) -> bool:
    """Whether a value is a plain number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
