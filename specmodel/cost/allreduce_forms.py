"""Laws of an all-reduce through a library: two protocols, the floor over ranks, several nodes."""

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.allreduce_curve import checked_sizes
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

LARGEST_RING: Final = 8
"""Ranks up to which a node is one ring; beyond, a tree is shorter. [ranks]"""


def ring_factor(num_ranks: int) -> float:
    r"""Share of the message that a ring sends over each link.

    .. math:: f = 2 (n - 1)/n

    Parameters
    ----------
    num_ranks : int
        :math:`n`, at least 2.

    Returns
    -------
    float
        Between 1 and 2, [-].

    Raises
    ------
    ParameterError
        With fewer than two ranks.

    Notes
    -----
    The factor from algorithm to bus bandwidth of an all-reduce, PERFORMANCE.md of [nccl-tests]_.

    Examples
    --------
    >>> ring_factor(2), ring_factor(8)
    (1.0, 1.75)
    """
    return 2.0 * (_ranks(num_ranks) - 1) / num_ranks


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TwoProtocols:
    r"""Time of an all-reduce by a library that changes its protocol at one size.

    .. math::

        T(S) = a + f S / B_s \; (S \le X), \qquad T(S) = a + d + f S / B_l \; (S > X)

    with :math:`f = 2 (n-1)/n`.

    Parameters
    ----------
    num_ranks : int
        :math:`n`, at least 2.
    floor_s : float
        :math:`a`, positive, [s].
    small_bytes_per_s, large_bytes_per_s : float
        :math:`B_s, B_l`, bus bandwidths on both sides of the switch, positive; infinity where time
        does not grow with size, [bytes/s].
    step_s : float
        :math:`d`, what the large protocol starts later, not negative, [s].
    switch_bytes : float
        :math:`X`; infinity for one protocol, [bytes].

    Raises
    ------
    ParameterError
        If a value is outside its bounds.

    Notes
    -----
    The switch is a parameter: tuners change late or early, so a measured time may fall there. Holds
    for NCCL and for what behaves like it, not for a kernel with more than two regimes; the median
    error on the packaged NCCL tables is about 2 %, the worst size 20 % and more. The protocols are
    those of NCCL's tuning model, ``src/graph/tuning.cc`` [nccl]_.

    Examples
    --------
    >>> form = TwoProtocols(
    ...     num_ranks=8, floor_s=24e-6, small_bytes_per_s=9e9, step_s=71e-6,
    ...     large_bytes_per_s=27e9, switch_bytes=512 * 1024,
    ... )
    >>> (form.at([14336, 1048576]) * 1e6).round(1).tolist()
    [26.8, 163.0]
    """

    num_ranks: int
    floor_s: float
    small_bytes_per_s: float
    step_s: float = 0.0
    large_bytes_per_s: float = math.inf
    switch_bytes: float = math.inf

    def __post_init__(self) -> None:
        _ranks(self.num_ranks)
        for name in ("floor_s", "small_bytes_per_s", "large_bytes_per_s", "switch_bytes"):
            if not getattr(self, name) > 0:
                raise ParameterError(name, getattr(self, name), "positive")
        if not (math.isfinite(self.floor_s) and 0 <= self.step_s < math.inf):
            raise ParameterError("step_s", self.step_s, "not negative and finite")

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
        At the switch itself the small protocol counts.

        Examples
        --------
        >>> float(TwoProtocols(num_ranks=2, floor_s=6e-6, small_bytes_per_s=1e9).at(1000))
        7e-06
        """
        sizes = checked_sizes(size_bytes)
        moved = ring_factor(self.num_ranks) * sizes
        small = self.floor_s + moved / self.small_bytes_per_s
        large = self.floor_s + self.step_s + moved / self.large_bytes_per_s
        return np.where(sizes <= self.switch_bytes, small, large)


def ideal_switch_bytes(
    num_ranks: int, step_s: float, small_bytes_per_s: float, large_bytes_per_s: float
) -> float:
    r"""Size at which two protocols take the same time.

    .. math:: X = \frac{d}{f (1/B_s - 1/B_l)}

    Parameters
    ----------
    num_ranks : int
        :math:`n`, at least 2.
    step_s : float
        :math:`d`, not negative, [s].
    small_bytes_per_s, large_bytes_per_s : float
        :math:`B_s, B_l`, [bytes/s].

    Returns
    -------
    float
        Infinity where the large protocol never catches up, [bytes].

    Raises
    ------
    ParameterError
        If a value is outside its bounds.

    Notes
    -----
    What an ideal tuner would choose; measured switches lie on both sides.

    Examples
    --------
    >>> round(ideal_switch_bytes(2, 10e-6, 22e9, 37e9) / 1024)  # 2 RTX PRO 6000; 512 KiB observed
    530
    """
    for name, value in (("small", small_bytes_per_s), ("large", large_bytes_per_s)):
        if not value > 0:
            raise ParameterError(f"{name}_bytes_per_s", value, "positive")
    if not step_s >= 0:
        raise ParameterError("step_s", step_s, "not negative")
    gain = ring_factor(num_ranks) * (1.0 / small_bytes_per_s - 1.0 / large_bytes_per_s)
    return step_s / gain if gain > 0 else math.inf


def floor_time_s(num_ranks: int, base_s: float, hop_s: float) -> float:
    r"""Time of the smallest all-reduce on one node, over the number of ranks.

    .. math::

        a(n) = a_0 + 2 (n-1) a_1 \; (n \le 8), \qquad
        a(n) = \min\left(a_0 + 2 (n-1) a_1, \; \tfrac{1}{3} \log_2(n) \, a(8)\right) \; (n > 8)

    Parameters
    ----------
    num_ranks : int
        :math:`n`, at least 2.
    base_s, hop_s : float
        :math:`a_0, a_1`, not negative, [s].

    Returns
    -------
    float
        [s]

    Raises
    ------
    ParameterError
        If a value is outside its bounds.

    Notes
    -----
    The ring is NCCL's, base plus 2 (n - 1) hops, ``src/graph/tuning.cc`` [nccl]_. It holds within
    3 % at 2, 4 and 8 GPUs of one machine. The tree above 8, with as many steps as doublings and
    continuous at 8, is a judgement: 16 RTX PRO 6000 measure 36 µs where the ring says 52
    [b12x-139]_.

    Examples
    --------
    >>> [round(floor_time_s(ranks, 3.3e-6, 1.62e-6) * 1e6, 1) for ranks in (2, 4, 8, 16)]
    [6.5, 13.0, 26.0, 34.6]
    """
    for name, value in (("base_s", base_s), ("hop_s", hop_s)):
        if not 0 <= value < math.inf:
            raise ParameterError(name, value, "not negative and finite")
    ring = base_s + 2.0 * (_ranks(num_ranks) - 1) * hop_s
    if num_ranks <= LARGEST_RING:
        return ring
    at_largest = base_s + 2.0 * (LARGEST_RING - 1) * hop_s
    return min(ring, at_largest * math.log2(num_ranks) / math.log2(LARGEST_RING))


def multi_node_floor_time_s(
    num_ranks: int, num_nodes: int, base_s: float, hop_s: float, network_hop_s: float
) -> float:
    r"""Time of the smallest all-reduce over several nodes: the shorter of ring and tree.

    .. math::

        \text{ring} = a_0 + (2(n-1) - h) \, a_1 + h \, a_w, \quad h = 2 (N - 1)

        \text{tree} = a_0 + 2 \left[(n/N - 1) \, a_1 + \log_2(N) \, a_w\right]

    Parameters
    ----------
    num_ranks, num_nodes : int
        :math:`n, N`; as many ranks on every node, at least two ranks.
    base_s, hop_s, network_hop_s : float
        :math:`a_0, a_1, a_w`, not negative, [s].

    Returns
    -------
    float
        [s]

    Raises
    ------
    ParameterError
        If a value is outside its bounds, or the ranks do not divide over the nodes.

    Notes
    -----
    NCCL's tuning model, ``src/graph/tuning.cc`` [nccl]_. Bytes cost extra, over the slower of the
    link and the network.

    Examples
    --------
    >>> round(multi_node_floor_time_s(16, 2, 6.6e-6, 0.6e-6, 5e-6) * 1e6, 1)
    25.0
    """
    if num_nodes < 1 or num_ranks % num_nodes:
        raise ParameterError("num_nodes", num_nodes, f"a divisor of {num_ranks} ranks")
    if num_nodes == 1:
        return floor_time_s(num_ranks, base_s, hop_s)
    if not 0 <= network_hop_s < math.inf:
        raise ParameterError("network_hop_s", network_hop_s, "not negative and finite")
    _ranks(num_ranks)
    crossings = 2 * (num_nodes - 1)
    ring = base_s + (2 * (num_ranks - 1) - crossings) * hop_s + crossings * network_hop_s
    inside = (num_ranks // num_nodes - 1) * hop_s
    tree = base_s + 2.0 * (inside + math.log2(num_nodes) * network_hop_s)
    return min(ring, tree)


def _ranks(num_ranks: int) -> int:
    """Return the ranks, at least two."""
    if num_ranks < 2:
        raise ParameterError("num_ranks", num_ranks, "at least 2: one rank reduces nothing")
    return num_ranks
