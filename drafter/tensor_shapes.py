"""The tensors that a spec needs, with their shapes; and those that another spec would need."""

from typing import Final

from drafter.spec import DraftSpec
from drafter.tensor_names import EMBEDDING, FIRST_LAYER, HEAD

Shape = tuple[int, ...]

_ATTENTION: Final = f"{FIRST_LAYER}self_attn."
_MLP: Final = f"{FIRST_LAYER}mlp."

SWITCHED: Final = {
    "fc.bias": "bias",
    f"{_ATTENTION}q_proj.bias": "attention_bias",
    f"{_ATTENTION}k_proj.bias": "attention_bias",
    f"{_ATTENTION}v_proj.bias": "attention_bias",
    f"{_ATTENTION}o_proj.bias": "attention_bias",
    f"{_ATTENTION}q_norm.weight": "the qwen3 type of the layer",
    f"{_ATTENTION}k_norm.weight": "the qwen3 type of the layer",
    f"{_ATTENTION}q_a_proj.weight": "latent attention",
    f"{_ATTENTION}kv_a_proj_with_mqa.weight": "latent attention",
    "input_norm.weight": "norm_before_fc",
    "fc_norm.0.weight": "fc_norm",
}
"""Tensors that exist only where the configuration says so, and what has to say so."""


def expected_shapes(spec: DraftSpec) -> dict[str, Shape]:
    r"""Shape of every weight that a spec computes with.

    .. math:: \text{spec} \mapsto \{\text{name} : \text{shape}\}

    Parameters
    ----------
    spec : DraftSpec
        The draft model.

    Returns
    -------
    dict of str to tuple of int
        Canonical names, head and embedding included; the maps between vocabularies are not.

    Notes
    -----
    Section 3 of the project's drafter reference. Only the first projections of attention see
    :math:`2H`: embedding and hidden state side by side. Without fusion there is no ``fc``. Biases of
    attention include that of the output projection, as in the files of [speculators-eagle3]_.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> shapes = expected_shapes(public_shape("gpt-oss").spec)
    >>> shapes["fc.weight"], shapes["layers.0.self_attn.q_proj.weight"]
    ((2880, 8640), (4096, 5760))
    """
    hidden = spec.hidden_size
    return {
        **_fusion(spec),
        **(_grouped(spec) if spec.latent is None else _latent(spec)),
        f"{_MLP}gate_proj.weight": (spec.mlp_width, hidden),
        f"{_MLP}up_proj.weight": (spec.mlp_width, hidden),
        f"{_MLP}down_proj.weight": (hidden, spec.mlp_width),
        f"{FIRST_LAYER}input_layernorm.weight": (hidden,),
        f"{FIRST_LAYER}hidden_norm.weight": (hidden,),
        f"{FIRST_LAYER}post_attention_layernorm.weight": (hidden,),
        "norm.weight": (hidden,),
        HEAD: (spec.draft_vocab_size, hidden),
        EMBEDDING: (spec.target_vocab_size, hidden),
    }


def _fusion(spec: DraftSpec) -> dict[str, Shape]:
    """Tensors that turn captured states into a hidden state."""
    if not spec.use_aux_hidden_state:
        return {}
    width = spec.num_aux_states * spec.target_hidden_size
    found: dict[str, Shape] = {"fc.weight": (spec.hidden_size, width)}
    if spec.fc_bias:
        found["fc.bias"] = (spec.hidden_size,)
    if spec.norm_before_fc:
        found["input_norm.weight"] = (width,)
    if spec.fc_norm:
        states = range(spec.num_aux_states)
        found |= {f"fc_norm.{state}.weight": (spec.target_hidden_size,) for state in states}
    return found


def _grouped(spec: DraftSpec) -> dict[str, Shape]:
    """Tensors of attention with grouped heads."""
    inputs = 2 * spec.hidden_size
    rows = {
        "q_proj": spec.num_heads * spec.head_dim,
        "k_proj": spec.num_kv_heads * spec.head_dim,
        "v_proj": spec.num_kv_heads * spec.head_dim,
    }
    found: dict[str, Shape] = {
        f"{_ATTENTION}{name}.weight": (count, inputs) for name, count in rows.items()
    }
    if spec.attention_bias:
        found |= {f"{_ATTENTION}{name}.bias": (count,) for name, count in rows.items()}
        found[f"{_ATTENTION}o_proj.bias"] = (spec.hidden_size,)
    if spec.qk_norm:
        found |= {f"{_ATTENTION}{name}_norm.weight": (spec.head_dim,) for name in ("q", "k")}
    found[f"{_ATTENTION}o_proj.weight"] = (spec.hidden_size, spec.num_heads * spec.head_dim)
    return found


def _latent(spec: DraftSpec) -> dict[str, Shape]:
    """Tensors of latent attention."""
    heads = spec.latent
    if heads is None:  # narrows the type; the caller has looked
        return {}
    inputs = 2 * spec.hidden_size
    return {
        f"{_ATTENTION}q_a_proj.weight": (heads.query_rank, inputs),
        f"{_ATTENTION}q_a_layernorm.weight": (heads.query_rank,),
        f"{_ATTENTION}q_b_proj.weight": (
            spec.num_heads * (heads.nope_dim + heads.rope_dim),
            heads.query_rank,
        ),
        f"{_ATTENTION}kv_a_proj_with_mqa.weight": (heads.kv_rank + heads.rope_dim, inputs),
        f"{_ATTENTION}kv_a_layernorm.weight": (heads.kv_rank,),
        f"{_ATTENTION}kv_b_proj.weight": (
            spec.num_heads * (heads.nope_dim + heads.value_dim),
            heads.kv_rank,
        ),
        f"{_ATTENTION}o_proj.weight": (spec.hidden_size, spec.num_heads * heads.value_dim),
    }
