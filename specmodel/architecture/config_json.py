"""Shape of a model from its own ``config.json``: a rule for each family, as transformers' classes read it."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from specmodel.architecture.quantisation import weights_from_config
from specmodel.architecture.shape import (
    LARGEST_COUNT,
    MOST_LAYERS,
    Attention,
    CompressedAttention,
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    Mlp,
    ModelShape,
    MoeMlp,
    SparseIndex,
    grouped_layers,
)
from specmodel.errors import FormatError
from specmodel.units import MEBI

# A configuration is never longer, also one that names every module that is not quantised.
MOST_CHARACTERS: Final = 16 * MEBI
# Entries of a list with one for each layer, and tokens of a compressed entry (judgements).
MOST_ENTRIES: Final = 10_000
MOST_TOKENS_PER_ENTRY: Final = 1_000_000

_TEXT_FIELDS = ("text_config", "llm_config", "language_config", "language_model_config")
_MTP_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "moe_topk", "top_k")
_WINDOW_LAYERS = {"sliding_attention", "chunked_attention"}
_SHOWN = 60


class ConfigFields:
    """Fields of a configuration by name, each read under the first of its names that is there."""

    __slots__ = ("architecture", "path", "values")

    def __init__(self, values: Mapping[str, Any], path: str, architecture: str) -> None:
        self.values, self.path, self.architecture = values, path, architecture

    def count(self, *names: str, default: int | None = None, lowest: int = 1) -> int:
        """Whole number under one of the names; refused where it is missing without a default."""
        value = self._found(names)
        if value is None:
            if default is None:
                raise self.missing(names[0])
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(names[0], value, "a whole number")
        if not lowest <= value <= LARGEST_COUNT:
            raise self.wrong(names[0], value, f"from {lowest} to {LARGEST_COUNT}")
        return value

    def optional_count(self, *names: str) -> int | None:
        """Whole number of at least 1, or None where it is missing, null or 0."""
        value = self._found(names)
        return self.count(*names) if value is not None and value != 0 else None

    def flag(self, *names: str, default: bool = False) -> bool:
        """Truth value under one of the names."""
        value = self._found(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(names[0], value, "true or false")
        return value

    def entries(self, name: str, kind: type) -> list[Any] | None:
        """List of that kind, or None where it is missing or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MOST_ENTRIES:
            raise self.wrong(name, value, f"a list of at most {MOST_ENTRIES}")
        if any(not isinstance(each, kind) or isinstance(each, bool) for each in value):
            raise self.wrong(name, value, f"a list of {kind.__name__}")
        return value

    def layer_entries(self, name: str, kind: type, num_layers: int) -> list[Any] | None:
        """List with an entry for each layer, or None; longer ones (with MTP layers) are cut."""
        value = self.entries(name, kind)
        if value is not None and len(value) < num_layers:
            raise self.wrong(name, f"{len(value)} entries", f"one for each of {num_layers} layers")
        return None if value is None else value[:num_layers]

    def missing(self, name: str) -> FormatError:
        """Error for a field that the architecture needs."""
        reason = (
            f"{name} is missing, which {self.architecture} needs; "
            "take the config.json of the model's own repository"
        )
        return FormatError(self.path, reason, code="missing_field")

    def wrong(self, name: str, value: object, allowed: str) -> FormatError:
        """Error for a field that is there and impossible."""
        shown = ascii(value) if not isinstance(value, str) else ascii(value)[1:-1]
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        return FormatError(self.path, f"{name} must be {allowed}, got {shown}", code="bad_field")

    def _found(self, names: tuple[str, ...]) -> Any:
        return next(
            (self.values[name] for name in names if self.values.get(name) is not None), None
        )


# --- attention ---


def _grouped(
    fields: ConfigFields,
    num_layers: int,
    *,
    qkv_bias: bool = False,
    output_bias: bool | None = None,
    qk_norm: bool = False,
    sinks: bool = False,
    window_from: str = "",
    input_multiple: int = 1,
) -> list[Attention]:
    """Grouped-query attention; what an architecture has whatever the file says is an argument.

    `window_from` says which layers have the window where ``layer_types`` does not name them: ``""``
    none, ``all``, ``alternate`` (first, third, ...), ``switch`` (``use_sliding_window`` with
    ``max_window_layers``), ``pattern`` (all but every ``sliding_window_pattern``-th) or ``chunk`` (three
    of four, or ``no_rope_layers``).
    """
    heads = fields.count("num_attention_heads")
    bias = qkv_bias or fields.flag("attention_bias", "use_qkv_bias", "qkv_bias")
    all_bias = fields.flag("attention_bias") if output_bias is None else output_bias
    window = None
    if fields.values.get("use_sliding_window") is not False:
        window = fields.optional_count("sliding_window", "attention_chunk_size")
    chosen = _windowed(fields, num_layers, window_from) if window else [False] * num_layers
    return [
        GroupedAttention(
            num_heads=heads,
            num_kv_heads=_kv_heads(fields, heads),
            head_dim=_head_dim(fields, heads),
            window_tokens=window if windowed else None,
            qkv_bias=bias,
            output_bias=all_bias,
            qk_norm=qk_norm or fields.flag("use_qk_norm"),
            sinks=sinks,
            input_multiple=input_multiple,
        )
        for windowed in chosen
    ]


def _windowed(fields: ConfigFields, num_layers: int, window_from: str) -> list[bool]:
    """Which layers have the window."""
    types = fields.layer_entries("layer_types", str, num_layers)
    if types is not None:
        return [each in _WINDOW_LAYERS for each in types]
    places = range(num_layers)
    if window_from == "switch":
        first = fields.count("max_window_layers", default=0, lowest=0)
        on = fields.flag("use_sliding_window")
        return [on and place >= first for place in places]
    if window_from == "pattern":
        every = fields.count("sliding_window_pattern", default=6)
        return [(place + 1) % every != 0 for place in places]
    if window_from == "chunk":  # layers with rotation attend inside a chunk
        rotated = fields.entries("no_rope_layers", int)
        if rotated and len(rotated) >= num_layers:
            return [bool(each) for each in rotated[:num_layers]]
        interval = fields.count("no_rope_layer_interval", default=4)
        return [(place + 1) % interval != 0 for place in places]
    period = {"all": 1, "alternate": 2}.get(window_from, 0)
    return [period > 0 and place % period == 0 for place in places]


def _latent(fields: ConfigFields, num_layers: int) -> list[Attention]:
    """Multi-head latent attention; ``index_topk`` adds the indexer of DeepSeek-V3.2 to every layer."""
    heads = fields.count("num_attention_heads")
    block = LatentAttention(
        num_heads=heads,
        q_lora_rank=fields.optional_count("q_lora_rank"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim", lowest=0),
        v_head_dim=fields.optional_count("v_head_dim") or _split_hidden_size(fields, heads),
        index=_index(fields),
    )
    return [block] * num_layers


def _hybrid(fields: ConfigFields, num_layers: int) -> list[Attention]:
    """Gated DeltaNet with full attention every few layers: Qwen3-Next and Qwen3.5."""
    heads = fields.count("num_attention_heads")
    head_dim = _head_dim(fields, heads)
    full = GroupedAttention(
        num_heads=heads,
        num_kv_heads=_kv_heads(fields, heads),
        head_dim=head_dim,
        qkv_bias=fields.flag("attention_bias"),
        output_bias=fields.flag("attention_bias"),
        qk_norm=True,
        gate_width=heads * head_dim if fields.flag("attn_output_gate", default=True) else 0,
    )
    linear = LinearAttention(
        num_key_heads=fields.count("linear_num_key_heads"),
        num_value_heads=fields.count("linear_num_value_heads"),
        key_head_dim=fields.count("linear_key_head_dim"),
        value_head_dim=fields.count("linear_value_head_dim"),
        conv_kernel=fields.count("linear_conv_kernel_dim", default=4),
    )
    types = fields.layer_entries("layer_types", str, num_layers)
    if types is not None:
        return [full if each == "full_attention" else linear for each in types]
    interval = fields.count("full_attention_interval")
    return [full if (place + 1) % interval == 0 else linear for place in range(num_layers)]


def _compressed(fields: ConfigFields, num_layers: int) -> list[Attention]:
    """Window and compressed entries of DeepSeek-V4: layers of the smallest ratio have the indexer.

    [model-shapes]_.
    """
    ratios = fields.layer_entries("compress_ratios", int, num_layers)
    if ratios is None:
        raise fields.missing("compress_ratios")
    if any(not 0 <= each <= MOST_TOKENS_PER_ENTRY for each in ratios):
        allowed = f"whole numbers from 0 to {MOST_TOKENS_PER_ENTRY}"
        raise fields.wrong("compress_ratios", ratios, allowed)
    finest = min((each for each in ratios if each), default=0)
    heads = fields.count("num_attention_heads")
    return [
        CompressedAttention(
            num_heads=heads,
            head_dim=_head_dim(fields, heads),
            q_lora_rank=fields.count("q_lora_rank"),
            output_groups=fields.count("o_groups"),
            output_lora_rank=fields.count("o_lora_rank"),
            window_tokens=fields.count("sliding_window"),
            compress_ratio=ratio,
            index=_index(fields) if ratio and ratio == finest else None,
        )
        for ratio in ratios
    ]


def _kv_heads(fields: ConfigFields, heads: int) -> int:
    """Key-value heads, as many as query heads where the file names none."""
    found = fields.count("num_key_value_heads", default=heads)
    if heads % found:
        raise fields.wrong("num_key_value_heads", found, f"a divisor of the {heads} query heads")
    return found


def _head_dim(fields: ConfigFields, heads: int) -> int:
    """Width of a head: stated, or the hidden size split evenly."""
    return fields.optional_count("head_dim") or _split_hidden_size(fields, heads)


def _split_hidden_size(fields: ConfigFields, heads: int) -> int:
    """Hidden size split over heads, refused where it is not whole."""
    value = fields.count("hidden_size")
    if value % heads:
        allowed = f"a multiple of the {heads} heads, as head_dim is missing"
        raise fields.wrong("hidden_size", value, allowed)
    return value // heads


def _index(fields: ConfigFields) -> SparseIndex | None:
    """Indexer, where the file has one."""
    topk = fields.optional_count("index_topk")
    if topk is None:
        return None
    return SparseIndex(
        num_heads=fields.count("index_n_heads"),
        head_dim=fields.count("index_head_dim"),
        topk_tokens=topk,
    )


# --- feed-forward blocks ---


def _dense(fields: ConfigFields, num_layers: int) -> list[Mlp]:
    """The same gated block in every layer."""
    block = DenseMlp(width=fields.count("intermediate_size"), bias=fields.flag("mlp_bias"))
    return [block] * num_layers


def _moe(
    fields: ConfigFields,
    num_layers: int,
    *,
    width_field: str = "moe_intermediate_size",
    shared_field: str = "",
    shared_gate: bool = False,
    bias: bool = False,
    sparse_layers: str = "all",
    dense_field: str = "intermediate_size",
) -> list[Mlp]:
    """Mixtures of experts; the fields that hold the widths are arguments.

    `shared_field` is a field with the width of the shared experts, ``n_shared_experts`` or
    ``num_shared_experts`` (a number of experts as wide as routed ones), ``routed`` (one such expert
    always), or empty for none. `sparse_layers` says which layers route: ``all``, ``after_dense`` (those
    past ``first_k_dense_replace``; without experts in the file all are dense), ``step``
    (``decoder_sparse_step`` and ``mlp_only_layers``) or ``interleaved`` (``moe_layers`` or
    ``interleave_moe_layer_step``).
    """
    experts_missing = all(fields.values.get(name) is None for name in _EXPERTS)
    if sparse_layers == "after_dense" and experts_missing:
        return _dense(fields, num_layers)
    width, experts = fields.count(width_field), fields.count(*_EXPERTS)
    per_token = fields.count(*_EXPERTS_PER_TOKEN)
    if per_token > experts:
        raise fields.wrong(_EXPERTS_PER_TOKEN[0], per_token, f"at most the {experts} experts")
    shared = width if shared_field == "routed" else 0
    if shared_field not in {"", "routed"}:
        shared = fields.count(shared_field, default=0, lowest=0)
        shared *= width if shared_field.endswith("_shared_experts") else 1
    block = MoeMlp(
        width=width,
        num_experts=experts,
        experts_per_token=per_token,
        shared_width=shared,
        shared_gate=shared_gate,
        bias=bias,
    )
    sparse = _sparse_layers(fields, num_layers, sparse_layers)
    if all(sparse):
        return [block] * num_layers
    dense = DenseMlp(width=fields.count(dense_field))
    return [block if each else dense for each in sparse]


def _sparse_layers(fields: ConfigFields, num_layers: int, rule: str) -> list[bool]:
    """Which layers route."""
    places = range(num_layers)
    if rule == "after_dense":
        first = fields.count("first_k_dense_replace", default=0, lowest=0)
        if isinstance(fields.values.get("moe_layer_freq"), list):  # 0 or 1 for each layer
            routed = fields.layer_entries("moe_layer_freq", int, num_layers) or []
            return [bool(each) for each in routed]
        step = fields.count("moe_layer_freq", default=1)
        return [place >= first and place % step == 0 for place in places]
    if rule == "step":
        step = fields.count("decoder_sparse_step", default=1)
        dense = set(fields.entries("mlp_only_layers", int) or [])
        return [place not in dense and (place + 1) % step == 0 for place in places]
    if rule == "interleaved":
        named = fields.entries("moe_layers", int)
        if named:
            return [place in set(named) for place in places]
        step = fields.count("interleave_moe_layer_step", default=1)
        return [(place + 1) % step == 0 for place in places]
    return [True] * num_layers


# --- families ---


class Family(NamedTuple):
    """Rules of an architecture; `tied`: head and embedding are one table where the file does not say."""

    classes: str  # in ``architectures``
    attention: Callable[[ConfigFields, int], list[Attention]]
    mlp: Callable[[ConfigFields, int], list[Mlp]]
    tied: bool = False


_EAGLE3 = partial(_grouped, input_multiple=2)
_GEMMA2 = partial(_grouped, window_from="alternate")
_GEMMA3 = partial(_grouped, qk_norm=True, window_from="pattern")
_GLM4 = partial(_grouped, output_bias=False)
_GPT_OSS = partial(_GEMMA2, qkv_bias=True, output_bias=True, sinks=True)
_LLAMA4 = partial(_grouped, window_from="chunk")
_NORMED = partial(_grouped, qk_norm=True)
_QWEN2 = partial(_grouped, qkv_bias=True, output_bias=False, window_from="switch")
_QWEN3 = partial(_NORMED, window_from="switch")
_WINDOWS = partial(_grouped, window_from="all")

_BAILING_MOE = partial(_moe, shared_field="num_shared_experts", sparse_layers="after_dense")
_DEEPSEEK_MOE = partial(_moe, shared_field="n_shared_experts", sparse_layers="after_dense")
_QWEN_MOE = partial(_moe, sparse_layers="step")
_QWEN_SHARED_MOE = partial(
    _QWEN_MOE, shared_field="shared_expert_intermediate_size", shared_gate=True
)
_WIDE_MOE = partial(_moe, width_field="intermediate_size")
_GPT_OSS_MOE = partial(_WIDE_MOE, bias=True)
_LLAMA4_MOE = partial(
    _WIDE_MOE,
    shared_field="routed",
    sparse_layers="interleaved",
    dense_field="intermediate_size_mlp",
)

# Rules by ``model_type`` of the language model.
FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family("LlamaForCausalLM", _grouped, _dense),
    "llama_eagle3": Family("LlamaForCausalLMEagle3", _EAGLE3, _dense),
    "gemma2": Family("Gemma2ForCausalLM", _GEMMA2, _dense, tied=True),
    "gemma3_text": Family(
        "Gemma3ForCausalLM Gemma3ForConditionalGeneration", _GEMMA3, _dense, tied=True
    ),
    "phi3": Family("Phi3ForCausalLM", _WINDOWS, _dense),
    "mistral": Family("MistralForCausalLM", _WINDOWS, _dense),
    "qwen2": Family("Qwen2ForCausalLM", _QWEN2, _dense),
    "qwen3": Family("Qwen3ForCausalLM", _QWEN3, _dense),
    "qwen3_vl_text": Family("Qwen3VLForConditionalGeneration", _QWEN3, _dense),
    "qwen2_moe": Family("Qwen2MoeForCausalLM", _QWEN2, _QWEN_SHARED_MOE),
    "qwen3_moe": Family("Qwen3MoeForCausalLM", _QWEN3, _QWEN_MOE),
    "qwen3_vl_moe_text": Family("Qwen3VLMoeForConditionalGeneration", _QWEN3, _QWEN_MOE),
    "qwen3_next": Family("Qwen3NextForCausalLM", _hybrid, _QWEN_SHARED_MOE),
    "qwen3_5_text": Family("Qwen3_5ForConditionalGeneration", _hybrid, _dense),
    "qwen3_5_moe_text": Family("Qwen3_5MoeForConditionalGeneration", _hybrid, _QWEN_SHARED_MOE),
    "mixtral": Family("MixtralForCausalLM", _WINDOWS, _WIDE_MOE),
    "gpt_oss": Family("GptOssForCausalLM", _GPT_OSS, _GPT_OSS_MOE),
    "deepseek_v2": Family("DeepseekV2ForCausalLM", _latent, _DEEPSEEK_MOE),
    "deepseek_v3": Family("DeepseekV3ForCausalLM", _latent, _DEEPSEEK_MOE),
    "deepseek_v32": Family("DeepseekV32ForCausalLM", _latent, _DEEPSEEK_MOE),
    "deepseek_v4": Family("DeepseekV4ForCausalLM", _compressed, _DEEPSEEK_MOE),
    "kimi_k2": Family("KimiK25ForConditionalGeneration", _latent, _DEEPSEEK_MOE),
    "glm4_moe": Family("Glm4MoeForCausalLM", _GLM4, _DEEPSEEK_MOE),
    "glm4_moe_lite": Family("Glm4MoeLiteForCausalLM", _latent, _DEEPSEEK_MOE),
    "glm_moe_dsa": Family("GlmMoeDsaForCausalLM", _latent, _DEEPSEEK_MOE),
    "bailing_moe_v2": Family("BailingMoeV2ForCausalLM", _NORMED, _BAILING_MOE),
    "minimax_m2": Family("MiniMaxM2ForCausalLM", _NORMED, _WIDE_MOE),
    "minicpm3": Family("MiniCPM3ForCausalLM", _latent, _dense, tied=True),
    "llama4_text": Family("Llama4ForCausalLM Llama4ForConditionalGeneration", _LLAMA4, _LLAMA4_MOE),
}

# ``model_type`` of a class, for files without one that is known.
CLASSES: Final[Mapping[str, str]] = {
    each: name for name, family in FAMILIES.items() for each in family.classes.split()
}


def parsed_config(text: str, *, path: str) -> Mapping[str, Any]:
    """Object that a text of at most 16 Mi characters holds; FormatError where it is no JSON object."""
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
    """Shape of a model from its parsed ``config.json``; FormatError where a field is missing or impossible.

    The language model may stand in the object or under ``text_config``; a vision tower is said in `notes`
    and not counted. An EAGLE-3 draft (``LlamaForCausalLMEagle3``) has the reduced vocabulary of its head,
    and a fusion of three states of the target, which it needs once a round; its embedding is the target's.

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
