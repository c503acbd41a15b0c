"""CUDA graphs: which sizes were captured, what a step is padded to, and where graphs end."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCapture:
    r"""Token counts for which the engine holds a captured graph.

    .. math:: t' = \min\{s : s \ge t\},\quad t' = t \text{ beyond the largest } s

    Parameters
    ----------
    sizes : tuple of int
        :math:`s`, rising, positive; empty when nothing is captured, [tokens].
    eager_kernel_s : float
        Host time to launch one kernel outside a graph, not negative, [s].

    Raises
    ------
    ParameterError
        If the sizes do not rise from at least 1 or the time is negative.

    Notes
    -----
    Beyond the largest size a step runs eagerly and takes at least the launches of all its kernels: the
    jump past the capture limit. The launch of a CUDA kernel takes some 5 us; an engine's Python
    around it takes several times that. theory.md B3, B4.

    Examples
    --------
    >>> capture = GraphCapture(sizes=(1, 2, 4, 8), eager_kernel_s=5e-6)
    >>> capture.padded_tokens([3, 8, 9]).tolist()
    [4.0, 8.0, 9.0]
    >>> capture.eager([3, 8, 9]).tolist()
    [False, False, True]
    """

    sizes: tuple[int, ...]
    eager_kernel_s: float = 5e-6

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, dtype=np.float64)
        if sizes.ndim != 1 or (sizes.size and (sizes[0] < 1 or not np.all(np.diff(sizes) > 0))):
            raise ParameterError("sizes", self.sizes, "rising token counts of at least 1")
        if not 0 <= self.eager_kernel_s < np.inf:
            raise ParameterError("eager_kernel_s", self.eager_kernel_s, "finite and not negative")

    def padded_tokens(self, num_tokens: ArrayLike) -> Array:
        r"""Tokens that the step computes.

        .. math:: t' = \min\{s : s \ge t\}

        Parameters
        ----------
        num_tokens : array-like
            :math:`t`, tokens that the step was asked for, [tokens].

        Returns
        -------
        numpy.ndarray
            The next captured size; beyond the largest, the tokens themselves, [tokens].

        Notes
        -----
        Padding rows are computed and sent, but read no KV.

        Examples
        --------
        >>> float(GraphCapture(sizes=(16, 128)).padded_tokens(121))
        128.0
        """
        tokens = np.asarray(num_tokens, dtype=np.float64)
        if not self.sizes:
            return tokens
        sizes = np.append(np.asarray(self.sizes, dtype=np.float64), np.inf)
        found = sizes[np.searchsorted(sizes, tokens)]
        return np.where(np.isinf(found), tokens, found)

    def eager(self, num_tokens: ArrayLike) -> NDArray[np.bool_]:
        r"""Whether the step runs without a graph.

        .. math:: t > \max s

        Parameters
        ----------
        num_tokens : array-like
            :math:`t`, [tokens].

        Returns
        -------
        numpy.ndarray of bool

        Notes
        -----
        With no captured size every step is eager.

        Examples
        --------
        >>> bool(GraphCapture(sizes=()).eager(1))
        True
        """
        limit = self.sizes[-1] if self.sizes else 0
        return np.asarray(np.asarray(num_tokens, dtype=np.float64) > limit)
