"""Depth, branches and verified rows of a round, completed where points do not state them."""

from typing import NamedTuple

import numpy as np

from specmodel.cost.round_terms import UNKNOWN_DEPTH_NUM_STEPS


class RoundShape(NamedTuple):
    """Depth, branches and verified rows of a round; whether nothing tells the depth."""

    num_steps: float
    topk: float
    num_draft_tokens: float
    depth_unknown: bool


def round_shape(
    num_steps: float | None, topk: float | None, num_draft_tokens: float | None
) -> RoundShape:
    r"""Shape of a round, completed where it is not stated.

    .. math:: k = n - 1

    Parameters
    ----------
    num_steps, topk, num_draft_tokens : float or None
        As stated; None or NaN where not.

    Returns
    -------
    RoundShape
        A chain whose verified rows are stated has one step less; with neither, the depth is
        `UNKNOWN_DEPTH_NUM_STEPS`.

    Examples
    --------
    >>> round_shape(None, 1.0, 8.0)
    RoundShape(num_steps=7.0, topk=1.0, num_draft_tokens=8.0, depth_unknown=False)
    """
    depth, branches, rows = (
        np.nan if value is None else float(value) for value in (num_steps, topk, num_draft_tokens)
    )
    tree = branches > 1
    unknown = np.isnan(depth) and (tree or not rows > 1)
    if np.isnan(depth):
        depth = UNKNOWN_DEPTH_NUM_STEPS if unknown else rows - 1.0
    stated = not np.isnan(rows) and (tree or not unknown)
    return RoundShape(
        num_steps=depth,
        topk=branches if tree else 1.0,
        num_draft_tokens=rows if stated else depth + 1.0,
        depth_unknown=bool(unknown),
    )
