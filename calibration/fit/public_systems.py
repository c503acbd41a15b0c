"""The packaged systems as arrays: what priors are learned from and `evaluate` runs on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from calibration.points.arrays import SystemRows, system_rows
from calibration.points.packaged import PackagedTable, packaged_tables
from calibration.points.points import Points, read_points
from calibration.points.systems import systems
from calibration.points.unsound import assess_soundness
from specmodel.prior import target_key

MIN_ROWS_TO_LEARN = 5
"""Fewer rows cannot tell a system's constants from its noise. [rows]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSystem:
    """One packaged system.

    Parameters
    ----------
    name : str
        The table's name; with a number where the table holds several systems.
    label : str
        What distinguishes it.
    table : PackagedTable
        Where it comes from.
    points : Points
        All of its rows.
    rows : SystemRows
        As arrays, rows of broken baselines left out.
    sound : bool
        Whether the tool finds its baselines sound.
    """

    name: str
    label: str
    table: PackagedTable
    points: Points
    rows: SystemRows
    sound: bool

    @property
    def target_model(self) -> str:
        """The target model, as its rows name it."""
        return str(self.points.frame["target_model"].iloc[0])

    @property
    def engine(self) -> str:
        """The engine, as its rows name it."""
        return str(self.points.frame["engine"].iloc[0])

    @property
    def teaches(self) -> bool:
        """Whether priors are learned from it."""
        return (
            self.sound
            and self.table.usable_for_prior
            and self.table.sound
            and len(self.rows.rows) >= MIN_ROWS_TO_LEARN
        )


def public_systems(tables: tuple[PackagedTable, ...] | None = None) -> Iterator[PublicSystem]:
    """Every system of the packaged tables, in the order of the tables."""
    for table in packaged_tables() if tables is None else tables:
        found = systems(read_points(table.path))
        for number, system in enumerate(found, start=1):
            soundness = assess_soundness(system.points)
            yield PublicSystem(
                name=table.name if len(found) == 1 else f"{table.name}#{number}",
                label=system.label,
                table=table,
                points=system.points,
                rows=system_rows(system.points.where(soundness.kept).frame),
                sound=soundness.sound,
            )


def learning_targets(found: list[PublicSystem]) -> list[str]:
    """Keys of the target models that priors are learned from."""
    return sorted({target_key(system.target_model) for system in found if system.teaches})
