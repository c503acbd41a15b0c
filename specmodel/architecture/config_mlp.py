"""Feed-forward block of every layer from the fields of a ``config.json``."""

from collections.abc import Callable

from specmodel.architecture.blocks import DenseMlp, Mlp, MoeMlp
from specmodel.architecture.config_fields import ConfigFields

MlpRule = Callable[[ConfigFields, int], list[Mlp]]

EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "moe_topk", "top_k")


def dense_rule(fields: ConfigFields, num_layers: int) -> list[Mlp]:
    r"""The same gated block in every layer.

    .. math:: \text{config} \mapsto (m_1, \ldots, m_L)

    Parameters
    ----------
    fields : ConfigFields
        The configuration.
    num_layers : int
        Depth, [-].

    Returns
    -------
    list
        Block of each layer.

    Notes
    -----
    ``intermediate_size``; ``mlp_bias`` where there is one.

    Examples
    --------
    >>> fields = ConfigFields({"intermediate_size": 32}, "config.json", "demo")
    >>> dense_rule(fields, 2)[0].width
    32
    """
    block = DenseMlp(width=fields.count("intermediate_size"), bias=fields.flag("mlp_bias"))
    return [block] * num_layers


def moe_rule(
    *,
    width_field: str = "moe_intermediate_size",
    shared_field: str = "",
    shared_gate: bool = False,
    bias: bool = False,
    sparse_layers: str = "all",
    dense_field: str = "intermediate_size",
) -> MlpRule:
    r"""Rule for mixtures of experts.

    .. math:: \text{config} \mapsto (m_1, \ldots, m_L)

    Parameters
    ----------
    width_field : str
        Field with the width of a routed expert.
    shared_field : str
        Where shared experts come from: a field with their width, ``n_shared_experts`` or
        ``num_shared_experts`` (a number of experts as wide as routed ones), ``routed`` (one such
        expert always), or empty for none.
    shared_gate, bias : bool
        What the architecture has besides.
    sparse_layers : str
        Which layers route: ``all``, ``after_dense`` (those past ``first_k_dense_replace``),
        ``step`` (``decoder_sparse_step`` and ``mlp_only_layers``) or ``interleaved`` (``moe_layers``
        or ``interleave_moe_layer_step``).
    dense_field : str
        Field with the width of the layers that do not route.

    Returns
    -------
    callable
        From fields and number of layers to the block of each layer. A file without experts (null)
        gives dense layers.

    Notes
    -----
    As the classes of the transformers package read the same fields.

    Examples
    --------
    >>> values = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    >>> moe_rule()(ConfigFields(values, "config.json", "demo"), 1)[0].num_experts
    8
    """

    def rule(fields: ConfigFields, num_layers: int) -> list[Mlp]:
        if sparse_layers == "after_dense" and all(
            fields.values.get(name) is None for name in EXPERTS
        ):
            return dense_rule(fields, num_layers)
        width, experts = fields.count(width_field), fields.count(*EXPERTS)
        per_token = fields.count(*EXPERTS_PER_TOKEN)
        if per_token > experts:
            raise fields.wrong(EXPERTS_PER_TOKEN[0], per_token, f"at most the {experts} experts")
        block = MoeMlp(
            width=width,
            num_experts=experts,
            experts_per_token=per_token,
            shared_width=_shared_width(fields, shared_field, width),
            shared_gate=shared_gate,
            bias=bias,
        )
        sparse = _sparse_layers(fields, num_layers, sparse_layers)
        if all(sparse):
            return [block] * num_layers
        dense = DenseMlp(width=fields.count(dense_field))
        return [block if each else dense for each in sparse]

    return rule


def _shared_width(fields: ConfigFields, shared_field: str, width: int) -> int:
    """Width of the shared experts together."""
    if not shared_field:
        return 0
    if shared_field == "routed":
        return width
    found = fields.count(shared_field, default=0, lowest=0)
    if shared_field.endswith("_shared_experts"):
        return found * width
    return found


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
