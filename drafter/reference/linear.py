"""Matrices of a checkpoint applied to rows."""

from collections.abc import Mapping

from torch import Tensor


def linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    r"""Rows through a stored matrix, and its bias where one is stored.

    .. math:: y = x W^T + b

    Parameters
    ----------
    x : Tensor, shape [T, n]
        Rows, [-].
    weights : mapping of str to Tensor
        Canonical names.
    name : str
        Without ``.weight`` and ``.bias``.

    Returns
    -------
    Tensor, shape [T, m]
        [-].

    Examples
    --------
    >>> import torch
    >>> weights = {"fc.weight": torch.tensor([[1.0, 2.0]]), "fc.bias": torch.tensor([0.5])}
    >>> linear(torch.tensor([[1.0, 1.0]]), weights, "fc").tolist()
    [[3.5]]
    """
    product = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    return product if bias is None else product + bias
