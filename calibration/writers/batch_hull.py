"""What a calibration reaches: the batches, depths and contexts that its points hold."""

import math
from typing import Final

from calibration.writers.accept_lengths_by_depth import AcceptLengths, given_depths
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError

EVERY_BATCH: Final = 64
"""Batch size up to which each one is looked at. [requests]"""

_SPACING = 32


def batch_range(calibration: Calibration) -> tuple[int, int]:
    """Return the smallest and the largest whole batch size among the points.

    Parameters
    ----------
    calibration : Calibration
        Of points that state their batch.

    Returns
    -------
    tuple of int
        Ends, both included, [requests].

    Raises
    ------
    ParameterError
        If the points do not state a batch.

    Examples
    --------
    >>> from calibration.fitting import fit
    >>> from calibration.packaged import packaged_table
    >>> calibration = fit(packaged_table("vllm-16035-llama3-8b").path, profile=False)
    >>> batch_range(calibration)
    (1, 1)
    """
    low, high = calibration.hull.get("batch_size", (math.nan, math.nan))
    if math.isnan(low) or math.ceil(low) > math.floor(high):
        raise ParameterError(
            "calibration",
            "of points without batch_size",
            "of points that state it",
            "add the column batch_size to the points and fit again",
        )
    return math.ceil(low), math.floor(high)


def batches_to_choose_for(
    calibration: Calibration, max_batch_size: int | None = None
) -> tuple[list[int], int]:
    """Return the batch sizes at which a choice is made, and the last one for which it holds.

    Parameters
    ----------
    calibration : Calibration
        Of points that state their batch.
    max_batch_size : int, optional
        Where to end.

    Returns
    -------
    tuple of list of int and int
        Each batch up to `EVERY_BATCH`, above it one in every thirty-second and the measured ones.

    Raises
    ------
    ParameterError
        If the points do not state a batch or do not reach `max_batch_size`.

    Examples
    --------
    >>> from calibration.fitting import fit
    >>> from calibration.packaged import packaged_table
    >>> calibration = fit(packaged_table("vllm-16035-llama3-8b").path, profile=False)
    >>> batches_to_choose_for(calibration)
    ([1], 1)
    """
    first, last = batch_range(calibration)
    if max_batch_size is not None:
        if not first <= max_batch_size <= last:
            raise ParameterError(
                "max_batch_size",
                max_batch_size,
                f"from {first} to {last}, the batches of the points",
                "measure a larger batch and fit again",
            )
        last = max_batch_size
    chosen = set(range(first, min(last, EVERY_BATCH) + 1))
    batch = max(first, EVERY_BATCH)
    while batch <= last:
        chosen.add(batch)
        batch += max(batch // _SPACING, 1)
    measured = [one.batch_size for one in calibration.configurations if one.batch_size]
    measured += calibration.baselines.column("batch_size").tolist()
    chosen |= {int(one) for one in measured if first <= one <= last}  # never true of NaN
    return sorted(chosen), last


def chain_depths(
    calibration: Calibration, accept_lengths: AcceptLengths
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the depths with an accept length that the points reach, and those that they do not.

    Parameters
    ----------
    calibration : Calibration
        Of chains that state their depth.
    accept_lengths : FullAccuracy or mapping from int to float
        Whose depths are asked for.

    Returns
    -------
    tuple of two tuples of int
        Within the measured depths, and outside them.

    Raises
    ------
    ParameterError
        If the points do not state a depth, hold no chain, or share no depth with the accept lengths.

    Examples
    --------
    >>> from calibration.fitting import fit
    >>> from calibration.packaged import packaged_table
    >>> calibration = fit(packaged_table("vllm-16035-llama3-8b").path, profile=False)
    >>> chain_depths(calibration, {2: 1.9, 4: 2.1, 6: 2.2})
    ((2, 4), (6,))
    """
    stated = [one for one in calibration.configurations if one.num_steps is not None]
    chains = [
        one.num_steps
        for one in stated
        if one.num_steps is not None and one.topk == 1 and one.num_draft_tokens == one.num_steps + 1
    ]
    if not stated:
        raise ParameterError(
            "calibration",
            "of points without num_steps",
            "of points that state it",
            "add the column num_steps to the points and fit again",
        )
    if not chains:
        raise ParameterError(
            "calibration",
            "of trees or blocks only",
            "of points with topk 1 and num_steps + 1 draft tokens",
            "a schedule of depths is one of chains",
        )
    low, high = min(chains), max(chains)
    given = given_depths(accept_lengths)
    inside = tuple(depth for depth in given if low <= depth <= high)
    if not inside:
        raise ParameterError(
            "accept_lengths",
            f"for depth {', '.join(map(str, given))}",
            f"for a depth from {low:g} to {high:g}, as in the points",
            "measure another depth and fit again",
        )
    return inside, tuple(depth for depth in given if depth not in inside)


def context_of(calibration: Calibration, context_tokens: float | None = None) -> float | None:
    """Return the context that a schedule is for: the given one, or the only one of the points.

    Parameters
    ----------
    calibration : Calibration
        Of some points.
    context_tokens : float, optional
        What was asked for, [tokens].

    Returns
    -------
    float or None
        None where the points do not state theirs, [tokens].

    Raises
    ------
    ParameterError
        If the points hold several and none is given, or the given one is outside them.

    Examples
    --------
    >>> from calibration.fitting import fit
    >>> from calibration.packaged import packaged_table
    >>> calibration = fit(packaged_table("vllm-16035-llama3-8b").path, profile=False)
    >>> context_of(calibration) is None
    True
    """
    low, high = calibration.hull.get("context_tokens", (math.nan, math.nan))
    if context_tokens is None:
        if math.isnan(low):
            return None
        stated = {one.context_tokens for one in calibration.configurations} - {None}
        if len(stated) == 1:  # measured contexts of one load are one
            return stated.pop()
        if low < high:
            raise ParameterError(
                "context_tokens",
                "nothing",
                f"from {low:g} to {high:g}: the points hold several contexts",
                "make one schedule per context",
            )
        return low
    if not low <= context_tokens <= high:
        raise ParameterError(
            "context_tokens",
            f"{context_tokens:g}",
            "left out: the points do not state theirs"
            if math.isnan(low)
            else f"from {low:g} to {high:g}, as in the points",
            "measure that context and fit again",
        )
    return context_tokens
