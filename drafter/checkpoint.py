"""Weights of a checkpoint under canonical names, mapped from its files."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from drafter.checkpoint_contents import WEIGHT_TYPES, CheckpointContents, checkpoint_contents
from drafter.checkpoint_files import checkpoint_tensors
from drafter.checkpoint_vocabulary import draft_to_target
from drafter.config_json import DraftConfig
from drafter.extra import require_extra
from drafter.random_weights import EMBEDDING_SD
from drafter.safetensors_header import TensorEntry
from drafter.tensor_names import DRAFT_TO_TARGET, EMBEDDING, HEAD, TARGET_HAS_DRAFT
from drafter.torch_extra import torch
from specmodel.errors import FormatError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A draft model with its weights.

    Parameters
    ----------
    config : DraftConfig
        Its spec and what its files say besides.
    weights : dict of str to torch.Tensor
        By canonical name, with ``d2t`` (int64 offsets) always.
    substituted : tuple of str
        Sentences on tensors that are not the checkpoint's own, for the record of a measurement.
    notes : tuple of str
        Defaults that were taken, and points where engines differ.
    """

    config: DraftConfig
    weights: dict[str, torch.Tensor]
    substituted: tuple[str, ...]
    notes: tuple[str, ...]


def load_checkpoint(
    folder: Path | str,
    *,
    dtype: torch.dtype | None = None,
    target: Path | str | None = None,
    seed: int = 0,
) -> Checkpoint:
    r"""Draft model in a folder.

    .. math:: \text{folder} \mapsto (\text{spec}, \text{weights})

    Parameters
    ----------
    folder : path
        Folder with ``config.json`` and safetensors.
    dtype : torch.dtype or None
        Floating type to convert weights to; None leaves each as stored, mapped from its file.
    target : path or None
        Folder of the target model, for an embedding or a head that the checkpoint does not bring.
    seed : int
        Seed of what is random where there is no target.

    Returns
    -------
    Checkpoint

    Raises
    ------
    FormatError
        If anything of `checkpoint_contents` or `draft_to_target` is unsound, a weight is not finite, or
        the target lacks the tensor.
    MissingExtraError
        If safetensors is not installed.

    Notes
    -----
    A random embedding or head is legitimate for timing, since every value costs the same, and useless for
    tokens: `substituted` says so. ``t2d`` is kept where it is stored.

    Examples
    --------
    >>> load_checkpoint("nowhere")
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: nowhere: no such folder; name the folder of a draft checkpoint
    """
    contents = checkpoint_contents(folder)
    offsets = draft_to_target(contents)
    weights = _mapped(contents.tensors.items())
    maps = {DRAFT_TO_TARGET, TARGET_HAS_DRAFT}
    for name, values in weights.items():
        if name not in maps:
            _check_finite(contents.tensors[name], values)
    weights[DRAFT_TO_TARGET] = torch.from_numpy(offsets)
    substituted = _substitute(contents, weights, target, seed)
    if dtype is not None:
        weights = {
            name: values if name in maps else values.to(dtype) for name, values in weights.items()
        }
    return Checkpoint(
        config=contents.config,
        weights=weights,
        substituted=tuple(substituted),
        notes=contents.notes,
    )


def _mapped(entries: Iterable[tuple[str, TensorEntry]]) -> dict[str, torch.Tensor]:
    """Tensors mapped from their files, by the names that are given."""
    require_extra("safetensors", what="a checkpoint")
    from safetensors import SafetensorError, safe_open

    by_file: dict[Path, list[tuple[str, TensorEntry]]] = {}
    for name, entry in entries:
        by_file.setdefault(entry.path, []).append((name, entry))
    found = {}
    for path, group in by_file.items():
        try:
            with safe_open(path, framework="pt") as file:
                for name, entry in group:
                    found[name] = file.get_tensor(entry.name)
        except (OSError, SafetensorError) as error:
            reason = str(error).partition("\n")[0]
            raise FormatError(path, f"cannot be read: {reason}") from None
    return found


def _check_finite(entry: TensorEntry, values: torch.Tensor) -> None:
    """Trainers start what they expect to be filled with NaN; it must not get in."""
    if not bool(torch.isfinite(values).all()):
        raise FormatError(entry.path, f"tensor {entry.name} has values that are not finite")


def _substitute(
    contents: CheckpointContents,
    weights: dict[str, torch.Tensor],
    target: Path | str | None,
    seed: int,
) -> list[str]:
    """Fill in what the checkpoint does not bring, and say what it was."""
    told = []
    spec = contents.config.spec
    like = weights["norm.weight"].dtype
    generator = torch.Generator().manual_seed(seed)
    # the embedding first: a tied head is the same tensor
    for name in (EMBEDDING, HEAD):
        if name not in contents.replaced:
            continue
        if contents.replaced[name] == "the embedding":
            weights[name] = weights[EMBEDDING]
            continue
        shape = (spec.target_vocab_size, spec.hidden_size)
        if target is not None:
            weights[name] = _of_target(Path(target), name, shape)
            told.append(f"{name}: the target model's")
            continue
        scale = EMBEDDING_SD if name == EMBEDDING else spec.hidden_size**-0.5
        weights[name] = torch.randn(shape, generator=generator).mul_(scale).to(like)
        told.append(
            f"{name}: random, since neither checkpoint nor target brings it; tokens mean nothing"
        )
    return told


def _of_target(folder: Path, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Embedding or head of a target model."""
    stored = checkpoint_tensors(folder)
    # layers that predict several tokens may carry copies of their own
    shared = [each for each in stored if ".layers." not in f".{each}"]
    own, embedding = (
        next((each for each in shared if f".{each}".endswith(f".{ending}")), None)
        for ending in (name, EMBEDDING)
    )
    # a model that ties its head stores one table only
    place = own or embedding
    entry = None if place is None else stored[place]
    if entry is None:
        raise FormatError(
            folder, f"the target has no tensor {name}; a shape of {list(shape)} is expected"
        )
    if entry.shape != shape or entry.dtype not in WEIGHT_TYPES:
        raise FormatError(
            entry.path,
            f"tensor {entry.name} of the target is {entry.dtype} {list(entry.shape)}, but "
            f"{' or '.join(WEIGHT_TYPES)} {list(shape)} is expected",
        )
    values = _mapped([(name, entry)])[name]
    _check_finite(entry, values)
    return values
