"""What is in a checkpoint, checked against its own configuration without reading a weight."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

from drafter.checkpoint_files import checkpoint_tensors
from drafter.config_json import CONFIG_FILE, DraftConfig, read_draft_config
from drafter.safetensors_header import TensorEntry
from drafter.tensor_names import (
    DRAFT_TO_TARGET,
    EMBEDDING,
    HEAD,
    PARALLEL_ONLY,
    TARGET_HAS_DRAFT,
    canonical_names,
    names_of,
    other_layer,
)
from drafter.tensor_shapes import SWITCHED, expected_shapes
from specmodel.errors import FormatError

WEIGHT_TYPES: Final = ("BF16", "F16", "F32", "F64")
"""Stored types that a weight may have."""

Replacement = Literal["the target's embedding", "the target's head", "the embedding", "no offsets"]
"""What stands for a tensor that the checkpoint does not have."""

_EXPECTED_MAP_TYPES: Final = {DRAFT_TO_TARGET: ("I64", "I32"), TARGET_HAS_DRAFT: ("BOOL",)}
_IGNORED: Final = re.compile(r"(?:.*\.)?rotary_emb\.\w+")
_SHOWN_NAMES: Final = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContents:
    """A checkpoint whose tensors are those of its configuration.

    Parameters
    ----------
    folder : Path
        Where it stands.
    config : DraftConfig
        Its configuration.
    tensors : dict of str to TensorEntry
        By canonical name.
    replaced : dict of str to str
        Canonical names that are not in the files, and what stands for them.
    notes : tuple of str
        Those of the configuration, and what was found in the files.
    """

    folder: Path
    config: DraftConfig
    tensors: dict[str, TensorEntry]
    replaced: dict[str, Replacement]
    notes: tuple[str, ...]


def checkpoint_contents(folder: Path | str) -> CheckpointContents:
    r"""Contents of the checkpoint in a folder.

    .. math:: \text{folder} \mapsto \text{contents}

    Parameters
    ----------
    folder : path
        Folder with ``config.json`` and safetensors.

    Returns
    -------
    CheckpointContents

    Raises
    ------
    FormatError
        If a file is missing or unsound, a tensor is missing or has another shape or type than the
        configuration implies, or one is there that the configuration excludes. One line: the tensor,
        what was found, what was expected.

    Notes
    -----
    Reads headers only, so it takes no time and needs neither torch nor a GPU. Embeddings are often left
    out, because the target's serves; that needs equal widths.

    Examples
    --------
    >>> checkpoint_contents("nowhere")
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: nowhere: no such folder; name the folder of a draft checkpoint
    """
    place = Path(folder)
    place = place.parent if place.name == CONFIG_FILE else place
    config = read_draft_config(folder)
    stored = checkpoint_tensors(place)
    renamed = canonical_names(stored)
    _refuse_doubles(place, renamed)
    tensors = {canonical: stored[name] for name, canonical in renamed.items()}
    shapes = expected_shapes(config.spec)
    unknown = _unknown(place, tensors, set(shapes))
    replaced = _replacements(place, config, tensors)
    for name, shape in shapes.items():
        if name not in replaced:
            _check_tensor(place, tensors, name, shape, WEIGHT_TYPES)
    sizes = {
        DRAFT_TO_TARGET: config.spec.draft_vocab_size,
        TARGET_HAS_DRAFT: config.spec.target_vocab_size,
    }
    for name, types in _EXPECTED_MAP_TYPES.items():
        if name in tensors:
            _check_tensor(place, tensors, name, (sizes[name],), types)
    notes = list(config.notes)
    if unknown:
        shown = ", ".join(unknown[:_SHOWN_NAMES]) + (", ..." if len(unknown) > _SHOWN_NAMES else "")
        notes.append(f"not read, since no draft model has such a tensor: {shown}")
    return CheckpointContents(
        folder=place,
        config=config,
        tensors={name: entry for name, entry in tensors.items() if name not in unknown},
        replaced=replaced,
        notes=tuple(notes),
    )


def _refuse_doubles(folder: Path, renamed: dict[str, str]) -> None:
    """A tensor under two names leaves open which one counts."""
    for canonical, count in Counter(renamed.values()).items():
        if count > 1:
            names = " and ".join(names_of(canonical, renamed))
            raise FormatError(
                folder, f"{names} are the same tensor under two names; keep one of them"
            )


def _unknown(folder: Path, tensors: dict[str, TensorEntry], needed: set[str]) -> list[str]:
    """Tensors that nothing reads; those that contradict the configuration are refused."""
    rest = [
        name
        for name in tensors
        if name not in needed and name not in _EXPECTED_MAP_TYPES and not _IGNORED.fullmatch(name)
    ]
    for name in rest:
        if name == PARALLEL_ONLY:
            raise FormatError(
                folder, f"tensor {name}: a head that drafts in parallel (P-EAGLE) is not supported"
            )
        layer = other_layer(name)
        if layer is not None:
            raise FormatError(
                folder,
                f"tensor {name} is of layer {layer}; only draft models of one layer are supported",
            )
        if name in SWITCHED:
            raise FormatError(
                folder,
                f"tensor {name} is in the files, but {CONFIG_FILE} does not ask for it ({SWITCHED[name]})",
            )
    return rest


def _replacements(
    folder: Path, config: DraftConfig, tensors: dict[str, TensorEntry]
) -> dict[str, Replacement]:
    """What stands for the tensors that may be missing."""
    spec = config.spec
    found: dict[str, Replacement] = {}
    whole = spec.draft_vocab_size == spec.target_vocab_size
    same_width = spec.hidden_size == spec.target_hidden_size
    if EMBEDDING not in tensors:
        if not same_width:
            raise FormatError(
                folder,
                f"tensor {EMBEDDING} is missing, and the target's has width {spec.target_hidden_size} "
                f"instead of {spec.hidden_size}; such a checkpoint has to bring its own",
            )
        found[EMBEDDING] = "the target's embedding"
    if HEAD not in tensors and whole and same_width:
        if config.tied_head:
            found[HEAD] = "the embedding"
        elif not config.own_vocabulary:
            found[HEAD] = "the target's head"
    if DRAFT_TO_TARGET not in tensors:
        if not whole:
            raise FormatError(
                folder,
                f"tensor {DRAFT_TO_TARGET} is missing: [{spec.draft_vocab_size}] offsets from draft tokens "
                f"to the {spec.target_vocab_size} target tokens are expected",
            )
        found[DRAFT_TO_TARGET] = "no offsets"
    return found


def _check_tensor(
    folder: Path,
    tensors: dict[str, TensorEntry],
    name: str,
    shape: tuple[int, ...],
    types: tuple[str, ...],
) -> None:
    """Refuse a tensor that is missing or of another shape or type."""
    entry = tensors.get(name)
    if entry is None:
        raise FormatError(
            folder,
            f"tensor {name} is missing; a tensor of shape {list(shape)} is expected",
            code="missing",
        )
    if entry.shape != shape:
        raise FormatError(
            entry.path,
            f"tensor {entry.name} has shape {list(entry.shape)}, but {CONFIG_FILE} implies {list(shape)}",
            code="shape",
        )
    if entry.dtype not in types:
        raise FormatError(
            entry.path,
            f"tensor {entry.name} has type {entry.dtype}, but {' or '.join(types)} is expected",
            code="type",
        )
