"""`allreduce.json`: measured all-reduces with their laws, for a calibration of the physical form."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibration.allreduce.collective_runs import MOST_RANKS
from calibration.allreduce.fitting import AllReduceFit, fit_all_reduce
from calibration.readers.json_text import json_value, number_at, numbers_at, text_at
from calibration.readers.text import read_text
from specmodel.atomic_file import write_text_atomically
from specmodel.errors import FormatError, ParameterError
from specmodel.units import GIGA, MICRO

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
            "floor_us": _rounded(one_shot.one_shot_floor_s / MICRO),
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


def _loaded(path: Path, number: int, value: Mapping[str, Any]) -> MeasuredAllReduce:
    """Return the record of one curve."""
    sizes, times = numbers_at(value, "size_bytes"), numbers_at(value, "time_us")
    ranks = number_at(value, "num_ranks")
    if sizes is None or times is None or ranks is None or not 2 <= ranks <= MOST_RANKS:
        raise FormatError(
            path, f"curve {number} needs size_bytes, time_us and num_ranks", code="malformed"
        )
    try:
        fit = fit_all_reduce(sizes, [time * MICRO for time in times], int(ranks))
    except ParameterError as error:
        raise FormatError(path, f"curve {number}: {error}", code="malformed") from None
    nodes, graph, notes = number_at(value, "num_nodes"), value.get("in_graph"), value.get("notes")
    return MeasuredAllReduce(
        file=text_at(value, "file") or "",
        library=text_at(value, "library") or "unknown",
        library_version=text_at(value, "library_version"),
        gpu=text_at(value, "gpu"),
        num_nodes=None if nodes is None else int(nodes),
        in_graph=graph if isinstance(graph, bool) else None,
        fit=fit,
        notes=tuple(str(note) for note in notes) if isinstance(notes, list) else (),
    )
