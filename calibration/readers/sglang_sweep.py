"""Cells of one setting of a sweep that names steps, topk and draft tokens as SGLang's flags."""

from collections.abc import Mapping
from typing import Any

from calibration.readers.json_text import number_at
from calibration.readers.reading import Cell
from calibration.readers.row_checks import Refusal
from calibration.readers.sglang_flags import sglang_cells

_ROUNDING = 1e-9


def sweep_cells(
    fields: Mapping[str, Any], *, accept_length: float | None
) -> tuple[dict[str, Cell | None], list[str]]:
    """Return the speculation cells of a setting, and codes of what is to be said about it."""
    num_steps = number_at(fields, "steps")
    if num_steps == 0:
        known = 1.0 if accept_length is None or accept_length <= 0 else accept_length
        return {"engine": "sglang", "num_steps": 0.0, "accept_length": known}, []
    cells: dict[str, Cell | None] = {"engine": "sglang", "accept_length": accept_length}
    if num_steps is None:
        return cells, ["depth_unknown"] if (accept_length or 0) > 1 else []
    flags = sglang_cells(
        {
            "speculative_num_steps": num_steps,
            "speculative_eagle_topk": number_at(fields, "topk"),
            "speculative_num_draft_tokens": number_at(fields, "num_draft_tokens"),
        }
    )
    return cells | flags.cells, list(flags.notes)


def sweep_refusal(cells: Mapping[str, Cell | None]) -> Refusal | None:
    """Return why no setting can have its accept length; None where it can."""
    accept_length = cells.get("accept_length")
    if not isinstance(accept_length, float):
        return Refusal(
            code="missing_accept_length",
            column="accept_length",
            message="no accept length of a run that drafts",
        )
    if cells.get("num_steps") != 0 or accept_length <= 1 + _ROUNDING:
        return None
    return Refusal(
        code="accept_length_above_depth",
        column="accept_length",
        message=f"{accept_length:g} tokens a step without drafts; a step emits one, so the server "
        "speculated after all",
    )
