"""Shape of the one layer of a draft model, as its ``config.json`` states it."""

from dataclasses import dataclass
from typing import Any, Final, final

from drafter.config_fields import DraftFields, optional_flag
from drafter.config_rope import rope_from_config
from drafter.spec import LatentHeads, Rope

DEFAULT_RMS_NORM_EPS: Final = 1e-6
"""What transformers' Llama class takes where a file states none."""

DEFAULT_MAX_POSITIONS: Final = 2048
"""Likewise, [tokens]."""

_ACTIVATIONS: Final = ("silu", "swish", "swiglu")
_SLIDING: Final = "sliding_attention"
_USUAL_MAX_WINDOW_LAYERS: Final = 28


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """Widths of a layer, and what a reader of the file has to know.

    Parameters
    ----------
    hidden_size, num_heads, num_kv_heads, head_dim, mlp_width, vocab_size, max_positions : int
        Counts as in `DraftSpec`; `vocab_size` is the target's.
    rms_norm_eps : float
        As in `DraftSpec`.
    rope : Rope
        Rotary embedding.
    attention_bias : bool
        Biases of q, k and v.
    latent : LatentHeads or None
        Widths of latent attention.
    notes : tuple of str
        What was taken by default.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_width: int
    vocab_size: int
    max_positions: int
    rms_norm_eps: float
    rope: Rope
    attention_bias: bool
    latent: LatentHeads | None
    notes: tuple[str, ...]


def layer_from_config(fields: DraftFields, *, latent: bool) -> LayerShape:
    r"""Shape of the layer.

    .. math:: \text{config} \mapsto (H, N_H, N_{KV}, D, I, \ldots)

    Parameters
    ----------
    fields : DraftFields
        Where the layer's keys stand: the file itself, or ``transformer_layer_config``.
    latent : bool
        Whether attention is latent (MLA).

    Returns
    -------
    LayerShape

    Raises
    ------
    FormatError
        If a key is missing or impossible, or states what no draft model here computes: several layers,
        experts, a bias of the MLP, another activation.

    Notes
    -----
    ``head_dim`` is read where it stands and is :math:`H / N_H` only where it does not: heads for gpt-oss
    (2880 wide, 64 heads of 64) and Qwen3 break that identity. Latent heads follow DeepSeek-V3's names.

    Examples
    --------
    >>> config = {"hidden_size": 2880, "intermediate_size": 17280, "num_attention_heads": 64}
    >>> config |= {"num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "rms_norm_eps": 1e-5}
    >>> layer_from_config(DraftFields(config, "config.json", "llama"), latent=False).head_dim
    64
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
    widths = (
        _latent_widths(fields, heads) if latent else _grouped_widths(fields, heads, hidden, notes)
    )
    return LayerShape(
        hidden_size=hidden,
        num_heads=heads,
        mlp_width=fields.count("intermediate_size"),
        vocab_size=fields.count("vocab_size"),
        max_positions=max_positions,
        rms_norm_eps=eps,
        rope=rope,
        attention_bias=bool(optional_flag(fields, "attention_bias")),
        notes=(*notes, *told),
        **widths,
    )


def sliding_window(fields: DraftFields) -> int | None:
    r"""Window of the first layer of a qwen3 layer configuration; None where it sees everything.

    .. math:: \text{config} \mapsto w

    Parameters
    ----------
    fields : DraftFields
        Fields of ``transformer_layer_config``.

    Returns
    -------
    int or None
        At least 1, [tokens].

    Raises
    ------
    FormatError
        If the layer is said to slide, and no window is stated.

    Notes
    -----
    ``layer_types`` decides where it stands; else ``use_sliding_window`` with ``max_window_layers``, the
    number of first layers that see everything.

    Examples
    --------
    >>> config = {"layer_types": ["sliding_attention"], "sliding_window": 4096}
    >>> sliding_window(DraftFields(config, "config.json", "qwen3"))
    4096
    """
    kinds = fields.names("layer_types")
    if kinds:
        slides = kinds[0] == _SLIDING
    else:
        full = fields.count("max_window_layers", default=_USUAL_MAX_WINDOW_LAYERS, lowest=0)
        slides = fields.flag("use_sliding_window") and full == 0
    return fields.count("sliding_window") if slides else None


def _refuse_unsupported(fields: DraftFields, *, latent: bool) -> None:
    """What would change the result and is not computed here.

    A llama class has a dense MLP whatever the file says of experts, which templates copy from a target.
    """
    layers = fields.count("num_hidden_layers", default=1)
    if layers > 1:
        raise fields.refused(
            f"num_hidden_layers is {layers}; only draft models of one layer are supported"
            " (is this the config.json of a target model?)"
        )
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
) -> dict[str, Any]:
    """Heads that share keys and values."""
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
    return {"num_kv_heads": key_heads, "head_dim": width, "latent": None}


def _latent_widths(fields: DraftFields, heads: int) -> dict[str, Any]:
    """Heads of latent attention; the width of a query or key head stands for `head_dim`."""
    latent = LatentHeads(
        query_rank=fields.count("q_lora_rank"),
        kv_rank=fields.count("kv_lora_rank"),
        nope_dim=fields.count("qk_nope_head_dim"),
        rope_dim=fields.count("qk_rope_head_dim"),
        value_dim=fields.count("v_head_dim"),
    )
    return {
        "num_kv_heads": heads,
        "head_dim": latent.nope_dim + latent.rope_dim,
        "latent": latent,
    }
