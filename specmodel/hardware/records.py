"""Records of the catalogue: a GPU and an interconnect."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from specmodel.errors import ParameterError

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; a cell that no document supports is None.

    Parameters
    ----------
    name : str
        Name in the catalogue.
    aliases : tuple of str
        Other names that find it.
    vendor, architecture : str
        Maker, and compute architecture.
    num_sms : int or None
        Multiprocessors (compute units on AMD), [-].
    memory_bytes : float or None
        Memory, as the device reports it or the label, [B].
    memory_bandwidth_bytes_per_s : float or None
        Datasheet, [B/s].
    measured_read_bandwidth_bytes_per_s : float or None
        What a read kernel reached, [B/s].
    measured_read_write_bytes_per_s : float or None
        What a kernel that reads and writes reached, [B/s].
    l2_bytes : float or None
        Last-level cache of the chip, [B].
    dense_flop_per_s : mapping of str to float
        Dense rates by precision (fp16, bf16, fp8, fp4, int8); a precision without a rate is left out,
        [FLOP/s].
    pcie_generation, pcie_lanes : int or None
        Host link, [-].
    nvlink_bytes_per_s : float or None
        All links of one GPU, both directions together; 0 without, [B/s].
    tdp_w : float or None
        Board power, [W].
    confidence : str
        Of the row: confirmed, secondary or memory.
    weak_cells : mapping of str to str
        Columns of the table whose confidence is less than the row's, and how.
    source_keys : tuple of str
        Registered documents.
    locator, notes : str
        The places in them; remarks.

    Examples
    --------
    >>> from specmodel.hardware import gpu
    >>> card = gpu("h100")
    >>> card.name, card.memory_bandwidth_bytes_per_s / 1e12, card.dense_flop_per_s["bf16"] / 1e12
    ('H100 SXM', 3.35, 989.5)
    """

    name: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    num_sms: int | None
    memory_bytes: float | None
    memory_bandwidth_bytes_per_s: float | None
    measured_read_bandwidth_bytes_per_s: float | None
    measured_read_write_bytes_per_s: float | None
    l2_bytes: float | None
    dense_flop_per_s: Mapping[str, float]
    pcie_generation: int | None
    pcie_lanes: int | None
    nvlink_bytes_per_s: float | None
    tdp_w: float | None
    confidence: str
    weak_cells: Mapping[str, str]
    source_keys: tuple[str, ...]
    locator: str
    notes: str

    def bandwidth_bytes_per_s(self) -> float:
        r"""Datasheet bandwidth, which must be known.

        .. math:: b

        Returns
        -------
        float
            Positive, [B/s].

        Raises
        ------
        ParameterError
            If the catalogue has none, as for a name that leaves the edition open.

        Notes
        -----
        Read kernels reach 0.79 to 0.98 of it on most cards.

        Examples
        --------
        >>> from specmodel.hardware import gpu
        >>> gpu("RTX 5090").bandwidth_bytes_per_s() / 1e9
        1792.0
        """
        if self.memory_bandwidth_bytes_per_s is None:
            raise ParameterError(
                "gpu", self.name, "a device whose memory bandwidth is known", self.notes
            )
        return self.memory_bandwidth_bytes_per_s

    def flop_per_s(self, dtype: str) -> float:
        r"""Dense rate of matrix products on operands stored so.

        .. math:: f

        Parameters
        ----------
        dtype : str
            bf16, fp16, fp8, fp4, nvfp4, mxfp4, int8, w8a8, or weights of 4 bits that are widened (int4,
            awq, gptq, w4a16); any case.

        Returns
        -------
        float
            Positive, [FLOP/s].

        Raises
        ------
        ParameterError
            If the precision is unknown, or this GPU has no rate for it.

        Notes
        -----
        Without sparsity, with FP32 accumulation where a card halves that rate.

        Examples
        --------
        >>> from specmodel.hardware import gpu
        >>> gpu("L40S").flop_per_s("FP8") / 1e12
        733.0
        """
        rate = RATE_OF_DTYPE.get(dtype.casefold().strip())
        if rate is None:
            raise ParameterError(
                "dtype", repr(dtype[:LONGEST_DTYPE]), f"one of {list(RATE_OF_DTYPE)}"
            )
        if rate not in self.dense_flop_per_s:
            known = ", ".join(self.dense_flop_per_s) or "none"
            raise ParameterError(
                "dtype", dtype, f"a precision with a rate on {self.name}", f"known: {known}"
            )
        return self.dense_flop_per_s[rate]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """One kind of link; a cell that no document supports is None.

    Parameters
    ----------
    name : str
        Name in the catalogue.
    aliases : tuple of str
        Short names that find it.
    per_direction_bytes_per_s : float
        Nominal rate of one GPU in one direction, [B/s].
    lanes_or_links : str
        What that rate is made of.
    measured_bytes_per_s : float or None
        Measured in one direction, [B/s].
    peer_latency_s : float or None
        One small transfer between two GPUs, [s].
    allreduce_floor_s : mapping of int to float
        Time of a small all-reduce by number of GPUs, [s].
    allreduce_range : str
        What machines showed, in microseconds.
    confidence : str
        Of the row: confirmed, secondary or memory.
    weak_cells : mapping of str to str
        Columns of the table whose confidence is less than the row's, and how.
    source_keys : tuple of str
        Registered documents.
    locator, notes : str
        The places in them; remarks.

    Examples
    --------
    >>> from specmodel.hardware import interconnect
    >>> link = interconnect("PCIe5")
    >>> link.name, link.measured_bytes_per_s / 1e9, sorted(link.allreduce_floor_s)
    ('PCIe 5.0 x16', 54.0, [2, 4, 8, 16])
    """

    name: str
    aliases: tuple[str, ...]
    per_direction_bytes_per_s: float
    lanes_or_links: str
    measured_bytes_per_s: float | None
    peer_latency_s: float | None
    allreduce_floor_s: Mapping[int, float]
    allreduce_range: str
    confidence: str
    weak_cells: Mapping[str, str]
    source_keys: tuple[str, ...]
    locator: str
    notes: str
