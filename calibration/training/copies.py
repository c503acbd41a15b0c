"""The same record more than once: printed by several processes, in two formats, or by a bar too.

training_logs.md section 4.1: equal copies are one record, a second print of the same result in
another format is the same record, and a bar counts only where no line carries its step.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.training.family_facts import BAR_FORMATS
from calibration.training.record_columns import RecordColumns, Rows
from calibration.training.records import PRINTED_NAN, Array

_NAN_BITS: Final = np.uint64(0x7FF8_0000_0000_0000)
_MULTIPLIER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFT: Final = np.uint64(29)

_TELLING_METRICS: Final = 3  # equal in so many metrics, records without a step are copies

_FILES: Final = ("S5", "S6", "tracker")  # full precision: preferred to what a console rounds
_ACCURACY_TOLERANCE: Final = 0.0051  # two decimals in one format, more in the other
_FINE_TOLERANCE: Final = 0.000_51
_MOST_PASSES: Final = 4  # prints of one result
_MOST_FILE_RECORDS: Final = 2000


@dataclass(frozen=True, slots=True)
class Found:
    """Records that are left."""

    columns: RecordColumns  # in the order of the file
    lines: tuple[int, ...] = ()  # of the records that were taken away


def without_bars(columns: RecordColumns) -> RecordColumns:
    """Return the records without the bars that say nothing new.

    Of several states of a bar with one step the last one is kept.
    """
    is_bar = _is_bar(columns)
    if not is_bar.any():
        return columns
    step = columns.column("step")
    kept = ~is_bar | ~np.isin(step, step[~is_bar])
    bars = np.flatnonzero(is_bar & kept)
    repeated = bars[:-1][step[bars[1:]] == step[bars[:-1]]]
    kept[repeated] = False
    return columns.take(kept)


def bars_counted_on(columns: RecordColumns, total_steps: int | None) -> RecordColumns:
    """Return the records with bar counters that do not start again with each epoch."""
    bars = np.flatnonzero(_is_bar(columns))
    step, epoch = columns.column("step").copy(), columns.column("epoch")
    if not total_steps or len(bars) < 2:
        return columns
    rises = np.diff(epoch[bars]) > 0
    if not (rises & (np.diff(step[bars]) <= 0)).any():
        return columns
    step[bars] += (epoch[bars] - np.nanmin(epoch[bars])) * total_steps
    return columns.with_column("step", step)


def without_equal_copies(columns: RecordColumns, *, in_sequence: bool) -> Found:
    """Return the records without those that are equal to an earlier one."""
    names = [*columns.measured, "step", "epoch", "learning_rate", "format"]
    prints = _fingerprints([columns.column(name) for name in names])
    _, first = np.unique(prints, return_index=True)
    if len(first) == len(columns):
        return Found(columns)
    kept = np.zeros(len(columns), dtype=bool)
    kept[first] = True
    if in_sequence:
        metrics = np.zeros(len(columns), dtype=np.intp)
        for name in columns.measured:
            metrics += np.isfinite(columns.values[name])
        kept |= np.isnan(columns.column("step")) & (
            (metrics < _TELLING_METRICS) | ~columns.finite()
        )
    return Found(columns.take(kept), _lines(columns, ~kept))


def with_prints_collapsed(columns: RecordColumns) -> RecordColumns:
    """Return the records with two prints of one result in different formats as one."""
    if len(columns) < 2 or not _varied(columns):
        return columns
    for _ in range(_MOST_PASSES):
        before = len(columns)
        columns = _merged_neighbours(columns, np.arange(before, dtype=np.intp), steps_needed=False)
        if len(columns) == before:
            break
    step = columns.column("step")
    order = np.argsort(step, kind="stable")
    columns = _merged_neighbours(columns, order, steps_needed=True)
    return _with_files(columns)


def _is_bar(columns: RecordColumns) -> NDArray[np.bool_]:
    """Return which records come from a progress bar."""
    numbers = [number for number, label in enumerate(columns.labels) if label in BAR_FORMATS]
    return np.asarray(np.isin(columns.column("format"), numbers))


def _fingerprints(columns: list[Array]) -> NDArray[np.uint64]:
    """Return a number for each row that is equal where all values are."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        bits = np.where(np.isnan(column), _NAN_BITS, (column + 0.0).view(np.uint64))
        mixed = (mixed ^ bits) * _MULTIPLIER
        mixed ^= mixed >> _SHIFT
    return mixed


def _lines(columns: RecordColumns, rows: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the lines of some rows."""
    return tuple(int(line) for line in columns.column("line")[rows])


def _varied(columns: RecordColumns) -> bool:
    """Return whether not all records are printed in the same way."""
    if len(np.unique(columns.column("format"))) > 1:
        return True
    return any(np.isnan(columns.values[name]).any() for name in columns.measured)


def _merged_neighbours(columns: RecordColumns, order: Rows, *, steps_needed: bool) -> RecordColumns:
    """Return the records with every second one of two neighbours that say the same merged."""
    first, second = order[:-1], order[1:]
    same = _compatible(columns, first, second, steps_needed=steps_needed)
    begins = same & ~np.concatenate(([False], same[:-1]))  # of a chain only the first pair
    begins[1:] &= ~begins[:-1]
    first, second = first[begins], second[begins]
    if not len(first):
        return columns
    kept_step = np.isfinite(columns.column("step")[first])
    target = np.where(kept_step | np.isnan(columns.column("step")[second]), first, second)
    source = first + second - target
    filled = _filled(columns, target, source)
    left = np.ones(len(columns), dtype=bool)
    left[source] = False
    return filled.take(left)


def _compatible(
    columns: RecordColumns, first: Rows, second: Rows, *, steps_needed: bool
) -> NDArray[np.bool_]:
    """Return which pairs of records may be two prints of one result."""
    form = columns.column("format")
    other_format = form[first] != form[second]
    step, epoch = columns.column("step"), columns.column("epoch")
    same_step = step[first] == step[second]
    same = other_format.copy() if steps_needed else other_format | same_step
    same &= _agree(step, first, second, 0.0) & _agree(epoch, first, second, 0.0)
    same &= _agree(_streams(columns), first, second, 0.0)
    if steps_needed:
        same &= same_step
    shared = np.zeros(len(first), dtype=bool)
    overlap = np.zeros(len(first), dtype=bool)
    for name in columns.measured:
        values = columns.values[name]
        both = ~np.isnan(values[first]) & ~np.isnan(values[second])
        overlap |= both
        if name in columns.accuracies:
            tolerance = _FINE_TOLERANCE if name[-1].isdigit() else _ACCURACY_TOLERANCE
            same &= _agree(values, first, second, tolerance)
            shared |= both
    # One format says a thing once: two records of it that say different things of one step.
    complementary = ~overlap & same_step
    return np.asarray(same & (complementary | (other_format & shared)))


def _streams(columns: RecordColumns) -> Array:
    """Return the stream of each record as a number; nan where it has no label."""
    stream = columns.column("stream").copy()
    stream[columns.label_texts("stream") == ""] = np.nan
    return stream


def _agree(values: Array, first: Rows, second: Rows, tolerance: float) -> NDArray[np.bool_]:
    """Return where two records say the same, or one says nothing."""
    one, other = values[first], values[second]
    equal = one == other  # infinities too
    with np.errstate(invalid="ignore"):
        close = np.abs(one - other) <= tolerance
    return np.asarray(equal | np.isnan(one) | np.isnan(other) | close)


def _filled(columns: RecordColumns, target: Rows, source: Rows) -> RecordColumns:
    """Return the records in which some say what others said too."""
    precise = np.isin(columns.label_texts("format")[source].astype(str), _FILES)
    values = {name: column.copy() for name, column in columns.values.items()}
    for name in (*columns.measured, "step", "epoch", "learning_rate"):
        if name not in values:
            continue
        column = values[name]
        given = ~np.isnan(column[source]) & (np.isnan(column[target]) | precise)
        column[target[given]] = column[source[given]]
    return RecordColumns(values=values, labels=columns.labels)


def _with_files(columns: RecordColumns) -> RecordColumns:
    """Return the records with what `val_metrics.json` says of an epoch in the console's record."""
    form = columns.label_texts("format")
    files = np.flatnonzero(form == "S5")[:_MOST_FILE_RECORDS]
    console = np.flatnonzero(form != "S5")
    if not len(files) or not len(console):
        return columns
    targets: list[int] = []
    sources: list[int] = []
    for row in files:
        rows = np.full(len(console), row)
        with np.errstate(invalid="ignore"):
            same = _same_result(columns, console, rows)
        if same.any():
            targets.append(int(console[same][-1]))
            sources.append(int(row))
    if not targets:
        return columns
    filled = _filled(columns, np.array(targets, dtype=np.intp), np.array(sources, dtype=np.intp))
    left = np.ones(len(columns), dtype=bool)
    left[sources] = False
    return filled.take(left)


def _same_result(columns: RecordColumns, console: Rows, files: Rows) -> NDArray[np.bool_]:
    """Return which console records are rounded prints of a file's."""
    same = _agree(columns.column("epoch"), console, files, 0.0)
    shared = np.zeros(len(console), dtype=bool)
    for name in columns.accuracies:
        values = columns.values[name]
        same &= _agree(values, console, files, _FINE_TOLERANCE)
        shared |= np.isfinite(values[console]) & np.isfinite(values[files])
        shared &= values[console] != PRINTED_NAN
    return same & shared
