"""All-reduce kernels of inference engines: one-shot and two-shot over peer access, and their gates."""

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.allreduce_curve import checked_sizes
from specmodel.cost.allreduce_forms import ring_factor
from specmodel.errors import ParameterError
from specmodel.units import KIBI, MEBI

Array = NDArray[np.float64]

_VLLM_RANKS: Final = (2, 4, 6, 8)
_VLLM_GRANULE_BYTES: Final = 16
_VLLM_LARGEST_BYTES: Final = {  # by compute capability and ranks
    90: {2: 64 * MEBI, 4: 32 * MEBI, 6: 512 * KIBI, 8: 256 * KIBI},
    100: {2: 2 * MEBI, 4: 2 * MEBI, 6: 1 * MEBI, 8: 1 * MEBI},
    103: {2: 4 * MEBI, 4: 4 * MEBI, 6: 8 * MEBI, 8: 4 * MEBI},
}
_VLLM_DEFAULT_BYTES: Final = 8 * MEBI


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAccess:
    r"""Time of an all-reduce by a kernel that reads or writes the peers' buffers.

    .. math::

        T(S) = a_1 + (n-1) S/B_1 \; (S \le X), \qquad T(S) = a_2 + f S/B_2 \; (S > X)

    with :math:`f = 2 (n-1)/n`.

    Parameters
    ----------
    num_ranks : int
        :math:`n`, at least 2.
    one_shot_floor_s : float
        :math:`a_1`, with one barrier, positive, [s].
    one_shot_bytes_per_s : float
        :math:`B_1`, what a rank takes from all its peers together, positive, [bytes/s].
    two_shot_floor_s : float
        :math:`a_2`, with two or three barriers; used beyond the switch only, [s].
    two_shot_bytes_per_s : float
        :math:`B_2`, [bytes/s].
    switch_bytes : float
        :math:`X`; infinity where there is no two-shot kernel, [bytes].

    Raises
    ------
    ParameterError
        If a value is outside its bounds.

    Notes
    -----
    Starts lower than a library and grows :math:`n/2` times as fast, so it helps a plain step more
    than a verify step. Holds within the size that its kernel is used for, and where peer access is
    direct: staged through host memory it is an order of magnitude slower. The algorithms are those
    of ``csrc/custom_all_reduce.cuh`` [vllm-custom-all-reduce]_.

    Examples
    --------
    >>> pcie = PeerAccess(num_ranks=4, one_shot_floor_s=6.1e-6, one_shot_bytes_per_s=35e9)
    >>> (pcie.at([14336, 57344]) * 1e6).round(1).tolist()
    [7.3, 11.0]
    """

    num_ranks: int
    one_shot_floor_s: float
    one_shot_bytes_per_s: float
    two_shot_floor_s: float = 0.0
    two_shot_bytes_per_s: float = math.inf
    switch_bytes: float = math.inf

    def __post_init__(self) -> None:
        ring_factor(self.num_ranks)
        for name in ("one_shot_floor_s", "one_shot_bytes_per_s", "two_shot_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise ParameterError(name, getattr(self, name), "positive")
        for name in ("two_shot_floor_s", "switch_bytes"):
            if not getattr(self, name) >= 0:
                raise ParameterError(name, getattr(self, name), "not negative")

    def at(self, size_bytes: ArrayLike) -> Array:
        r"""Time of an all-reduce of any size.

        .. math:: T(S)

        Parameters
        ----------
        size_bytes : array-like
            :math:`S`, message per rank, not negative, [bytes].

        Returns
        -------
        numpy.ndarray
            Of the same shape, [s].

        Raises
        ------
        ParameterError
            If a size is negative or not a number.

        Notes
        -----
        At the switch itself the one-shot kernel counts.

        Examples
        --------
        >>> float(PeerAccess(num_ranks=3, one_shot_floor_s=5e-6, one_shot_bytes_per_s=1e9).at(1000))
        7e-06
        """
        sizes = checked_sizes(size_bytes)
        one = self.one_shot_floor_s + (self.num_ranks - 1) * sizes / self.one_shot_bytes_per_s
        two = (
            self.two_shot_floor_s + ring_factor(self.num_ranks) * sizes / self.two_shot_bytes_per_s
        )
        return np.where(sizes <= self.switch_bytes, one, two)


def shot_crossover_bytes(law: PeerAccess) -> float:
    r"""Size from which two shots are faster than one.

    .. math:: S^* = \frac{a_2 - a_1}{(n-1)/B_1 - f/B_2}

    Parameters
    ----------
    law : PeerAccess
        With both kernels; its switch is not looked at.

    Returns
    -------
    float
        0 where two shots are always faster, infinity where they never are, [bytes].

    Notes
    -----
    The ideal; engines switch at sizes of their own, see `vllm_kernel`.

    Examples
    --------
    >>> h100 = PeerAccess(
    ...     num_ranks=6, one_shot_floor_s=4.6e-6, one_shot_bytes_per_s=300e9,
    ...     two_shot_floor_s=11.4e-6, two_shot_bytes_per_s=281e9,
    ... )
    >>> round(shot_crossover_bytes(h100) / 1024)
    619
    """
    slope = (law.num_ranks - 1) / law.one_shot_bytes_per_s
    slope -= ring_factor(law.num_ranks) / law.two_shot_bytes_per_s
    head_start = law.two_shot_floor_s - law.one_shot_floor_s
    if head_start <= 0:
        return 0.0 if slope >= 0 else math.inf
    return head_start / slope if slope > 0 else math.inf


def vllm_kernel(
    num_ranks: int, size_bytes: float, *, fully_nvlinked: bool, compute_capability: int
) -> str:
    r"""Kernel that vLLM's custom all-reduce takes: ``one_shot``, ``two_shot`` or ``library``.

    .. math:: n = 2, \; n \le 4 \wedge S < 512\,\mathrm{KiB}, \; n \le 8 \wedge S < 256\,\mathrm{KiB}

    take one shot, larger messages two, up to a size per architecture.

    Parameters
    ----------
    num_ranks : int
        :math:`n`, on one node.
    size_bytes : float
        :math:`S`, message per rank, [bytes].
    fully_nvlinked : bool
        Whether NVLink joins all pairs.
    compute_capability : int
        90 for H100, 100 for B200, 120 for RTX PRO 6000.

    Returns
    -------
    str
        ``library`` where the kernel is not taken, which the engine does not say.

    Notes
    -----
    More than two GPUs without NVLink get the library. SGLang has the same rule. From
    ``csrc/custom_all_reduce.cuh`` and ``custom_all_reduce.py`` [vllm-custom-all-reduce]_. Symmetric
    memory and fused kernels, where they are on, come before it.

    Examples
    --------
    >>> vllm_kernel(8, 14336, fully_nvlinked=True, compute_capability=90)
    'one_shot'
    >>> vllm_kernel(8, 14336, fully_nvlinked=False, compute_capability=120)
    'library'
    """
    largest = _VLLM_LARGEST_BYTES.get(compute_capability, {}).get(num_ranks, _VLLM_DEFAULT_BYTES)
    if (
        num_ranks not in _VLLM_RANKS
        or not (fully_nvlinked or num_ranks == 2)
        or size_bytes % _VLLM_GRANULE_BYTES
        or size_bytes > largest
    ):
        return "library"
    if num_ranks == 2:
        return "one_shot"
    one_shot_below = 512 * KIBI if num_ranks <= 4 else 256 * KIBI
    return "one_shot" if size_bytes < one_shot_below else "two_shot"
