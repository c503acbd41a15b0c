"""The packaged table of measured all-reduces."""

import csv
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from specmodel.units import MICRO

Array = NDArray[np.float64]

FOLDER: Final = Path(__file__).resolve().parents[3] / "calibration" / "data" / "allreduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGroup:
    """Measured all-reduces of one machine, library, number of ranks and capture mode."""

    name: str  # of the group
    source_key: str  # key in the register of sources
    library: str  # as the source has them
    library_version: str
    gpu: str
    interconnect: str
    interconnect_class: str  # class of the prior that it belongs to
    kernel: str  # ``nccl``, ``engine``, ``nccl_symmetric`` or ``nccl_and_add``
    launch: str  # ``graph``, ``back_to_back``, ``single_process`` or ``unknown``
    num_ranks: int  # ranks in all, and nodes
    num_nodes: int
    size_bytes: Array  # message per rank, rising, [bytes]
    time_s: Array


@cache
def measured_groups() -> tuple[MeasuredGroup, ...]:
    """Return the groups of the packaged table."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in _rows("points.csv"):
        pair = (float(row["size_bytes"]), float(row["time_us"]) * MICRO)
        points.setdefault(row["group"], []).append(pair)
    return tuple(_group(row, points[row["group"]]) for row in _rows("groups.csv"))


def measured_group(name: str) -> MeasuredGroup:
    """Return one group of the packaged table."""
    return next(group for group in measured_groups() if group.name == name)


def table_facts() -> dict[str, Any]:
    """Return what the table includes and what was left out."""
    return tomllib.loads((FOLDER / "table.toml").read_text(encoding="utf-8"))


def _rows(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a file."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _group(row: dict[str, str], points: list[tuple[float, float]]) -> MeasuredGroup:
    """Return the record of a group."""
    sizes, times = np.array(sorted(points)).T
    return MeasuredGroup(
        name=row["group"],
        source_key=row["source_key"],
        library=row["library"],
        library_version=row["library_version"],
        gpu=row["gpu"],
        interconnect=row["interconnect"],
        interconnect_class=row["interconnect_class"],
        kernel=row["kernel"],
        launch=row["launch"],
        num_ranks=int(row["num_ranks"]),
        num_nodes=int(row["num_nodes"]),
        size_bytes=sizes,
        time_s=times,
    )
