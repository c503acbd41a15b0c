"""Attention of every layer from the fields of a ``config.json``."""

from collections.abc import Callable
from typing import Final

from specmodel.architecture.blocks import (
    Attention,
    CompressedAttention,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    SparseIndex,
)
from specmodel.architecture.config_fields import ConfigFields

AttentionRule = Callable[[ConfigFields, int], list[Attention]]

_WINDOW_LAYERS = {"sliding_attention", "chunked_attention"}


def grouped_rule(
    *,
    qkv_bias: bool = False,
    output_bias: bool | None = None,
    qk_norm: bool = False,
    sinks: bool = False,
    window_from: str = "",
    input_multiple: int = 1,
) -> AttentionRule:
    r"""Rule for grouped-query attention with what an architecture always has.

    .. math:: \text{config} \mapsto (a_1, \ldots, a_L)

    Parameters
    ----------
    qkv_bias : bool
        True where queries, keys and values have one whatever the file says.
    output_bias : bool or None
        Whether the output projection has one; None where it has if ``attention_bias`` is true.
    qk_norm, sinks : bool
        True where the architecture has it whatever the file says.
    window_from : str
        How layers with a window are found where ``layer_types`` does not name them: ``""`` none,
        ``all``, ``alternate`` (first, third, ...), ``switch`` (``use_sliding_window`` with
        ``max_window_layers``), ``pattern`` (all but every ``sliding_window_pattern``-th) or ``chunk``
        (three of four, or ``no_rope_layers``).
    input_multiple : int
        Hidden sizes that the projections take in, [-].

    Returns
    -------
    callable
        From fields and number of layers to the attention of each layer.

    Notes
    -----
    As the classes of the transformers package read the same fields.

    Examples
    --------
    >>> values = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    >>> rule = grouped_rule(qk_norm=True)
    >>> rule(ConfigFields(values, "config.json", "demo"), 2)[1].head_dim
    16
    """

    def rule(fields: ConfigFields, num_layers: int) -> list[Attention]:
        heads = fields.count("num_attention_heads")
        bias = qkv_bias or fields.flag("attention_bias", "use_qkv_bias", "qkv_bias")
        all_bias = fields.flag("attention_bias") if output_bias is None else output_bias
        window = _window(fields)

        def block(*, windowed: bool) -> GroupedAttention:
            return GroupedAttention(
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

        chosen = _windowed(fields, num_layers, window_from) if window else [False] * num_layers
        return [block(windowed=each) for each in chosen]

    return rule


def latent_rule(fields: ConfigFields, num_layers: int) -> list[Attention]:
    r"""Multi-head latent attention in every layer.

    .. math:: \text{config} \mapsto (a_1, \ldots, a_L)

    Parameters
    ----------
    fields : ConfigFields
        The configuration.
    num_layers : int
        Depth, [-].

    Returns
    -------
    list
        Attention of each layer.

    Notes
    -----
    DeepSeek-V2, V3 and what follows them; ``index_topk`` adds the indexer of V3.2 to every layer.

    Examples
    --------
    >>> values = {"num_attention_heads": 4, "kv_lora_rank": 32, "q_lora_rank": None}
    >>> values |= {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
    >>> latent_rule(ConfigFields(values, "config.json", "demo"), 1)[0].kv_lora_rank
    32
    """
    heads = fields.count("num_attention_heads")
    block = LatentAttention(
        num_heads=heads,
        q_lora_rank=fields.optional_count("q_lora_rank"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim", lowest=0),
        v_head_dim=fields.optional_count("v_head_dim")
        or _divided(fields, "hidden_size", fields.count("hidden_size"), heads),
        index=_index(fields),
    )
    return [block] * num_layers


def hybrid_rule(fields: ConfigFields, num_layers: int) -> list[Attention]:
    r"""Gated DeltaNet, and full attention with an output gate every few layers.

    .. math:: \text{config} \mapsto (a_1, \ldots, a_L)

    Parameters
    ----------
    fields : ConfigFields
        The configuration.
    num_layers : int
        Depth, [-].

    Returns
    -------
    list
        Attention of each layer.

    Notes
    -----
    Qwen3-Next and Qwen3.5; ``layer_types``, or every ``full_attention_interval``-th layer.

    Examples
    --------
    >>> values = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    >>> values |= {"full_attention_interval": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
    >>> values |= {"linear_num_value_heads": 4, "linear_value_head_dim": 8}
    >>> fields = ConfigFields(values, "config.json", "demo")
    >>> [type(block).__name__ for block in hybrid_rule(fields, 2)]
    ['LinearAttention', 'GroupedAttention']
    """
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


def compressed_rule(fields: ConfigFields, num_layers: int) -> list[Attention]:
    r"""Window and compressed entries, with the ratio of each layer in the file.

    .. math:: \text{config} \mapsto (a_1, \ldots, a_L)

    Parameters
    ----------
    fields : ConfigFields
        The configuration.
    num_layers : int
        Depth, [-].

    Returns
    -------
    list
        Attention of each layer.

    Raises
    ------
    FormatError
        If ``compress_ratios`` is missing.

    Notes
    -----
    DeepSeek-V4: layers of the smallest ratio have the indexer. [model-shapes]_.

    Examples
    --------
    >>> values = {"num_attention_heads": 4, "head_dim": 16, "q_lora_rank": 8, "o_groups": 2}
    >>> values |= {"o_lora_rank": 8, "sliding_window": 128, "compress_ratios": [0, 4]}
    >>> fields = ConfigFields(values, "config.json", "demo")
    >>> [block.compress_ratio for block in compressed_rule(fields, 2)]
    [0, 4]
    """
    ratios = fields.layer_entries("compress_ratios", int, num_layers)
    if ratios is None:
        raise fields.missing("compress_ratios")
    if any(not 0 <= each <= MOST_TOKENS_PER_ENTRY for each in ratios):
        raise fields.wrong(
            "compress_ratios", ratios, f"whole numbers from 0 to {MOST_TOKENS_PER_ENTRY}"
        )
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


MOST_TOKENS_PER_ENTRY: Final = 1_000_000
"""Bound of a compression ratio (judgement)."""


def _kv_heads(fields: ConfigFields, heads: int) -> int:
    """Key-value heads, as many as query heads where the file names none."""
    found = fields.count("num_key_value_heads", default=heads)
    if heads % found:
        raise fields.wrong("num_key_value_heads", found, f"a divisor of the {heads} query heads")
    return found


def _head_dim(fields: ConfigFields, heads: int) -> int:
    """Width of a head: stated, or the hidden size split evenly."""
    stated = fields.optional_count("head_dim")
    return stated or _divided(fields, "hidden_size", fields.count("hidden_size"), heads)


def _divided(fields: ConfigFields, name: str, value: int, heads: int) -> int:
    """Width split over heads, refused where it is not whole."""
    if value % heads:
        raise fields.wrong(name, value, f"a multiple of the {heads} heads, as head_dim is missing")
    return value // heads


def _window(fields: ConfigFields) -> int | None:
    """Window of the layers that have one, None where it is off."""
    if fields.values.get("use_sliding_window") is False:
        return None
    return fields.optional_count("sliding_window", "attention_chunk_size")


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
    if window_from == "chunk":
        return _chunked(fields, num_layers)
    period = {"all": 1, "alternate": 2}.get(window_from, 0)
    return [period > 0 and place % period == 0 for place in places]


def _chunked(fields: ConfigFields, num_layers: int) -> list[bool]:
    """Layers that attend inside a chunk: those with rotation."""
    rotated = fields.entries("no_rope_layers", int)
    if rotated and len(rotated) >= num_layers:
        return [bool(each) for each in rotated[:num_layers]]
    interval = fields.count("no_rope_layer_interval", default=4)
    return [(place + 1) % interval != 0 for place in range(num_layers)]


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
