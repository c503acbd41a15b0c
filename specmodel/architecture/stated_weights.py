"""Stored formats of a model from the one word that a table of measurements has for them."""

import re
from typing import Final

from specmodel.architecture.quantisation import Quantisation, quantisation
from specmodel.architecture.shape import ModelShape
from specmodel.errors import ParameterError

FORMATS: Final = (
    ("nvfp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("mxfp8", "mxfp8"),
    ("fp8", "fp8"),
    ("awq", "awq-g128"),
    ("gptq", "int4-g128"),
    ("int4", "int4-g128"),
    ("w4a16", "int4-g128"),
    ("fp4", "mxfp4"),
    ("int8", "int8"),
    ("w8a8", "int8"),
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("fp32", "fp32"),
)
"""Words of labels in the order in which they are tried, with the format of `weight_format`."""

_FOUR_BITS = 4
_MOST_CHARACTERS = 100


def stated_weights(shape: ModelShape, label: str) -> Quantisation:
    r"""Formats of a model's parts from a label such as ``nvfp4`` or ``awq-int4``.

    .. math:: (\text{model}, \text{label}) \mapsto (\text{part} \mapsto \text{format})

    Parameters
    ----------
    shape : ModelShape
        The model with the formats of its first release.
    label : str
        What a table or a name says of the weights; empty for the first release's formats. A text
        of `quantisation` (with a part or ``+``) is taken as it stands.

    Returns
    -------
    Quantisation

    Raises
    ------
    ParameterError
        If the label holds no format that is known.

    Notes
    -----
    A label with the format that the model's experts are released in means that release. Four bits
    alone mean every linear layer of a dense model; of a mixture they mean experts and feed-forward
    blocks, while attention keeps the first release's format, as the four-bit releases of large
    mixtures mostly have it (judgement).

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> stated_weights(preset("Kimi-K2.6"), "int4").routed_experts.name
    'int4-g32'
    >>> found = stated_weights(preset("GLM-5.1"), "nvfp4 a16")
    >>> found.routed_experts.name, found.attention.name
    ('nvfp4', 'bf16')
    """
    if not label.strip():
        return shape.weights
    if "+" in label or re.search(r"\s(experts|mlp|attention|head)\s*$", label[:_MOST_CHARACTERS]):
        return quantisation(label)
    name = _format(label)
    if shape.weights.routed_experts.name.partition("-")[0] == name.partition("-")[0]:
        return shape.weights
    found = quantisation(name)
    if shape.num_experts and found.routed_experts.bits == _FOUR_BITS:
        kept = shape.weights
        return Quantisation(
            routed_experts=found.routed_experts,
            shared_experts=found.shared_experts,
            dense_mlp=found.dense_mlp,
            attention=kept.attention,
            head=kept.head,
            rest=kept.rest,
        )
    return found


def _format(label: str) -> str:
    """First known format in a label."""
    lowered = label[:_MOST_CHARACTERS].lower()
    for word, name in FORMATS:
        if re.search(rf"(?<![a-z0-9]){word}(?![0-9])", lowered):
            return name
    known = ", ".join(word for word, _ in FORMATS)
    raise ParameterError("weights", repr(label[:40]), f"a label with one of {known}")
