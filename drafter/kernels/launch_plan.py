"""How a product is launched: checks of its arguments, tiles, table of tiles."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import torch

from drafter.kernels.numerics import Cut
from specmodel.errors import FormatError, ParameterError

STORAGE_TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Types that weights, activations and the cache may have."""

INDEX_TYPES = (torch.int32, torch.int64)
"""Types that tokens, rows and positions may have."""

VECTOR_BYTES: Final = 16
"""Widest load of one thread on every target, [B]."""


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int],
    types: Sequence[torch.dtype],
    like: torch.Tensor | None = None,
) -> None:
    """Refuse a tensor that a kernel would misread: once, when buffers are made or filled."""
    if tuple(tensor.shape) != tuple(shape):
        raise ParameterError(name, tuple(tensor.shape), f"of shape {tuple(shape)}")
    if tensor.dtype not in types:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in types)
        raise ParameterError(name, str(tensor.dtype).removeprefix("torch."), f"one of {allowed}")
    if not tensor.is_contiguous():
        raise ParameterError(name, f"strides {tensor.stride()}", "contiguous")
    if like is not None and tensor.device != like.device:
        raise ParameterError(name, f"on {tensor.device}", f"on {like.device}")


def check_range(name: str, value: int, low: int, high: int, hint: str = "") -> None:
    """Refuse a count that a kernel has no room for.

    Bounds come from registers and bit masks, so they are those of one launch.
    """
    if not low <= value <= high:
        raise ParameterError(name, value, f"between {low} and {high}", hint)


MATVEC_TOKENS: Final = 8
"""Most tokens that go through fp32 sums; more go through tensor cores, [tokens]."""

FUSED_NORM_TOKENS: Final = 4
"""Most tokens whose norm is part of a product: with more, it takes the registers that keep the memory
busy, [tokens]."""

PRODUCT_REGISTERS: Final = 128
"""Registers that a thread of a product may take, [-]. Without a number the assembler keeps fewer and
parks single values in memory; with it four programs of four warps still share a multiprocessor."""

GATED_REGISTERS: Final = 168
"""The same for two products in one launch, [-]."""

HEAD_REGISTERS: Final = 192
"""The same for the head, which orders ids as 64-bit keys, [-]."""

MOST_DOT_TOKENS: Final = 64
"""Tokens of one tile of the tensor-core path, [tokens]."""

LEAST_DOT_TOKENS: Final = 16
"""Narrowest tile of the tensor-core path, [tokens]."""

_TABLE_BYTES: Final = 2  # of a weight in the table and the rule
TileKey = tuple[int, int, int, int]
_OVERLAPS: ContextVar[bool] = ContextVar("overlaps", default=False)
_PLANNED_FOR: ContextVar[int | None] = ContextVar("planned_for", default=None)


_TRIED: ContextVar[tuple[TileKey | None, "Tiles | None"]] = ContextVar(
    "tried", default=(None, None)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How one product of weights and tokens is cut.

    All powers of two.
    """

    block_n: int
    block_k: int
    num_warps: int
    num_stages: int


def power_of_two(value: int) -> int:
    r"""Smallest power of two that is not below a count.

    .. math:: 2^{\lceil \log_2 n \rceil}

    Shapes of tiles have to be powers of two.
    """
    return 1 << max(0, value - 1).bit_length()


def default_tiles(sm: int, tokens: int, rows: int, width: int, *, is_wide: bool = False) -> Tiles:
    """Tiles by rule, where nothing was measured.

    Up to 8 tokens: 4 rows by 1024 columns in 4 warps, so that many 128-bit loads are under way; 512 past 2
    tokens and, for what is wide, 256 past 4, since the sums of more tokens leave no registers for a wider
    tile (triton 3.6 spills) (drafter.md 12). More tokens: 64 rows where that
    still gives the chip some hundred programs, else 32 or 16; of each the 128 bytes of a cache line,
    four tiles ahead: 128 columns spill on some targets. Without a GPU the interpreter runs, which pays
    by the program: there 128 rows at once.
    """
    if tokens <= MATVEC_TOKENS:
        widest = 1024 if tokens <= 2 else 256 if is_wide and tokens > 4 else 512
        block_k = min(max(power_of_two(width), 16), widest)
        warps = min(4, max(1, block_k // 64))
        return Tiles(block_n=4 if sm else 128, block_k=block_k, num_warps=warps, num_stages=1)
    block_n = next((size for size in (64, 32) if rows >= 128 * size), 16) if sm else 128
    block_k = min(max(power_of_two(width), 16), 64 if sm else 128)
    return Tiles(block_n=block_n, block_k=block_k, num_warps=4, num_stages=4)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TileRow:
    """One row of the table: what it is found by, tiles, and what it rests on."""

    sm: int
    tokens: int
    rows: int
    width: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    how: str
    record: str = ""

    def __post_init__(self) -> None:
        for name in ("tokens", "rows", "width", "block_n", "block_k", "num_warps"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1 or value & (value - 1):
                raise ParameterError(name, value, "a power of two")
        if self.how not in {"compiled", "measured"} or (self.how == "measured" and not self.record):
            allowed = "compiled, or measured with its record"
            raise ParameterError("how", repr(self.how), allowed)

    @property
    def key(self) -> TileKey:
        """What the row is found by."""
        return self.sm, self.tokens, self.rows, self.width


def shipped_table() -> Path:
    """Place of the table that launches read; in a linked installation the file of the working tree."""
    return Path(str(files("drafter").joinpath("kernels", "launch.toml")))


def read_table(path: Path) -> tuple[TileRow, ...]:
    """Rows of a table."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("tiles", [])
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(path, f"not valid TOML: {error}") from None
    rows = []
    for number, table in enumerate(tables, start=1):
        try:
            rows.append(TileRow(**table))
        except (ParameterError, TypeError) as error:
            raise FormatError(path, f"row {number}: {error}") from None
    return tuple(rows)


@cache
def _table() -> Mapping[TileKey, Tiles]:
    """Rows of the shipped table by (sm, tokens, rows, width), counts as powers of two."""
    names = [each.name for each in fields(Tiles)]
    return {
        row.key: Tiles(**{name: getattr(row, name) for name in names})
        for row in read_table(shipped_table())
    }


@contextmanager
def tried(key: TileKey, tiles: Tiles | None) -> Iterator[None]:
    """Plan one row of the table with other tiles, or by the rule: for a sweep, until the block ends."""
    token = _TRIED.set((key, tiles))
    try:
        yield
    finally:
        _TRIED.reset(token)


def tiles_for(
    sm: int, tokens: int, rows: int, width: int, *, value_bytes: int = 2, is_wide: bool = False
) -> Tiles:
    """Tiles of one product on one kind of GPU.

    Nothing is measured at run time: a first call could fall into the capture of a graph. Rows and rule are
    made for 16-bit weights; fp32 takes half the columns, and past 8 tokens half the rows, so that it fits
    too. drafter.md 13.
    """
    key = (sm, power_of_two(tokens), power_of_two(rows), power_of_two(width))
    asked, other = _TRIED.get()
    row = other if asked == key else _table().get(key)
    tiles = row or default_tiles(sm, tokens, rows, width, is_wide=is_wide)
    if value_bytes == _TABLE_BYTES:
        return tiles
    tiles = replace(tiles, block_k=max(LEAST_DOT_TOKENS, tiles.block_k // 2))
    if tokens <= MATVEC_TOKENS:
        return tiles
    return replace(tiles, block_n=max(LEAST_DOT_TOKENS, tiles.block_n // 2))


@cache
def _capability(device: torch.device) -> int:
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def device_sm(device: torch.device) -> int:
    """Compute capability of a device, as the table writes it.

    Asked once per device. Inside `planned_for` it is the capability named there.
    """
    planned = _PLANNED_FOR.get()
    if planned is not None:
        return planned
    return _capability(device) if device.type == "cuda" else 0


@contextmanager
def planned_for(sm: int) -> Iterator[None]:
    """Plan launches as on a GPU that is not here, for builds without one.

    Holds in this thread, until the block ends.
    """
    token = _PLANNED_FOR.set(sm)
    try:
        yield
    finally:
        _PLANNED_FOR.reset(token)


def dot_tokens(tokens: int) -> int:
    """Tokens in one tile of the tensor-core path.

    Narrower tiles have no tensor-core instruction on every target.
    """
    return min(max(power_of_two(tokens), LEAST_DOT_TOKENS), MOST_DOT_TOKENS)


@contextmanager
def overlapping(asked: bool) -> Iterator[None]:
    """Let launches begin before those before them have ended, until the block ends."""
    token = _OVERLAPS.set(asked)
    try:
        yield
    finally:
        _OVERLAPS.reset(token)


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    *arguments: object,
    warps: int,
    stages: int = 1,
    registers: int | None = None,
) -> None:
    """Launch a kernel; its last argument says whether it has to wait for the one before.

    Fused multiply-add is asked for by name, since its default changes between releases of Triton.
    """
    pdl = _OVERLAPS.get()
    options: dict[str, int | bool] = {"num_warps": warps, "num_stages": stages}
    if pdl:
        options["launch_pdl"] = True
    if registers is not None:
        options["maxnreg"] = registers
    kernel[grid](*arguments, pdl, enable_fp_fusion=True, **options)


def launch_product(
    kernel: Any,
    tokens: int,
    weight: torch.Tensor,
    *arguments: object,
    tiles: Tiles | None = None,
    registers: int = PRODUCT_REGISTERS,
    is_wide: bool = False,
    halves: int = 1,
    more: tuple[object, ...] = (),
) -> None:
    """Launch a product of weights and tokens, cut as the table or the rule says.

    The weights may be read in `halves` apart; `more` are constants that the kernel knows besides.
    """
    rows, width = weight.shape
    size = weight.element_size()
    sm = device_sm(weight.device)
    own = tiles or tiles_for(sm, tokens, rows, width, value_bytes=size, is_wide=is_wide)
    cut = cut_of(own, tokens, weight, halves=halves)
    grid = (-(-rows // own.block_n), -(-tokens // cut.tokens))
    arguments = (*arguments, tokens, rows, width, cut, *more)
    warps, stages = own.num_warps, own.num_stages
    launch(kernel, grid, *arguments, warps=warps, stages=stages, registers=registers)


def cut_of(tiles: Tiles, tokens: int, weight: torch.Tensor, *, halves: int = 1) -> Cut:
    """Tiles of a product as a kernel knows them."""
    is_matvec = tokens <= MATVEC_TOKENS
    return Cut(
        tokens=power_of_two(tokens) if is_matvec else dot_tokens(tokens),
        block_n=tiles.block_n,
        block_k=tiles.block_k,
        vector=VECTOR_BYTES // weight.element_size() if is_matvec else 0,
        is_whole=weight.shape[1] // halves % tiles.block_k == 0,
    )


def row_warps(block: int) -> int:
    """Warps of a kernel that has one row in registers: about eight elements a thread."""
    return min(16, max(1, block // 256))
