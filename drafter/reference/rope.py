"""Rotary position embedding: pairs of a head turn by an angle that grows with the position."""

from typing import NamedTuple, Self

import torch
from torch import Tensor


class RotaryTable(NamedTuple):
    """Cosine and sine of every pair at some positions.

    Parameters
    ----------
    cos, sin : Tensor, shape [T, d / 2]
        Times the magnitude of the kind, [-].

    Examples
    --------
    >>> table = RotaryTable.at(torch.tensor([0]), torch.tensor([1.0, 0.01]))
    >>> table.cos.tolist(), table.sin.tolist()
    ([[1.0, 1.0]], [[0.0, 0.0]])
    """

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(
        cls,
        positions: Tensor,
        frequencies: Tensor,
        *,
        magnitude: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> Self:
        r"""Table of some positions.

        .. math:: c_{ti} = a\cos(t\,\omega_i), \qquad s_{ti} = a\sin(t\,\omega_i)

        Parameters
        ----------
        positions : Tensor, shape [T]
            :math:`t`, any integers, [tokens].
        frequencies : Tensor, shape [d / 2]
            :math:`\omega`, [rad/token].
        magnitude : float
            :math:`a`, [-].
        dtype : torch.dtype
            Of the table; angles are taken in fp64 and rounded once.

        Returns
        -------
        RotaryTable
            Both of shape [T, d / 2].

        Examples
        --------
        >>> RotaryTable.at(torch.tensor([2]), torch.tensor([0.5])).cos.item()
        0.5403023058681398
        """
        angles = positions.to(torch.float64)[:, None] * frequencies.to(torch.float64)
        return cls((angles.cos() * magnitude).to(dtype), (angles.sin() * magnitude).to(dtype))


def rotate_halves(x: Tensor, table: RotaryTable) -> Tensor:
    r"""Heads turned, where the partner of a value stands half a head further.

    .. math:: (x_i,\ x_{i+d/2}) \to (x_i c_i - x_{i+d/2} s_i,\ x_{i+d/2} c_i + x_i s_i)

    Parameters
    ----------
    x : Tensor, shape [T, heads, d]
        Queries or keys, [-].
    table : RotaryTable
        Of the T positions.

    Returns
    -------
    Tensor, shape [T, heads, d]
        Same norms, times the magnitude of the table, [-].

    Notes
    -----
    The order of grouped heads in Llama and Qwen3 checkpoints. [su2021]_ section 3.4.2, up to a
    permutation.

    Examples
    --------
    >>> table = RotaryTable(torch.tensor([[0.0]]), torch.tensor([[1.0]]))  # a quarter turn
    >>> rotate_halves(torch.tensor([[[1.0, 0.0]]]), table).tolist()
    [[[0.0, 1.0]]]
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat(_turn(first, second, table), dim=-1)


def rotate_neighbours(x: Tensor, table: RotaryTable) -> Tensor:
    r"""Heads turned, where the partner of a value stands next to it.

    .. math:: (x_{2i},\ x_{2i+1}) \to (x_{2i} c_i - x_{2i+1} s_i,\ x_{2i+1} c_i + x_{2i} s_i)

    Parameters
    ----------
    x : Tensor, shape [T, heads, d]
        The turning part of queries or keys, [-].
    table : RotaryTable
        Of the T positions.

    Returns
    -------
    Tensor, shape [T, heads, d]
        Same norms, times the magnitude of the table, [-].

    Notes
    -----
    The order of latent heads in DeepSeek checkpoints. [su2021]_ section 3.4.2.

    Examples
    --------
    >>> table = RotaryTable(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    >>> rotate_neighbours(torch.tensor([[[1.0, 0.0, 1.0, 0.0]]]), table).tolist()
    [[[0.0, 1.0, 1.0, 0.0]]]
    """
    turned = _turn(x[..., 0::2], x[..., 1::2], table)
    return torch.stack(turned, dim=-1).flatten(start_dim=-2)


def _turn(first: Tensor, second: Tensor, table: RotaryTable) -> tuple[Tensor, Tensor]:
    """Both members of every pair after the turn."""
    cos, sin = table.cos[:, None, :], table.sin[:, None, :]
    return first * cos - second * sin, second * cos + first * sin
