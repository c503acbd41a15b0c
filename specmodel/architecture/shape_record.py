"""A model's shape as plain JSON and back, so that a calibration carries the model it was fitted on."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from specmodel.architecture.quantisation import Quantisation, WeightFormat
from specmodel.architecture.shape import (
    CompressedAttention,
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    ModelShape,
    MoeMlp,
    SparseIndex,
)
from specmodel.errors import ParameterError
from specmodel.record_types import check_types

KINDS: Final = {
    kind.__name__: kind
    for kind in (
        CompressedAttention,
        DenseMlp,
        GroupedAttention,
        LatentAttention,
        LinearAttention,
        MoeMlp,
        SparseIndex,
        Quantisation,
        WeightFormat,
        LayerGroup,
        ModelShape,
    )
}
"""What a shape is made of, by name."""

_KIND = "kind"


def shape_to_record(shape: ModelShape) -> dict[str, Any]:
    r"""JSON record of a shape.

    .. math:: \text{shape} \mapsto \text{JSON}

    Parameters
    ----------
    shape : ModelShape
        The model.

    Returns
    -------
    dict
        Plain numbers, strings, lists and dicts; each names its ``kind``.

    Notes
    -----
    Fields at their default are left out.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> shape_to_record(preset("Qwen3-8B"))["hidden_size"]
    4096
    """
    found: dict[str, Any] = _to_record(shape)
    return found


def shape_from_record(record: Mapping[str, Any]) -> ModelShape:
    r"""Shape from its JSON record.

    .. math:: \text{JSON} \mapsto \text{shape}

    Parameters
    ----------
    record : mapping
        As `shape_to_record` gives it.

    Returns
    -------
    ModelShape

    Raises
    ------
    ParameterError
        If the record is not that of a shape.

    Notes
    -----
    Types are those of the fields, and counts are checked as those of any shape.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> model = preset("Kimi-K2.5")
    >>> shape_from_record(shape_to_record(model)) == model
    True
    """
    try:
        shape = _from_record(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise ParameterError(
            "model", f"a record with {error}", "as shape_to_record writes"
        ) from None
    if not isinstance(shape, ModelShape):
        raise ParameterError("model", type(shape).__name__, "the record of a model")
    return shape


def _to_record(value: Any) -> Any:
    """A value as JSON."""
    if isinstance(value, tuple):
        return [_to_record(each) for each in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    found = {_KIND: type(value).__name__}
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        if field.default is dataclasses.MISSING or held != field.default:
            found[field.name] = _to_record(held)
    return found


def _from_record(value: Any) -> Any:
    """A value from JSON."""
    if isinstance(value, list):
        return tuple(_from_record(each) for each in value)
    if not isinstance(value, Mapping):
        return value
    given = {key: _from_record(each) for key, each in value.items() if key != _KIND}
    kind = KINDS[value[_KIND]]
    check_types(kind, given)
    return kind(**given)
