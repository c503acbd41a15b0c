"""Stored formats of a model from the ``quantization_config`` of its ``config.json``."""

from collections.abc import Mapping
from typing import Any, Final

from specmodel.architecture.module_patterns import any_matches
from specmodel.architecture.quantisation import (
    Quantisation,
    WeightFormat,
    integer_format,
    weight_format,
)
from specmodel.errors import FormatError, ParameterError

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
"""One module that stands for its part; names of several implementations."""

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16"}
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


def weights_from_config(
    text_config: Mapping[str, Any], quantization: object, path: str
) -> Quantisation:
    r"""Formats of the parts of a checkpoint.

    .. math:: \text{quantization\_config} \mapsto (\text{part} \mapsto \text{format})

    Parameters
    ----------
    text_config : mapping
        Configuration of the language model, for its ``torch_dtype`` or ``dtype``.
    quantization : object
        ``quantization_config``; None for a checkpoint that is not quantised.
    path : str
        The file, for messages.

    Returns
    -------
    Quantisation

    Raises
    ------
    FormatError
        If the method, its bits or its format is not known.

    Notes
    -----
    Methods: fp8, awq, gptq, auto-round, compressed-tensors, modelopt, mxfp4, quark, bitsandbytes.
    Embedding, router and norms stay as they are, the head too unless the file says otherwise; a
    part stays as it is where an excluded module of `MODULES` stands for it. Layers that differ
    inside a part are not told apart.

    Examples
    --------
    >>> config = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    >>> weights_from_config({"torch_dtype": "float16"}, config, "config.json").attention.name
    'awq4-g128'
    """
    plain = _plain_format(text_config)
    unquantised = Quantisation(
        routed_experts=plain,
        shared_experts=plain,
        dense_mlp=plain,
        attention=plain,
        head=plain,
        rest=plain,
    )
    if quantization is None:
        return unquantised
    if not isinstance(quantization, Mapping):
        raise _refused(path, "quantization_config must be an object")
    method = str(quantization.get("quant_method", quantization.get("quant_algo", ""))).lower()
    if method in {"compressed-tensors", "compressed_tensors"}:
        stored = _compressed_tensors(quantization, path)
    else:
        stored = [(_method_format(method, quantization, path), ["Linear"])]
    excluded = _excluded(quantization)
    if method == "mxfp4" and not excluded:  # gpt-oss stores its experts so, and nothing else
        stored = [(stored[0][0], ["experts"])]
    chosen = {part: _part_format(part, stored, excluded, plain) for part in MODULES}
    head = stored[0][0] if quantization.get("lm_head") is True else plain
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


def _plain_format(text_config: Mapping[str, Any]) -> WeightFormat:
    """Format of what is not quantised; bf16 where the file does not say."""
    name = text_config.get("dtype") or text_config.get("torch_dtype") or "bfloat16"
    return weight_format(_DTYPES.get(str(name).removeprefix("torch."), "bf16"))


def _method_format(method: str, config: Mapping[str, Any], path: str) -> WeightFormat:
    """Format of the methods with one format for all layers."""
    if method in {"fp8", "fbgemm_fp8"}:
        return weight_format("fp8")
    if method == "mxfp4":
        return weight_format("mxfp4")
    if method in {"awq", "gptq", "auto-round", "auto_round", "intel/auto-round"}:
        zero_point = bool(config.get("zero_point", not config.get("sym", True)))
        bits, group = config.get("bits", 4), config.get("group_size", 128)
        return _integers(bits, group, zero_point, path)
    if method == "modelopt" or "quant_algo" in config:
        algorithm = str(config.get("quant_algo", "")).upper()
        if algorithm not in _MODELOPT:
            raise _refused(
                path, f"quant_algo {algorithm[:40]!a} is not known; known: {', '.join(_MODELOPT)}"
            )
        return weight_format(_MODELOPT[algorithm])
    if method == "quark":
        return _quark(config, path)
    if method == "bitsandbytes":
        return weight_format("int4-g64" if config.get("load_in_4bit") is True else "int8")
    raise _refused(
        path,
        f"quant_method {method[:40]!a} is not known; known: fp8, awq, gptq, auto-round, "
        "compressed-tensors, modelopt, mxfp4, quark, bitsandbytes",
    )


def _compressed_tensors(
    config: Mapping[str, Any], path: str
) -> list[tuple[WeightFormat, list[str]]]:
    """Formats and targets of the groups of compressed-tensors."""
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _refused(path, "config_groups of quantization_config must be an object with groups")
    found = []
    for group in list(groups.values())[:100]:
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            raise _refused(path, "a group of quantization_config has no weights")
        targets = _texts(group.get("targets", ["Linear"]))
        found.append((_tensor_format(weights, path), targets))
    return found


def _tensor_format(weights: Mapping[str, Any], path: str) -> WeightFormat:
    """Format that bits, type and group size describe."""
    bits, group = weights.get("num_bits"), weights.get("group_size") or 0
    if weights.get("type") == "float":
        if bits == 8:
            return weight_format("mxfp8" if group == 32 else "fp8")
        if bits == 4 and group in {16, 32}:
            return weight_format("nvfp4" if group == 16 else "mxfp4")
        raise _refused(path, "float weights must have 8 bits, or 4 in groups of 16 or 32")
    return _integers(bits, group, weights.get("symmetric") is False, path)


def _quark(config: Mapping[str, Any], path: str) -> WeightFormat:
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
    raise _refused(path, f"weight dtype {dtype[:40]!a} of quark is not known; known: fp4, fp8")


def _integers(bits: object, group_size: object, zero_point: bool, path: str) -> WeightFormat:
    """Integer format, refused where its numbers are none."""
    if isinstance(bits, bool) or not isinstance(bits, int):
        raise _refused(
            path, f"bits of quantization_config must be a whole number, got {bits!a:.40}"
        )
    if isinstance(group_size, bool) or not isinstance(group_size, int):
        raise _refused(path, f"group_size must be a whole number, got {group_size!a:.40}")
    try:
        return integer_format(bits, min(group_size, 1_000_000), zero_point=zero_point)
    except ParameterError as error:
        raise _refused(path, f"quantization_config: {error}") from None


def _excluded(config: Mapping[str, Any]) -> list[str]:
    """Patterns of modules that are not quantised, without the level of a multimodal model."""
    texts = (text for name in _EXCLUDED for text in _texts(config.get(name)))
    return [text.replace("language_model.", "") for text in texts]


def _texts(value: object) -> list[str]:
    """Texts of a list; of anything else none."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _refused(path: str, reason: str) -> FormatError:
    return FormatError(path, reason, code="bad_quantisation")
