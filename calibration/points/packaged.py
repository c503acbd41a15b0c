"""The packaged tables of measured points: names, sources and what their numbers include.

Each table is a CSV file in the canonical columns with a TOML file beside it. This module reads the
TOML files only; `calibration.points.points` reads the rows.
"""

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from specmodel.errors import UnknownKeyError

__all__ = ["PackagedTable", "packaged_table", "packaged_tables"]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "points"

EXAMPLES = FOLDER.with_name("examples")
"""Folder of the files that the README works with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedTable:
    """One packaged table of measured points, without its rows.

    Attributes
    ----------
    name : str
        What a user types; the stem of both files.
    title : str
        Engine, hardware, target model and what varies, in one line.
    source_keys : tuple of str
        Keys in the register of sources, one per `source_id` of the rows.
    url, locator : str
        The document and the place in it.
    system_class : {"dense", "moe"}
        Class of the target model.
    num_speculative_rows, num_baseline_rows : int
        Rows with speculation, and rows of the baseline alone (`num_steps` 0).
    includes : str
        What the numbers include: whole runs or decode only, per user or aggregate, how the accept
        length was obtained.
    sound : bool
        False when the table is known to contradict itself; `sound_reason` says why.
    sound_reason : str
        What the identity checks gave.
    usable_for_prior : bool
        Whether the table is suggested for fitting priors; `prior_reason` says why.
    prior_reason : str
        The reason.
    split : str
        What varies inside the table and so how to hold rows out: ``workload_config``,
        ``batch_workload``, ``batch_context`` (calibrate at small batch and context 0, predict the
        other cells), ``batch``, ``depth``, ``workload`` or ``none``.
    dropped, corrected : tuple of str
        What was left out of the source's rows, and what was changed, with reasons.
    notes : str
        Other facts a reader should know.
    path : pathlib.Path
        The CSV file.

    Examples
    --------
    >>> table = packaged_table("rtx6kpro-kimi-k26-dcp4")
    >>> table.system_class, table.num_rows, table.path.name
    ('moe', 30, 'rtx6kpro-kimi-k26-dcp4.csv')
    """

    name: str
    title: str
    source_keys: tuple[str, ...]
    url: str
    locator: str
    system_class: Literal["dense", "moe"]
    num_speculative_rows: int
    num_baseline_rows: int
    includes: str
    sound: bool
    sound_reason: str
    usable_for_prior: bool
    prior_reason: str
    split: str
    dropped: tuple[str, ...]
    corrected: tuple[str, ...]
    notes: str
    path: Path

    @property
    def source_key(self) -> str:
        """Key of the first source."""
        return self.source_keys[0]

    @property
    def num_rows(self) -> int:
        """Rows in the CSV file."""
        return self.num_speculative_rows + self.num_baseline_rows


@cache
def packaged_tables() -> tuple[PackagedTable, ...]:
    """Packaged tables in the order of their names.

    Returns
    -------
    tuple of PackagedTable
        One record per table.

    Examples
    --------
    >>> [table.name for table in packaged_tables() if table.name.startswith("vllm-20780")]
    ['vllm-20780-eagle1', 'vllm-20780-eagle3']
    """
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.toml")))


def packaged_table(name: str) -> PackagedTable:
    """Packaged table of that name.

    Parameters
    ----------
    name : str
        Name of the table, as listed by `packaged_tables`.

    Returns
    -------
    PackagedTable
        The record.

    Raises
    ------
    UnknownKeyError
        If there is no such table; `known` holds the closest names, or all when none is close.

    Examples
    --------
    >>> packaged_table("trtllm-dsr1-b200-mtp").num_speculative_rows
    5
    """
    tables = {table.name: table for table in packaged_tables()}
    if name in tables:
        return tables[name]
    close = difflib.get_close_matches(name, tables, n=5, cutoff=0.5)
    raise UnknownKeyError("packaged table", name, close or list(tables))


def _read(path: Path) -> PackagedTable:
    """Record of one TOML file."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    return PackagedTable(
        name=values["name"],
        title=values["title"],
        source_keys=tuple(values["source_keys"]),
        url=values["url"],
        locator=values["locator"],
        system_class=values["class"],
        num_speculative_rows=values["num_speculative_rows"],
        num_baseline_rows=values["num_baseline_rows"],
        includes=values["includes"],
        sound=values["sound"],
        sound_reason=values["sound_reason"],
        usable_for_prior=values["usable_for_prior"],
        prior_reason=values["prior_reason"],
        split=values["split"],
        dropped=tuple(values["dropped"]),
        corrected=tuple(values["corrected"]),
        notes=values["notes"],
        path=path.with_suffix(".csv"),
    )
