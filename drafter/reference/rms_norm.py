"""The norm of every residual stream and head."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    r"""Rows scaled to a root mean square of one, times a weight.

    .. math:: y_i = w_i \frac{x_i}{\sqrt{\frac1n\sum_j x_j^2 + \epsilon}}

    Parameters
    ----------
    x : Tensor, shape [..., n]
        Rows, [-].
    weight : Tensor, shape [n]
        :math:`w`, [-].
    eps : float
        :math:`\epsilon`, positive, [-].

    Returns
    -------
    Tensor, shape [..., n]
        In the dtype of `x`, [-].

    Notes
    -----
    Nothing is rounded on the way. Implementations in 16 bit differ by one unit in the last place in
    whether they round before or after the weight is applied, so compare with a norm, never bitwise.

    Examples
    --------
    >>> rms_norm(torch.tensor([3.0, 4.0]), torch.ones(2), 1e-12).square().mean().item()
    1.0
    """
    return weight * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
