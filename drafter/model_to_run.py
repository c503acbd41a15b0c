"""The draft model that a command runs: a checkpoint, or a public shape with random weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from drafter.checkpoint import load_checkpoint
from drafter.public_shapes import public_shape
from drafter.random_weights import random_weights
from drafter.spec import DraftSpec
from drafter.subject import names_folder
from drafter.torch_extra import torch
from specmodel.errors import UnknownKeyError

STORAGE_TYPES: Final = ("bfloat16", "float16", "float32")
"""Names of the types that weights and cache may have."""

_SHOWN_CHARACTERS: Final = 200


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToRun:
    """A draft model with weights.

    Parameters
    ----------
    name : str
        Of the folder or the shape.
    layout : str
        Layout of the checkpoint, or that there was none.
    spec : DraftSpec
        Shapes and switches.
    weights : mapping of str to torch.Tensor
        Canonical names.
    substituted : tuple of str
        Sentences on tensors that are not the checkpoint's own.

    Examples
    --------
    >>> ModelToRun.__dataclass_fields__["substituted"].default
    ()
    """

    name: str
    layout: str
    spec: DraftSpec
    weights: Mapping[str, torch.Tensor]
    substituted: tuple[str, ...] = ()


def model_to_run(name: str, *, device: str = "cpu", target: Path | str | None = None) -> ModelToRun:
    r"""Draft model of a folder or of a public shape.

    .. math:: \text{name} \mapsto (\text{spec}, \text{weights})

    Parameters
    ----------
    name : str
        A folder with ``config.json`` and safetensors, or the name of a public shape.
    device : str
        Where random weights are made.
    target : path, optional
        Folder of the target model, for tensors that a checkpoint does not bring.

    Returns
    -------
    ModelToRun

    Raises
    ------
    FormatError
        If the checkpoint is not sound.
    UnknownKeyError
        If there is neither such a folder nor such a shape.

    Notes
    -----
    Random weights cost what real ones cost, and their tokens mean nothing; the record says so.

    Examples
    --------
    >>> model_to_run("no such model")
    Traceback (most recent call last):
    ...
    specmodel.errors.UnknownKeyError: unknown folder or draft shape 'no such model'; known: ...
    """
    if names_folder(name):
        checkpoint = load_checkpoint(name, target=target)
        return ModelToRun(
            name=Path(name).resolve().name or name,
            layout=f"{checkpoint.config.layout} ({checkpoint.config.architecture})",
            spec=checkpoint.config.spec,
            weights=checkpoint.weights,
            substituted=checkpoint.substituted,
        )
    try:
        shape = public_shape(name)
    except UnknownKeyError as error:
        what = "folder or draft shape"
        raise UnknownKeyError(what, name[:_SHOWN_CHARACTERS], error.known) from None
    return ModelToRun(
        name=shape.name,
        layout=f"none: numbers of a public draft model (confidence: {shape.confidence})",
        spec=shape.spec,
        weights=random_weights(shape.spec, seed=0, dtype=torch.bfloat16, device=device),
        substituted=("every tensor: random, of a public shape; tokens mean nothing",),
    )
