"""The catalogue of GPUs and interconnects: datasheet rates with measured ones beside them.

``data/gpus.csv`` and ``data/interconnects.csv`` hold more columns than are read here, with the source of
each row; the ``.toml`` beside them says what the columns mean.
"""

import csv
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TypeVar

from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.units import GIBI, GIGA, TERA

LONGEST_NAME = 200
"""A longer text is not a device; the search for close names is quadratic. [characters]"""

LONGEST_DTYPE = 40
"""What of an unknown precision is repeated in a message. [characters]"""

RATE_OF_DTYPE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
        **dict.fromkeys(("fp16", "float16", "half"), "fp16"),
        **dict.fromkeys(("fp8", "float8"), "fp8"),
        **dict.fromkeys(("fp4", "nvfp4", "mxfp4"), "fp4"),
        **dict.fromkeys(("int8", "w8a8"), "int8"),
        **dict.fromkeys(("int4", "awq", "gptq", "w4a16"), "fp16"),
    }
)
"""Rate at which products of a stored precision run; 4-bit integers are widened to 16 bits first. [-]"""


@dataclass(frozen=True)
class Gpu:
    """One GPU; a cell that no document supports is None.

    Bandwidth of the datasheet and what a read kernel reached; dense rates by precision (fp16, bf16, fp8,
    fp4, int8); NVLink counts all links of one GPU in both directions, 0 without.
    """

    name: str
    aliases: tuple[str, ...]
    memory_bytes: float | None
    memory_bandwidth_bytes_per_s: float | None
    measured_read_bandwidth_bytes_per_s: float | None
    dense_flop_per_s: Mapping[str, float]
    pcie_generation: int | None
    nvlink_bytes_per_s: float | None
    notes: str

    def bandwidth_bytes_per_s(self) -> float:
        """Datasheet bandwidth, which must be known; read kernels reach 0.79 to 0.98 of it on most cards."""
        if self.memory_bandwidth_bytes_per_s is None:
            allowed = "a device whose memory bandwidth is known"
            raise ParameterError("gpu", self.name, allowed, self.notes)
        return self.memory_bandwidth_bytes_per_s

    def flop_per_s(self, dtype: str) -> float:
        """Dense rate of products on operands stored so, FP32 accumulation where a card halves that rate."""
        rate = RATE_OF_DTYPE.get(dtype.casefold().strip())
        if rate is None:
            short = repr(dtype[:LONGEST_DTYPE])
            raise ParameterError("dtype", short, f"one of {list(RATE_OF_DTYPE)}")
        if rate not in self.dense_flop_per_s:
            known = f"known: {', '.join(self.dense_flop_per_s) or 'none'}"
            raise ParameterError("dtype", dtype, f"a precision with a rate on {self.name}", known)
        return self.dense_flop_per_s[rate]


@dataclass(frozen=True)
class Interconnect:
    """One kind of link, with the nominal rate of one GPU in one direction."""

    name: str
    aliases: tuple[str, ...]
    per_direction_bytes_per_s: float


Device = TypeVar("Device", Gpu, Interconnect)


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every GPU of the catalogue by its name, in the order of the table."""
    return MappingProxyType({row["gpu"]: _gpu(row) for row in rows("gpus.csv")})


@cache
def interconnects() -> Mapping[str, Interconnect]:
    """Every interconnect of the catalogue by its name, in the order of the table."""
    return MappingProxyType(
        {
            row["name"]: Interconnect(
                name=row["name"],
                aliases=_listed(row["aliases"]),
                per_direction_bytes_per_s=float(row["per_direction_gb_per_s"]) * GIGA,
            )
            for row in rows("interconnects.csv")
        }
    )


def gpu(name: str) -> Gpu:
    """GPU of that name or alias, in any case, with or without the maker, blanks, hyphens and underscores.

    A family's bare name finds its usual form: V100, A100, H100 and H200 are the SXM ones, A800 is the
    PCIe card.

    >>> gpu("nvidia-rtx_pro_6000 server").name
    'RTX PRO 6000 Blackwell Server'
    """
    return _found("GPU", name, gpus)


def interconnect(name: str) -> Interconnect:
    """Interconnect of that name or alias; the bare name of an NVLink generation is its switched form.

    >>> interconnect("NVLink-4").per_direction_bytes_per_s / 1e9
    450.0
    """
    return _found("interconnect", name, interconnects)


def rows(file: str) -> list[dict[str, str]]:
    """Rows of a table in ``data``, as text."""
    text = resources.files("specmodel").joinpath("data", file).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def _folded(name: str) -> str:
    """Name without case, maker, marks and blanks."""
    return re.sub(r"^(nvidia|amd)|[\W_]", "", re.sub(r"[\W_]+", " ", name).strip().casefold())


@cache
def _names(catalogue: Callable[[], Mapping[str, Gpu | Interconnect]]) -> Mapping[str, str]:
    """Catalogue name of every folded name and alias; names win over aliases."""
    devices = catalogue()
    names = {_folded(alias): each.name for each in devices.values() for alias in each.aliases}
    return {**names, **{_folded(name): name for name in devices}}


def _found(what: str, name: str, catalogue: Callable[[], Mapping[str, Device]]) -> Device:
    devices, names = catalogue(), _names(catalogue)
    short = str(name)[:LONGEST_NAME]
    folded = _folded(short)
    if folded in names and len(short) == len(str(name)):
        return devices[names[folded]]
    close = difflib.get_close_matches(folded, names, n=8, cutoff=0.5)
    closest = list(dict.fromkeys(names[each] for each in close))
    raise UnknownKeyError(what, short, closest[:5] or list(devices))


_FLOATS = ("fp16", "bf16", "fp8", "fp4")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(";")))


def _gpu(row: Mapping[str, str]) -> Gpu:
    def number(column: str, unit: float) -> float | None:
        return float(row[column]) * unit if row[column] else None

    rates = {
        **{name: number(f"{name}_dense_tflop_per_s", TERA) for name in _FLOATS},
        "int8": number("int8_dense_top_per_s", TERA),
    }
    return Gpu(
        name=row["gpu"],
        aliases=_listed(row["aliases"]),
        memory_bytes=number("memory_gib", GIBI),
        memory_bandwidth_bytes_per_s=number("memory_bandwidth_gb_per_s", GIGA),
        measured_read_bandwidth_bytes_per_s=number("measured_read_bandwidth_gb_per_s", GIGA),
        dense_flop_per_s=MappingProxyType(
            {name: rate for name, rate in rates.items() if rate is not None}
        ),
        pcie_generation=int(row["pcie_gen"]) if row["pcie_gen"] else None,
        nvlink_bytes_per_s=number("nvlink_total_gb_per_s", GIGA),
        notes=row["notes"],
    )
