"""Laws fitted to a measured all-reduce, and allreduce.json, which keeps it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from calibration.allreduce.runs import MOST_RANKS
from calibration.readers.json_text import json_value, number_at, text_at
from calibration.readers.text import read_text
from specmodel.cost.allreduce import AllReduceCurve, PeerAccess, TwoProtocols, ring_factor
from specmodel.errors import FormatError, ParameterError
from specmodel.files import write_text_atomically
from specmodel.records import from_record
from specmodel.units import GIGA, MICRO

Array = NDArray[np.float64]

# Sizes below which nothing is fitted. [-]
FEWEST: Final = 3

_ROUNDS = 6
_RESOLUTION = 0.01
_BEHIND_SWITCH = 2
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceFit:
    """A measured all-reduce and the laws that describe it."""

    curve: AllReduceCurve  # as measured
    library_law: TwoProtocols  # two protocols
    library_residuals: Array  # relative, at the sizes of the curve
    one_shot_law: PeerAccess  # one shot, within its window
    one_shot_residuals: Array  # relative, at the sizes of the window

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.library_law.num_ranks

    @property
    def has_floor(self) -> bool:
        """Whether the sizes tell the floor: where time is proportional to size, only a bound is set."""
        return self.library_law.floor_s > float(self.curve.time_s.min()) * _LEAST_SHARE

    @property
    def has_one_shot_floor(self) -> bool:
        """Whether the sizes of the window tell the floor of one shot."""
        return self.one_shot_law.one_shot_floor_s > float(self.curve.time_s.min()) * _LEAST_SHARE

    @property
    def library_median_error(self) -> float:
        """Median of the absolute residuals of two protocols, [-]."""
        return float(np.median(np.abs(self.library_residuals)))

    @property
    def left_out_median_error(self) -> float:
        """Median error of the curve with one size left out; nan with two sizes, [-]."""
        errors = np.abs(self.curve.left_out_errors())
        return float(np.median(errors)) if errors.size else math.nan

    @property
    def one_shot_largest_bytes(self) -> float:
        """Largest size of the window in which one shot describes the curve, [bytes]."""
        return float(self.curve.size_bytes[self.one_shot_residuals.size - 1])


def fit_all_reduce(size_bytes: ArrayLike, time_s: ArrayLike, num_ranks: int) -> AllReduceFit:
    r"""Fit of a measured all-reduce.

    .. math:: \min_{a, B_s, d, B_l, X} \sum_i |T(S_i)/T_i - 1|

    For every switch between two sizes the other parameters are a linear least-squares problem with
    bounds; reweighting makes it the sum of relative errors, so that a slow size does not move the
    rest.
    """
    curve = AllReduceCurve.from_points(size_bytes, time_s)
    if curve.size_bytes.size < FEWEST:
        raise ParameterError("size_bytes", curve.size_bytes.size, f"at least {FEWEST} sizes")
    library = fit_two_protocols(curve, num_ranks)
    one_shot, window = fit_one_shot(curve, num_ranks)
    return AllReduceFit(
        curve=curve,
        library_law=library,
        library_residuals=library.at(curve.size_bytes) / curve.time_s - 1.0,
        one_shot_law=one_shot,
        one_shot_residuals=one_shot.at(curve.size_bytes[:window]) / curve.time_s[:window] - 1.0,
    )


def fit_two_protocols(curve: AllReduceCurve, num_ranks: int) -> TwoProtocols:
    r"""Two protocols through a curve; one where a second does not help.

    .. math:: T(S) = a + f S/B_s, \quad a + d + f S/B_l

    The switch lies at the geometric mean of the two sizes between which it is; with fewer than six
    sizes there is one protocol.
    """
    sizes, times = curve.size_bytes, curve.time_s
    best, switch, values = math.inf, math.inf, np.zeros(4)
    moved = ring_factor(num_ranks) * sizes
    inner = np.sqrt(sizes[:-1] * sizes[1:])
    usable = inner[_BEHIND_SWITCH - 1 : inner.size - _BEHIND_SWITCH + 1]
    for candidate in [math.inf, *(usable.tolist() if sizes.size >= 3 * _BEHIND_SWITCH else [])]:
        small = sizes <= candidate
        large = ~small
        columns = np.column_stack([np.ones_like(sizes), moved * small, large, moved * large])
        solution = _relative_fit(columns, times)
        error = float(np.abs(columns @ solution / times - 1.0).sum())
        if error < best * (1.0 - _LEAST_SHARE) - _LEAST_SHARE:
            best, switch, values = error, candidate, solution
    floor, slow, step, fast = values.tolist()
    return TwoProtocols(
        num_ranks=num_ranks,
        floor_s=max(floor, float(times.min()) * _LEAST_SHARE),
        small_bytes_per_s=1.0 / slow if slow > 0 else math.inf,
        step_s=step if math.isfinite(switch) else 0.0,
        large_bytes_per_s=1.0 / fast if fast > 0 else math.inf,
        switch_bytes=switch,
    )


def fit_one_shot(
    curve: AllReduceCurve, num_ranks: int, *, tolerance: float = 0.05
) -> tuple[PeerAccess, int]:
    """One-shot law through the small sizes of a curve, and how many of them it describes.

    .. math:: T(S) = a_1 + (n - 1) S/B_1

    The window is the largest with a median error within the tolerance and no size at three times it.
    """
    sizes, times = curve.size_bytes, curve.time_s
    for window in range(sizes.size, FEWEST - 1, -1):
        columns = np.column_stack([np.ones(window), (num_ranks - 1) * sizes[:window]])
        floor, slope = _relative_fit(columns, times[:window]).tolist()
        errors = np.abs(columns @ (floor, slope) / times[:window] - 1.0)
        good = np.median(errors) <= tolerance and errors.max() <= 3.0 * tolerance
        if good or window == FEWEST:
            break
    law = PeerAccess(
        num_ranks=num_ranks,
        one_shot_floor_s=max(floor, float(times.min()) * _LEAST_SHARE),
        one_shot_bytes_per_s=1.0 / slope if slope > 0 else math.inf,
    )
    return law, window


def _relative_fit(columns: Array, times: Array) -> Array:
    """Return coefficients, not negative, with the least sum of relative errors."""
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0] = 1.0
    weights = 1.0 / times
    solution = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        solution = nnls(columns / scale * weights[:, None], times * weights)[0] / scale
        errors = np.abs(columns @ solution / times - 1.0)
        weights = 1.0 / (times * np.sqrt(np.maximum(errors, _RESOLUTION)))
    return np.asarray(solution)


# Version of the layout that is written.
SCHEMA_VERSION: Final = 1

# What tells such a file from others.
KIND: Final = "all_reduce"

_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAllReduce:
    """One measured all-reduce and its laws."""

    file: str  # name of the file that it was read from, without folders
    library: str  # ``nccl``, ``rccl``, or the name that a table gives
    library_version: str | None  # none where the file does not say
    gpu: str | None
    num_nodes: int | None  # none where the file does not say
    # whether it was launched in a CUDA graph; None where the file does not say
    in_graph: bool | None
    fit: AllReduceFit  # curve and laws
    notes: tuple[str, ...] = ()  # what a user should know


def all_reduce_json(measured: Sequence[MeasuredAllReduce]) -> dict[str, Any]:
    """Return measured all-reduces as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "curves": [_curve_json(one) for one in measured],
    }


def save_all_reduces(path: Path | str, measured: Sequence[MeasuredAllReduce]) -> None:
    """Write measured all-reduces; the old file stays whole when that fails."""
    text = json.dumps(all_reduce_json(measured), indent=1, allow_nan=False)
    write_text_atomically(path, text + "\n")


def load_all_reduces(path: Path | str) -> tuple[MeasuredAllReduce, ...]:
    """Return the all-reduces of a file that `save_all_reduces` wrote."""
    source = read_text(path)
    try:
        value = json_value(source)
        is_ours = text_at(value, "kind") == KIND
    except FormatError:
        if source.text.lstrip().startswith("{"):
            raise
        is_ours = False
    if not is_ours:
        raise FormatError(
            source.path,
            "no file of `specmodel allreduce fit`; give that command logs or a table of sizes and times, "
            "then its output here",
            code="wrong_kind",
        )
    version = number_at(value, "schema_version")
    if version is None or not 1 <= version <= SCHEMA_VERSION:
        raise FormatError(
            source.path,
            f"schema_version {version} is not known to this version, which knows {SCHEMA_VERSION}; "
            "update specmodel",
            code="newer_version",
        )
    curves = value.get("curves")
    if not isinstance(curves, list):
        raise FormatError(source.path, "curves must be a list", code="malformed")
    return tuple(_loaded(source.path, number, one) for number, one in enumerate(curves, start=1))


def _curve_json(one: MeasuredAllReduce) -> dict[str, Any]:
    """Return one all-reduce as JSON."""
    fit = one.fit
    law, one_shot = fit.library_law, fit.one_shot_law
    return {
        "file": one.file,
        "library": one.library,
        "library_version": one.library_version,
        "gpu": one.gpu,
        "num_ranks": fit.num_ranks,
        "num_nodes": one.num_nodes,
        "in_graph": one.in_graph,
        "size_bytes": [int(size) for size in fit.curve.size_bytes],
        "time_us": [_rounded(time / MICRO) for time in fit.curve.time_s],
        "two_protocols": {
            "floor_us": _rounded(law.floor_s / MICRO) if fit.has_floor else None,
            "small_bus_gb_per_s": _rounded(law.small_bytes_per_s / GIGA),
            "step_us": _rounded(law.step_s / MICRO),
            "large_bus_gb_per_s": _rounded(law.large_bytes_per_s / GIGA),
            "switch_bytes": _rounded(law.switch_bytes),
            "residuals": [_rounded(error) for error in fit.library_residuals],
        },
        "one_shot": {
            "floor_us": _rounded(one_shot.one_shot_floor_s / MICRO)
            if fit.has_one_shot_floor
            else None,
            "gb_per_s": _rounded(one_shot.one_shot_bytes_per_s / GIGA),
            "largest_bytes": int(fit.one_shot_largest_bytes),
            "residuals": [_rounded(error) for error in fit.one_shot_residuals],
        },
        "left_out_median_error": _rounded(fit.left_out_median_error),
        "notes": list(one.notes),
    }


def _rounded(value: float) -> float | None:
    """Return a number with six significant digits; None where it is not finite."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True)
class _Written:
    """What is read of a written curve; its laws are fitted again, so that they agree with the points."""

    size_bytes: tuple[float, ...]
    time_us: tuple[float, ...]
    num_ranks: int
    file: str = ""
    library: str = "unknown"
    library_version: str | None = None
    gpu: str | None = None
    num_nodes: int | None = None
    in_graph: bool | None = None
    notes: tuple[str, ...] = ()
    two_protocols: Any = None
    one_shot: Any = None
    left_out_median_error: float | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.num_ranks <= MOST_RANKS:
            raise ParameterError("num_ranks", self.num_ranks, f"from 2 to {MOST_RANKS}")

    def measured(self) -> MeasuredAllReduce:
        """The all-reduce with its laws."""
        times_s = [time * MICRO for time in self.time_us]
        return MeasuredAllReduce(
            file=self.file,
            library=self.library,
            library_version=self.library_version,
            gpu=self.gpu,
            num_nodes=self.num_nodes,
            in_graph=self.in_graph,
            fit=fit_all_reduce(self.size_bytes, times_s, self.num_ranks),
            notes=self.notes,
        )


def _loaded(path: Path, number: int, value: Any) -> MeasuredAllReduce:
    """One curve of a file."""
    try:
        return from_record(_Written, value).measured()
    except ParameterError as error:
        raise FormatError(path, f"curve {number}: {error}", code="malformed") from None
