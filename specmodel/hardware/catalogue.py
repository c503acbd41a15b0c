"""Reading the catalogue, and finding a device by a name a user types."""

import csv
import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TypeVar

from specmodel.errors import UnknownKeyError
from specmodel.hardware.records import Gpu, Interconnect
from specmodel.units import GIBI, GIGA, MEBI, MICRO, TERA

LONGEST_NAME = 200
"""A longer text is not a device; the search for close names is quadratic. [characters]"""

Row = Mapping[str, str]
Record = TypeVar("Record", Gpu, Interconnect)


@cache
def gpus() -> Mapping[str, Gpu]:
    r"""Every GPU of the catalogue by its name.

    .. math:: \text{name} \mapsto \text{GPU}

    Returns
    -------
    mapping of str to Gpu
        In the order of the table; cannot be changed.

    Notes
    -----
    Read once from ``data/gpus.csv``; ``data/gpus.toml`` says what the columns mean.

    Examples
    --------
    >>> gpus()["B300"].memory_bandwidth_bytes_per_s / 1e12
    8.0
    """
    return MappingProxyType({row["gpu"]: _gpu(row) for row in _rows("gpus.csv")})


@cache
def interconnects() -> Mapping[str, Interconnect]:
    r"""Every interconnect of the catalogue by its name.

    .. math:: \text{name} \mapsto \text{interconnect}

    Returns
    -------
    mapping of str to Interconnect
        In the order of the table; cannot be changed.

    Notes
    -----
    Read once from ``data/interconnects.csv``.

    Examples
    --------
    >>> interconnects()["PCIe 3.0 x16"].per_direction_bytes_per_s / 1e9
    15.75
    """
    return MappingProxyType({row["name"]: _interconnect(row) for row in _rows("interconnects.csv")})


def gpu(name: str) -> Gpu:
    r"""GPU of that name or alias.

    .. math:: \text{name} \mapsto \text{GPU}

    Parameters
    ----------
    name : str
        In any case, with or without the maker, blanks, hyphens and underscores.

    Returns
    -------
    Gpu

    Raises
    ------
    UnknownKeyError
        If there is none; it names the closest.

    Notes
    -----
    A family's bare name finds its usual form: V100, A100, H100 and H200 are the SXM ones, A800 is the
    PCIe card.

    Examples
    --------
    >>> gpu("nvidia-rtx_pro_6000 server").name
    'RTX PRO 6000 Blackwell Server'
    """
    return _found("GPU", name, gpus(), _gpu_names())


def interconnect(name: str) -> Interconnect:
    r"""Interconnect of that name or alias.

    .. math:: \text{name} \mapsto \text{interconnect}

    Parameters
    ----------
    name : str
        In any case: ``pcie5``, ``NVLink 4``, a full name.

    Returns
    -------
    Interconnect

    Raises
    ------
    UnknownKeyError
        If there is none; it names the closest.

    Notes
    -----
    The bare name of an NVLink generation is its switched form.

    Examples
    --------
    >>> interconnect("NVLink-4").per_direction_bytes_per_s / 1e9
    450.0
    """
    return _found("interconnect", name, interconnects(), _interconnect_names())


def _folded(name: str) -> str:
    """Name without case, maker, marks and blanks."""
    return re.sub(r"^(nvidia|amd)|[\W_]", "", re.sub(r"[\W_]+", " ", name).strip().casefold())


@cache
def _gpu_names() -> Mapping[str, str]:
    return _names(gpus())


@cache
def _interconnect_names() -> Mapping[str, str]:
    return _names(interconnects())


def _names(records: Mapping[str, Record]) -> Mapping[str, str]:
    """Catalogue name of every folded name and alias; names win over aliases."""
    names = {_folded(alias): each.name for each in records.values() for alias in each.aliases}
    return {**names, **{_folded(name): name for name in records}}


def _found(what: str, name: str, records: Mapping[str, Record], names: Mapping[str, str]) -> Record:
    short = str(name)[:LONGEST_NAME]
    folded = _folded(short)
    if folded in names and len(short) == len(str(name)):
        return records[names[folded]]
    close = difflib.get_close_matches(folded, names, n=8, cutoff=0.5)
    closest = list(dict.fromkeys(names[each] for each in close))
    raise UnknownKeyError(what, short, closest[:5] or list(records))


def _rows(file: str) -> list[dict[str, str]]:
    text = resources.files("specmodel").joinpath("data", file).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def _number(row: Row, column: str, unit: float = 1.0) -> float | None:
    return float(row[column]) * unit if row[column] else None


def _count(row: Row, column: str) -> int | None:
    return int(row[column]) if row[column] else None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(";")))


def _weak(row: Row) -> Mapping[str, str]:
    pairs = (each.partition(":") for each in _listed(row["weak_cells"]))
    return MappingProxyType({column: confidence for column, _, confidence in pairs})


def _gpu(row: Row) -> Gpu:
    """Record of one row."""
    rates = {
        "fp16": _number(row, "fp16_dense_tflop_per_s", TERA),
        "bf16": _number(row, "bf16_dense_tflop_per_s", TERA),
        "fp8": _number(row, "fp8_dense_tflop_per_s", TERA),
        "fp4": _number(row, "fp4_dense_tflop_per_s", TERA),
        "int8": _number(row, "int8_dense_top_per_s", TERA),
    }
    return Gpu(
        name=row["gpu"],
        aliases=_listed(row["aliases"]),
        vendor=row["vendor"],
        architecture=row["sm_arch"],
        num_sms=_count(row, "sm_count"),
        memory_bytes=_number(row, "memory_gib", GIBI),
        memory_bandwidth_bytes_per_s=_number(row, "memory_bandwidth_gb_per_s", GIGA),
        measured_read_bandwidth_bytes_per_s=_number(row, "measured_read_bandwidth_gb_per_s", GIGA),
        measured_read_write_bytes_per_s=_number(row, "measured_read_write_gb_per_s", GIGA),
        l2_bytes=_number(row, "l2_mib", MEBI),
        dense_flop_per_s=MappingProxyType(
            {name: rate for name, rate in rates.items() if rate is not None}
        ),
        pcie_generation=_count(row, "pcie_gen"),
        pcie_lanes=_count(row, "pcie_lanes"),
        nvlink_bytes_per_s=_number(row, "nvlink_total_gb_per_s", GIGA),
        tdp_w=_number(row, "tdp_w"),
        confidence=row["confidence"],
        weak_cells=_weak(row),
        source_keys=_listed(row["source_keys"]),
        locator=row["locator"],
        notes=row["notes"],
    )


def _interconnect(row: Row) -> Interconnect:
    """Record of one row."""
    floors = {count: row[f"allreduce_latency_us_{count}_gpus"] for count in (2, 4, 8, 16)}
    return Interconnect(
        name=row["name"],
        aliases=_listed(row["aliases"]),
        per_direction_bytes_per_s=float(row["per_direction_gb_per_s"]) * GIGA,
        lanes_or_links=row["lanes_or_links"],
        measured_bytes_per_s=_number(row, "measured_unidirectional_gb_per_s", GIGA),
        peer_latency_s=_number(row, "p2p_latency_us", MICRO),
        allreduce_floor_s=MappingProxyType(
            {count: float(text) * MICRO for count, text in floors.items() if text}
        ),
        allreduce_range=row["allreduce_latency_range_us"],
        confidence=row["confidence"],
        weak_cells=_weak(row),
        source_keys=_listed(row["source_keys"]),
        locator=row["locator"],
        notes=row["notes"],
    )
