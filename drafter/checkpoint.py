"""Models with weights to run: of a checkpoint, or random ones of a public shape."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drafter.checkpoint_files import (
    DRAFT_TO_TARGET,
    EMBEDDING,
    HEAD,
    OUTPUT_BIAS,
    TARGET_HAS_DRAFT,
    WEIGHT_TYPES,
    CheckpointContents,
    Shape,
    TensorEntry,
    checkpoint_contents,
    checkpoint_tensors,
    draft_to_target,
    expected_shapes,
    tensor_values,
)
from drafter.config_json import DraftConfig
from drafter.public_models import named_shape, names_folder
from drafter.spec import DraftSpec
from drafter.torch_extra import torch
from specmodel.errors import FormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A draft model with its weights."""

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
    """Draft model in a folder.

    A random embedding or head is legitimate for timing, since every value costs the same, and useless for
    tokens: `substituted` says so. ``t2d`` is kept where it is stored.
    """
    contents = checkpoint_contents(folder)
    offsets = draft_to_target(contents)
    weights = tensor_values(contents.tensors.items(), "pt")
    maps = {DRAFT_TO_TARGET, TARGET_HAS_DRAFT}
    for name, values in weights.items():
        if name not in maps:
            _check_finite(contents.tensors[name], values)
    weights[DRAFT_TO_TARGET] = torch.from_numpy(offsets)
    if HEAD in weights:  # rows of the padding draft nothing
        weights[HEAD] = weights[HEAD][: contents.config.spec.draft_vocab_size]
    if TARGET_HAS_DRAFT in weights:
        weights[TARGET_HAS_DRAFT] = weights[TARGET_HAS_DRAFT].bool()
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
    if OUTPUT_BIAS in contents.replaced:
        weights[OUTPUT_BIAS] = torch.zeros(spec.hidden_size, dtype=like)
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
    place = own or embedding  # a model that ties its head stores one table only
    if place is None:
        raise FormatError(
            folder, f"the target has no tensor {name}; a shape of {list(shape)} is expected"
        )
    entry = stored[place]
    if entry.shape != shape or entry.dtype not in WEIGHT_TYPES:
        raise FormatError(
            entry.path,
            f"tensor {entry.name} of the target is {entry.dtype} {list(entry.shape)}, but "
            f"{' or '.join(WEIGHT_TYPES)} {list(shape)} is expected",
        )
    values: torch.Tensor = tensor_values([(name, entry)], "pt")[name]
    _check_finite(entry, values)
    return values


EMBEDDING_SD = 0.02
"""Standard deviation of the entries of an embedding, as models are started with."""

_NORM_SD = 0.1


def random_weights(
    spec: DraftSpec, *, seed: int, dtype: torch.dtype, device: str = "cpu", ascending: bool = True
) -> dict[str, torch.Tensor]:
    r"""Random weights of a draft model, with every tensor that its spec needs.

    .. math:: W_{ij} \sim N(0, 1/K),\quad g_i \sim N(1, 0.1^2)

    :math:`K` is the number of inputs of a matrix, so activations stay of order one and no argmax is
    degenerate; constant data would also run faster than real weights.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    weights = {
        name: _values(name, shape, generator, device).to(dtype)
        for name, shape in expected_shapes(spec).items()
    }
    tokens = torch.randperm(spec.target_vocab_size, generator=generator, device=device)
    tokens = tokens[: spec.draft_vocab_size]
    if ascending:
        tokens = tokens.sort().values
    known = torch.zeros(spec.target_vocab_size, dtype=torch.bool, device=device)
    known[tokens] = True
    weights[DRAFT_TO_TARGET] = tokens - torch.arange(spec.draft_vocab_size, device=device)
    weights[TARGET_HAS_DRAFT] = known
    return weights


def _values(name: str, shape: Shape, generator: torch.Generator, device: str) -> torch.Tensor:
    """Entries of one tensor in single precision."""
    normal = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    if name.endswith(".bias"):
        return normal.mul_(_NORM_SD)
    if len(shape) == 1:
        return normal.mul_(_NORM_SD).add_(1.0)
    if name == EMBEDDING:
        return normal.mul_(EMBEDDING_SD)
    return normal.mul_(1.0 / math.sqrt(shape[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToRun:
    """A draft model with weights."""

    name: str
    layout: str
    spec: DraftSpec
    weights: Mapping[str, torch.Tensor]
    substituted: tuple[str, ...] = ()


def model_to_run(name: str, *, device: str = "cpu", target: Path | str | None = None) -> ModelToRun:
    """Draft model of a folder or of a public shape.

    Random weights cost what real ones cost, and their tokens mean nothing; the record says so.
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
    shape = named_shape(name)
    return ModelToRun(
        name=shape.name,
        layout=f"none: numbers of a public draft model (confidence: {shape.confidence})",
        spec=shape.spec,
        weights=random_weights(shape.spec, seed=0, dtype=torch.bfloat16, device=device),
        substituted=("every tensor: random, of a public shape; tokens mean nothing",),
    )
