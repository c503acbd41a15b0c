"""A schedule: which depth runs at which batch size, with what it assumes and where it stops."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from specmodel.atomic_file import write_text_atomically
from specmodel.errors import ParameterError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    r"""What each depth gives at one batch size, and the depth taken.

    .. math:: v_0 = \frac{1}{1 + o(B)}, \qquad v_k = S_k(B)

    Parameters
    ----------
    batch_size : int
        :math:`B`, [requests].
    last_batch_size : int
        Last batch for which the choice holds: the one before the next batch looked at.
    num_steps : int
        Depth taken.
    relative_throughput : tuple of (int, float)
        :math:`v` by depth, 0 first: throughput relative to a server without a draft model, medians, [-].

    Notes
    -----
    Depth 0 is that of a server that holds its draft model.
    """

    batch_size: int
    last_batch_size: int
    num_steps: int
    relative_throughput: tuple[tuple[int, float], ...]

    def at(self, num_steps: int) -> float:
        """Throughput at a candidate depth relative to a server without a draft model."""
        return dict(self.relative_throughput)[num_steps]

    @property
    def unloaded_is_faster(self) -> bool:
        """Whether a server without a draft model beats every depth."""
        return max(value for _, value in self.relative_throughput) < 1.0

    def paying_depths(self) -> tuple[int, ...]:
        """Depths up to the one taken that are faster than depth 0; (0,) where it is taken."""
        if self.num_steps == 0:
            return (0,)
        floor = self.at(0)
        return tuple(
            depth
            for depth, value in self.relative_throughput
            if 0 < depth <= self.num_steps and value > floor
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRange:
    """Batch sizes that run one depth, ends included.

    Parameters
    ----------
    first_batch_size, last_batch_size : int
        Ends, both included, [requests].
    num_steps : int
        Depth.
    """

    first_batch_size: int
    last_batch_size: int
    num_steps: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DepthSchedule:
    """Depth by batch size within what was measured.

    Parameters
    ----------
    ranges : tuple of DepthRange
        Ascending, contiguous; the first begins and the last ends where the points do.
    choices : tuple of BatchChoice
        What they were merged from.
    accept_lengths : tuple of (int, float)
        Accept length assumed at each candidate depth, [tokens].
    context_tokens : float or None
        Context for which it holds, [tokens].
    notes : tuple of str
        What it assumes and where it stops, for a person.
    """

    ranges: tuple[DepthRange, ...]
    choices: tuple[BatchChoice, ...]
    accept_lengths: tuple[tuple[int, float], ...]
    context_tokens: float | None
    notes: tuple[str, ...]

    @property
    def first_batch_size(self) -> int:
        """Smallest batch that the schedule knows."""
        return self.ranges[0].first_batch_size

    @property
    def last_batch_size(self) -> int:
        """Largest batch that the schedule knows."""
        return self.ranges[-1].last_batch_size

    @property
    def max_num_steps(self) -> int:
        """Deepest depth of the schedule; 0 where speculation never pays."""
        return max(one.num_steps for one in self.ranges)

    def as_lists(self) -> list[list[int]]:
        """Ranges as ``[start, end, num_steps]``."""
        return [[one.first_batch_size, one.last_batch_size, one.num_steps] for one in self.ranges]

    def num_steps_at(self, batch_size: int) -> int:
        """Depth at a batch; raises `ParameterError` where the schedule does not reach."""
        return self.choice_at(batch_size).num_steps

    def choice_at(self, batch_size: int) -> BatchChoice:
        """The choice that holds at a batch; raises `ParameterError` where there is none."""
        for choice in self.choices:
            if choice.batch_size <= batch_size <= choice.last_batch_size:
                return choice
        raise ParameterError(
            "batch_size",
            batch_size,
            f"from {self.first_batch_size} to {self.last_batch_size}, as in the points",
            "measure that batch and fit again",
        )


def schedule_text(schedule: DepthSchedule) -> str:
    """Return a schedule for a person: ranges, accept lengths assumed, where it stops.

    Parameters
    ----------
    schedule : DepthSchedule
        Made by `depth_schedule`.

    Returns
    -------
    str
        Lines; engines do not read them.

    Examples
    --------
    >>> schedule = DepthSchedule(
    ...     ranges=(
    ...         DepthRange(first_batch_size=1, last_batch_size=8, num_steps=3),
    ...         DepthRange(first_batch_size=9, last_batch_size=64, num_steps=0),
    ...     ),
    ...     choices=(), accept_lengths=((3, 2.1),), context_tokens=None,
    ...     notes=("the points reach batch 1 to 64",),
    ... )
    >>> print(schedule_text(schedule), end="")
    batch 1 to 8: depth 3, accept length 2.1
    batch 9 to 64: depth 0, no drafting
    the points reach batch 1 to 64
    """
    assumed = dict(schedule.accept_lengths)
    lines = [
        f"batch {one.first_batch_size} to {one.last_batch_size}: "
        + (
            f"depth {one.num_steps}, accept length {assumed[one.num_steps]:.4g}"
            if one.num_steps
            else "depth 0, no drafting"
        )
        for one in schedule.ranges
    ]
    return "\n".join([*lines, *schedule.notes]) + "\n"


def write_schedule_text(path: Path | str, schedule: DepthSchedule) -> None:
    """Write `schedule_text` to a file beside the one that the engine reads, atomically.

    Parameters
    ----------
    path : path
        The file.
    schedule : DepthSchedule
        Made by `depth_schedule`.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> one = DepthRange(first_batch_size=1, last_batch_size=8, num_steps=0)
    >>> schedule = DepthSchedule(
    ...     ranges=(one,), choices=(), accept_lengths=(), context_tokens=None, notes=()
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "schedule.txt"
    ...     write_schedule_text(file, schedule)
    ...     file.read_text().strip()
    'batch 1 to 8: depth 0, no drafting'
    """
    write_text_atomically(path, schedule_text(schedule))
