"""Names of a draft model's tensors: every public spelling of them as one canonical name."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

FIRST_LAYER: Final = "layers.0."
"""Prefix of the one layer's tensors in canonical names."""

DRAFT_TO_TARGET: Final = "d2t"
"""Offsets from a draft token to its target token: target = draft + offset."""

TARGET_HAS_DRAFT: Final = "t2d"
"""Whether a target token has a draft token."""

EMBEDDING: Final = "embed_tokens.weight"
HEAD: Final = "lm_head.weight"
PARALLEL_ONLY: Final = "mask_hidden"
"""Tensor that only drafting in parallel (P-EAGLE) has."""

_OLD_NORMS: Final = {"aux_norm_low": 0, "aux_norm_mid": 1, "aux_norm_high": 2}
_OLD_NORM: Final = re.compile(r"(aux_norm_(?:low|mid|high))(?:\.weight)?")
_OTHER_LAYER: Final = re.compile(r"layers\.([1-9]\d*)\.")


def canonical_name(name: str) -> str:
    r"""Canonical name of a tensor.

    .. math:: \text{name in the file} \mapsto \text{name}

    Parameters
    ----------
    name : str
        As a checkpoint has it.

    Returns
    -------
    str
        The speculators layout without the prefix ``model.``; names of nothing known stay as they are.

    Notes
    -----
    ``midlayer.`` is ``layers.0.``; ``aux_norm_low``, ``_mid`` and ``_high`` are ``fc_norm.0`` to ``2``.

    Examples
    --------
    >>> canonical_name("midlayer.self_attn.q_proj.weight")
    'layers.0.self_attn.q_proj.weight'
    >>> canonical_name("model.norm.weight"), canonical_name("aux_norm_mid.weight")
    ('norm.weight', 'fc_norm.1.weight')
    """
    bare = name.removeprefix("model.")
    if bare.startswith("midlayer."):
        bare = FIRST_LAYER + bare.removeprefix("midlayer.")
    old = _OLD_NORM.fullmatch(bare)
    return f"fc_norm.{_OLD_NORMS[old.group(1)]}.weight" if old else bare


def other_layer(name: str) -> int | None:
    r"""Number of a layer that is not the first; None for all other tensors.

    .. math:: \text{name} \mapsto i

    Parameters
    ----------
    name : str
        Canonical name.

    Returns
    -------
    int or None
        At least 1.

    Notes
    -----
    A draft model here has one layer.

    Examples
    --------
    >>> other_layer("layers.2.mlp.up_proj.weight"), other_layer("layers.0.mlp.up_proj.weight")
    (2, None)
    """
    found = _OTHER_LAYER.match(name)
    return int(found.group(1)) if found else None


def names_of(canonical: str, mapping: Mapping[str, str]) -> list[str]:
    r"""Names in a file that stand for one canonical name.

    .. math:: \{n : \text{canonical}(n) = c\}

    Parameters
    ----------
    canonical : str
        The name.
    mapping : mapping of str to str
        Canonical name of every name in the file.

    Returns
    -------
    list of str
        More than one where a file states a tensor twice.

    Notes
    -----
    For messages.

    Examples
    --------
    >>> names_of("norm.weight", {"norm.weight": "norm.weight", "model.norm.weight": "norm.weight"})
    ['norm.weight', 'model.norm.weight']
    """
    return [name for name, other in mapping.items() if other == canonical]


def canonical_names(names: Iterable[str]) -> dict[str, str]:
    r"""Canonical name of every tensor of a checkpoint.

    .. math:: \{n\} \mapsto \{n : c\}

    Parameters
    ----------
    names : iterable of str
        Names in the file.

    Returns
    -------
    dict of str to str
        In the same order.

    Notes
    -----
    Names that occur twice after the renaming are for the caller to refuse.

    Examples
    --------
    >>> canonical_names(["midlayer.hidden_norm.weight"])
    {'midlayer.hidden_norm.weight': 'layers.0.hidden_norm.weight'}
    """
    return {name: canonical_name(name) for name in names}
