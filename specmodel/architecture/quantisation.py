"""How many bytes a weight takes, with its scales, and which parts of a model are stored so."""

import dataclasses
import re
from dataclasses import dataclass

from specmodel.errors import ParameterError

BITS_PER_BYTE = 8
SCALE_BITS = 16
"""A scale of the integer formats is stored in bf16 or fp16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A number format of stored weights.

    Parameters
    ----------
    name : str
        As a user writes it.
    bits : int
        Of one weight, [bit].
    group_size : int
        Weights that share a scale; 0 where scales are too few to count, [-].
    group_bits : int
        Bits of what a group shares: scale and zero point, [bit].
    """

    name: str
    bits: int
    group_size: int = 0
    group_bits: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 64:
            raise ParameterError("bits", self.bits, "from 1 to 64")
        if self.group_size < 0 or self.group_bits < 0:
            raise ParameterError("group_size", self.group_size, "at least 0")

    @property
    def bytes_per_weight(self) -> float:
        r"""Bytes of a weight with its share of the scales.

        .. math:: (b + b_g / g) / 8

        Examples
        --------
        >>> weight_format("int4-g32").bytes_per_weight
        0.5625
        """
        shared = self.group_bits / self.group_size if self.group_size else 0.0
        return (self.bits + shared) / BITS_PER_BYTE


_PLAIN = {
    "fp32": WeightFormat(name="fp32", bits=32),
    "bf16": WeightFormat(name="bf16", bits=16),
    "fp16": WeightFormat(name="fp16", bits=16),
    "int8": WeightFormat(name="int8", bits=8),
    "fp8": WeightFormat(name="fp8", bits=8, group_size=128 * 128, group_bits=32),
    "mxfp8": WeightFormat(name="mxfp8", bits=8, group_size=32, group_bits=8),
    "nvfp4": WeightFormat(name="nvfp4", bits=4, group_size=16, group_bits=8),
    "mxfp4": WeightFormat(name="mxfp4", bits=4, group_size=32, group_bits=8),
}
_SYNONYMS = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp4": "mxfp4",
    "w8a8": "int8",
    "int4": "int4-g128",
    "w4a16": "int4-g128",
    "awq": "awq-g128",
    "gptq": "int4-g128",
}
_GROUPED = re.compile(r"(int|awq)([2-8])?-g(\d{1,6})")

BF16 = _PLAIN["bf16"]


def weight_format(name: str) -> WeightFormat:
    r"""Format of that name.

    .. math:: \text{name} \mapsto (b, g, b_g)

    Parameters
    ----------
    name : str
        ``fp32``, ``bf16``, ``fp16``, ``int8``, ``fp8`` (one fp32 scale per 128 x 128 block),
        ``mxfp8``, ``nvfp4`` (one 8-bit scale per 16), ``mxfp4`` (one 8-bit scale per 32),
        ``int4-g128`` (symmetric, one 16-bit scale per group) or ``awq-g128`` (with a zero point).

    Returns
    -------
    WeightFormat

    Raises
    ------
    ParameterError
        If the name is none of them.

    Notes
    -----
    ``fp4`` alone is read as mxfp4 and ``int4`` as groups of 128 (judgements). Scales of whole
    tensors and of rows are left out: below 0.1 % of a weight. The block scales are those of
    [model-shapes]_.

    Examples
    --------
    >>> [weight_format(name).bytes_per_weight for name in ("nvfp4", "mxfp4", "int4-g128")]
    [0.5625, 0.53125, 0.515625]
    """
    key = name.strip().lower()
    key = _SYNONYMS.get(key, key)
    if key in _PLAIN:
        return _PLAIN[key]
    match = _GROUPED.fullmatch(key)
    if match is None or int(match[3]) == 0:
        raise ParameterError(
            "weight format", repr(name[:40]), f"one of {', '.join(_PLAIN)}, int4-g<n>, awq-g<n>"
        )
    bits, zero = int(match[2] or 4), match[1] == "awq"
    return integer_format(bits, int(match[3]), zero_point=zero)


def integer_format(bits: int, group_size: int, *, zero_point: bool) -> WeightFormat:
    r"""Integer weights with one scale a group.

    .. math:: (b + (16 + b z) / g) / 8

    Parameters
    ----------
    bits : int
        :math:`b`, of one weight, 1 to 64, [bit].
    group_size : int
        :math:`g`, weights that share a scale; 0 or less: one scale per row, not counted, [-].
    zero_point : bool
        :math:`z`, True where a group stores a zero point of `bits` bits as well.

    Returns
    -------
    WeightFormat

    Raises
    ------
    ParameterError
        If `bits` is out of bounds.

    Notes
    -----
    Layout of the checkpoints of AWQ, GPTQ and compressed-tensors. allreduce.md 1.

    Examples
    --------
    >>> integer_format(4, 32, zero_point=False).bytes_per_weight
    0.5625
    """
    name = f"{'awq' if zero_point else 'int'}{bits}-g{group_size}"
    if group_size <= 0:
        return WeightFormat(name=f"int{bits}", bits=bits)
    shared = SCALE_BITS + (bits if zero_point else 0)
    return WeightFormat(name=name, bits=bits, group_size=group_size, group_bits=shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """Format of each part of a model; embedding, router and norms stay in `rest`.

    Parameters
    ----------
    routed_experts, shared_experts, dense_mlp, attention, head : WeightFormat
        Of the matrices of that part.
    rest : WeightFormat
        Of embedding, router, norms, convolutions, biases and other encoders.
    """

    routed_experts: WeightFormat = BF16
    shared_experts: WeightFormat = BF16
    dense_mlp: WeightFormat = BF16
    attention: WeightFormat = BF16
    head: WeightFormat = BF16
    rest: WeightFormat = BF16


_PARTS = {
    "experts": ("routed_experts",),
    "mlp": ("routed_experts", "shared_experts", "dense_mlp"),
    "attention": ("attention",),
    "head": ("head",),
    "": ("routed_experts", "shared_experts", "dense_mlp", "attention"),
}
_WIDE = {"fp32", "bf16", "fp16"}


def quantisation(text: str) -> Quantisation:
    r"""Formats of a model from a short text, as ``int4-g32 experts + bf16``.

    .. math:: \text{text} \mapsto (\text{part} \mapsto \text{format})

    Parameters
    ----------
    text : str
        Terms separated by ``+``. A term is a format of `weight_format`, alone or followed by
        ``experts``, ``mlp``, ``attention`` or ``head``. A format alone is that of every linear
        layer; embedding, router and head stay in 16 bits.

    Returns
    -------
    Quantisation

    Raises
    ------
    ParameterError
        If a format or a part is not known.

    Notes
    -----
    That head, embedding and router stay in 16 bits is what the quantised checkpoints of
    [model-shapes]_ do. Terms with a part win over terms without, whatever their order.

    Examples
    --------
    >>> found = quantisation("int4-g32 experts + bf16")
    >>> found.routed_experts.name, found.attention.name, found.head.name
    ('int4-g32', 'bf16', 'bf16')
    """
    terms = [term.split() for term in text.split("+")]
    if any(not 1 <= len(term) <= 2 for term in terms):
        raise ParameterError("weights", repr(text[:80]), "terms as 'fp8' or 'int4-g32 experts'")
    found = Quantisation()
    for term in sorted(terms, key=len):
        part = term[1].lower() if len(term) == 2 else ""
        if part not in _PARTS:
            raise ParameterError(
                "part", repr(part[:40]), f"one of {', '.join(filter(None, _PARTS))}"
            )
        chosen = weight_format(term[0])
        fields = dict.fromkeys(_PARTS[part], chosen)
        if not part and chosen.name in _WIDE:
            fields |= {"head": chosen, "rest": chosen}
        found = dataclasses.replace(found, **fields)
    return found
