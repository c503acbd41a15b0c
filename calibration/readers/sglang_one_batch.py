"""Cells of one case of ``bench_one_batch_server``, whether it is a JSON line or a markdown row."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calibration.readers.reading import Cell
from specmodel.units import MILLI

# What the notes of `one_batch_cells` say to a user.
ONE_BATCH_MESSAGES: Final[Mapping[str, str]] = {
    "depth_unknown": "the benchmark does not write the number of draft steps: num_steps is left "
    "empty; give it as an option or take it from the server's log",
    "speculation_unknown": "no accept length at all: whether the server speculated is not known, "
    "so accept_length, num_steps and step_time_ms are left empty",
}

_NOT_SPECULATING = ("n/a", "na", "none", "null", "-", "\N{EM DASH}", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a case says of speculation."""

    is_known: bool  # whether the layout says it
    accept_length: float | None = None  # none where it says that there is none

    @property
    def is_baseline(self) -> bool:
        """Whether the server did not speculate."""
        return self.is_known and self.accept_length is None


def acceptance_of(written: object) -> Acceptance:
    """Return what an accept length means that stands in a case."""
    if written is None:
        return Acceptance(is_known=True)
    if isinstance(written, str):
        if written.strip().casefold() in _NOT_SPECULATING:
            return Acceptance(is_known=True)
        try:
            written = float(written)
        except ValueError:
            return Acceptance(is_known=False)
    if isinstance(written, bool) or not isinstance(written, int | float):
        return Acceptance(is_known=False)
    if not math.isfinite(written):
        return Acceptance(is_known=False)
    return Acceptance(is_known=True, accept_length=float(written) if written > 0 else None)


def one_batch_cells(
    batch_size: float, output_tokens_per_s: float, acceptance: Acceptance
) -> tuple[dict[str, Cell | None], tuple[str, ...]]:
    """Return the cells of a case, and codes of `ONE_BATCH_MESSAGES`."""
    cells: dict[str, Cell | None] = {
        "engine": "sglang",
        "batch_size": batch_size,
        "output_tokens_per_s": output_tokens_per_s,
        "throughput_origin": "step_time",
    }
    if not acceptance.is_known:
        return cells, ("speculation_unknown",)
    if acceptance.accept_length is None:
        cells["num_steps"] = 0.0
    accept_length = acceptance.accept_length or 1.0
    cells["accept_length"] = accept_length
    cells["step_time_ms"] = batch_size * accept_length / output_tokens_per_s / MILLI
    return cells, () if acceptance.is_baseline else ("depth_unknown",)
