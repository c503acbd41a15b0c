"""What SGLang was started with: its server arguments as canonical cells, and nothing else of them.

The arguments of a server hold paths and keys; only a fixed list of them is ever looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from calibration.readers.check import is_block_drafter
from calibration.readers.formats import messages
from calibration.readers.model_names import model_name, plain_name
from calibration.readers.reading import Cell

# What each code of `SglangFlags.notes` says to a user.
NOTE_MESSAGES: Final = messages("sglang_flags")

_ABSENT = ("", "none", "null")
_CAP_OF_SPECULATION = 48  # [requests]
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
_LARGEST = 1e15  # no argument of a server is beyond it


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangFlags:
    """The server arguments of one SGLang server that bear on speed."""

    # canonical columns: ``target_model``, ``engine_version``, ``tp_size`` and ``variant``
    # (``eager`` without CUDA graphs) where known; ``num_steps`` 0 without speculation;
    # ``algorithm``, ``draft_model``, ``num_steps``, ``topk``, ``num_draft_tokens`` with it
    cells: dict[str, Cell] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # codes of `NOTE_MESSAGES`, sorted
    dp_size: int | None = None  # schedulers of the server
    speculates: bool | None = None  # none where the arguments do not say
    # whether the depth changed while the server ran; its cells are empty then
    adaptive: bool = False


def sglang_cells(arguments: Mapping[str, object]) -> SglangFlags:
    """Return what the server arguments of SGLang say, in canonical columns."""
    cells: dict[str, Cell | None] = {
        "target_model": model_name(_text(arguments, "model_path", "model")),
        "engine_version": plain_name(_text(arguments, "version", "sglang_version")),
        "tp_size": _number(arguments, "tp_size", "tensor_parallel_size", "tp"),
        "variant": "eager" if _is_true(arguments, "disable_cuda_graph") else None,
    }
    notes: list[str] = []
    speculates = True if _number(arguments, "speculative_num_steps") else None
    if "speculative_algorithm" in arguments:
        speculates = _text(arguments, "speculative_algorithm") is not None
    adaptive = bool(speculates) and _is_true(arguments, "speculative_adaptive")
    if speculates:
        cells |= _drafting(arguments, notes, adaptive=adaptive)
        if _number(arguments, "max_running_requests") == _CAP_OF_SPECULATION:
            notes.append("max_running_requests_48")
        thresholds = [_number(arguments, name) for name in _THRESHOLDS]
        if any(threshold is not None and threshold < 1 for threshold in thresholds):
            notes.append("lossy_acceptance")
    elif speculates is False:
        cells["num_steps"] = 0.0
    dp_size = _number(arguments, "dp_size", "data_parallel_size", "dp")
    return SglangFlags(
        cells={name: cell for name, cell in cells.items() if cell is not None},
        notes=tuple(sorted(notes)),
        dp_size=int(dp_size) if dp_size is not None else None,
        speculates=speculates,
        adaptive=adaptive,
    )


def _drafting(
    arguments: Mapping[str, object], notes: list[str], *, adaptive: bool
) -> dict[str, Cell | None]:
    """Return the cells of a server that speculates; add what is to be said."""
    cells: dict[str, Cell | None] = {
        "algorithm": plain_name(_text(arguments, "speculative_algorithm")),
        "draft_model": model_name(
            _text(arguments, "speculative_draft_model_path", "speculative_draft_model")
        ),
        "topk": _number(arguments, "speculative_eagle_topk"),
    }
    if adaptive:
        notes.append("adaptive_steps")
        return cells
    num_steps = _number(arguments, "speculative_num_steps")
    num_draft_tokens = _number(arguments, "speculative_num_draft_tokens")
    if num_steps == 0:
        notes.append("draft_model_idle")
        return cells
    block = is_block_drafter({"algorithm": cells["algorithm"] or ""})
    if num_steps is not None and cells["topk"] == 1 and not block:
        if num_draft_tokens not in {None, num_steps + 1}:
            notes.append("draft_tokens_forced")
        num_draft_tokens = num_steps + 1
    return cells | {"num_steps": num_steps, "num_draft_tokens": num_draft_tokens}


def _number(arguments: Mapping[str, object], *names: str) -> float | None:
    """Return the first of some arguments that is a number."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if -_LARGEST <= value <= _LARGEST:  # asked first: a huge whole number is no float
            return float(value)
    return None


def _text(arguments: Mapping[str, object], *names: str) -> str | None:
    """Return the first of some arguments that is a text, None where it means nothing."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip().casefold() not in _ABSENT:
            return value.strip()
    return None


def _is_true(arguments: Mapping[str, object], name: str) -> bool:
    """Return whether an argument is set."""
    value = arguments.get(name)
    return value is True or (isinstance(value, str) and value.strip().casefold() == "true")
