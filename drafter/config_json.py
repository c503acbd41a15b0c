"""A draft model's ``config.json``, whichever of the public layouts it is in, as one spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, final

from drafter.config_fields import DraftFields, agreed_flag, optional_flag
from drafter.config_layer import LayerShape, layer_from_config, sliding_window
from drafter.config_states import (
    ENTERING_IDS_NOTE,
    OUTPUT_IDS_NOTE,
    aux_layer_ids,
    num_aux_states,
    use_aux_hidden_state,
)
from drafter.spec import DraftSpec
from specmodel.architecture.config_json import MOST_CHARACTERS, parsed_config
from specmodel.errors import FormatError, ParameterError

Layout = Literal["flat", "speculators", "mla"]
"""flat: SafeAILab, SpecForge, SGLang, TorchSpec, nvidia; speculators: vLLM's; mla: flat, latent heads."""

CONFIG_FILE: Final = "config.json"
"""Name of the file in a checkpoint's folder."""

FLAT_ARCHITECTURES: Final = (
    "LlamaForCausalLMEagle3",
    "LlamaForCausalLM",
    "Eagle3LlamaForCausalLM",
)
"""Classes with grouped heads; the second is what older files say."""

MLA_ARCHITECTURES: Final = (
    "Eagle3DeepseekV2ForCausalLM",
    "Eagle3DeepseekV3ForCausalLM",
    "DeepSeekForCausalLMEagle3",
)
"""Classes with latent heads."""

_SPECULATORS_LAYERS: Final = ("llama", "qwen3")
_TRUE_ONLY: Final = ("use_input_layernorm_in_first_layer", "use_last_layernorm")
_SHOWN: Final = 60


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """What a ``config.json`` says of a draft model.

    Parameters
    ----------
    spec : DraftSpec
        Counts and switches.
    layout : str
        One of `Layout`.
    architecture : str
        Class that the file names.
    stored_dtype : str or None
        Type of the weights, where the file says.
    aux_layer_ids : tuple of int or None
        Captured layers of the target as the file lists them; their meaning is in the notes.
    own_vocabulary : bool
        False where no draft vocabulary is stated, so that the head may be the target's.
    tied_head : bool
        Whether the file says that the head is the embedding.
    target_model : str or None
        Name of the target model, where the file says.
    notes : tuple of str
        Defaults that were taken, and points where engines differ.
    """

    spec: DraftSpec
    layout: Layout
    architecture: str
    stored_dtype: str | None = None
    aux_layer_ids: tuple[int, ...] | None = None
    own_vocabulary: bool = True
    tied_head: bool = False
    target_model: str | None = None
    notes: tuple[str, ...] = ()


def read_draft_config(folder: Path | str) -> DraftConfig:
    r"""Configuration of the draft model in a folder.

    .. math:: \text{folder} \mapsto \text{configuration}

    Parameters
    ----------
    folder : path
        Folder of a checkpoint, or its ``config.json``.

    Returns
    -------
    DraftConfig

    Raises
    ------
    FormatError
        If there is no such file, it cannot be read, or it is not of a draft model that is known.

    Notes
    -----
    Reads one file and nothing else; needs neither torch nor a GPU.

    Examples
    --------
    >>> read_draft_config("nowhere")
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: nowhere: no such folder; name the folder of a draft checkpoint
    """
    place = Path(folder)
    path = place if place.name == CONFIG_FILE else place / CONFIG_FILE
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
    r"""Configuration of a draft model from its parsed ``config.json``.

    .. math:: \text{object} \mapsto \text{configuration}

    Parameters
    ----------
    config : mapping
        The object.
    path : str
        The file, for messages.

    Returns
    -------
    DraftConfig

    Raises
    ------
    FormatError
        If the layout is not known, or a key is missing, impossible or contradicts another.

    Notes
    -----
    The speculators layout is known by ``speculators_model_type``, latent heads by the class or by
    ``kv_lora_rank``. Keys and their defaults: section 4 and 5 of the project's drafter reference.

    Examples
    --------
    >>> config = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 2048, "head_dim": 128}
    >>> config |= {"num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 12288}
    >>> config |= {"vocab_size": 151936, "draft_vocab_size": 32000, "rms_norm_eps": 1e-6}
    >>> found = draft_config(config)
    >>> found.layout, found.spec.head_dim, found.spec.rope.theta
    ('flat', 128, 10000.0)
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
    layer = layer_from_config(fields, latent=latent)
    notes = list(layer.notes)
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
            f"draft_vocab_size is not stated: the whole vocabulary of {layer.vocab_size}, and the head "
            "may be the target's"
        )
    fc_norm = agreed_flag(
        "fc_norm",
        ("fc_norm", optional_flag(fields, "fc_norm")),
        ("use_aux_norm", optional_flag(fields, "use_aux_norm")),
        fields=fields,
    )
    before_fc = agreed_flag(
        "norm_before_fc",
        ("norm_before_fc", optional_flag(fields, "norm_before_fc")),
        ("eagle_config.norm_before_fc", optional_flag(section, "norm_before_fc")),
        fields=fields,
    )
    spec = _spec(
        layer,
        target_hidden_size=fields.optional_count("target_hidden_size"),
        num_aux_states=num_aux_states(fields, ids) if fused else 1,
        draft_vocab_size=own,
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
    layer = layer_from_config(inner, latent=False)
    notes = list(layer.notes)
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
    spec = _spec(
        layer,
        target_hidden_size=fields.optional_count("target_hidden_size"),
        num_aux_states=num_aux_states(fields, ids),
        draft_vocab_size=own,
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
        target_model=verifier.text("name_or_path"),
        notes=(*notes, *_engine_notes(spec)),
    )


def _spec(
    layer: LayerShape,
    *,
    target_hidden_size: int | None,
    draft_vocab_size: int | None,
    **switches: Any,
) -> DraftSpec:
    """The layer's widths with what the rest of the file says."""
    return DraftSpec(
        hidden_size=layer.hidden_size,
        target_hidden_size=target_hidden_size or layer.hidden_size,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=layer.head_dim,
        mlp_width=layer.mlp_width,
        target_vocab_size=layer.vocab_size,
        draft_vocab_size=draft_vocab_size or layer.vocab_size,
        rms_norm_eps=layer.rms_norm_eps,
        rope=layer.rope,
        max_positions=layer.max_positions,
        attention_bias=layer.attention_bias,
        latent=layer.latent,
        **switches,
    )


def _check_eagle_config(section: DraftFields) -> None:
    """Switches of nvidia's files of which one side only is computed."""
    for name in _TRUE_ONLY:
        if optional_flag(section, name) is False:
            raise section.refused(f"{name} is false, which is not supported; only true is")
    if section.flag("use_mtp_layernorm"):
        raise section.refused("use_mtp_layernorm is true, which is not supported; only false is")


def _engine_notes(spec: DraftSpec) -> list[str]:
    """Switches that SGLang's llama class leaves out."""
    named = {
        "norm_before_residual": spec.norm_before_residual,
        "attention_bias": spec.attention_bias,
        "q/k norm": spec.qk_norm,
    }
    left_out = [name for name, on in named.items() if on]
    if not left_out:
        return []
    return [f"SGLang's llama class leaves out {' and '.join(left_out)}; vLLM computes it"]
