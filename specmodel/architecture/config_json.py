"""Shape of a model from its own ``config.json``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from specmodel.architecture.config_attention import (
    AttentionRule,
    compressed_rule,
    grouped_rule,
    hybrid_rule,
    latent_rule,
)
from specmodel.architecture.config_fields import ConfigFields
from specmodel.architecture.config_mlp import MlpRule, dense_rule, moe_rule
from specmodel.architecture.config_quantisation import weights_from_config
from specmodel.architecture.shape import MOST_LAYERS, ModelShape, grouped_layers
from specmodel.errors import FormatError
from specmodel.units import MEBI

MOST_CHARACTERS: Final = 16 * MEBI
"""A configuration is never longer, also one that names every module that is not quantised."""

_TEXT_FIELDS = ("text_config", "llm_config", "language_config", "language_model_config")
_MTP_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Rules of an architecture.

    Parameters
    ----------
    attention, mlp : callable
        From fields and number of layers to the blocks of each layer.
    tied : bool
        Whether head and embedding are one table where the file does not say.
    """

    attention: AttentionRule
    mlp: MlpRule
    tied: bool = False


_LLAMA = Family(attention=grouped_rule(), mlp=dense_rule)
_QWEN2 = Family(
    attention=grouped_rule(qkv_bias=True, output_bias=False, window_from="switch"), mlp=dense_rule
)
_QWEN3 = Family(attention=grouped_rule(qk_norm=True, window_from="switch"), mlp=dense_rule)
_QWEN3_MOE = Family(
    attention=grouped_rule(qk_norm=True, window_from="switch"), mlp=moe_rule(sparse_layers="step")
)
_QWEN3_NEXT = Family(
    attention=hybrid_rule,
    mlp=moe_rule(
        shared_field="shared_expert_intermediate_size", shared_gate=True, sparse_layers="step"
    ),
)
_DEEPSEEK = Family(
    attention=latent_rule,
    mlp=moe_rule(shared_field="n_shared_experts", sparse_layers="after_dense"),
)
_LLAMA4 = Family(
    attention=grouped_rule(window_from="chunk"),
    mlp=moe_rule(
        width_field="intermediate_size",
        shared_field="routed",
        sparse_layers="interleaved",
        dense_field="intermediate_size_mlp",
    ),
)

FAMILIES: Final[Mapping[str, Family]] = {
    "llama": _LLAMA,
    "llama_eagle3": Family(attention=grouped_rule(input_multiple=2), mlp=dense_rule),
    "gemma2": Family(attention=grouped_rule(window_from="alternate"), mlp=dense_rule, tied=True),
    "gemma3_text": Family(
        attention=grouped_rule(qk_norm=True, window_from="pattern"), mlp=dense_rule, tied=True
    ),
    "phi3": Family(attention=grouped_rule(window_from="all"), mlp=dense_rule),
    "mistral": Family(attention=grouped_rule(window_from="all"), mlp=dense_rule),
    "qwen2": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen2_moe": Family(
        attention=grouped_rule(qkv_bias=True, output_bias=False, window_from="switch"),
        mlp=moe_rule(
            shared_field="shared_expert_intermediate_size", shared_gate=True, sparse_layers="step"
        ),
    ),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_moe_text": _QWEN3_NEXT,
    "qwen3_5_text": Family(attention=hybrid_rule, mlp=dense_rule),
    "mixtral": Family(
        attention=grouped_rule(window_from="all"), mlp=moe_rule(width_field="intermediate_size")
    ),
    "gpt_oss": Family(
        attention=grouped_rule(
            qkv_bias=True, output_bias=True, sinks=True, window_from="alternate"
        ),
        mlp=moe_rule(width_field="intermediate_size", bias=True),
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "minicpm3": Family(attention=latent_rule, mlp=dense_rule, tied=True),
    "deepseek_v4": Family(
        attention=compressed_rule,
        mlp=moe_rule(shared_field="n_shared_experts", sparse_layers="after_dense"),
    ),
    "glm4_moe": Family(
        attention=grouped_rule(output_bias=False),
        mlp=moe_rule(shared_field="n_shared_experts", sparse_layers="after_dense"),
    ),
    "bailing_moe_v2": Family(
        attention=grouped_rule(qk_norm=True),
        mlp=moe_rule(shared_field="num_shared_experts", sparse_layers="after_dense"),
    ),
    "minimax_m2": Family(
        attention=grouped_rule(qk_norm=True), mlp=moe_rule(width_field="intermediate_size")
    ),
    "llama4_text": _LLAMA4,
}
"""Rules by ``model_type`` of the language model."""

CLASSES: Final[Mapping[str, str]] = {
    "LlamaForCausalLM": "llama",
    "LlamaForCausalLMEagle3": "llama_eagle3",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma3ForConditionalGeneration": "gemma3_text",
    "Phi3ForCausalLM": "phi3",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3VLForConditionalGeneration": "qwen3_vl_text",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe_text",
    "Qwen3NextForCausalLM": "qwen3_next",
    "Qwen3_5ForConditionalGeneration": "qwen3_5_text",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe_text",
    "MixtralForCausalLM": "mixtral",
    "GptOssForCausalLM": "gpt_oss",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "KimiK25ForConditionalGeneration": "kimi_k2",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "BailingMoeV2ForCausalLM": "bailing_moe_v2",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "MiniCPM3ForCausalLM": "minicpm3",
    "Llama4ForCausalLM": "llama4_text",
    "Llama4ForConditionalGeneration": "llama4_text",
}
"""``model_type`` of a class, for files without one that is known."""


def shape_from_text(text: str, *, path: str = "config.json", name: str = "") -> ModelShape:
    r"""Shape of a model from the text of its ``config.json``.

    .. math:: \text{text} \mapsto \text{shape}

    Parameters
    ----------
    text : str
        JSON, at most 16 Mi characters.
    path : str
        The file, for messages.
    name : str
        Name of the model; the file's own where it is empty.

    Returns
    -------
    ModelShape

    Raises
    ------
    FormatError
        If the text is no JSON object, the architecture is not known, or a field that it needs is
        missing or impossible: one line that names it.

    Notes
    -----
    Counts the language model only; a vision tower is said in `notes` of the shape.

    Examples
    --------
    >>> shape_from_text('{"architectures": ["SomethingNew"]}')
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: config.json: architecture SomethingNew is not known...
    """
    return shape_from_config(parsed_config(text, path=path), path=path, name=name)


def parsed_config(text: str, *, path: str) -> Mapping[str, Any]:
    r"""Object that a text holds.

    .. math:: \text{text} \mapsto \text{config}

    Parameters
    ----------
    text : str
        JSON, at most 16 Mi characters.
    path : str
        The file, for messages.

    Returns
    -------
    mapping

    Raises
    ------
    FormatError
        If the text is too long or no JSON object.

    Notes
    -----
    Numbers are read as they stand; whether they are possible is for who uses them.

    Examples
    --------
    >>> parsed_config('{"vocab_size": 32000}', path="config.json")
    {'vocab_size': 32000}
    """
    if len(text) > MOST_CHARACTERS:
        raise FormatError(path, f"longer than {MOST_CHARACTERS} characters: not a config.json")
    try:
        config = json.loads(text.removeprefix("\N{BYTE ORDER MARK}"))
    except (ValueError, RecursionError) as error:
        detail = str(error).partition("\n")[0][:_SHOWN]
        raise FormatError(path, f"not JSON: {detail}", code="bad_json") from None
    if not isinstance(config, Mapping):
        raise FormatError(path, "must be a JSON object, as the config.json of a model is")
    return config


def shape_from_config(
    config: Mapping[str, Any], *, path: str = "config.json", name: str = ""
) -> ModelShape:
    r"""Shape of a model from its parsed ``config.json``.

    .. math:: \text{config} \mapsto \text{shape}

    Parameters
    ----------
    config : mapping
        The object; the language model may stand in it or under ``text_config``.
    path : str
        The file, for messages.
    name : str
        Name of the model; ``_name_or_path`` or the architecture where it is empty.

    Returns
    -------
    ModelShape

    Raises
    ------
    FormatError
        If the architecture is not known, or a field is missing or impossible.

    Notes
    -----
    Fields as the transformers package names them, see `FAMILIES`. An EAGLE-3 draft
    (``LlamaForCausalLMEagle3``) has the reduced vocabulary of its head, and a fusion of three states
    of the target, which it needs once a round; its embedding is the target's.

    Examples
    --------
    >>> config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}
    >>> config |= {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    >>> config |= {"intermediate_size": 14336, "vocab_size": 128256}
    >>> shape_from_config(config).num_layers
    32
    """
    text_config = _text_config(config)
    model_type, label = _family(config, text_config, path)
    family, fields = FAMILIES[model_type], ConfigFields(text_config, path, label)
    layers = fields.count("num_hidden_layers", "n_layer")
    if layers > MOST_LAYERS:
        raise fields.wrong("num_hidden_layers", layers, f"from 1 to {MOST_LAYERS}")
    tied = text_config.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    if tied is not None and not isinstance(tied, bool):
        raise fields.wrong("tie_word_embeddings", tied, "true or false")
    stated = str(config.get("_name_or_path") or text_config.get("_name_or_path") or label)
    quantization = config.get("quantization_config", text_config.get("quantization_config"))
    draft = model_type == "llama_eagle3"
    fused = 3 * fields.count("target_hidden_size", "hidden_size") if draft else 0
    vocabulary = (fields.optional_count("draft_vocab_size") if draft else None) or fields.count(
        "vocab_size"
    )
    pairs = zip(family.attention(fields, layers), family.mlp(fields, layers), strict=True)
    encoders = [each for each in ("vision_config", "audio_config") if config.get(each)]
    return ModelShape(
        name=name or stated.rstrip("/").rsplit("/", 1)[-1][:_SHOWN] or label,
        architecture=label,
        hidden_size=fields.count("hidden_size"),
        vocab_size=vocabulary,
        fused_width=fused,
        layers=grouped_layers(pairs),
        tie_embeddings=family.tied if tied is None else tied,
        mtp_layers=fields.count(*_MTP_FIELDS, default=0, lowest=0),
        weights=weights_from_config(text_config, quantization, path),
        notes=tuple(f"{each}: its parameters are not counted" for each in encoders),
    )


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Part of the file with the language model."""
    if config.get("num_hidden_layers") is None:
        for each in _TEXT_FIELDS:
            inner = config.get(each)
            if isinstance(inner, Mapping):
                return inner
    return config


def _family(
    config: Mapping[str, Any], text_config: Mapping[str, Any], path: str
) -> tuple[str, str]:
    """Known model type of the language model, and the name of its architecture for people."""
    classes = config.get("architectures") or text_config.get("architectures")
    named = classes if isinstance(classes, list) else []
    first = next((each for each in named[:1] if isinstance(each, str)), None)
    model_type = text_config.get("model_type")
    stated = first or model_type
    if not isinstance(stated, str) or not stated:
        raise FormatError(
            path,
            "architectures and model_type are missing: not the config.json of a model",
            code="missing_field",
        )
    if first is not None and first in CLASSES and text_config is config:
        return CLASSES[first], stated
    typed = first is None or text_config is not config
    if typed and isinstance(model_type, str) and model_type in FAMILIES:
        return model_type, stated
    if stated in CLASSES:
        return CLASSES[stated], stated
    reason = (
        f"architecture {ascii(stated)[1:-1][:_SHOWN]} is not known: how its attention and "
        "feed-forward layers are built is missing; give a packaged model of the same shape by name, "
        f"or one of {', '.join(CLASSES)}"
    )
    raise FormatError(path, reason, code="unknown_architecture")
