"""Measured times of a draft model, from its record, as the physical form takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from specmodel.errors import ParameterError
from specmodel.measurement import DraftRecord, load_record
from specmodel.measurement.load_grid import interpolate
from specmodel.record_types import check_types

Array = NDArray[np.float64]

MOST_S: Final = 10.0
"""No draft pass takes longer. [s]"""

_STEP_AXES = ("topk", "batch_size", "context_tokens")
_EXTEND_AXES = ("tokens", "batch_size", "context_tokens")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDraft:
    """Times of the passes of a draft model on one GPU.

    Parameters
    ----------
    name, device : str
        Of the draft model, and of the GPU that it was measured on.
    steps : tuple of (float, float, float, float)
        Branches, requests, context and time of a decode pass, [-], [-], [tokens], [s].
    extends : tuple of (float, float, float, float)
        Rows of a request, requests, context and time of a first pass, [tokens], [-], [tokens], [s].

    Raises
    ------
    ParameterError
        If there is no step or no extend pass, or a time is not above 0 and up to `MOST_S`.
    """

    name: str
    device: str
    steps: tuple[tuple[float, float, float, float], ...]
    extends: tuple[tuple[float, float, float, float], ...]

    def __post_init__(self) -> None:
        for name in ("steps", "extends"):
            rows = getattr(self, name)
            if not rows or not all(_possible(row) for row in rows):
                allowed = f"one or more, times above 0 and up to {MOST_S:g} s"
                raise ParameterError(f"draft {name}", f"{len(rows)} rows", allowed)

    @property
    def words(self) -> str:
        """The draft model in words."""
        return f"{self.name}, its passes measured on {self.device}"

    def step_s(self, branches: Array, batch_size: Array, context_tokens: Array) -> Array:
        """Time of a decode pass at each load, [s]."""
        return _times(self.steps, _STEP_AXES, (branches, batch_size, context_tokens))

    def extend_s(self, rows: Array, batch_size: Array, context_tokens: Array) -> Array:
        """Time of a first pass at each load, [s]."""
        return _times(self.extends, _EXTEND_AXES, (rows, batch_size, context_tokens))

    def outside(
        self, *, topk: float, num_draft_tokens: float, batch_size: float, context_tokens: float
    ) -> tuple[str, ...]:
        """Axes on which a load is outside what was measured, in words."""
        beyond = (
            *interpolate(
                _points(self.steps), (topk, batch_size, context_tokens), _STEP_AXES
            ).beyond,
            *interpolate(
                _points(self.extends), (num_draft_tokens, batch_size, context_tokens), _EXTEND_AXES
            ).beyond,
        )
        return tuple(
            dict.fromkeys(
                f"{one.axis} {one.value:g}, measured {one.low:g} to {one.high:g}" for one in beyond
            )
        )


def measured_draft(record: DraftRecord) -> MeasuredDraft:
    r"""Times of a record.

    .. math:: \text{record} \mapsto t(\text{load})

    Parameters
    ----------
    record : DraftRecord
        Measured, with cold weights.

    Returns
    -------
    MeasuredDraft

    Raises
    ------
    ParameterError
        If the record is of a dry run, or was taken with a hot cache.

    Notes
    -----
    Times between measured loads are log-linear.
    """
    record.check_usable()
    return MeasuredDraft(
        name=record.draft_model,
        device=record.device,
        steps=tuple(
            (float(row.topk), float(row.batch_size), float(row.context_tokens), row.time_s)
            for row in record.steps
        ),
        extends=tuple(
            (float(row.tokens), float(row.batch_size), float(row.context_tokens), row.time_s)
            for row in record.extends
        ),
    )


def read_measured_draft(path: Path) -> MeasuredDraft:
    """Return the times of a ``drafter.json``.

    Parameters
    ----------
    path : path
        Written by ``specmodel drafter time``.

    Returns
    -------
    MeasuredDraft

    Raises
    ------
    FormatError
        If the file is not the record of a measurement.
    ParameterError
        If it was taken with a hot cache.
    """
    return measured_draft(load_record(path))


def measured_draft_from(record: Mapping[str, Any]) -> MeasuredDraft:
    """Return times from the plain JSON of a calibration.

    Parameters
    ----------
    record : mapping
        Fields of `MeasuredDraft`.

    Returns
    -------
    MeasuredDraft

    Raises
    ------
    KeyError, TypeError, ParameterError
        If the record is not sound.
    """
    given = {
        "name": record["name"],
        "device": record["device"],
        "steps": _rows(record["steps"]),
        "extends": _rows(record["extends"]),
    }
    check_types(MeasuredDraft, given)
    return MeasuredDraft(**given)


def _possible(row: Sequence[float]) -> bool:
    """Whether a row is of a load and of a time that a pass may take."""
    return len(row) == 4 and all(0 <= value < np.inf for value in row) and 0 < row[3] <= MOST_S


def _rows(values: Sequence[Sequence[float]]) -> tuple[tuple[float, float, float, float], ...]:
    """Rows of four numbers."""
    return tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in values)


def _times(
    rows: Sequence[tuple[float, float, float, float]],
    axes: tuple[str, str, str],
    at: tuple[Array, Array, Array],
) -> Array:
    """Times at loads, each different load once."""
    points = _points(rows)
    arrays = np.broadcast_arrays(*at)
    table = np.stack([np.ravel(each) for each in arrays], axis=1)
    loads, back = np.unique(table, axis=0, return_inverse=True)
    times = np.array(
        [interpolate(points, tuple(load), axes).value for load in loads.tolist()], dtype=np.float64
    )
    return np.asarray(times[np.ravel(back)].reshape(arrays[0].shape))


def _points(
    rows: Sequence[tuple[float, float, float, float]],
) -> dict[tuple[float, ...], float]:
    """Times by load."""
    return {row[:3]: row[3] for row in rows}
