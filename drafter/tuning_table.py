"""The table of tiles as text: rows of one kind of GPU replaced, those of others kept."""

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Final

from specmodel.errors import FormatError, ParameterError

_HEADER: Final = """\
# Tiles of products of weights and tokens, by compute capability and shape.
#
# sm: compute capability times ten. tokens, rows, width: the pass and the weights, rounded up to powers
# of two. how: what the row rests on: `compiled` (register and stack report of a build without a GPU)
# or `measured` (time with cold weights; such a row also names its record). A missing row means
# the rule of drafter/kernels/launch_plan.py.
"""
WAYS: Final = ("compiled", "measured")
"""What a row may rest on."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TileRow:
    """One row of the table."""

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
        for name in ("sm", "num_stages"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ParameterError(name, value, "a whole number of at least 1")
        if self.how not in WAYS:
            raise ParameterError("how", repr(self.how), " or ".join(WAYS))
        if self.how == "measured" and not self.record:
            raise ParameterError("record", "none", "what was measured on what")

    @property
    def key(self) -> tuple[int, int, int, int]:
        """What the row is found by."""
        return (self.sm, self.tokens, self.rows, self.width)


def shipped_table() -> Path:
    """Place of the table that launches read.

    In a linked installation that is the file of the working tree.
    """
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
    known = {field.name for field in fields(TileRow)}
    for number, table in enumerate(tables, start=1):
        if not isinstance(table, dict) or not known - {"record"} <= set(table) <= known:
            raise FormatError(path, f"row {number} must have the keys {', '.join(sorted(known))}")
        try:
            rows.append(TileRow(**table))
        except ParameterError as error:
            raise FormatError(path, f"row {number}: {error}") from None
    return tuple(rows)


def merged(old: Iterable[TileRow], new: Iterable[TileRow]) -> tuple[TileRow, ...]:
    """Rows of both, the new one where both have a key.

    What was measured on one kind of GPU says nothing of another, so those rows stay.
    """
    rows = {row.key: row for row in (*old, *new)}
    return tuple(sorted(rows.values()))


def table_text(rows: Iterable[TileRow]) -> str:
    """A table as the text of its file."""
    parts = [_HEADER.rstrip()]
    for row in rows:
        stated = (f"{name} = {_toml(value)}" for name, value in asdict(row).items() if value != "")
        parts.append("\n".join(["[[tiles]]", *stated]))
    return "\n\n".join(parts if len(parts) > 1 else [*parts, "tiles = []"]) + "\n"


def _toml(value: int | str) -> str:
    """A value as TOML; texts hold no control characters."""
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(each for each in escaped if each.isprintable())}"'
