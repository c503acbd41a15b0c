"""What an all-reduce takes where nothing was measured, by interconnect and ranks, and how unsure."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.allreduce_forms import LARGEST_RING, TwoProtocols
from specmodel.cost.allreduce_peer_access import PeerAccess
from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.units import GIGA, KIBI, MICRO

Array = NDArray[np.float64]

QUANTILE_90: Final = 1.6448536269514722
"""Standard deviations from the median to the bounds of the central 90 % of a normal variable."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllReducePrior:
    r"""Log-normal prior of the time of an all-reduce.

    .. math:: \ln T(S) \sim \mathcal{N}(\ln T_0(S), \sigma^2)

    Parameters
    ----------
    interconnect : str
        Class, see `prior_classes`.
    kernel : str
        ``nccl``, ``engine`` (kernels of vLLM, SGLang and others) or ``nccl_symmetric``.
    law : TwoProtocols or PeerAccess
        :math:`T_0`, the median.
    log_sd : float
        :math:`\sigma`, shared by all sizes: machines of a class differ as a whole, [-].
    evidence : str
        Which machines it rests on.
    carried : bool
        Whether no machine with that many ranks stands behind it.

    Notes
    -----
    A prior is not a measurement: machines with the same GPUs differ threefold. See
    ``data/allreduce_priors.toml`` for the numbers and their sources. Holds for collectives in a graph
    or back to back; a launch by the host costs 20 to 90 µs instead. One message of `log_sd` moves all
    sizes together.

    Examples
    --------
    >>> prior = allreduce_prior("pcie5", 8)
    >>> [round(float(time) * 1e6) for time in (prior.at(14336), *prior.interval(14336))]
    [28, 13, 60]
    """

    interconnect: str
    kernel: str
    law: TwoProtocols | PeerAccess
    log_sd: float
    evidence: str
    carried: bool = False

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.law.num_ranks

    def at(self, size_bytes: ArrayLike) -> Array:
        r"""Median time.

        .. math:: T_0(S)

        Parameters
        ----------
        size_bytes : array-like
            :math:`S`, message per rank, not negative, [bytes].

        Returns
        -------
        numpy.ndarray
            [s]

        Raises
        ------
        ParameterError
            If a size is negative or not a number.

        Notes
        -----
        Meant for 1 KiB to some MiB.

        Examples
        --------
        >>> float(allreduce_prior("nvlink4", 8, kernel="engine").at(14336).round(8))
        4.23e-06
        """
        return self.law.at(size_bytes)

    def interval(self, size_bytes: ArrayLike) -> tuple[Array, Array]:
        r"""Bounds of the central 90 %.

        .. math:: T_0(S) \, e^{\mp 1.645 \sigma}

        Parameters
        ----------
        size_bytes : array-like
            :math:`S`, message per rank, not negative, [bytes].

        Returns
        -------
        low, high : numpy.ndarray
            [s]

        Raises
        ------
        ParameterError
            If a size is negative or not a number.

        Notes
        -----
        The bounds of several sizes belong together: one factor for all.

        Examples
        --------
        >>> low, high = allreduce_prior("pcie5", 2).interval(1024)
        >>> round(float(high / low), 1)
        4.7
        """
        median, factor = self.at(size_bytes), math.exp(QUANTILE_90 * self.log_sd)
        return median / factor, median * factor


def allreduce_prior(interconnect: str, num_ranks: int, *, kernel: str = "nccl") -> AllReducePrior:
    r"""Prior of an interconnect, a number of ranks and a kernel.

    .. math:: \ln x(n) = \text{linear in } \log_2 n \text{ between the ranks that were measured}

    Parameters
    ----------
    interconnect : str
        One of `prior_classes`.
    num_ranks : int
        :math:`n`, at least 2.
    kernel : str
        ``nccl``, ``engine`` or ``nccl_symmetric``.

    Returns
    -------
    AllReducePrior

    Raises
    ------
    UnknownKeyError
        If there is no such class, or no such kernel on it.
    ParameterError
        With fewer than two ranks.

    Notes
    -----
    Between measured numbers of ranks, parameters are interpolated; beyond them the bandwidths of the
    nearest hold and the floor grows as the steps of the ring (above 8 ranks of a tree) do. The spread
    is then 1.3 times as wide, a judgement.

    Examples
    --------
    >>> prior = allreduce_prior("nvlink5", 6)
    >>> round(prior.law.floor_s * 1e6, 1), prior.carried
    (20.9, True)
    """
    if num_ranks < 2:
        raise ParameterError("num_ranks", num_ranks, "at least 2")
    kernels = prior_classes()
    if interconnect not in kernels:
        raise UnknownKeyError("interconnect", interconnect, list(kernels))
    if kernel not in kernels[interconnect]:
        raise UnknownKeyError(
            f"all-reduce kernel on {interconnect}", kernel, list(kernels[interconnect])
        )
    table = _tables()[interconnect, kernel]
    measured: list[int] = table["ranks"]
    carried = num_ranks not in measured
    law = _library(table, num_ranks) if "floor_us" in table else _engine(table, num_ranks)
    return AllReducePrior(
        interconnect=interconnect,
        kernel=kernel,
        law=law,
        log_sd=table["log_sd"] * (1.3 if carried else 1.0),
        evidence=table["evidence"],
        carried=carried,
    )


@cache
def prior_classes() -> Mapping[str, tuple[str, ...]]:
    r"""Classes of interconnects that have a prior, and the kernels of each.

    .. math:: \text{class} \mapsto \text{kernels}

    Returns
    -------
    mapping of str to tuple of str
        In the order of the file.

    Notes
    -----
    Read once from ``data/allreduce_priors.toml``.

    Examples
    --------
    >>> prior_classes()["pcie5"]
    ('nccl', 'engine')
    """
    found: dict[str, tuple[str, ...]] = {}
    for interconnect, kernel in _tables():
        found[interconnect] = (*found.get(interconnect, ()), kernel)
    return MappingProxyType(found)


@cache
def _tables() -> Mapping[tuple[str, str], dict[str, Any]]:
    """Return the tables of the file by class and kernel."""
    text = resources.files("specmodel").joinpath("data", "allreduce_priors.toml").read_text("utf-8")
    values = tomllib.loads(text)
    tables = [*values["library"], *values["engine"]]
    return {(table["interconnect"], table["kernel"]): table for table in tables}


def _library(table: Mapping[str, Any], num_ranks: int) -> TwoProtocols:
    """Return the law of a library."""
    measured = table["ranks"]
    return TwoProtocols(
        num_ranks=num_ranks,
        floor_s=_floor(measured, table["floor_us"], num_ranks) * MICRO,
        small_bytes_per_s=_between(measured, table["small_gb_per_s"], num_ranks) * GIGA,
        step_s=_between(measured, table["step_us"], num_ranks, logarithm=False) * MICRO,
        large_bytes_per_s=_between(measured, table["large_gb_per_s"], num_ranks) * GIGA,
        switch_bytes=_between(measured, table["switch_kib"], num_ranks) * KIBI,
    )


def _engine(table: Mapping[str, Any], num_ranks: int) -> PeerAccess:
    """Return the law of an engine's kernel, whose floor hardly grows with the ranks."""
    measured = table["ranks"]
    one_shot_floor = _between(measured, table["one_shot_floor_us"], num_ranks)
    one_shot_rate = _between(measured, table["one_shot_gb_per_s"], num_ranks)
    if "switch_kib" not in table:
        return PeerAccess(
            num_ranks=num_ranks,
            one_shot_floor_s=one_shot_floor * MICRO,
            one_shot_bytes_per_s=one_shot_rate * GIGA,
        )
    return PeerAccess(
        num_ranks=num_ranks,
        one_shot_floor_s=one_shot_floor * MICRO,
        one_shot_bytes_per_s=one_shot_rate * GIGA,
        two_shot_floor_s=_between(measured, table["two_shot_floor_us"], num_ranks) * MICRO,
        two_shot_bytes_per_s=_between(measured, table["two_shot_gb_per_s"], num_ranks) * GIGA,
        switch_bytes=_between(measured, table["switch_kib"], num_ranks) * KIBI,
    )


def _between(
    measured: Sequence[int], values: Sequence[float], num_ranks: int, *, logarithm: bool = True
) -> float:
    """Return a value between those measured; that of the nearest number of ranks beyond them."""
    places = np.log2(measured)
    if logarithm:
        return float(np.exp(np.interp(math.log2(num_ranks), places, np.log(values))))
    return float(np.interp(math.log2(num_ranks), places, values))


def _floor(measured: Sequence[int], values: Sequence[float], num_ranks: int) -> float:
    """Return the floor: between those measured, or carried with the steps of a ring or a tree."""
    nearest = min(max(num_ranks, measured[0]), measured[-1])
    steps = [_steps(nearest), _steps(num_ranks)]
    share = 0.75  # of a floor that grows with the steps; the rest is the launch. A judgement
    growth = 1.0 - share + share * steps[1] / steps[0]
    return _between(measured, values, nearest) * growth


def _steps(num_ranks: int) -> float:
    """Return the steps of an all-reduce: a ring up to 8 ranks, a tree beyond."""
    if num_ranks <= LARGEST_RING:
        return 2.0 * (num_ranks - 1)
    return 2.0 * (LARGEST_RING - 1) * math.log2(num_ranks) / math.log2(LARGEST_RING)
