"""Steps, epochs and learning rates that come again: a run that was started again, or several processes.

training_logs.md section 4.1. Everything here works on keys in the order of the file and answers with
the rows that count.
"""

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from math import isnan
from typing import Final

import numpy as np

from calibration.training.record_columns import Rows
from calibration.training.records import Array


class Verdict(StrEnum):
    """Why keys come again."""

    NONE = "none"
    RESTART = "restart"
    SEVERAL_PROCESSES = "several processes"


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return Settled(rows=order, verdict=verdict, places=began_again)
    if len(falls) <= max(1.0, repeats / 2):
        last = np.concatenate((~same, [True]))
        return Settled(rows=order[last], verdict=Verdict.RESTART, places=falls)
    if priority is not None:
        order = np.lexsort((priority, step))
        same = step[order[1:]] == step[order[:-1]]
    first = np.concatenate(([True], ~same))
    return Settled(
        rows=order[first], verdict=Verdict.SEVERAL_PROCESSES, places=np.sort(order[~first])
    )


def settled_epochs(key: Array) -> Settled:
    """Return the records that count of a series with one record an epoch or evaluation.

    A key that comes again is a restart: what followed the earlier record of it is dropped.
    """
    known = np.isfinite(key)
    if len(np.unique(key[known])) == int(known.sum()):
        return Settled(
            rows=np.arange(len(key)), verdict=Verdict.NONE, places=np.empty(0, dtype=np.intp)
        )
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
    return Settled(
        rows=np.array(kept, dtype=np.intp),
        verdict=Verdict.RESTART,
        places=np.array(again, dtype=np.intp),
    )


def settled_first(key: Array, *, priority: Array | None = None) -> Settled:
    """Return the first record of each key: those of the process that printed first, or of lowest rank."""
    number = np.arange(len(key))
    order = np.lexsort((number, number if priority is None else priority, key))
    first = np.concatenate(([True], key[order[1:]] != key[order[:-1]]))[: len(order)]
    dropped = np.sort(order[~first])
    verdict = Verdict.SEVERAL_PROCESSES if len(dropped) else Verdict.NONE
    return Settled(rows=np.sort(order[first]), verdict=verdict, places=dropped)


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
        rows=np.concatenate(pieces) if pieces else np.empty(0, dtype=np.intp),
        verdict=Verdict.RESTART if again else Verdict.NONE,
        places=np.array(again, dtype=np.intp),
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
