"""The one check of a point, whatever format it came in: its numbers, alone and together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from calibration.readers.cells import bounded
from calibration.readers.columns import COLUMNS, Column, Kind
from calibration.readers.reading import Cell, Row
from specmodel.errors import LeftOut
from specmodel.units import PERCENT

# Algorithms that draft a block in one forward: the depth does not bound the accept length.
BLOCK_DRAFTERS = ("dflash", "dspark", "peagle", "pard", "domino", "dfly")

# Largest relative gap between an accept length and 1 + sum of full accuracy that is not said.
SUM_TOLERANCE = 0.05

_COLUMNS: Final[Mapping[str, Column]] = {column.name: column for column in COLUMNS}
_PERCENT_TOLERANCE = 0.02
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRow:
    """A row that holds together."""

    cells: Mapping[str, Cell]  # the cells, completed by what follows from them
    notes: tuple[str, ...] = ()  # codes of warnings about it


def number(cells: Mapping[str, Cell], name: str) -> float | None:
    """Return a number of a row, None where it is missing."""
    value = cells.get(name)
    return value if isinstance(value, float) else None


def is_block_drafter(cells: Mapping[str, Cell]) -> bool:
    """Return whether a row drafts a whole block in one forward.

    Said by the algorithm, or by a chain of one step that verifies more than its draft and root.
    """
    algorithm = str(cells.get("algorithm", "")).casefold().replace("-", "").replace("_", "")
    if algorithm.startswith(BLOCK_DRAFTERS):
        return True
    chain = number(cells, "topk") in {None, 1.0}
    return (
        chain and number(cells, "num_steps") == 1 and (number(cells, "num_draft_tokens") or 0) > 2
    )


def longest_accept_length(cells: Mapping[str, Cell]) -> tuple[float, str] | None:
    """Return the most tokens that a round of this row can emit, and why; None where unknown."""
    num_steps, num_draft_tokens = number(cells, "num_steps"), number(cells, "num_draft_tokens")
    by_depth = num_steps is not None and not is_block_drafter(cells)
    if num_steps is not None and by_depth and num_steps + 1 <= (num_draft_tokens or math.inf):
        return num_steps + 1, "num_steps + 1"
    if num_draft_tokens:
        return num_draft_tokens, "num_draft_tokens"
    return None


def check_row(cells: Mapping[str, Cell]) -> CheckedRow | LeftOut:
    """Return the row with its root counted and its accept length filled, or why it is refused."""
    completed, notes = _with_root(cells)
    refusal = (
        _refused_accuracy(completed) or _refused_topk(completed) or _refused_experts(completed)
    )
    if refusal is not None:
        return refusal
    if "accept_length" not in completed and number(completed, "num_steps") != 0:
        filled = _from_accuracy(completed)
        if isinstance(filled, LeftOut):
            return filled
        completed = {**completed, "accept_length": filled}
        notes = (*notes, "accept_length_from_accuracy")
    refusal = _refused_accept_length(completed)
    if refusal is not None:
        return refusal
    return CheckedRow(cells=completed, notes=(*notes, *_notes(completed)))


def _with_root(cells: Mapping[str, Cell]) -> tuple[Mapping[str, Cell], tuple[str, ...]]:
    """Return the row with the root counted: a chain of k that verifies k has left it out."""
    num_steps = number(cells, "num_steps")
    sglang = str(cells.get("engine", "")).casefold().startswith("sglang")  # counts the root
    chain = number(cells, "topk") in {None, 1.0} and not is_block_drafter(cells)
    if num_steps and chain and not sglang and number(cells, "num_draft_tokens") == num_steps:
        return {**cells, "num_draft_tokens": num_steps + 1}, ("root_added",)
    return cells, ()


def _refused_accuracy(cells: Mapping[str, Cell]) -> LeftOut | None:
    """Return what is wrong with the list of full accuracies."""
    accuracy = cells.get("full_accuracy", ())
    if not isinstance(accuracy, tuple) or not accuracy:
        return None
    if max(accuracy) > 1:
        accept_length = number(cells, "accept_length")
        as_percent = 1 + sum(accuracy) * PERCENT
        fits = (
            accept_length is not None
            and max(accuracy) <= 1 / PERCENT
            and abs(as_percent - accept_length) <= _PERCENT_TOLERANCE * accept_length
        )
        suspicion = "as percentages they give the row's accept length" if fits else "a percentage?"
        return LeftOut(
            code="accuracy_above_one",
            column="full_accuracy",
            message=f"accuracy {max(accuracy):g} is above 1; {suspicion}; write "
            f"{max(accuracy):g}% or divide by 100",
            looks_like_percent=fits,
        )
    for depth, (shallow, deep) in enumerate(pairwise(accuracy), start=2):
        if deep > shallow + _ROUNDING:
            return LeftOut(
                code="accuracy_increasing",
                column="full_accuracy",
                message=f"full accuracy rises from {shallow:g} to {deep:g} at depth {depth}, but "
                "the chance that all drafts up to a depth are accepted cannot rise; are these "
                "conditional accuracies?",
            )
    return None


def _refused_topk(cells: Mapping[str, Cell]) -> LeftOut | None:
    """Return why a row that drafts cannot have this tree."""
    for name in ("topk", "num_draft_tokens"):
        if number(cells, name) == 0 and number(cells, "num_steps") != 0:
            return LeftOut(
                code="not_positive", column=name, message="0 is only possible where num_steps is 0"
            )
    return None


def _refused_experts(cells: Mapping[str, Cell]) -> LeftOut | None:
    """Return why no model has these expert counts."""
    experts, per_token = number(cells, "num_experts"), number(cells, "experts_per_token")
    if experts is None or per_token is None or per_token <= experts:
        return None
    return LeftOut(
        code="out_of_range",
        column="experts_per_token",
        message=f"{per_token:g} is above num_experts = {experts:g}, but no token goes to more "
        "experts than there are; are the two columns exchanged?",
    )


def _from_accuracy(cells: Mapping[str, Cell]) -> float | LeftOut:
    """Return the accept length that follows from the full accuracies."""
    accuracy = cells.get("full_accuracy")
    if not isinstance(accuracy, tuple):
        return LeftOut(
            code="missing_accept_length",
            column="accept_length",
            message="no accept length, and no full_accuracy that gives it; a run without "
            "speculation has num_steps 0",
        )
    depth = _depth(cells)
    if depth is not None and len(accuracy) < depth:
        return LeftOut(
            code="missing_accept_length",
            column="accept_length",
            message=f"no accept length, and full_accuracy has {len(accuracy)} of {depth:g} depths",
        )
    return 1 + sum(accuracy[: None if depth is None else int(depth)])


def _depth(cells: Mapping[str, Cell]) -> float | None:
    """Return the number of draft tokens on the longest path, None where it is unknown."""
    longest = longest_accept_length(cells)
    return None if longest is None else longest[0] - 1


def _refused_accept_length(cells: Mapping[str, Cell], *, measured: bool = False) -> LeftOut | None:
    """Return why no round can have this accept length; one that was `measured` counts the bonus token."""
    accept_length = number(cells, "accept_length")
    if accept_length is None:
        return None
    if accept_length < 1 - _ROUNDING:
        counted = "" if measured else "; accept_length counts it"
        return LeftOut(
            code="accept_length_out_of_range",
            column="accept_length",
            message=f"{accept_length:g} is below 1, but a round emits at least the bonus token{counted}",
        )
    bounded_by_depth = not measured or number(cells, "num_steps") != 0
    longest = longest_accept_length(cells) if bounded_by_depth else None
    if longest is not None and accept_length > longest[0] * (1 + _ROUNDING):
        return LeftOut(
            code="accept_length_above_depth" if measured else "accept_length_out_of_range",
            column="accept_length",
            message=f"{accept_length:g} is above {longest[1]} = {longest[0]:g}, the longest that "
            "a round of this row can emit",
        )
    return None


def _notes(cells: Mapping[str, Cell]) -> tuple[str, ...]:
    """Return the codes of what is odd but possible."""
    notes = []
    chain = number(cells, "topk") in {None, 1.0}
    accept_length, depth = number(cells, "accept_length"), _depth(cells)
    accuracy = cells.get("full_accuracy")
    if isinstance(accuracy, tuple) and accept_length is not None and chain:
        whole = depth is None or len(accuracy) >= depth
        total = 1 + sum(accuracy[: None if depth is None else int(depth)])
        gap = total / accept_length - 1
        if gap > SUM_TOLERANCE or (whole and gap < -SUM_TOLERANCE):
            notes.append("accuracy_sum_mismatch")
    num_steps, num_draft_tokens = number(cells, "num_steps"), number(cells, "num_draft_tokens")
    if (
        num_steps
        and number(cells, "topk") == 1
        and num_draft_tokens not in {None, num_steps + 1}
        and not is_block_drafter(cells)
    ):
        notes.append("draft_tokens_not_a_chain")
    return tuple(notes)


def measured_row(
    line: int,
    cells: Mapping[str, Cell | None],
    *,
    load: tuple[object, ...] | None = None,
    details: Mapping[str, Cell | None] | None = None,
) -> Row | LeftOut:
    """Return a row of canonical columns, or why no run can be like that."""
    filled: dict[str, Cell] = {
        name: float(cell) if isinstance(cell, int) else cell
        for name, cell in cells.items()
        if cell is not None and cell not in {"", ()}
    }
    for name, cell in filled.items():
        column = _COLUMNS.get(name)
        if column is None or column.kind is Kind.TEXT:
            continue
        values = cell if isinstance(cell, tuple) else (cell,)
        numbers = tuple(value for value in values if isinstance(value, float))
        if len(numbers) < len(values):
            return LeftOut(code="not_a_number", column=name, message=f"{cell!r} is not a number")
        written = f"{cell:g}" if isinstance(cell, float) else str(cell)[:40]
        refusal = bounded(written, column, numbers)
        if refusal is not None:
            return refusal
    num_steps = number(filled, "num_steps")
    chain = number(filled, "topk") == 1 and not is_block_drafter(filled)
    if num_steps and chain and "num_draft_tokens" not in filled:
        filled["num_draft_tokens"] = num_steps + 1
    refusal = _refused_accept_length(filled, measured=True)
    if refusal is not None:
        return refusal
    accuracy = filled.get("full_accuracy")
    if isinstance(accuracy, tuple) and max(accuracy) > 1 + _ROUNDING:
        message = f"accuracy {max(accuracy):g} is above 1"
        return LeftOut(code="accuracy_above_one", column="full_accuracy", message=message)
    return Row(
        line=line,
        cells=filled,
        load=load,
        details={k: v for k, v in (details or {}).items() if v is not None},
    )
