"""A row from what an engine or a client wrote: checked like any other row of points."""

from collections.abc import Mapping
from typing import Final

from calibration.readers.cells import bounded
from calibration.readers.columns import COLUMNS, Column, Kind
from calibration.readers.reading import Cell, Row
from calibration.readers.row_checks import is_block_drafter, longest_accept_length, number
from specmodel.errors import LeftOut

_COLUMNS: Final[Mapping[str, Column]] = {column.name: column for column in COLUMNS}
_ROUNDING = 1e-9


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
        refusal = _refused(name, cell)
        if refusal is not None:
            return refusal
    num_steps = number(filled, "num_steps")
    chain = number(filled, "topk") == 1 and not is_block_drafter(filled)
    if num_steps and chain and "num_draft_tokens" not in filled:
        filled["num_draft_tokens"] = num_steps + 1
    refusal = _refused_accept_length(filled) or _refused_accuracy(filled)
    if refusal is not None:
        return refusal
    return Row(
        line=line,
        cells=filled,
        load=load,
        details={k: v for k, v in (details or {}).items() if v is not None},
    )


def _refused(name: str, cell: Cell) -> LeftOut | None:
    """Return why a column cannot have a value."""
    column = _COLUMNS.get(name)
    if column is None or column.kind is Kind.TEXT:
        return None
    values = cell if isinstance(cell, tuple) else (cell,)
    numbers = tuple(value for value in values if isinstance(value, float))
    return (
        bounded(_shown(cell), column, numbers)
        if len(numbers) == len(values)
        else LeftOut(code="not_a_number", column=name, message=f"{cell!r} is not a number")
    )


def _refused_accept_length(cells: Mapping[str, Cell]) -> LeftOut | None:
    """Return why no round can have this accept length."""
    accept_length = number(cells, "accept_length")
    if accept_length is None:
        return None
    if accept_length < 1 - _ROUNDING:
        return LeftOut(
            code="accept_length_out_of_range",
            column="accept_length",
            message=f"{accept_length:g} is below 1, but a round emits at least the bonus token",
        )
    longest = longest_accept_length(cells) if number(cells, "num_steps") != 0 else None
    if longest is not None and accept_length > longest[0] * (1 + _ROUNDING):
        return LeftOut(
            code="accept_length_above_depth",
            column="accept_length",
            message=f"{accept_length:g} is above {longest[1]} = {longest[0]:g}, the longest that "
            "a round of this row can emit",
        )
    return None


def _refused_accuracy(cells: Mapping[str, Cell]) -> LeftOut | None:
    """Return what is wrong with the list of full accuracies."""
    accuracy = cells.get("full_accuracy")
    if not isinstance(accuracy, tuple):
        return None
    if max(accuracy) > 1 + _ROUNDING:
        return LeftOut(
            code="accuracy_above_one",
            column="full_accuracy",
            message=f"accuracy {max(accuracy):g} is above 1",
        )
    return None


def _shown(cell: Cell) -> str:
    """Return a cell for a message."""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)[:40]
