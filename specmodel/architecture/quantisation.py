"""Number formats of stored weights: by name, by part of a model, and from a ``quantization_config``."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from specmodel.errors import FormatError, ParameterError

BITS_PER_BYTE = 8
# A scale of the integer formats is stored in bf16 or fp16.
SCALE_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A number format of stored weights, with what a group of weights shares (scale and zero point)."""

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
        """Bytes of a weight with its share of the scales.

        .. math:: (b + b_g / g) / 8
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
SYNONYMS = {
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
    """Format of that name, such as ``bf16``, ``fp8``, ``nvfp4``, ``int4-g128`` or ``awq-g128`` (zero points).

    ``fp4`` alone is read as mxfp4 and ``int4`` as groups of 128 (judgements). Scales of whole tensors
    and of rows are left out: below 0.1 % of a weight. The block scales are those of [model-shapes]_.

    >>> [weight_format(name).bytes_per_weight for name in ("nvfp4", "mxfp4", "int4-g128")]
    [0.5625, 0.53125, 0.515625]
    """
    key = name.strip().lower()
    key = SYNONYMS.get(key, key)
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
    """Integer weights with one scale a group, as AWQ, GPTQ and compressed-tensors store them.

    .. math:: (b + (16 + b z) / g) / 8

    Without a group (0 or less) there is one scale a row, which is not counted. allreduce.md 1.
    """
    name = f"{'awq' if zero_point else 'int'}{bits}-g{group_size}"
    if group_size <= 0:
        return WeightFormat(name=f"int{bits}", bits=bits)
    shared = SCALE_BITS + (bits if zero_point else 0)
    return WeightFormat(name=name, bits=bits, group_size=group_size, group_bits=shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """Format of each part; `rest` is of embedding, router, norms, convolutions, biases and encoders."""

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
    """Formats of a model from terms joined by ``+``: a format, alone or with a part that it is for.

    Parts are ``experts``, ``mlp``, ``attention`` and ``head``; a term with a part wins over one without.
    A format alone is that of every linear layer: embedding, router and head stay in 16 bits, as in the
    quantised checkpoints of [model-shapes]_.

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


# One module that stands for its part; names of several implementations.
MODULES: Final = {
    "routed_experts": (
        "model.layers.7.mlp.experts.0.down_proj",
        "model.layers.7.block_sparse_moe.experts.0.w2",
        "model.layers.7.feed_forward.experts.down_proj",
    ),
    "shared_experts": (
        "model.layers.7.mlp.shared_experts.down_proj",
        "model.layers.7.mlp.shared_expert.down_proj",
        "model.layers.7.feed_forward.shared_expert.down_proj",
    ),
    "dense_mlp": ("model.layers.0.mlp.down_proj", "model.layers.7.mlp.down_proj"),
    "attention": (
        "model.layers.7.self_attn.o_proj",
        "model.layers.7.self_attn",
        "model.layers.7.linear_attn.out_proj",
    ),
}

_EXCLUDED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "exclude")
_MODELOPT = {
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
    "W4A8_AWQ": "int4-g128",
    "W4A16_AWQ": "int4-g128",
}


class _UnknownConfigError(Exception):
    """What a ``quantization_config`` says that is not known."""


def weights_from_config(
    text_config: Mapping[str, Any], quantization: object, path: str
) -> Quantisation:
    """Formats of the parts of a checkpoint from its ``quantization_config``.

    Embedding, router and norms stay as they are, the head too unless the file says otherwise; a part
    stays as it is where an excluded module of `MODULES` stands for it. Layers that differ inside a part
    are not told apart.
    """
    dtype = text_config.get("dtype") or text_config.get("torch_dtype")
    name = SYNONYMS.get(str(dtype).removeprefix("torch."))
    plain = weight_format(name if name in _WIDE else "bf16")
    if quantization is None:
        return Quantisation(**dict.fromkeys((*MODULES, "head", "rest"), plain))
    try:
        return _quantised(quantization, plain)
    except _UnknownConfigError as error:
        raise FormatError(path, str(error), code="bad_quantisation") from None


def _quantised(config: object, plain: WeightFormat) -> Quantisation:
    """Formats of a quantised checkpoint."""
    if not isinstance(config, Mapping):
        raise _UnknownConfigError("quantization_config must be an object")
    method = str(config.get("quant_method", config.get("quant_algo", ""))).lower()
    if method in {"compressed-tensors", "compressed_tensors"}:
        stored = _compressed_tensors(config)
    else:
        stored = [(_method_format(method, config), ["Linear"])]
    texts = (text for name in _EXCLUDED for text in _texts(config.get(name)))
    excluded = [text.replace("language_model.", "") for text in texts]  # level of multimodal models
    if method == "mxfp4" and not excluded:  # gpt-oss stores its experts so, and nothing else
        stored = [(stored[0][0], ["experts"])]
    chosen = {part: _part_format(part, stored, excluded, plain) for part in MODULES}
    head = stored[0][0] if config.get("lm_head") is True else plain
    return Quantisation(**chosen, head=head, rest=plain)


def _part_format(
    part: str,
    stored: list[tuple[WeightFormat, list[str]]],
    excluded: list[str],
    plain: WeightFormat,
) -> WeightFormat:
    """Format of one part: the first group of targets that names it, unless it is excluded."""
    modules = MODULES[part]
    if any(any_matches(excluded, module) for module in modules):
        return plain
    for found, targets in stored:
        everything = any(target.lower() in {"linear", "*"} for target in targets)
        if everything or any(any_matches(targets, module) for module in modules):
            return found
    return plain


def _method_format(method: str, config: Mapping[str, Any]) -> WeightFormat:
    """Format of the methods with one format for all layers."""
    if method in {"fp8", "fbgemm_fp8"}:
        return weight_format("fp8")
    if method == "mxfp4":
        return weight_format("mxfp4")
    if method in {"awq", "gptq", "auto-round", "auto_round", "intel/auto-round"}:
        zero_point = bool(config.get("zero_point", not config.get("sym", True)))
        return _integers(config.get("bits", 4), config.get("group_size", 128), zero_point)
    if method == "modelopt" or "quant_algo" in config:
        algorithm = str(config.get("quant_algo", "")).upper()
        if algorithm not in _MODELOPT:
            known = ", ".join(_MODELOPT)
            raise _UnknownConfigError(f"quant_algo {algorithm[:40]!a} is not known; known: {known}")
        return weight_format(_MODELOPT[algorithm])
    if method == "quark":
        return _quark(config)
    if method == "bitsandbytes":
        return weight_format("int4-g64" if config.get("load_in_4bit") is True else "int8")
    raise _UnknownConfigError(
        f"quant_method {method[:40]!a} is not known; known: fp8, awq, gptq, auto-round, "
        "compressed-tensors, modelopt, mxfp4, quark, bitsandbytes"
    )


def _compressed_tensors(config: Mapping[str, Any]) -> list[tuple[WeightFormat, list[str]]]:
    """Formats and targets of the groups of compressed-tensors."""
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _UnknownConfigError(
            "config_groups of quantization_config must be an object with groups"
        )
    found = []
    for group in list(groups.values())[:100]:
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            raise _UnknownConfigError("a group of quantization_config has no weights")
        found.append((_tensor_format(weights), _texts(group.get("targets", ["Linear"]))))
    return found


def _tensor_format(weights: Mapping[str, Any]) -> WeightFormat:
    """Format that bits, type and group size describe."""
    bits, group = weights.get("num_bits"), weights.get("group_size") or 0
    if weights.get("type") != "float":
        return _integers(bits, group, weights.get("symmetric") is False)
    if bits == 8:
        return weight_format("mxfp8" if group == 32 else "fp8")
    if bits == 4 and group in {16, 32}:
        return weight_format("nvfp4" if group == 16 else "mxfp4")
    raise _UnknownConfigError("float weights must have 8 bits, or 4 in groups of 16 or 32")


def _quark(config: Mapping[str, Any]) -> WeightFormat:
    """Format of AMD's quantiser."""
    whole = config.get("global_quant_config")
    weight = whole.get("weight") if isinstance(whole, Mapping) else None
    if isinstance(weight, list) and weight:
        weight = weight[0]
    dtype = str(weight.get("dtype", "")).lower() if isinstance(weight, Mapping) else ""
    if dtype in {"fp4", "mxfp4"}:
        return weight_format("mxfp4")
    if dtype.startswith("fp8"):
        return weight_format("fp8")
    raise _UnknownConfigError(f"weight dtype {dtype[:40]!a} of quark is not known; known: fp4, fp8")


def _integers(bits: object, group_size: object, zero_point: bool) -> WeightFormat:
    """Integer format, refused where its numbers are none."""
    if isinstance(bits, bool) or not isinstance(bits, int):
        raise _UnknownConfigError(
            f"bits of quantization_config must be a whole number, got {bits!a:.40}"
        )
    if isinstance(group_size, bool) or not isinstance(group_size, int):
        raise _UnknownConfigError(f"group_size must be a whole number, got {group_size!a:.40}")
    try:
        return integer_format(bits, min(group_size, 1_000_000), zero_point=zero_point)
    except ParameterError as error:
        raise _UnknownConfigError(f"quantization_config: {error}") from None


def _texts(value: object) -> list[str]:
    """Texts of a list; of anything else none."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


# Modules are named literally, with ``*``, or as regular expressions after ``re:``. The expressions come
# from a file that a user gives, so none is handed to a regular-expression engine: what they are made of
# in practice (literals, ``.*``, one level of alternatives) is read here, in bounded time, and anything
# else is taken as a wildcard.
# A checkpoint that lists each of its modules stays below it (judgement).
MOST_PATTERNS: Final = 20_000

_MOST_EXPANSIONS = 64
_MOST_CHARACTERS = 300
_ALTERNATIVES = re.compile(r"\((?:\?:)?([^()]{0,200})\)")
_WILDCARD = re.compile(r"(?:\.\*|\.\+|\\d\+|\[[^\]]{0,40}\][+*]?|[*+?^$()|]|\\.)+")


def any_matches(patterns: Iterable[str], module: str) -> bool:
    """Whether a pattern names a module, or a module that it is in.

    A name without wildcard matches whole parts of a path, as ``lm_head`` or ``mlp.gate``.
    """
    for count, pattern in enumerate(patterns):
        if count >= MOST_PATTERNS:
            return False
        shortened = pattern[:_MOST_CHARACTERS]
        if not shortened.startswith("re:") and "*" not in shortened:
            if shortened.strip(".") and f".{shortened.strip('.')}." in f".{module}.":
                return True
        elif any(_glob(pieces, module) for pieces in _expanded(shortened)):
            return True
    return False


def _expanded(pattern: str) -> Iterator[list[str]]:
    """Literal pieces between wildcards, for each choice of alternatives."""
    if not pattern.startswith("re:"):
        if pattern.strip("*."):
            yield re.split(r"\*+", pattern)
        return
    body = pattern[3:].replace("\\.", "\0")
    parts = _ALTERNATIVES.split(body)  # text, alternatives, text, alternatives, ...
    choices = [part.split("|") if position % 2 else [part] for position, part in enumerate(parts)]
    for number, chosen in enumerate(product(*choices)):
        if number >= _MOST_EXPANSIONS:
            return
        text = "".join(chosen)
        yield [piece.replace("\0", ".") for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    """Literals between wildcards; an anchor at the start keeps the first piece at the start."""
    anchored = not text.startswith((".*", "^.*"))
    pieces = _WILDCARD.split(text.removeprefix("^"))
    return [*pieces, ""] if anchored else ["", *pieces, ""]


def _glob(pieces: list[str], module: str) -> bool:
    """Whether the pieces occur in that order, the first one at the start."""
    if not module.startswith(pieces[0]):
        return False
    place = len(pieces[0])
    for piece in pieces[1:]:
        found = module.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return True
