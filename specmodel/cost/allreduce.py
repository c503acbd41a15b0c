"""Time of an all-reduce: measured against message size, by a law, or expected of a link; and its doubts."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.units import GIGA, KIBI, MEBI, MICRO

Array = NDArray[np.float64]

MOST_BEYOND: Final = 2.0
"""Distance beyond the measured sizes, as a factor, up to which a curve speaks for itself. [-]"""


@dataclass(frozen=True)
class AllReduceCurve:
    r"""Time of an all-reduce against its size, as measured.

    .. math:: T(S) = T_i + (T_{i+1} - T_i) \frac{S - S_i}{S_{i+1} - S_i}, \quad S_i \le S \le S_{i+1}

    Between two sizes time is linear in bytes, not in logarithms: a latency plus bytes over a bandwidth, which
    every protocol follows, is then met exactly. Below the smallest size its time is held; above the largest
    the last slope continues, held between none and proportional time. Holds for one library, number of ranks
    and capture mode.

    >>> curve = AllReduceCurve.from_points([4096, 8192, 16384], [7e-6, 8e-6, 10e-6])
    >>> float(curve.at(12288)), float(curve.at(1024)), float(curve.at(32768))
    (9e-06, 7e-06, 1.4e-05)
    """

    size_bytes: Array
    time_s: Array

    def __post_init__(self) -> None:
        _check_points(self.size_bytes, self.time_s)
        if np.any(np.diff(self.size_bytes) <= 0):
            raise ParameterError("size_bytes", "others", "rising")

    @classmethod
    def from_points(cls, size_bytes: ArrayLike, time_s: ArrayLike) -> "AllReduceCurve":
        """Build a curve; of several times at one size the median counts."""
        sizes = np.atleast_1d(np.asarray(size_bytes, dtype=np.float64))
        times = np.atleast_1d(np.asarray(time_s, dtype=np.float64))
        _check_points(sizes, times)
        unique = np.unique(sizes)
        medians = np.array([np.median(times[sizes == size]) for size in unique])
        return cls(size_bytes=unique, time_s=medians)

    def at(self, size_bytes: ArrayLike) -> Array:
        """Time of messages of any size."""
        sizes = _sizes(size_bytes)
        value = np.interp(sizes, self.size_bytes, self.time_s)
        above = np.maximum(sizes - self.size_bytes[-1], 0.0)
        return np.asarray(value + self._last_slope() * above)

    def beyond(self, size_bytes: ArrayLike) -> Array:
        """Factor by which a size is outside the measured ones; 1 inside."""
        sizes = np.maximum(_sizes(size_bytes), np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            below = self.size_bytes[0] / sizes
        outside = np.maximum(below, sizes / self.size_bytes[-1])
        return np.asarray(np.maximum(outside, 1.0), dtype=np.float64)

    def left_out_errors(self) -> Array:
        """Relative error, signed, at every inner size when it is left out."""
        sizes, times = self.size_bytes, self.time_s
        if sizes.size < 3:
            return np.empty(0)
        share = (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
        return np.asarray((times[:-2] + share * (times[2:] - times[:-2])) / times[1:-1] - 1.0)

    def _last_slope(self) -> float:
        """Slope beyond the largest size, [s/byte]."""
        proportional = float(self.time_s[-1] / self.size_bytes[-1])
        if self.size_bytes.size == 1:
            return proportional
        slope = (self.time_s[-1] - self.time_s[-2]) / (self.size_bytes[-1] - self.size_bytes[-2])
        return min(max(float(slope), 0.0), proportional)


def _check_points(sizes: Array, times: Array) -> None:
    if sizes.shape != times.shape or sizes.ndim != 1 or not sizes.size:
        raise ParameterError("size_bytes", sizes.shape, "as many sizes as times, at least one")
    for name, values in (("size_bytes", sizes), ("time_s", times)):
        if not np.all(np.isfinite(values) & (values > 0)):
            raise ParameterError(name, np.min(values), "positive and finite")


def _sizes(size_bytes: ArrayLike) -> Array:
    """Message sizes as an array, none negative or not finite."""
    sizes = np.asarray(size_bytes, dtype=np.float64)
    if not np.all(np.isfinite(sizes) & (sizes >= 0)):
        raise ParameterError("size_bytes", np.min(sizes), "not negative and finite")
    return sizes


OFF: Final = 2.0
"""Factor by which a time may miss what the sizes beside it give (judgement): on the packaged curves the
switches of protocol miss by less. [-]"""

FALL: Final = 0.8
"""Share of a smaller message's time below which a larger one's is a fall, not noise (judgement); 11 of the
145 packaged curves fall further. [-]"""

_MOST_OUTLIERS = 3  # more of them are no outliers


def size_words(size_bytes: float) -> str:
    """A message size for a person, such as ``512 KiB``."""
    if size_bytes >= MEBI:
        return f"{size_bytes / MEBI:.3g} MiB"
    return f"{size_bytes / KIBI:.3g} KiB" if size_bytes >= KIBI else f"{size_bytes:.0f} B"


def curve_doubts(curve: AllReduceCurve) -> tuple[str, ...]:
    """Times of a curve that cannot be those of its sizes: outliers, and times that fall."""
    kept = _without_outliers(curve.size_bytes, curve.time_s)
    rest = AllReduceCurve(size_bytes=curve.size_bytes[kept], time_s=curve.time_s[kept])
    found = []
    for at in np.flatnonzero(~kept):
        size, time_s = float(curve.size_bytes[at]), float(curve.time_s[at])
        found.append(
            f"{size_words(size)} took {_time(time_s)} where the other sizes give "
            f"{_time(float(rest.at(size)))}: measure that size again, and whether others shared the link"
        )
    peak = np.maximum.accumulate(rest.time_s)
    falls = np.flatnonzero(rest.time_s < FALL * peak)
    if falls.size:
        low = int(falls[np.argmin(rest.time_s[falls] / peak[falls])])
        high = int(np.argmax(rest.time_s[: low + 1]))
        found.append(
            f"the time falls from {_time(float(rest.time_s[high]))} at {size_words(float(rest.size_bytes[high]))} to "
            f"{_time(float(rest.time_s[low]))} at {size_words(float(rest.size_bytes[low]))}: a larger message "
            "is not faster, so measure again, with more iterations"
        )
    return tuple(found)


def outside_doubt(curve: AllReduceCurve, smallest_bytes: float, largest_bytes: float) -> str:
    """That messages are far outside the measured sizes, and what is done; empty where they are not."""
    low, high = float(curve.size_bytes[0]), float(curve.size_bytes[-1])
    below = low / max(smallest_bytes, 1.0) > MOST_BEYOND
    above = largest_bytes / high > MOST_BEYOND
    if not (below or above):
        return ""
    asked = size_words(smallest_bytes)
    if size_words(largest_bytes) != asked:
        asked += f" to {size_words(largest_bytes)}"
    done = [f"below them it is held at {_time(float(curve.time_s[0]))}"] if below else []
    done += ["above them the last slope continues"] if above else []
    return (
        f"messages of {asked} are outside the measured {size_words(low)} to {size_words(high)} "
        f"({_time(float(curve.time_s[0]))} to {_time(float(curve.time_s[-1]))}); "
        f"{' and '.join(done)}: measure the sizes that are served"
    )


def _time(time_s: float) -> str:
    """A time in microseconds."""
    return f"{time_s / MICRO:.3g} µs" if time_s < 1e-3 else f"{time_s / MICRO:.0f} µs"


def _without_outliers(sizes: Array, times: Array) -> NDArray[np.bool_]:
    """Which sizes are left when those are taken out without which the rest agrees best."""
    kept = np.ones(sizes.size, dtype=bool)
    for _ in range(_MOST_OUTLIERS):
        if not (now := _disagreement(sizes[kept], times[kept])) or kept.sum() <= 4:
            return kept
        trials = []
        for at in np.flatnonzero(kept):
            rest = kept.copy()
            rest[at] = False
            trials.append((_disagreement(sizes[rest], times[rest]), at))
        best, at = min(trials)
        if best >= now / 2:
            return kept
        kept[at] = False
    return kept


def _disagreement(sizes: Array, times: Array) -> float:
    """Sum of what times miss of their neighbours' line, and of falls, beyond `OFF`; in logarithms."""
    errors = AllReduceCurve(size_bytes=sizes, time_s=times).left_out_errors()
    missed = np.abs(np.log1p(errors)) - math.log(OFF)
    falls = -np.diff(np.log(times)) - math.log(OFF)
    return float(np.maximum(missed, 0.0).sum() + np.maximum(falls, 0.0).sum())


LARGEST_RING: Final = 8
"""Ranks up to which a node is one ring; beyond, a tree is shorter. [ranks]"""


def ring_factor(num_ranks: int) -> float:
    """2 (n - 1) / n, share of a message that a ring sends over each link; PERFORMANCE.md of [nccl-tests]_."""
    if num_ranks < 2:
        raise ParameterError("num_ranks", num_ranks, "at least 2: one rank reduces nothing")
    return 2.0 * (num_ranks - 1) / num_ranks


@dataclass(frozen=True)
class TwoProtocols:
    r"""Time of an all-reduce by a library that changes its protocol at one size.

    .. math::

        T(S) = a + f S / B_s \; (S \le X), \qquad T(S) = a + d + f S / B_l \; (S > X)

    with :math:`f = 2 (n-1)/n`, latency :math:`a`, bus bandwidths :math:`B_s, B_l`, and what the large
    protocol starts later, :math:`d`: the protocols of NCCL's tuning model, ``src/graph/tuning.cc`` [nccl]_.
    The switch is a parameter, since tuners change late or early. The median error on the packaged NCCL tables
    is about 2 %, the worst size 20 % and more.
    """

    num_ranks: int
    floor_s: float
    small_bytes_per_s: float
    step_s: float = 0.0
    large_bytes_per_s: float = math.inf
    switch_bytes: float = math.inf

    def __post_init__(self) -> None:
        ring_factor(self.num_ranks)
        for name in ("floor_s", "small_bytes_per_s", "large_bytes_per_s", "switch_bytes"):
            if not getattr(self, name) > 0:
                raise ParameterError(name, getattr(self, name), "positive")
        if not (math.isfinite(self.floor_s) and 0 <= self.step_s < math.inf):
            raise ParameterError("step_s", self.step_s, "not negative and finite")

    def at(self, size_bytes: ArrayLike) -> Array:
        """Time of messages of any size."""
        sizes = _sizes(size_bytes)
        moved = ring_factor(self.num_ranks) * sizes
        small = self.floor_s + moved / self.small_bytes_per_s
        large = self.floor_s + self.step_s + moved / self.large_bytes_per_s
        return np.where(sizes <= self.switch_bytes, small, large)


_VLLM_RANKS: Final = (2, 4, 6, 8)
_VLLM_GRANULE_BYTES: Final = 16
_VLLM_LARGEST_BYTES: Final = {  # by compute capability and ranks
    90: {2: 64 * MEBI, 4: 32 * MEBI, 6: 512 * KIBI, 8: 256 * KIBI},
    100: {2: 2 * MEBI, 4: 2 * MEBI, 6: 1 * MEBI, 8: 1 * MEBI},
    103: {2: 4 * MEBI, 4: 4 * MEBI, 6: 8 * MEBI, 8: 4 * MEBI},
}
_VLLM_DEFAULT_BYTES: Final = 8 * MEBI


@dataclass(frozen=True)
class PeerAccess:
    r"""Time of an all-reduce by a kernel that reads or writes the peers' buffers.

    .. math::

        T(S) = a_1 + (n-1) S/B_1 \; (S \le X), \qquad T(S) = a_2 + f S/B_2 \; (S > X)

    with :math:`f = 2 (n-1)/n`: one shot with one barrier, then two shots where there is such a kernel, as in
    ``csrc/custom_all_reduce.cuh`` [vllm-custom-all-reduce]_. Starts lower than a library and grows
    :math:`n/2` times as fast, so it helps a plain step more than a verify step. Peer access must be direct:
    staged through host memory it is an order of magnitude slower.
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
        """Time of messages of any size."""
        sizes = _sizes(size_bytes)
        one = self.one_shot_floor_s + (self.num_ranks - 1) * sizes / self.one_shot_bytes_per_s
        moved = ring_factor(self.num_ranks) * sizes
        two = self.two_shot_floor_s + moved / self.two_shot_bytes_per_s
        return np.where(sizes <= self.switch_bytes, one, two)


def vllm_kernel(
    num_ranks: int, size_bytes: float, *, fully_nvlinked: bool, compute_capability: int
) -> str:
    """Kernel that vLLM's custom all-reduce takes: ``one_shot``, ``two_shot`` or ``library``.

    From ``csrc/custom_all_reduce.cuh`` and ``custom_all_reduce.py`` [vllm-custom-all-reduce]_; SGLang has the
    same rule. More than two GPUs without NVLink get the library. Compute capability is 90 for H100.
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


@dataclass(frozen=True)
class AllReducePrior:
    r"""Log-normal prior of the time of an all-reduce.

    .. math:: \ln T(S) \sim \mathcal{N}(\ln T_0(S), \sigma^2)

    One :math:`\sigma` moves all sizes together: machines of a class differ as a whole, threefold with the
    same GPUs. Holds for collectives in a graph or back to back; a launch by the host costs 20 to 90 µs
    instead. ``data/allreduce_priors.toml`` has the numbers and their sources.
    """

    interconnect: str  # its class
    kernel: str  # nccl, engine (of vLLM, SGLang and others) or nccl_symmetric
    law: TwoProtocols | PeerAccess
    log_sd: float

    def at(self, size_bytes: ArrayLike) -> Array:
        """Median time of messages of 1 KiB to some MiB."""
        return self.law.at(size_bytes)


def allreduce_prior(interconnect: str, num_ranks: int, *, kernel: str = "nccl") -> AllReducePrior:
    """Prior of a class of interconnects, a number of ranks and a kernel.

    Between measured numbers of ranks, logarithms of the law's numbers are linear in that of the ranks; beyond
    them the bandwidths of the nearest hold and the floor grows as the steps of the ring (above 8 ranks of a
    tree) do. The spread is then 1.3 times as wide, a judgement.
    """
    kernels = prior_classes()
    if interconnect not in kernels:
        raise UnknownKeyError("interconnect", interconnect, list(kernels))
    if kernel not in kernels[interconnect]:
        raise UnknownKeyError(
            f"all-reduce kernel on {interconnect}", kernel, list(kernels[interconnect])
        )
    table = _tables()[interconnect, kernel]
    law = _library(table, num_ranks) if "floor_us" in table else _engine(table, num_ranks)
    return AllReducePrior(
        interconnect=interconnect,
        kernel=kernel,
        law=law,
        log_sd=table["log_sd"] * (1.0 if num_ranks in table["ranks"] else 1.3),
    )


@cache
def prior_classes() -> Mapping[str, tuple[str, ...]]:
    """Classes of interconnects that have a prior, and the kernels of each."""
    found: dict[str, tuple[str, ...]] = {}
    for interconnect, kernel in _tables():
        found[interconnect] = (*found.get(interconnect, ()), kernel)
    return MappingProxyType(found)


@cache
def _tables() -> Mapping[tuple[str, str], dict[str, Any]]:
    """The tables of the file by class and kernel."""
    text = resources.files("specmodel").joinpath("data", "allreduce_priors.toml").read_text("utf-8")
    values = tomllib.loads(text)
    tables = [*values["library"], *values["engine"]]
    return {(table["interconnect"], table["kernel"]): table for table in tables}


def _library(table: Mapping[str, Any], num_ranks: int) -> TwoProtocols:
    """The law of a library."""
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
    """The law of an engine's kernel, whose floor hardly grows with the ranks."""
    measured = table["ranks"]
    one_shot = PeerAccess(
        num_ranks=num_ranks,
        one_shot_floor_s=_between(measured, table["one_shot_floor_us"], num_ranks) * MICRO,
        one_shot_bytes_per_s=_between(measured, table["one_shot_gb_per_s"], num_ranks) * GIGA,
    )
    if "switch_kib" not in table:
        return one_shot
    return replace(
        one_shot,
        two_shot_floor_s=_between(measured, table["two_shot_floor_us"], num_ranks) * MICRO,
        two_shot_bytes_per_s=_between(measured, table["two_shot_gb_per_s"], num_ranks) * GIGA,
        switch_bytes=_between(measured, table["switch_kib"], num_ranks) * KIBI,
    )


def _between(
    measured: Sequence[int], values: Sequence[float], num_ranks: int, *, logarithm: bool = True
) -> float:
    """A value between those measured; that of the nearest number of ranks beyond them."""
    places = np.log2(measured)
    if logarithm:
        return float(np.exp(np.interp(math.log2(num_ranks), places, np.log(values))))
    return float(np.interp(math.log2(num_ranks), places, values))


def _floor(measured: Sequence[int], values: Sequence[float], num_ranks: int) -> float:
    """The floor: between those measured, or carried with the steps of a ring or a tree."""
    nearest = min(max(num_ranks, measured[0]), measured[-1])
    steps = [_steps(nearest), _steps(num_ranks)]
    share = 0.75  # of a floor that grows with the steps; the rest is the launch. A judgement
    growth = 1.0 - share + share * steps[1] / steps[0]
    return _between(measured, values, nearest) * growth


def _steps(num_ranks: int) -> float:
    """The steps of an all-reduce: a ring up to 8 ranks, a tree beyond."""
    if num_ranks <= LARGEST_RING:
        return 2.0 * (num_ranks - 1)
    return 2.0 * (LARGEST_RING - 1) * math.log2(num_ranks) / math.log2(LARGEST_RING)
