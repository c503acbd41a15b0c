"""Records as they were printed to records that count: copies, bars, restarts, several processes.

training_logs.md section 4. Equal copies go first, then every labelled stream is settled by itself,
lowest rank first, then all of them together.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibration.training.copies import (
    bars_counted_on,
    with_prints_collapsed,
    without_bars,
    without_equal_copies,
)
from calibration.training.family_facts import BAR_FORMATS
from calibration.training.record_columns import RecordColumns, Rows
from calibration.training.records import Array, RecordTable, Split
from calibration.training.restarts import (
    Settled,
    Verdict,
    settled_epochs,
    settled_first,
    settled_rates,
    settled_steps,
)

_CODES: Final = {
    Verdict.RESTART: "step-restart",
    Verdict.SEVERAL_PROCESSES: "conflicting-records",
}
_EPOCH_FORMATS: Final = ("E1", "E2", "F1")  # train records of a whole epoch
_ONE_VALIDATION_AN_EPOCH: Final = ("E1", "E2", "F1", "S4", "S5", "S6", "S7", "dict")
_MOST_STREAMS: Final = 1024  # labels beyond that are no processes
_RANK: Final = re.compile(r"(?i)rank|^\d+$|(?:^|/)\d+$")
_DIGITS: Final = re.compile(r"\d{1,18}")


@dataclass(slots=True)
class Normalised:
    """The records that count, by split."""

    # rows in the order of their steps; the column ``step`` is filled as far as it can be known
    splits: dict[Split, RecordColumns] = field(default_factory=dict)
    step_source: str = "none"  # ``logged``, ``bar``, ``counted`` or ``none``
    formats: set[str] = field(default_factory=set)  # ids of the layouts whose records are used
    codes: dict[str, list[int]] = field(default_factory=dict)  # lines by the code of a warning

    def warn(self, code: str, lines: "tuple[int, ...] | list[int]") -> None:
        """Note lines at which something was found."""
        if lines:
            self.codes.setdefault(code, []).extend(lines)


def normalised(tables: Mapping[Split, RecordTable]) -> Normalised:
    """Return the records that count."""
    result = Normalised()
    several = False
    dropped: list[tuple[int, int]] = []
    printed_steps: list[RecordColumns] = []
    for split in (Split.TRAIN, Split.UNKNOWN):
        if not (table := tables.get(split)) or not len(table):
            continue
        columns = _of_training(table, result)
        if np.isfinite(columns.column("step")).any():
            printed_steps.append(columns)
        settled = _settled_training(columns, result)
        several |= settled.verdict is Verdict.SEVERAL_PROCESSES
        if _counted(columns):
            dropped += _dropped_spans(columns, settled)
        kept = columns.take(settled.rows)
        if _counted(columns):
            kept = kept.with_column("step", np.arange(1.0, len(kept) + 1))
            printed_steps.append(kept)
        result.splits[split] = kept
        result.step_source = _step_source(columns, kept, result.step_source)
    table = tables.get(Split.VAL)
    if table is not None and len(table):
        columns = _collapsed(RecordColumns.of_table(table), result, in_sequence=False)
        columns = _outside(columns, dropped)
        own = columns.column("step")
        columns = _with_train_steps(columns, printed_steps)
        settled = _settled_validation(columns, own, several=several)
        result.warn(*_found(columns, settled))
        result.splits[Split.VAL] = _in_order(columns.take(settled.rows))
    return result


def _of_training(table: RecordTable, result: Normalised) -> RecordColumns:
    """Return train records without bars that lines make needless, and without copies."""
    columns = bars_counted_on(RecordColumns.of_table(table), table.total_steps)
    columns = without_bars(columns)
    return _collapsed(columns, result, in_sequence=not _by_epoch(columns))


def _collapsed(columns: RecordColumns, result: Normalised, *, in_sequence: bool) -> RecordColumns:
    """Return records without copies and second prints."""
    result.formats |= {BAR_FORMATS.get(label, label) for label in columns.labels_in("format")}
    ranks = _ranks(columns)
    several = bool(ranks.any())
    if several:  # of equal copies that of the lowest rank is kept: its stream stays whole
        columns = columns.take(np.argsort(ranks, kind="stable"))
    found = without_equal_copies(columns, in_sequence=in_sequence)
    result.warn("duplicate-records", found.lines)
    columns = found.columns
    if several:
        columns = columns.take(np.argsort(columns.column("line"), kind="stable"))
    return with_prints_collapsed(columns)


def _settled_training(columns: RecordColumns, result: Normalised) -> Settled:
    """Return the train records that count, of each stream and of all together."""
    ranks = _ranks(columns)
    numbers = np.unique(ranks)
    if len(numbers) < 2:
        settled = _settled(columns)
        result.warn(*_found(columns, settled))
        return settled
    kept: list[Rows] = []
    for number in numbers:
        rows = np.flatnonzero(ranks == number)
        settled = _settled(columns.take(rows))
        result.warn(*_found(columns.take(rows), settled))
        kept.append(rows[settled.rows])
    rows = np.sort(np.concatenate(kept))
    merged = columns.take(rows)
    settled = _settled_streams(merged, ranks[rows])
    result.warn(*_found(merged, settled))
    return Settled(rows=rows[settled.rows], verdict=settled.verdict, places=rows[settled.places])


def _settled(columns: RecordColumns) -> Settled:
    """Return the records of one stream that count."""
    step = columns.column("step")
    if np.isfinite(step).any():
        return settled_steps(_carried(step))
    if _by_epoch(columns):
        return settled_epochs(columns.column("epoch"))
    return settled_rates(columns.column("epoch"), columns.column("learning_rate"))


def _settled_streams(columns: RecordColumns, ranks: Array) -> Settled:
    """Return the records that count of streams that have been settled each by itself."""
    step = columns.column("step")
    of_ranks = _named_ranks(columns)
    if np.isfinite(step).any():
        step = _carried(step)
        return (
            settled_first(step, priority=ranks) if of_ranks else settled_steps(step, priority=ranks)
        )
    if _by_epoch(columns):
        epoch = columns.column("epoch")
        return settled_first(epoch, priority=ranks) if of_ranks else settled_epochs(epoch)
    if not of_ranks:
        return settled_rates(columns.column("epoch"), columns.column("learning_rate"))
    lowest = ranks == ranks.min()  # records without any number: one process tells the run
    return Settled(
        rows=np.flatnonzero(lowest),
        verdict=Verdict.SEVERAL_PROCESSES,
        places=np.flatnonzero(~lowest),
    )


def _settled_validation(columns: RecordColumns, own: Array, *, several: bool) -> Settled:
    """Return the validation records that count.

    A step or an epoch that comes again is a restart. Trainers that may validate more than once an
    epoch, and print no step, are told by the train step before.
    """
    key = own
    if not np.isfinite(own).all():
        step, epoch = columns.column("step"), columns.column("epoch")
        once = columns.labels_in("format") <= set(_ONE_VALIDATION_AN_EPOCH)
        by_epoch = np.isfinite(epoch).any() and (once or not np.isfinite(step).any())
        key = epoch if by_epoch else step
    ranks = _ranks(columns)
    if len(np.unique(ranks)) > 1 and _named_ranks(columns):
        return _settled_ranks(key, ranks)
    return settled_first(key, priority=ranks) if several else settled_epochs(key)


def _settled_ranks(key: Array, ranks: Array) -> Settled:
    """Return the validation records that count of processes, each settled by itself.

    What the lowest rank says of a restart holds for the run.
    """
    of_ranks = [np.flatnonzero(ranks == number) for number in np.unique(ranks)]
    each = [settled_epochs(key[rows]) for rows in of_ranks]
    kept = np.sort(
        np.concatenate([rows[one.rows] for rows, one in zip(of_ranks, each, strict=True)])
    )
    merged = settled_first(key[kept], priority=ranks[kept])
    if merged.verdict is Verdict.NONE and each[0].verdict is not Verdict.NONE:
        return Settled(
            rows=kept[merged.rows], verdict=each[0].verdict, places=of_ranks[0][each[0].places]
        )
    return Settled(rows=kept[merged.rows], verdict=merged.verdict, places=kept[merged.places])


def _with_train_steps(columns: RecordColumns, printed: list[RecordColumns]) -> RecordColumns:
    """Return validation records with the step of the last train record before each.

    A file beside a checkpoint stands behind no line: there it is the last one of its epoch.
    """
    step = columns.column("step").copy()
    missing = np.flatnonzero(np.isnan(step))
    if not printed or not len(missing):
        return columns
    lines, steps, epochs = (
        np.concatenate([one.column(name) for one in printed]) for name in ("line", "step", "epoch")
    )
    known = np.flatnonzero(np.isfinite(steps))
    order = known[np.argsort(lines[known], kind="stable")]
    place = np.searchsorted(lines[order], columns.column("line")[missing], side="right") - 1
    found = place >= 0
    step[missing[found]] = steps[order][place[found]]
    ends = dict(zip(epochs[order].tolist(), steps[order], strict=True))
    in_files = columns.label_texts("format")[missing] == "S5"
    for row in missing[in_files]:
        step[row] = ends.get(float(columns.column("epoch")[row]), step[row])
    return columns.with_column("step", step)


def _in_order(columns: RecordColumns) -> RecordColumns:
    """Return records sorted by step, or by epoch where no step is known."""
    step = columns.column("step")
    key = step if np.isfinite(step).any() else columns.column("epoch")
    return columns.take(np.argsort(_carried(key), kind="stable"))


def _outside(columns: RecordColumns, spans: list[tuple[int, int]]) -> RecordColumns:
    """Return the records that do not stand between some lines."""
    if not spans or not len(columns):
        return columns
    line = columns.column("line")
    begins = np.array([begin for begin, _ in spans], dtype=float)
    ends = np.array([end for _, end in spans], dtype=float)
    inside = np.searchsorted(np.sort(begins), line, side="right") > np.searchsorted(
        np.sort(ends), line, side="right"
    )
    return columns.take(~inside)


def _dropped_spans(columns: RecordColumns, settled: Settled) -> list[tuple[int, int]]:
    """Return from which line to which a restart of a run without steps dropped everything."""
    if settled.verdict is not Verdict.RESTART:
        return []
    line = columns.column("line")
    left = np.zeros(len(columns), dtype=bool)
    left[settled.rows] = True
    gone = np.flatnonzero(~left)
    if not len(gone):
        return []
    breaks = np.flatnonzero(np.diff(gone) > 1)
    firsts, lasts = gone[np.concatenate(([0], breaks + 1))], gone[np.append(breaks, len(gone) - 1)]
    ends = np.minimum(lasts + 1, len(line) - 1)
    return [(int(line[a]), int(line[b])) for a, b in zip(firsts, ends, strict=True)]


def _found(columns: RecordColumns, settled: Settled) -> tuple[str, tuple[int, ...]]:
    """Return the code of a verdict and the lines to which it applies."""
    lines = columns.column("line")[settled.places]
    code = _CODES.get(settled.verdict, "")
    return code, tuple(int(line) for line in lines) if code else ()


def _by_epoch(columns: RecordColumns) -> bool:
    """Return whether each train record is about a whole epoch."""
    return columns.labels_in("format") <= set(_EPOCH_FORMATS)


def _counted(columns: RecordColumns) -> bool:
    """Return whether steps are the number of records: one record a step, none printed."""
    forms = columns.labels_in("format")
    return not np.isfinite(columns.column("step")).any() and forms <= {"S1"}


def _step_source(columns: RecordColumns, kept: RecordColumns, before: str) -> str:
    """Return where step numbers come from."""
    if _counted(columns):
        return "counted"
    if not np.isfinite(kept.column("step")).any():
        return before
    forms = kept.take(np.isfinite(kept.column("step"))).labels_in("format")
    return "bar" if forms <= set(BAR_FORMATS) else "logged"


def _carried(step: Array) -> Array:
    """Return steps in which a record without one has a place of its own behind the one before it."""
    missing = np.isnan(step)
    if not missing.any():
        return step
    number = np.arange(len(step))
    source = np.maximum.accumulate(np.where(missing, -1, number))
    carried = np.where(source >= 0, step[np.maximum(source, 0)], -1.0)
    behind = (number - source) / (len(step) + 1.0)
    return np.where(missing, carried + behind, step)


def _ranks(columns: RecordColumns) -> Array:
    """Return the place of each record's stream among all, lowest rank first."""
    names = sorted(columns.labels_in("stream"), key=_rank_key)
    if not 1 < len(names) <= _MOST_STREAMS:
        return np.zeros(len(columns))
    places = np.zeros(len(columns.labels))
    for place, name in enumerate(names):
        places[columns.labels.index(name)] = place
    return places[np.nan_to_num(columns.column("stream")).astype(np.intp)]


def _rank_key(name: str) -> tuple[list[int], str]:
    """Return what streams are sorted by: the numbers in their label."""
    return [int(digits) for digits in _DIGITS.findall(name)], name


def _named_ranks(columns: RecordColumns) -> bool:
    """Return whether the labels of the streams number the processes of one run."""
    names = columns.labels_in("stream")
    forms = {_DIGITS.sub("0", name) for name in names}
    return len(forms) == 1 and all(_RANK.search(name) for name in names)
