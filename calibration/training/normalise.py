"""Records as they were printed to records that count: copies, bars, restarts, several processes.

training_logs.md section 4. Equal copies go first, then every labelled stream is settled by itself,
lowest rank first, then all of them together.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isnan
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.training.family_facts import BAR_FORMATS
from calibration.training.records import PRINTED_NAN, Array, RecordColumns, RecordTable, Rows, Split


# ---
# Steps, epochs and learning rates that come again: a run that was started again, or several processes.
#
# training_logs.md section 4.1. Everything here works on keys in the order of the file and answers with
# the rows that count.
class Verdict(StrEnum):
    """Why keys come again."""

    NONE = "none"
    RESTART = "restart"
    SEVERAL_PROCESSES = "several processes"


@dataclass(frozen=True, slots=True)
class Settled:
    """The rows that count, and why others do not."""

    rows: Rows  # rows that count, in the order of their keys
    verdict: Verdict  # why others do not
    places: Rows  # rows at which a run begins again, or copies of other processes


_MOST_OCCURRENCES: Final = 4  # of one learning rate that are compared


def settled_steps(step: Array, *, priority: Array | None = None) -> Settled:
    """Return the records that count of a series with step numbers.

    Of a restart the later record of a step counts, of several processes the first one.
    """
    order = np.argsort(step, kind="stable")
    same = step[order[1:]] == step[order[:-1]]
    repeats = int(same.sum())
    falls = np.flatnonzero(np.diff(step) <= 0) + 1
    if not repeats:
        began_again = _stay_below(step, falls)
        verdict = Verdict.RESTART if len(began_again) else Verdict.NONE
        return Settled(order, verdict, began_again)
    if len(falls) <= max(1.0, repeats / 2):
        last = np.concatenate((~same, [True]))
        return Settled(order[last], Verdict.RESTART, falls)
    if priority is not None:
        order = np.lexsort((priority, step))
        same = step[order[1:]] == step[order[:-1]]
    first = np.concatenate(([True], ~same))
    return Settled(order[first], Verdict.SEVERAL_PROCESSES, np.sort(order[~first]))


def settled_epochs(key: Array) -> Settled:
    """Return the records that count of a series with one record an epoch or evaluation.

    A key that comes again is a restart: what followed the earlier record of it is dropped.
    """
    known = np.isfinite(key)
    if len(np.unique(key[known])) == int(known.sum()):
        return Settled(np.arange(len(key)), Verdict.NONE, np.empty(0, dtype=np.intp))
    kept: list[int] = []
    places: dict[float, int] = {}  # of each key in `kept`
    again: list[int] = []
    for row, value in enumerate(key.tolist()):
        if not isnan(value):
            place = places.get(value)
            if place is not None:
                for dropped in kept[place:]:
                    places.pop(float(key[dropped]), None)
                del kept[place:]
                again.append(row)
            places[value] = len(kept)
        kept.append(row)
    return Settled(np.array(kept, dtype=np.intp), Verdict.RESTART, np.array(again, dtype=np.intp))


def settled_first(key: Array, *, priority: Array | None = None) -> Settled:
    """Return the first record of each key: those of the process that printed first, or of lowest rank."""
    number = np.arange(len(key))
    order = np.lexsort((number, number if priority is None else priority, key))
    first = np.concatenate(([True], key[order[1:]] != key[order[:-1]]))[: len(order)]
    dropped = np.sort(order[~first])
    verdict = Verdict.SEVERAL_PROCESSES if len(dropped) else Verdict.NONE
    return Settled(np.sort(order[first]), verdict, dropped)


def settled_rates(epoch: Array, rate: Array) -> Settled:
    """Return the records that count of a series without step numbers, one record a step.

    A restart shows where the epoch falls, or where the learning rate of an epoch returns to an
    earlier value against its trend and goes on from there as it did. The turn from warm-up to decay
    does not: the rate goes on in the new direction. Everything from the first record with that epoch
    and rate on is dropped.
    """
    epoch, rate = np.nan_to_num(epoch, nan=0.0), np.nan_to_num(rate, nan=0.0)
    changes = (np.diff(epoch) != 0) | (np.diff(rate) != 0)
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))[: len(epoch)]
    track = _RateTrack()
    again: list[int] = []
    runs = list(zip(starts.tolist(), epoch[starts].tolist(), rate[starts].tolist(), strict=True))
    for number, (start, run_epoch, run_rate) in enumerate(runs):
        following = runs[number + 1][2] if number + 1 < len(runs) else None
        if track.add(start, run_epoch, run_rate, following):
            again.append(start)
    bounds = np.append(starts, len(epoch))
    pieces = [
        np.arange(start, bounds[np.searchsorted(starts, start) + 1]) for start in track.starts
    ]
    return Settled(
        np.concatenate(pieces) if pieces else np.empty(0, dtype=np.intp),
        Verdict.RESTART if again else Verdict.NONE,
        np.array(again, dtype=np.intp),
    )


class _RateTrack:
    """Runs of equal epoch and learning rate that are kept so far."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self._epochs: list[float] = []
        self._rates: list[float] = []
        self._places: dict[tuple[float, float], list[int]] = {}

    def add(self, start: int, epoch: float, rate: float, following: float | None) -> bool:
        """Keep a run; True where it begins again at an earlier one, which is dropped."""
        place = self._place_to_return_to(epoch, rate, following)
        if place is not None:
            self._drop_from(place)
        self._places.setdefault((epoch, rate), []).append(len(self.starts))
        self.starts.append(start)
        self._epochs.append(epoch)
        self._rates.append(rate)
        return place is not None

    def _drop_from(self, place: int) -> None:
        """Forget the runs from a place on."""
        for epoch, rate in zip(self._epochs[place:], self._rates[place:], strict=True):
            places = self._places[epoch, rate]
            while places and places[-1] >= place:
                places.pop()
        del self.starts[place:], self._epochs[place:], self._rates[place:]

    def _place_to_return_to(self, epoch: float, rate: float, following: float | None) -> int | None:
        """Return the run that a new one repeats; None where it goes on."""
        if not self.starts or epoch > self._epochs[-1]:
            return None
        seen = self._places.get((epoch, rate), [])
        falls = epoch < self._epochs[-1]
        if not seen:
            return bisect_left(self._epochs, epoch) if falls else None
        for place in (*seen[-_MOST_OCCURRENCES:], seen[0]):
            after = place + 1
            if after < len(self._rates) and following == self._rates[after]:
                return place  # it goes on as it did
        return seen[0] if falls or self._against_trend(rate, following, seen[0]) else None

    def _against_trend(self, rate: float, following: float | None, place: int) -> bool:
        """Return whether a rate that was seen at a place is a step back, and not a turn."""
        if len(self._rates) < 2:
            return False
        trend = np.sign(self._rates[-1] - self._rates[-2])
        if np.sign(rate - self._rates[-1]) != -trend:
            return False
        if following is None:  # the end: a turn goes back by one value, a restart by more
            return place < len(self._rates) - 2
        return bool(np.sign(following - rate) == trend)


def _stay_below(step: Array, falls: Rows) -> Rows:
    """Return the falls after which at least two records stay below what had been reached."""
    if not len(falls):
        return falls
    highest = np.maximum.accumulate(step)
    below = step < highest
    following = np.minimum(falls + 1, len(step) - 1)
    return falls[
        below[falls] & below[following] & (following > falls) & (step[following] > step[falls])
    ]


# ---
# The same record more than once: printed by several processes, in two formats, or by a bar too.
#
# training_logs.md section 4.1: equal copies are one record, a second print of the same result in
# another format is the same record, and a bar counts only where no line carries its step.
_NAN_BITS: Final = np.uint64(0x7FF8_0000_0000_0000)
_MULTIPLIER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFT: Final = np.uint64(29)

_TELLING_METRICS: Final = 3  # equal in so many metrics, records without a step are copies

_FILES: Final = ("S5", "S6", "tracker")  # full precision: preferred to what a console rounds
_ACCURACY_TOLERANCE: Final = 0.0051  # two decimals in one format, more in the other
_FINE_TOLERANCE: Final = 0.000_51
_MOST_PASSES: Final = 4  # prints of one result
_MOST_FILE_RECORDS: Final = 2000


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


def without_equal_copies(
    columns: RecordColumns, *, in_sequence: bool
) -> tuple[RecordColumns, tuple[int, ...]]:
    """Return the records without those that are equal to an earlier one, and the lines of these."""
    names = [*columns.measured, "step", "epoch", "learning_rate", "format"]
    prints = _fingerprints([columns.column(name) for name in names])
    _, first = np.unique(prints, return_index=True)
    if len(first) == len(columns):
        return columns, ()
    kept = np.zeros(len(columns), dtype=bool)
    kept[first] = True
    if in_sequence:
        metrics = np.zeros(len(columns), dtype=np.intp)
        for name in columns.measured:
            metrics += np.isfinite(columns.values[name])
        kept |= np.isnan(columns.column("step")) & (
            (metrics < _TELLING_METRICS) | ~columns.finite()
        )
    return columns.take(kept), tuple(int(line) for line in columns.column("line")[~kept])


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
    return _filled(columns, target, source)


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
    """Return the records in which some say what others said too, without these others."""
    precise = np.isin(columns.label_texts("format")[source].astype(str), _FILES)
    values = {name: column.copy() for name, column in columns.values.items()}
    for name in (*columns.measured, "step", "epoch", "learning_rate"):
        if name not in values:
            continue
        column = values[name]
        given = ~np.isnan(column[source]) & (np.isnan(column[target]) | precise)
        column[target[given]] = column[source[given]]
    left = np.ones(len(columns), dtype=bool)
    left[source] = False
    return RecordColumns(values=values, labels=columns.labels).take(left)


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
    return _filled(columns, np.array(targets, dtype=np.intp), np.array(sources, dtype=np.intp))


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


_CODES: Final = {Verdict.RESTART: "step-restart", Verdict.SEVERAL_PROCESSES: "conflicting-records"}
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
        columns = bars_counted_on(table.records(), table.total_steps)
        columns = without_bars(columns)
        columns = _collapsed(columns, result, in_sequence=not _by_epoch(columns))
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
        columns = _collapsed(table.records(), result, in_sequence=False)
        columns = _outside(columns, dropped)
        own = columns.column("step")
        columns = _with_train_steps(columns, printed_steps)
        settled = _settled_validation(columns, own, several=several)
        result.warn(*_found(columns, settled))
        columns = columns.take(settled.rows)
        step = columns.column("step")
        key = step if np.isfinite(step).any() else columns.column("epoch")
        result.splits[Split.VAL] = columns.take(np.argsort(_carried(key), kind="stable"))
    return result


def _collapsed(columns: RecordColumns, result: Normalised, *, in_sequence: bool) -> RecordColumns:
    """Return records without copies and second prints."""
    result.formats |= {BAR_FORMATS.get(label, label) for label in columns.labels_in("format")}
    ranks = _ranks(columns)
    several = bool(ranks.any())
    if several:  # of equal copies that of the lowest rank is kept: its stream stays whole
        columns = columns.take(np.argsort(ranks, kind="stable"))
    columns, copies = without_equal_copies(columns, in_sequence=in_sequence)
    result.warn("duplicate-records", copies)
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
    return Settled(rows[settled.rows], settled.verdict, rows[settled.places])


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
    return Settled(np.flatnonzero(lowest), Verdict.SEVERAL_PROCESSES, np.flatnonzero(~lowest))


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
        return Settled(kept[merged.rows], each[0].verdict, of_ranks[0][each[0].places])
    return Settled(kept[merged.rows], merged.verdict, kept[merged.places])


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
    found = columns.labels_in("stream")  # sorted by the numbers in each
    names = sorted(found, key=lambda name: ([int(n) for n in _DIGITS.findall(name)], name))
    if not 1 < len(names) <= _MOST_STREAMS:
        return np.zeros(len(columns))
    places = np.zeros(len(columns.labels))
    for place, name in enumerate(names):
        places[columns.labels.index(name)] = place
    return places[np.nan_to_num(columns.column("stream")).astype(np.intp)]


def _named_ranks(columns: RecordColumns) -> bool:
    """Return whether the labels of the streams number the processes of one run."""
    names = columns.labels_in("stream")
    forms = {_DIGITS.sub("0", name) for name in names}
    return len(forms) == 1 and all(_RANK.search(name) for name in names)
