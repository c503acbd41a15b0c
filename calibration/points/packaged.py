"""The packaged tables of measured points: names, sources and what their numbers include.

Each table is a CSV file in the canonical columns with a TOML file beside it. This module reads the
TOML files only; `calibration.points.reading` reads the rows.
"""

import csv
import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from specmodel.errors import UnknownKeyError

__all__ = ["PackagedTable", "packaged_table", "packaged_tables"]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "points"

EXAMPLES = FOLDER.with_name("examples")
"""Folder of the files that the README works with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedTable:
    """One packaged table of measured points, without its rows."""

    name: str  # what a user types; the stem of both files
    title: str  # engine, hardware, target model and what varies, in one line
    source_keys: tuple[str, ...]  # keys in the register of sources, one per `source_id` of the rows
    url: str  # the document and the place in it
    locator: str  # the document and the place in it
    system_class: Literal["dense", "moe"]  # class of the target model
    # rows with speculation, and rows of the baseline alone (`num_steps` 0)
    num_speculative_rows: int
    num_baseline_rows: int  # rows with speculation, and rows of the baseline alone (`num_steps` 0)
    # what the numbers include: whole runs or decode only, per user or aggregate, how the accept
    # length was obtained
    includes: str
    sound: bool  # false when the table is known to contradict itself; `sound_reason` says why
    sound_reason: str  # what the identity checks gave
    # whether the table is suggested for fitting priors; `prior_reason` says why
    usable_for_prior: bool
    prior_reason: str  # the reason
    # what varies inside the table and so how to hold rows out: ``workload_config``,
    # ``batch_workload``, ``batch_context`` (calibrate at small batch and context 0, predict the other
    # cells), ``batch``, ``depth``, ``workload`` or ``none``
    split: str
    # what was left out of the source's rows, and what was changed, with reasons
    dropped: tuple[str, ...]
    # what was left out of the source's rows, and what was changed, with reasons
    corrected: tuple[str, ...]
    notes: str  # other facts a reader should know
    path: Path  # the CSV file

    @property
    def num_rows(self) -> int:
        """Rows in the CSV file."""
        return self.num_speculative_rows + self.num_baseline_rows


@cache
def packaged_tables() -> tuple[PackagedTable, ...]:
    """Packaged tables in the order of their names."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.toml")))


def packaged_table(name: str) -> PackagedTable:
    """Packaged table of that name."""
    tables = {table.name: table for table in packaged_tables()}
    if name in tables:
        return tables[name]
    close = difflib.get_close_matches(name, tables, n=5, cutoff=0.5)
    raise UnknownKeyError("packaged table", name, close or list(tables))


def _read(path: Path) -> PackagedTable:
    """Record of one TOML file; its ``rows`` say how the table was made."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    values.pop("rows", None)
    lists = {name: tuple(cell) for name, cell in values.items() if isinstance(cell, list)}
    system_class = values.pop("class")
    return PackagedTable(
        **{**values, **lists}, system_class=system_class, path=path.with_suffix(".csv")
    )


_NUMBERS = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
_TEXTS = ("workload", "draft_model", "algorithm", "target_model")


class Varying(NamedTuple):
    """One column with several values: how many, and the range where they are numbers."""

    column: str
    num_values: int
    low: float | None = None
    high: float | None = None


def varying_columns(table: PackagedTable) -> tuple[Varying, ...]:
    """Columns of a packaged table that hold several values on its speculative rows."""
    with table.path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("num_steps") != "0"]
    found = []
    for name in _NUMBERS:
        values = sorted({float(row[name]) for row in rows if row.get(name)})
        if len(values) > 1:
            found.append(Varying(name, len(values), values[0], values[-1]))
    for name in _TEXTS:
        num_values = len({row[name] for row in rows if row.get(name)})
        if num_values > 1:
            found.append(Varying(name, num_values))
    return tuple(found)
