"""Which rows calibrate and which are predicted: the ways to ask how wrong the model is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from calibration.points.arrays import SystemRows, numbers, texts

Mask = NDArray[np.bool_]

SMALL_BATCH = 8.0
"""Largest batch of the rows that calibrate in `LoadSplit`. [requests]"""


class Split(Protocol):
    """A way to part the rows of a system.

    A split yields pairs of masks: rows to calibrate on, rows to predict.
    """

    @property
    def name(self) -> str:
        """What to call it in reports."""

    def parts(self, rows: SystemRows) -> Iterator[tuple[Mask, Mask]]:
        """Pairs of masks over the rows of a system; none where it does not apply."""


def _leave_out(labels: Sequence[object]) -> Iterator[tuple[Mask, Mask]]:
    """Leave out each label in turn; nothing where there is only one."""
    levels = list(dict.fromkeys(labels))
    if len(levels) < 2:
        return
    codes = np.array([levels.index(label) for label in labels])
    for code in range(len(levels)):
        yield codes != code, codes == code


@final
@dataclass(frozen=True, slots=True)
class WorkloadSplit:
    """Each workload in turn is not seen; its baselines are known."""

    name: str = "workload"

    def parts(self, rows: SystemRows) -> Iterator[tuple[Mask, Mask]]:
        """Leave out all rows of a workload."""
        return _leave_out(texts(rows.frame, "workload"))


@final
@dataclass(frozen=True, slots=True)
class ConfigurationSplit:
    """Each depth, branching and number of verified tokens in turn is not seen."""

    name: str = "config"

    def parts(self, rows: SystemRows) -> Iterator[tuple[Mask, Mask]]:
        """Leave out all rows of a drafting configuration, at every load."""
        return _leave_out(
            [
                (one.num_steps, one.topk, one.num_draft_tokens)
                for one in (rows.configurations[index] for index in rows.rows.configuration)
            ]
        )


@final
@dataclass(frozen=True, slots=True)
class RowSplit:
    """Each row in turn is not seen."""

    name: str = "row"

    def parts(self, rows: SystemRows) -> Iterator[tuple[Mask, Mask]]:
        """Leave out one row."""
        return _leave_out(range(len(rows.rows)))


@final
@dataclass(frozen=True, slots=True)
class FewRowsSplit:
    """A few random rows calibrate, all others are predicted.

    Parameters
    ----------
    num_rows : int
        Rows to calibrate on; 0 predicts everything from the prior.
    draws : int
        How often to draw them.
    seed : int
        Of the generator.
    """

    num_rows: int
    draws: int
    seed: int

    @property
    def name(self) -> str:
        """What to call it in reports."""
        return f"{self.num_rows} rows" if self.num_rows != 1 else "1 row"

    def parts(self, rows: SystemRows) -> Iterator[tuple[Mask, Mask]]:
        """Draw rows without replacement; the prior alone needs no draws."""
        count = len(rows.rows)
        if count <= self.num_rows:
            return
        generator = np.random.default_rng(self.seed)
        for _ in range(self.draws if self.num_rows else 1):
            chosen = np.zeros(count, dtype=np.bool_)
            chosen[generator.choice(count, self.num_rows, replace=False)] = True
            yield chosen, ~chosen


@final
@dataclass(frozen=True, slots=True)
class FittedSplit:
    """Every row calibrates and is predicted: not unseen, but the decision that a user would take."""

    name: str = "fitted"

    def parts(self, rows: SystemRows) -> Iterator[tuple[Mask, Mask]]:
        """All rows, twice."""
        everything = np.ones(len(rows.rows), dtype=np.bool_)
        yield everything, everything


@final
@dataclass(frozen=True, slots=True)
class LoadSplit:
    """Small batches at the shortest context calibrate; other batches and contexts are predicted.

    Parameters
    ----------
    measured : bool
        Predict rows whose baseline was measured at the verified rows (batch x num_draft_tokens) and
        their context; otherwise the rows where it was not.
    """

    measured: bool

    @property
    def name(self) -> str:
        """What to call it in reports."""
        return "load, measured" if self.measured else "load, elsewhere"

    def parts(self, rows: SystemRows) -> Iterator[tuple[Mask, Mask]]:
        """One part, for systems with a batch curve and two rows or more to calibrate on."""
        if rows.curve is None:
            return
        batch = numbers(rows.frame, "batch_size")
        context = np.nan_to_num(numbers(rows.frame, "context_tokens"))
        seen = (batch <= SMALL_BATCH) & (context == context.min())
        known = set(
            zip(rows.curve.batch_size.tolist(), rows.curve.context_tokens.tolist(), strict=True)
        )
        verified = batch * np.array(
            [
                rows.configurations[index].num_draft_tokens or np.nan
                for index in rows.rows.configuration
            ]
        )
        measured = np.array(
            [pair in known for pair in zip(verified.tolist(), context.tolist(), strict=True)]
        )
        tested = ~seen & (measured == self.measured)
        if seen.sum() >= 2 and tested.any():
            yield seen, tested
