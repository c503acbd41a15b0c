"""The rotary embedding that a draft model's ``config.json`` states, in either spelling."""

from collections.abc import Mapping
from typing import Any, Final

from drafter.config_fields import DraftFields
from drafter.spec import ROPE_KINDS, Rope, RopeKind
from specmodel.errors import ParameterError

DEFAULT_THETA: Final = 10_000.0
"""Base of the frequencies where a file states none; never the target's value."""

_TEXT_ONLY: Final = "mrope"
_SECTIONS: Final = ("rope_scaling", "rope_parameters")
_NEEDS_FACTOR: Final = ("linear", "dynamic", "llama3", "yarn")
_NUMBERS: Final = (
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "attention_factor",
)


def rope_from_config(fields: DraftFields, max_positions: int) -> tuple[Rope, list[str]]:
    r"""Rotary embedding of a configuration, and what a reader has to know about it.

    .. math:: \text{config} \mapsto (\text{rope}, \text{notes})

    Parameters
    ----------
    fields : DraftFields
        Fields of the layer: ``rope_theta`` with ``rope_scaling``, or ``rope_parameters``.
    max_positions : int
        ``max_position_embeddings``, which yarn starts from where nothing else is stated, [tokens].

    Returns
    -------
    tuple of (Rope, list of str)

    Raises
    ------
    FormatError
        If the kind is not known, keys disagree, or one that the kind needs is missing.

    Notes
    -----
    transformers before 5 writes ``rope_theta`` and ``rope_scaling`` with ``type`` or ``rope_type``;
    later versions write ``rope_parameters``. Without ``rope_theta`` the base is `DEFAULT_THETA`,
    whatever the target model has. Positions in several dimensions (mrope) are equal for text, so they
    are one position here.

    Examples
    --------
    >>> fields = DraftFields({"rope_scaling": {"type": "linear", "factor": 2}}, "config.json", "llama")
    >>> rope, notes = rope_from_config(fields, 2048)
    >>> rope.kind, rope.factor, rope.theta
    ('linear', 2.0, 10000.0)
    """
    notes: list[str] = []
    section = DraftFields(_stated(fields), f"{fields.path}, rope", fields.architecture)
    kind = _kind(section, notes)
    _refuse_other_forms(section)
    theta = section.number("rope_theta")
    if theta is None:
        notes.append(
            f"rope_theta is not stated: {DEFAULT_THETA:g} is used, as engines do, whatever the target has"
        )
    given: dict[str, Any] = {"theta": DEFAULT_THETA if theta is None else theta}
    if kind in _NEEDS_FACTOR:
        factor = section.number("factor")
        if factor is None:
            raise section.missing("factor")
        given["factor"] = factor
        given["original_max_positions"] = _original(section, kind, max_positions, notes)
        given |= _numbers(section, kind)
    try:
        return Rope(kind=kind, **given), notes
    except ParameterError as error:
        raise section.refused(str(error)) from None


def _stated(fields: DraftFields) -> Mapping[str, Any]:
    """Every key about positions in one mapping; keys that disagree are refused."""
    merged: dict[str, tuple[str, Any]] = {}
    places: list[tuple[str, Mapping[str, Any]]] = [
        (name, fields.section(name)) for name in _SECTIONS
    ]
    top = {
        name: fields.values[name]
        for name in ("rope_theta", "partial_rotary_factor")
        if fields.values.get(name) is not None
    }
    places.append(("the top level", top))
    for place, values in places:
        for key, value in values.items():
            name = "rope_type" if key == "type" else key
            if value is None:
                continue
            if name in merged and merged[name][1] != value:
                first, found = merged[name]
                raise fields.refused(
                    f"{name} is {found} in {first} and {value} in {place}; keep one of them"
                )
            merged[name] = (place, value)
    return {name: value for name, (_, value) in merged.items()}


def _kind(section: DraftFields, notes: list[str]) -> RopeKind:
    """The kind; several position axes are one for text."""
    kind = section.text("rope_type") or "default"
    if kind == _TEXT_ONLY or (kind == "default" and section.values.get("mrope_section")):
        notes.append("mrope: the position axes are equal for text, so the usual rotation is used")
        return "default"
    if kind not in ROPE_KINDS:
        known = ", ".join([*ROPE_KINDS, _TEXT_ONLY])
        raise section.refused(f"rope kind {kind[:40]!r} is not known; known: {known}")
    return kind


def _refuse_other_forms(section: DraftFields) -> None:
    """Forms of a known kind that would give other numbers."""
    partial = section.number("partial_rotary_factor")
    if partial not in {None, 1.0}:
        raise section.refused(
            f"partial_rotary_factor is {partial:g}; a draft model that rotates part of a head is not supported"
        )
    extra = section.number("attn_factor")
    if extra not in {None, 1.0}:
        raise section.refused(f"attn_factor is {extra:g}; state the whole attention_factor instead")
    if section.values.get("truncate") is False:
        raise section.refused(
            "truncate is false; only yarn with whole ends of the ramp is supported"
        )


def _original(
    section: DraftFields, kind: RopeKind, max_positions: int, notes: list[str]
) -> int | None:
    """Positions before scaling, where the kind has them."""
    stated = section.optional_count("original_max_position_embeddings")
    if stated is not None or kind in {"linear", "dynamic"}:
        return stated
    if kind == "yarn":
        notes.append(
            "original_max_position_embeddings is not stated: yarn starts from "
            f"max_position_embeddings {max_positions}"
        )
        return max_positions
    raise section.missing("original_max_position_embeddings")


def _numbers(section: DraftFields, kind: RopeKind) -> dict[str, float]:
    """Numbers of llama3 and yarn that are stated; llama3 needs both of its own."""
    found = {name: section.number(name) for name in _NUMBERS}
    needed = ("low_freq_factor", "high_freq_factor") if kind == "llama3" else ()
    for name in needed:
        if found[name] is None:
            raise section.missing(name)
    return {name: value for name, value in found.items() if value is not None}
