"""The map from draft tokens to target tokens: read without torch, and every check of it."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from drafter.checkpoint_contents import CheckpointContents
from drafter.safetensors_header import TensorEntry
from drafter.tensor_names import DRAFT_TO_TARGET, TARGET_HAS_DRAFT
from specmodel.errors import FormatError

_TYPES: Final = {"I64": "<i8", "I32": "<i4", "BOOL": "?"}


def draft_to_target(contents: CheckpointContents) -> NDArray[np.int64]:
    r"""Offsets of a checkpoint, checked.

    .. math:: t_i = i + \text{d2t}_i

    Parameters
    ----------
    contents : CheckpointContents
        The checkpoint.

    Returns
    -------
    numpy.ndarray, shape (draft_vocab_size,)
        :math:`\text{d2t}`; zeros where the vocabulary is the target's and the file has none, [tokens].

    Raises
    ------
    FormatError
        If a target token is outside the vocabulary or has two draft tokens, or ``t2d`` disagrees.

    Notes
    -----
    Offsets in all public code, not target tokens; where the entries would only make sense as target
    tokens, the error says so.

    Examples
    --------
    >>> check_offsets(np.array([1, 0, 5]), None, 10, Path("model.safetensors"))
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: model.safetensors: tensor d2t is no map of offsets: draft tokens 0 and 1 both map to 1...
    """
    spec = contents.config.spec
    entry = contents.tensors.get(DRAFT_TO_TARGET)
    if entry is None:
        return np.zeros(spec.draft_vocab_size, dtype=np.int64)
    offsets = _values(entry).astype(np.int64)
    known = contents.tensors.get(TARGET_HAS_DRAFT)
    flags = None if known is None else _values(known).astype(np.bool_)
    check_offsets(offsets, flags, spec.target_vocab_size, entry.path)
    return offsets


def check_offsets(
    offsets: NDArray[np.int64],
    has_draft: NDArray[np.bool_] | None,
    target_vocab_size: int,
    path: Path,
) -> None:
    r"""Refuse offsets that are no map from draft tokens to target tokens.

    .. math:: 0 \le t_i < V,\quad t_i \ne t_j,\quad \text{t2d}_{t_i},\quad \sum \text{t2d} = V_d

    Parameters
    ----------
    offsets : numpy.ndarray, shape (draft_vocab_size,)
        ``d2t``, [tokens].
    has_draft : numpy.ndarray, shape (target_vocab_size,), or None
        ``t2d``, where the file has it.
    target_vocab_size : int
        :math:`V`, [tokens].
    path : Path
        The file, for messages.

    Raises
    ------
    FormatError
        Naming the first draft token that is wrong.

    Notes
    -----
    Draft tokens need not be in the order of their target tokens.

    Examples
    --------
    >>> check_offsets(np.array([0, 1, 4]), None, 10, Path("model.safetensors"))
    """
    tokens = np.arange(offsets.size, dtype=np.int64) + offsets
    outside = np.flatnonzero((tokens < 0) | (tokens >= target_vocab_size))
    reason = ""
    if outside.size:
        first = int(outside[0])
        reason = (
            f"draft token {first} maps to {int(tokens[first])}, outside the {target_vocab_size} target "
            "tokens"
        )
    else:
        reason = _collision(tokens)
    if reason:
        raise FormatError(
            path,
            f"tensor {DRAFT_TO_TARGET} is no map of offsets: {reason}{_absolute(offsets, has_draft, target_vocab_size)}",
        )
    if has_draft is None:
        return
    unmarked = np.flatnonzero(~has_draft[tokens])
    if unmarked.size:
        first = int(unmarked[0])
        raise FormatError(
            path,
            f"tensor {TARGET_HAS_DRAFT} is false at {int(tokens[first])}, which draft token {first} maps to",
        )
    marked = int(has_draft.sum())
    if marked != offsets.size:
        raise FormatError(
            path,
            f"tensor {TARGET_HAS_DRAFT} is true for {marked} target tokens, but there are {offsets.size} "
            "draft tokens",
        )


def _collision(tokens: NDArray[np.int64]) -> str:
    """Two draft tokens of one target token; empty where there are none."""
    order = np.argsort(tokens, kind="stable")
    same = np.flatnonzero(np.diff(tokens[order]) == 0)
    if not same.size:
        return ""
    first, second = (int(order[same[0] + step]) for step in (0, 1))
    return f"draft tokens {first} and {second} both map to {int(tokens[first])}"


def _absolute(
    entries: NDArray[np.int64], has_draft: NDArray[np.bool_] | None, target_vocab_size: int
) -> str:
    """A hint where the entries would be sound as target tokens."""
    inside = bool(np.all((entries >= 0) & (entries < target_vocab_size)))
    if not inside or np.unique(entries).size != entries.size or entries.size == 1:
        return ""
    if has_draft is not None and not has_draft[entries].all():
        return ""
    return "; the entries look like target tokens: subtract the draft token from each"


def _values(entry: TensorEntry) -> NDArray[np.generic]:
    """Data of a small tensor."""
    try:
        with entry.path.open("rb") as file:
            file.seek(entry.start)
            data = file.read(entry.num_bytes)
    except OSError as error:
        raise FormatError(entry.path, f"cannot be read: {error.strerror or error}") from None
    if len(data) != entry.num_bytes:
        raise FormatError(entry.path, f"tensor {entry.name} is cut short; copy the file again")
    return np.frombuffer(data, dtype=np.dtype(_TYPES[entry.dtype]))
