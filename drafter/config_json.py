"""Every public layout of config.json -> the spec of a draft model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from drafter.spec import ROPE_KINDS, DraftSpec, LatentHeads, Rope, RopeKind
from specmodel.architecture.config_json import MOST_CHARACTERS, ConfigFields, parsed_config
from specmodel.errors import FormatError, ParameterError

_LONGEST_LIST = 1000


class DraftFields(ConfigFields):
    """Fields of a configuration by name, with what draft models state besides counts."""

    __slots__ = ()

    def number(self, name: str) -> float | None:
        """Return a finite number that is not negative; None where it is missing or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and number >= 0):
            raise self.wrong(name, value, "a finite number of at least 0")
        return number

    def text(self, *names: str) -> str | None:
        """Return the text under the first name that is there; None where there is none."""
        value = self._found(names)
        if value is not None and not isinstance(value, str):
            raise self.wrong(names[0], value, "a text")
        return value

    def section(self, name: str) -> Mapping[str, Any]:
        """Return an object inside the configuration; an empty one where it is missing or null."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object with keys of its own")
        return value

    def layer_ids(self, name: str) -> tuple[int, ...] | None:
        """Return a list of layers; None where it is missing, null or empty."""
        entries = self.entries(name, int)
        if not entries:
            return None
        if len(entries) > _LONGEST_LIST or min(entries) < 0:
            raise self.wrong(name, entries, f"at most {_LONGEST_LIST} layers, none negative")
        return tuple(entries)

    def inside(self, name: str) -> "DraftFields":
        """Return the fields of an object inside the configuration; messages name it."""
        return DraftFields(self.section(name), f"{self.path}, {name}", self.architecture)

    def refused(self, reason: str) -> FormatError:
        """Error for a configuration that is sound, but not of a draft model that is known."""
        return FormatError(self.path, reason, code="not_supported")


def optional_flag(fields: DraftFields, name: str) -> bool | None:
    """Truth value of a key; None where it is missing or null: a default belongs to whoever knows the layout."""
    return fields.flag(name) if fields.values.get(name) is not None else None


def agreed_flag(fields: DraftFields, name: str, alias: str, other: bool | None) -> bool | None:
    """Truth value of a key that older files state under another name, or in ``eagle_config``."""
    own = optional_flag(fields, name)
    if own is not None and other is not None and own != other:
        told = f"{name} is {str(own).lower()} and {alias} is {str(other).lower()}"
        raise fields.refused(f"{told}: they state one switch ({name}); keep one of them")
    return other if own is None else own


DEFAULT_THETA: Final = 10_000.0
"""Base of the frequencies where a file states none; never the target's value."""

_TEXT_ONLY: Final = "mrope"
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
    """Rotary embedding of a configuration, and what a reader has to know about it.

    transformers before 5 writes ``rope_theta`` and ``rope_scaling`` with ``type`` or ``rope_type``;
    later versions write ``rope_parameters``. Without ``rope_theta`` the base is `DEFAULT_THETA`,
    whatever the target model has. Positions in several dimensions (mrope) are equal for text, so they
    are one position here.
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
    if kind != "default":
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
    top = {name: fields.values.get(name) for name in ("rope_theta", "partial_rotary_factor")}
    places = [
        *((name, fields.section(name)) for name in ("rope_scaling", "rope_parameters")),
        ("the top level", top),
    ]
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
    for name in ("low_freq_factor", "high_freq_factor"):
        if kind == "llama3" and found[name] is None:
            raise section.missing(name)
    return {name: value for name, value in found.items() if value is not None}


USUAL_NUM_STATES: Final = 3
"""Captured states where a file lists none: those entering layers 2, L/2 and L - 3."""

_IDS: Final = "eagle_aux_hidden_state_layer_ids"
_COUNTS: Final = ("num_aux_hidden_states", "num_aux_layers")

OUTPUT_IDS_NOTE: Final = (
    "the layer ids mean the outputs of these layers in SpecForge and SGLang; vLLM takes a list as the "
    "states entering them, one layer earlier"
)
"""Said of an explicit list in the flat layout."""

ENTERING_IDS_NOTE: Final = "the layer ids mean the states entering these layers"
"""Said of an explicit list in the speculators layout."""


def aux_layer_ids(fields: DraftFields, section: DraftFields) -> tuple[int, ...] | None:
    """Layers of the target whose states are captured; None where the file lists none.

    What a layer id means differs between writers: see `OUTPUT_IDS_NOTE`. It does not change the time.
    """
    top, inner = fields.layer_ids(_IDS), section.layer_ids(_IDS)
    if top is not None and inner is not None and top != inner:
        raise fields.refused(
            f"{_IDS} is {list(top)} and in eagle_config {list(inner)}; keep one of them"
        )
    return top if top is not None else inner


def num_aux_states(fields: DraftFields, ids: tuple[int, ...] | None) -> int:
    """Number of captured states.

    .. math:: A

    The length of the list, else the stated number, else `USUAL_NUM_STATES`.
    """
    stated = fields.optional_count(*_COUNTS)
    if ids is not None and stated is not None and stated != len(ids):
        raise fields.refused(
            f"{len(ids)} layer ids, but {stated} captured states; they are one number"
        )
    if ids is not None:
        return len(ids)
    return USUAL_NUM_STATES if stated is None else stated


def use_aux_hidden_state(fields: DraftFields, section: DraftFields) -> bool:
    """Whether captured states are fused; else the final state is fed as it is.

    Only heads for short contexts are known to set it to false.
    """
    key = "use_aux_hidden_state"
    stated = agreed_flag(fields, key, f"eagle_config.{key}", optional_flag(section, key))
    return stated is not False


DEFAULT_RMS_NORM_EPS: Final = 1e-6
"""What transformers' Llama class takes where a file states none."""

DEFAULT_MAX_POSITIONS: Final = 2048
"""Likewise, [tokens]."""

_ACTIVATIONS: Final = ("silu", "swish", "swiglu")


def layer_from_config(fields: DraftFields, *, latent: bool) -> tuple[dict[str, Any], list[str]]:
    """What the layer says of a `DraftSpec`, and what a reader of the file has to know.

    ``head_dim`` is read where it stands and is :math:`H / N_H` only where it does not: heads for gpt-oss
    (2880 wide, 64 heads of 64) and Qwen3 break that identity. Latent heads follow DeepSeek-V3's names.
    """
    _refuse_unsupported(fields, latent=latent)
    notes: list[str] = []
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    max_positions = fields.optional_count("max_position_embeddings")
    if max_positions is None:
        notes.append(f"max_position_embeddings is not stated: {DEFAULT_MAX_POSITIONS} is taken")
        max_positions = DEFAULT_MAX_POSITIONS
    eps = fields.number("rms_norm_eps")
    if eps is None:
        notes.append(f"rms_norm_eps is not stated: {DEFAULT_RMS_NORM_EPS:g}, Llama's default")
        eps = DEFAULT_RMS_NORM_EPS
    if eps == 0:
        raise fields.wrong("rms_norm_eps", eps, "above 0")
    rope, told = rope_from_config(fields, max_positions)
    if latent:
        ranks = LatentHeads(
            query_rank=fields.count("q_lora_rank"),
            kv_rank=fields.count("kv_lora_rank"),
            nope_dim=fields.count("qk_nope_head_dim"),
            rope_dim=fields.count("qk_rope_head_dim"),
            value_dim=fields.count("v_head_dim"),
        )
        # the width of a query or key head stands for `head_dim`
        key_heads, width = heads, ranks.nope_dim + ranks.rope_dim
    else:
        ranks = None
        key_heads, width = _grouped_widths(fields, heads, hidden, notes)
    layer = {
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": key_heads,
        "head_dim": width,
        "mlp_width": fields.count("intermediate_size"),
        "target_vocab_size": fields.count("vocab_size"),
        "max_positions": max_positions,
        "rms_norm_eps": eps,
        "rope": rope,
        "attention_bias": bool(optional_flag(fields, "attention_bias")),
        "latent": ranks,
    }
    return layer, notes + told


def sliding_window(fields: DraftFields) -> int | None:
    """Window of the first layer of a qwen3 layer configuration; None where it sees everything.

    ``layer_types`` decides where it stands; else ``use_sliding_window`` with ``max_window_layers``, the
    number of first layers that see everything.
    """
    kinds = fields.entries("layer_types", str)
    if kinds:
        slides = kinds[0] == "sliding_attention"
    else:
        full = fields.count("max_window_layers", default=28, lowest=0)
        slides = fields.flag("use_sliding_window") and full == 0
    return fields.count("sliding_window") if slides else None


def _refuse_unsupported(fields: DraftFields, *, latent: bool) -> None:
    """What would change the result and is not computed here.

    A llama class has a dense MLP whatever the file says of experts, which templates copy from a target.
    """
    activation = fields.text("hidden_act")
    if activation is not None and activation not in _ACTIVATIONS:
        raise fields.wrong("hidden_act", activation, f"one of {', '.join(_ACTIVATIONS)}")
    for name in ("mlp_bias", "mla_use_nope"):
        if fields.flag(name):
            raise fields.refused(f"{name} is true, which is not supported; only false is")
    dense_layers = fields.count("first_k_dense_replace", default=0, lowest=0)
    routed = latent and dense_layers == 0 and fields.optional_count("n_routed_experts") is not None
    if fields.flag("use_moe") or routed:
        raise fields.refused(
            "the layer has experts; only draft models with a dense MLP are supported"
        )


def _grouped_widths(
    fields: DraftFields, heads: int, hidden: int, notes: list[str]
) -> tuple[int, int]:
    """Heads for keys and values, and the width of a head, where heads share keys and values."""
    key_heads = fields.optional_count("num_key_value_heads")
    if key_heads is None:
        notes.append(f"num_key_value_heads is not stated: {heads}, as many as query heads")
        key_heads = heads
    width = fields.optional_count("head_dim")
    if width is None:
        if hidden % heads:
            raise fields.missing("head_dim")
        width = hidden // heads
        notes.append(f"head_dim is not stated: hidden_size / num_attention_heads = {width}")
    return key_heads, width


Layout = Literal["flat", "speculators", "mla"]
"""flat: SafeAILab, SpecForge, SGLang, TorchSpec, nvidia; speculators: vLLM's; mla: flat, latent heads."""

CONFIG_FILE: Final = "config.json"
"""Name of the file in a checkpoint's folder."""

FLAT_ARCHITECTURES: Final = ("LlamaForCausalLMEagle3", "LlamaForCausalLM", "Eagle3LlamaForCausalLM")
"""Classes with grouped heads; the second is what older files say."""

MLA_ARCHITECTURES: Final = (
    "Eagle3DeepseekV2ForCausalLM",
    "Eagle3DeepseekV3ForCausalLM",
    "DeepSeekForCausalLMEagle3",
)
"""Classes with latent heads."""

_SPECULATORS_LAYERS: Final = ("llama", "qwen3")
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """What a ``config.json`` says of a draft model."""

    spec: DraftSpec
    layout: Layout
    architecture: str
    stored_dtype: str | None = None
    aux_layer_ids: tuple[int, ...] | None = None
    own_vocabulary: bool = True
    tied_head: bool = False
    num_layers: int = 1
    target_model: str | None = None
    notes: tuple[str, ...] = ()


def read_draft_config(folder: Path | str) -> DraftConfig:
    """Configuration of the draft model in a folder.

    Reads one file and nothing else; needs neither torch nor a GPU.
    """
    place = Path(folder)
    is_file = place.name == CONFIG_FILE or (place.suffix == ".json" and place.is_file())
    path = place if is_file else place / CONFIG_FILE
    try:
        if not path.is_file():
            missing = place.exists() or place.name == CONFIG_FILE
            reason = f"no {CONFIG_FILE} here" if missing else "no such folder"
            raise FormatError(place, f"{reason}; name the folder of a draft checkpoint")
        if path.stat().st_size > MOST_CHARACTERS:
            raise FormatError(path, f"longer than {MOST_CHARACTERS} bytes: not a {CONFIG_FILE}")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FormatError(path, "not a text in UTF-8") from None
    except (OSError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        reason = getattr(error, "strerror", None) or "the name is not possible"
        raise FormatError(place, f"cannot be read: {reason}") from None
    return draft_config(parsed_config(text, path=str(path)), path=str(path))


def draft_config(config: Mapping[str, Any], *, path: str = CONFIG_FILE) -> DraftConfig:
    """Configuration of a draft model from its parsed ``config.json``.

    The speculators layout is known by ``speculators_model_type``, latent heads by the class or by
    ``kv_lora_rank``. Keys and their defaults: section 4 and 5 of the project's drafter reference.
    """
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else ""
    architecture = first[:_SHOWN] if isinstance(first, str) else ""
    fields = DraftFields(config, path, architecture or "a draft model")
    try:
        if "speculators_model_type" in config:
            return _from_speculators(fields)
        if architecture in MLA_ARCHITECTURES or config.get("kv_lora_rank") is not None:
            return _from_flat(fields, architecture, latent=True)
        if architecture in FLAT_ARCHITECTURES:
            return _from_flat(fields, architecture, latent=False)
    except ParameterError as error:
        raise fields.refused(str(error)) from None
    known = ", ".join([*FLAT_ARCHITECTURES, *MLA_ARCHITECTURES])
    found = f"the architecture {architecture}" if architecture else "a file without architectures"
    raise fields.refused(
        f"{found} is no EAGLE-3 draft model that is known; known: {known}, or speculators_model_type eagle3"
    )


def _from_flat(fields: DraftFields, architecture: str, *, latent: bool) -> DraftConfig:
    """Layout of SafeAILab, SpecForge, SGLang, TorchSpec and nvidia."""
    section = fields.inside("eagle_config")
    _check_eagle_config(section)
    layer, notes = layer_from_config(fields, latent=latent)
    ids = aux_layer_ids(fields, section)
    if ids is not None:
        notes.append(OUTPUT_IDS_NOTE)
    fused = use_aux_hidden_state(fields, section)
    if "norm_output" in fields.values:
        notes.append(
            "norm_output is read as SGLang and vLLM do: the next step is fed the normed state; in SpecForge "
            "the name only says whether the final norm runs before the head"
        )
    if fields.values.get("sliding_window") is not None:
        notes.append("sliding_window is not read: the flat class attends to everything")
    own = fields.optional_count("draft_vocab_size")
    if own is None:
        notes.append(
            f"draft_vocab_size is not stated: the whole vocabulary of {layer['target_vocab_size']}, and the head "
            "may be the target's"
        )
    fc_norm = agreed_flag(fields, "fc_norm", "use_aux_norm", optional_flag(fields, "use_aux_norm"))
    key = "norm_before_fc"
    before_fc = agreed_flag(fields, key, f"eagle_config.{key}", optional_flag(section, key))
    spec = DraftSpec(
        **layer,
        target_hidden_size=fields.optional_count("target_hidden_size") or layer["hidden_size"],
        num_aux_states=num_aux_states(fields, ids) if fused else 1,
        draft_vocab_size=own or layer["target_vocab_size"],
        fc_bias=fields.flag("bias"),
        norm_before_residual=fields.flag("norm_before_residual"),
        fc_norm=bool(fc_norm),
        norm_before_fc=bool(before_fc),
        norm_output=fields.flag("norm_output"),
        use_aux_hidden_state=fused,
    )
    return DraftConfig(
        spec=spec,
        layout="mla" if latent else "flat",
        architecture=architecture or "not stated",
        stored_dtype=fields.text("dtype", "torch_dtype"),
        aux_layer_ids=ids,
        own_vocabulary=own is not None,
        tied_head=fields.flag("tie_word_embeddings"),
        num_layers=fields.count("num_hidden_layers", default=1),
        notes=(*notes, *_engine_notes(spec)),
    )


def _from_speculators(fields: DraftFields) -> DraftConfig:
    """Layout of speculators, which vLLM reads."""
    kind = fields.text("speculators_model_type")
    if kind != "eagle3":
        raise fields.wrong("speculators_model_type", kind, "eagle3")
    if not fields.section("transformer_layer_config"):
        raise fields.missing("transformer_layer_config")
    inner = fields.inside("transformer_layer_config")
    model = inner.text("model_type") or "llama"
    if model not in _SPECULATORS_LAYERS:
        raise inner.wrong("model_type", model, f"one of {', '.join(_SPECULATORS_LAYERS)}")
    if model == "qwen3" and inner.optional_count("head_dim") is None:
        raise inner.missing("head_dim")  # the class default is not hidden_size / heads
    layer, notes = layer_from_config(inner, latent=False)
    ids = aux_layer_ids(fields, DraftFields({}, fields.path, fields.architecture))
    if ids is not None:
        notes.append(ENTERING_IDS_NOTE)
    before_residual = optional_flag(fields, "norm_before_residual")
    if before_residual is None:
        notes.append(
            "norm_before_residual is not stated: false, as speculators' own class has it; "
            "vLLM's reader takes true, so state it"
        )
    if "draft_vocab_size" not in fields.values:
        raise fields.missing("draft_vocab_size")
    own = fields.optional_count("draft_vocab_size")
    spec = DraftSpec(
        **layer,
        target_hidden_size=fields.optional_count("target_hidden_size") or layer["hidden_size"],
        num_aux_states=num_aux_states(fields, ids),
        draft_vocab_size=own or layer["target_vocab_size"],
        qk_norm=model == "qwen3",
        norm_before_residual=bool(before_residual),
        fc_norm=fields.flag("fc_norm"),
        norm_before_fc=fields.flag("norm_before_fc"),
        norm_output=fields.flag("norm_output"),
        sliding_window=sliding_window(inner) if model == "qwen3" else None,
    )
    verifier = fields.inside("speculators_config").inside("verifier")
    return DraftConfig(
        spec=spec,
        layout="speculators",
        architecture=fields.architecture,
        stored_dtype=fields.text("dtype", "torch_dtype") or inner.text("dtype", "torch_dtype"),
        aux_layer_ids=ids,
        own_vocabulary=own is not None,
        num_layers=inner.count("num_hidden_layers", default=1),
        target_model=verifier.text("name_or_path"),
        notes=(*notes, *_engine_notes(spec)),
    )


def _check_eagle_config(section: DraftFields) -> None:
    """Switches of nvidia's files of which one side only is computed."""
    for name in ("use_input_layernorm_in_first_layer", "use_last_layernorm"):
        if optional_flag(section, name) is False:
            raise section.refused(f"{name} is false, which is not supported; only true is")
    if section.flag("use_mtp_layernorm"):
        raise section.refused("use_mtp_layernorm is true, which is not supported; only false is")


def _engine_notes(spec: DraftSpec) -> list[str]:
    """Switches that SGLang's llama class leaves out."""
    names = ("norm_before_residual", "attention_bias", "qk_norm")
    left_out = [name.replace("qk_", "q/k ") for name in names if getattr(spec, name)]
    if not left_out:
        return []
    return [f"SGLang's llama class leaves out {' and '.join(left_out)}; vLLM computes it"]
