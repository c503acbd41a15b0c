"""Public draft models: shapes by name, and what a command is asked to inspect."""

import difflib
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from drafter.checkpoint_files import (
    DRAFT_TO_TARGET,
    CheckpointContents,
    checkpoint_contents,
    draft_to_target,
    has_tensors,
)
from drafter.config_json import CONFIG_FILE, DraftConfig, read_draft_config
from drafter.spec import DraftSpec, LatentHeads, Rope
from specmodel.errors import FormatError, UnknownKeyError
from specmodel.sources import source

_MOST_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicShape:
    """A public draft model as a spec, with where its numbers come from."""

    name: str
    spec: DraftSpec
    target_model: str
    draft_models: tuple[str, ...]
    confidence: str
    source_keys: tuple[str, ...]
    locator: str
    notes: str = ""


@cache
def public_shapes() -> Mapping[str, PublicShape]:
    """Every public shape by its name.

    Read once from ``data/public_shapes.toml``. Templates [specforge-configs]_ and [torchspec-configs]_
    for the most part; a checkpoint may differ from its template.
    """
    text = resources.files("drafter").joinpath("data", "public_shapes.toml").read_text("utf-8")
    shapes = [_shape(table) for table in tomllib.loads(text)["shape"]]
    return MappingProxyType({shape.name: shape for shape in shapes})


def public_shape(name: str) -> PublicShape:
    """Public shape of that name.

    Named after the target model.
    """
    names = {_folded(each): each for each in public_shapes()}
    short = str(name)[:_MOST_CHARACTERS]
    folded = _folded(short)
    if folded in names:
        return public_shapes()[names[folded]]
    close = difflib.get_close_matches(folded, names, n=5, cutoff=0.5)
    raise UnknownKeyError(
        "draft shape", short, [names[each] for each in close] or list(public_shapes())
    )


def _folded(name: str) -> str:
    """Name without case, marks and blanks."""
    return re.sub(r"[\W_]+", "", name).casefold()


def _shape(table: dict[str, Any]) -> PublicShape:
    """Record of one table of the file: what is said about a shape, and the counts of its spec."""
    names = {each.name for each in fields(PublicShape)}
    about = {key: value for key, value in table.items() if key in names}
    counts = {key: value for key, value in table.items() if key not in names}
    latent, rope = counts.pop("latent", None), counts.pop("rope", None)
    spec = DraftSpec(
        target_hidden_size=counts.pop("target_hidden_size", counts["hidden_size"]),
        num_aux_states=counts.pop("num_aux_states", 3),
        latent=None if latent is None else LatentHeads(**latent),
        rope=Rope() if rope is None else Rope(**rope),
        **counts,
    )
    for name in ("draft_models", "source_keys"):
        about[name] = tuple(about[name])
    return PublicShape(spec=spec, **about)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A draft model and what is known about it."""

    name: str
    kind: str
    layout: str
    target_model: str | None
    spec: DraftSpec
    aux_layer_ids: tuple[int, ...] | None = None
    stored_bytes: dict[str, int] = field(default_factory=dict)
    num_tensors: int = 0
    vocabulary_map: str = ""
    replaced: dict[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...]


def names_folder(text: str) -> bool:
    """Whether a text names a place in the file system, not a public shape.

    A folder that has the name of a shape wins.
    """
    return os.sep in text or text.endswith(".json") or os.path.lexists(text)


def named_subject(name: str) -> Subject:
    """Facts of the checkpoint in a folder, or of the public shape of a name.

    No weight is read.
    """
    if names_folder(name):
        place = Path(name)
        folder = place.parent if place.name == CONFIG_FILE or place.suffix == ".json" else place
        if place.exists() and not has_tensors(folder):
            return config_subject(place, read_draft_config(place))
        contents = checkpoint_contents(name)
        return checkpoint_subject(contents, draft_to_target(contents))
    return shape_subject(named_shape(name))


def named_shape(name: str) -> PublicShape:
    """Public shape of a name that is no folder."""
    try:
        return public_shape(name)
    except UnknownKeyError as error:
        what = "folder or draft shape"
        raise UnknownKeyError(what, name[:_MOST_CHARACTERS], error.known) from None


def checkpoint_subject(contents: CheckpointContents, offsets: NDArray[np.int64]) -> Subject:
    """Facts of a checkpoint.

    Whether draft tokens ascend with target tokens says which writer made the map; it changes nothing.
    """
    config = contents.config
    stored: Counter[str] = Counter()
    for entry in contents.tensors.values():
        stored[entry.dtype] += entry.num_bytes
    ascending = bool(np.all(np.diff(offsets) >= 0))
    told = "offsets, " + ("ascending" if ascending else "not in the order of target tokens")
    if DRAFT_TO_TARGET in contents.replaced:
        told = "none: draft tokens are target tokens"
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
        notes=contents.notes,
    )


def config_subject(place: Path, config: DraftConfig) -> Subject:
    """Facts of a ``config.json`` alone: what a step reads is arithmetic."""
    if config.num_layers > 1:
        raise FormatError(
            place,
            f"num_hidden_layers is {config.num_layers}; only draft models of one layer are supported (is "
            "this the config.json of a target model?); with the weights beside it the layers are counted there",
            code="not_supported",
        )
    folder = place if place.is_dir() else place.absolute().parent
    return Subject(
        name=folder.resolve().name or str(folder),
        kind=f"{CONFIG_FILE} alone",
        spec=config.spec,
        layout=f"{config.layout} ({config.architecture})",
        target_model=config.target_model,
        aux_layer_ids=config.aux_layer_ids,
        notes=(
            *config.notes,
            "no file of weights is beside it, so nothing is checked against them",
        ),
    )


def shape_subject(shape: PublicShape) -> Subject:
    """Facts of a public shape.

    A shape has no files; a real checkpoint may differ from it.
    """
    return Subject(
        name=shape.name,
        kind="public shape",
        spec=shape.spec,
        layout=f"none: numbers of a public draft model (confidence: {shape.confidence})",
        target_model=shape.target_model,
        sources=tuple(f"{source(key).title}: {shape.locator}" for key in shape.source_keys),
        notes=(
            *filter(None, [shape.notes]),
            "checkpoints may differ from this shape; inspect the folder of a real one",
        ),
    )


def example_spec() -> DraftSpec:
    """Shapes with nothing equal that need not be: H, Ht, NH D, I, V and Vd all differ."""
    return DraftSpec(
        hidden_size=24,
        target_hidden_size=20,
        num_aux_states=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        mlp_width=40,
        target_vocab_size=61,
        draft_vocab_size=29,
    )
