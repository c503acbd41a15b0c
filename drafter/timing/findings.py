"""What a measurement found so far: rows, clocks, and notes on what there is no row of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from drafter.timing.refusals import MOST_CLOCK_CHANGE, clock_change
from specmodel.measurement import Clocks, DraftTiming, ExtendTiming, KernelTiming, StepTiming
from specmodel.units import PERCENT


@final
@dataclass
class Findings:
    """Rows and notes of a record that is being measured.

    Parameters
    ----------
    steps, extends, drafts : list
        Rows of the loads that were measured.
    kernels : tuple of KernelTiming
        From the trace.
    kernels_of : str
        What was traced.
    clocks : list of Clocks
        Every reading.
    notes : list of str
        For the record.
    refused : list of str
        Why loads were refused.
    tell : callable
        Is told a note when it is said.

    Examples
    --------
    >>> Findings().are_recordable
    False
    """

    steps: list[StepTiming] = field(default_factory=list)
    extends: list[ExtendTiming] = field(default_factory=list)
    drafts: list[DraftTiming] = field(default_factory=list)
    kernels: tuple[KernelTiming, ...] = ()
    kernels_of: str = ""
    clocks: list[Clocks] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    tell: Callable[[str], None] = lambda _: None

    @property
    def are_recordable(self) -> bool:
        """Whether they make a record: it needs a step and an extend pass."""
        return bool(self.steps and self.extends)

    @property
    def spread(self) -> float:
        """Largest relative difference of two runs, of any row, [-]."""
        rows: list[StepTiming | ExtendTiming | DraftTiming] = [*self.steps, *self.extends]
        return max(row.spread for row in [*rows, *self.drafts])

    def say(self, note: str) -> None:
        """Keep a note for the record, and tell it now.

        Parameters
        ----------
        note : str
            The note.
        """
        self.notes.append(note)
        self.tell(note)

    def note_conditions(self, *, is_dry: bool) -> None:
        """Note what holds for every row: made-up times, clocks that were not read or moved.

        Parameters
        ----------
        is_dry : bool
            Nothing was measured.
        """
        if is_dry:
            self.notes.append("a dry run: every time in this record is made up")
        elif not self.clocks:
            self.notes.append("the clocks could not be read, so they were not checked")
        for name, change in clock_change(self.clocks).items():
            if change > MOST_CLOCK_CHANGE:
                self.notes.append(
                    f"the {name} clock differs by {change / PERCENT:.1f} % between loads"
                )
