"""Attention over the rows that a mask lets through."""

import torch
from torch import Tensor

from specmodel.errors import ParameterError


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, *, visible: Tensor, scale: float
) -> Tensor:
    r"""Means of the values, weighted by how well each key answers the query.

    .. math:: o_{th} = \sum_s \operatorname{softmax}_s(\sigma\, q_{th}\cdot k_{sg})\, v_{sg},
        \qquad g = \lfloor h N_{KV}/N_H \rfloor

    over the visible rows :math:`s`.

    Parameters
    ----------
    queries : Tensor, shape [T, NH, D]
        :math:`q`, [-].
    keys, values : Tensor, shape [S, NKV, D] and [S, NKV, Dv]
        :math:`k, v`; NKV divides NH, and neighbouring query heads share a key head, [-].
    visible : Tensor of bool, shape [T, S]
        Which rows each query sees.
    scale : float
        :math:`\sigma`, [-].

    Returns
    -------
    Tensor, shape [T, NH, Dv]
        Within the range of the visible values, [-].

    Raises
    ------
    ParameterError
        If a query sees no row.

    Notes
    -----
    No sinks and no soft cap: no EAGLE-3 layout has them.

    Examples
    --------
    >>> only_row = torch.ones(1, 1, dtype=torch.bool)
    >>> query, key, value = torch.rand(1, 2, 4), torch.rand(1, 1, 4), torch.tensor([[[5.0, 7.0]]])
    >>> attend(query, key, value, visible=only_row, scale=0.5).tolist()
    [[[5.0, 7.0], [5.0, 7.0]]]
    """
    if not bool(visible.any(dim=1).all()):
        row = int((~visible.any(dim=1)).nonzero()[0])
        raise ParameterError("visible", f"none for row {row}", "at least one row for each query")
    heads_per_key = queries.shape[1] // keys.shape[1]
    keys = keys.repeat_interleave(heads_per_key, dim=1)
    values = values.repeat_interleave(heads_per_key, dim=1)
    scores = torch.einsum("thd,shd->hts", queries, keys) * scale
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return torch.einsum("hts,shd->thd", weights, values)
