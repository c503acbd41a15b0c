"""Shapes of public EAGLE-3 draft models by name, for floors and for random weights."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, final

from drafter.spec import DraftSpec, LatentHeads, Rope
from specmodel.errors import UnknownKeyError

CONFIDENCES: Final = ("template", "card", "secondary", "unverified")
"""What a shape was read from, from best to none."""

_MOST_CHARACTERS: Final = 200
_ABOUT: Final = (
    "name",
    "target_model",
    "draft_models",
    "confidence",
    "source_keys",
    "locator",
    "notes",
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublicShape:
    """A public draft model as a spec, with where its numbers come from.

    Parameters
    ----------
    name : str
        Name in the table.
    spec : DraftSpec
        Counts and switches.
    target_model : str
        Models that it drafts for.
    draft_models : tuple of str
        Who published such checkpoints.
    confidence : str
        One of `CONFIDENCES`.
    source_keys : tuple of str
        Registered documents.
    locator, notes : str
        The place in them; remarks.
    """

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
    r"""Every public shape by its name.

    .. math:: \text{name} \mapsto \text{shape}

    Returns
    -------
    mapping of str to PublicShape
        In the order of the table; cannot be changed.

    Notes
    -----
    Read once from ``data/public_shapes.toml``. Templates [specforge-configs]_ and [torchspec-configs]_
    for the most part; a checkpoint may differ from its template.

    Examples
    --------
    >>> public_shapes()["gpt-oss"].spec.head_dim
    64
    """
    text = resources.files("drafter").joinpath("data", "public_shapes.toml").read_text("utf-8")
    shapes = [_shape(table) for table in tomllib.loads(text)["shape"]]
    return MappingProxyType({shape.name: shape for shape in shapes})


def public_shape(name: str) -> PublicShape:
    r"""Public shape of that name.

    .. math:: \text{name} \mapsto \text{shape}

    Parameters
    ----------
    name : str
        In any case, with or without hyphens, underscores and dots.

    Returns
    -------
    PublicShape

    Raises
    ------
    UnknownKeyError
        If there is none; it names the closest, or all.

    Notes
    -----
    Named after the target model.

    Examples
    --------
    >>> public_shape("kimi k2.5 mla").spec.latent.kv_rank
    512
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
    """Record of one table of the file."""
    counts = {key: value for key, value in table.items() if key not in _ABOUT}
    latent, rope = counts.pop("latent", None), counts.pop("rope", None)
    spec = DraftSpec(
        target_hidden_size=counts.pop("target_hidden_size", counts["hidden_size"]),
        num_aux_states=counts.pop("num_aux_states", 3),
        latent=None if latent is None else LatentHeads(**latent),
        rope=Rope() if rope is None else Rope(**rope),
        **counts,
    )
    return PublicShape(
        name=table["name"],
        spec=spec,
        target_model=table["target_model"],
        draft_models=tuple(table["draft_models"]),
        confidence=table["confidence"],
        source_keys=tuple(table["source_keys"]),
        locator=table["locator"],
        notes=table.get("notes", ""),
    )
