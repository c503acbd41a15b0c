"""What is inspected: a checkpoint or a public shape, as facts for a report."""

import os
from collections import Counter
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from drafter.checkpoint_contents import CheckpointContents, checkpoint_contents
from drafter.checkpoint_vocabulary import draft_to_target
from drafter.public_shapes import PublicShape, public_shape
from drafter.spec import DraftSpec
from drafter.tensor_names import DRAFT_TO_TARGET
from specmodel.errors import UnknownKeyError
from specmodel.sources import source

_SHOWN_CHARACTERS: Final = 200

SWITCHES: Final = (
    "norm_before_residual",
    "fc_norm",
    "norm_before_fc",
    "norm_output",
    "qk_norm",
    "attention_bias",
    "fc_bias",
    "use_aux_hidden_state",
)
"""Switches of a spec, in the order of a report."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A draft model and what is known about it.

    Parameters
    ----------
    name : str
        Of the folder or the shape.
    kind : str
        ``checkpoint`` or ``public shape``.
    spec : DraftSpec
        Counts and switches.
    layout : str
        Layout and class; the confidence of a public shape.
    target_model : str or None
        Model that it drafts for.
    aux_layer_ids : tuple of int or None
        Captured layers, as listed.
    stored_bytes : dict of str to int
        Bytes in the files by type; empty for a shape, [B].
    num_tensors : int
        In the files; 0 for a shape, [-].
    vocabulary_map : str
        What the map between the vocabularies is; empty for a shape.
    replaced : dict of str to str
        Tensors that are missing, and what stands for them.
    sources : tuple of str
        Documents of a shape.
    notes : tuple of str
        Defaults that were taken, and points where engines differ.
    """

    name: str
    kind: str
    spec: DraftSpec
    layout: str
    target_model: str | None
    aux_layer_ids: tuple[int, ...] | None
    stored_bytes: dict[str, int]
    num_tensors: int
    vocabulary_map: str
    replaced: dict[str, str]
    sources: tuple[str, ...]
    notes: tuple[str, ...]


def names_folder(text: str) -> bool:
    r"""Whether a text names a place in the file system, not a public shape.

    .. math:: \text{text} \mapsto \{0, 1\}

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    bool
        True for what exists, and for what looks like a path.

    Notes
    -----
    A folder that has the name of a shape wins.

    Examples
    --------
    >>> names_folder("gpt-oss"), names_folder("./gpt-oss")
    (False, True)
    """
    return os.sep in text or text.endswith(".json") or os.path.lexists(text)


def named_subject(name: str) -> Subject:
    r"""Facts of the checkpoint in a folder, or of the public shape of a name.

    .. math:: \text{name} \mapsto \text{facts}

    Parameters
    ----------
    name : str
        What the user wrote.

    Returns
    -------
    Subject

    Raises
    ------
    FormatError
        If the checkpoint is not sound.
    UnknownKeyError
        If there is neither such a folder nor such a shape.

    Notes
    -----
    No weight is read.

    Examples
    --------
    >>> named_subject("gpt-oss").spec.head_dim
    64
    """
    if names_folder(name):
        contents = checkpoint_contents(name)
        return checkpoint_subject(contents, draft_to_target(contents))
    try:
        return shape_subject(public_shape(name))
    except UnknownKeyError as error:
        what = "folder or draft shape"
        raise UnknownKeyError(what, name[:_SHOWN_CHARACTERS], error.known) from None


def checkpoint_subject(contents: CheckpointContents, offsets: NDArray[np.int64]) -> Subject:
    r"""Facts of a checkpoint.

    .. math:: \text{contents} \mapsto \text{facts}

    Parameters
    ----------
    contents : CheckpointContents
        The checkpoint.
    offsets : numpy.ndarray, shape (draft_vocab_size,)
        Its checked map to target tokens, [tokens].

    Returns
    -------
    Subject

    Notes
    -----
    Whether draft tokens ascend with target tokens says which writer made the map; it changes nothing.

    Examples
    --------
    >>> Subject.__name__
    'Subject'
    """
    config = contents.config
    stored: Counter[str] = Counter()
    for entry in contents.tensors.values():
        stored[entry.dtype] += entry.num_bytes
    ascending = bool(np.all(np.diff(offsets) >= 0))
    if DRAFT_TO_TARGET in contents.replaced:
        told = "none: draft tokens are target tokens"
    else:
        told = "offsets, " + ("ascending" if ascending else "not in the order of target tokens")
    return Subject(
        name=contents.folder.resolve().name or str(contents.folder),
        kind="checkpoint",
        spec=config.spec,
        layout=f"{config.layout} ({config.architecture})",
        target_model=config.target_model,
        aux_layer_ids=config.aux_layer_ids,
        stored_bytes=dict(stored.most_common()),
        num_tensors=len(contents.tensors),
        vocabulary_map=told,
        replaced={
            name: text for name, text in contents.replaced.items() if name != DRAFT_TO_TARGET
        },
        sources=(),
        notes=contents.notes,
    )


def shape_subject(shape: PublicShape) -> Subject:
    r"""Facts of a public shape.

    .. math:: \text{shape} \mapsto \text{facts}

    Parameters
    ----------
    shape : PublicShape
        The shape.

    Returns
    -------
    Subject

    Notes
    -----
    A shape has no files; a real checkpoint may differ from it.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> shape_subject(public_shape("gpt-oss")).kind
    'public shape'
    """
    remarks = (shape.notes,) if shape.notes else ()
    return Subject(
        name=shape.name,
        kind="public shape",
        spec=shape.spec,
        layout=f"none: numbers of a public draft model (confidence: {shape.confidence})",
        target_model=shape.target_model,
        aux_layer_ids=None,
        stored_bytes={},
        num_tensors=0,
        vocabulary_map="",
        replaced={},
        sources=tuple(f"{source(key).title}: {shape.locator}" for key in shape.source_keys),
        notes=(
            *remarks,
            "checkpoints may differ from this shape; inspect the folder of a real one",
        ),
    )
