"""Packaged shapes of public models, by name or alias."""

import csv
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from specmodel.architecture.blocks import (
    Attention,
    CompressedAttention,
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    Mlp,
    MoeMlp,
    SparseIndex,
)
from specmodel.architecture.parameters import parameter_counts
from specmodel.architecture.quantisation import quantisation
from specmodel.architecture.shape import ModelShape, grouped_layers
from specmodel.errors import UnknownKeyError
from specmodel.units import GIGA

TRUSTED_DEVIATION: Final = 0.03
"""Counted and published parameters of a trusted shape differ by no more."""

_ENDING = re.compile(
    r"[-_ ](instruct|chat|it|base|thinking|hf|fp8|fp4|nvfp4|mxfp4|mxfp8|bf16|int4|int8|awq|gptq|"
    r"w4a16|w8a8|gguf|qat|dynamic|quantized|\d{4})$"
)
_BRACKETS = re.compile(r"\([^()]{0,200}\)")
_MOST_CHARACTERS = 200

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A packaged shape with what was published about it.

    Parameters
    ----------
    shape : ModelShape
        The model.
    aliases : tuple of str
        Other names, as points and hubs write them.
    published_parameters, published_active_parameters : float
        As advertised, [-].
    confidence : str
        ``confirmed``, ``secondary`` or ``memory``.
    source : str
        The documents that the row was read from.
    """

    shape: ModelShape
    aliases: tuple[str, ...]
    published_parameters: float
    published_active_parameters: float
    confidence: str
    source: str

    @property
    def deviation(self) -> float:
        """Counted parameters over published ones, less 1, [-]."""
        return parameter_counts(self.shape).total / self.published_parameters - 1.0

    @property
    def trusted(self) -> bool:
        """Whether the count agrees with the published total within 3 %."""
        return abs(self.deviation) <= TRUSTED_DEVIATION


@cache
def presets() -> Mapping[str, Preset]:
    r"""Every packaged model by its name.

    .. math:: \text{name} \mapsto \text{shape}

    Returns
    -------
    mapping of str to Preset
        In the order of their names; cannot be changed.

    Notes
    -----
    Read once from ``data/model_shapes.csv``. [model-shapes]_.

    Examples
    --------
    >>> presets()["Kimi-K2.5"].shape.num_layers
    61
    """
    text = resources.files("specmodel").joinpath("data", "model_shapes.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({row["model"]: _preset(row) for row in rows})


def preset(name: str) -> ModelShape:
    r"""Shape of a public model.

    .. math:: \text{name} \mapsto \text{shape}

    Parameters
    ----------
    name : str
        As points, a hub or an engine name it; organisation, case, brackets and endings such as
        ``-Instruct`` or ``-FP8`` do not matter. The formats are those of the first release: give
        others with `ModelShape.with_weights`.

    Returns
    -------
    ModelShape

    Raises
    ------
    UnknownKeyError
        If there is none; `known` holds the closest names, or all when none is close.

    Notes
    -----
    [model-shapes]_.

    Examples
    --------
    >>> preset("moonshotai/Kimi-K2.5").hidden_size
    7168
    """
    found = _names().get(_key(name))
    if found is None:
        close = difflib.get_close_matches(name[:_MOST_CHARACTERS], presets(), n=5, cutoff=0.5)
        raise UnknownKeyError("model", name[:_MOST_CHARACTERS], close or list(presets()))
    return presets()[found].shape


def has_preset(name: str) -> bool:
    r"""Whether a model is packaged.

    .. math:: \text{name} \in \text{presets}

    Parameters
    ----------
    name : str
        As for `preset`.

    Returns
    -------
    bool

    Notes
    -----
    By the same names as `preset`.

    Examples
    --------
    >>> has_preset("Qwen/Qwen3-30B-A3B-Instruct-2507"), has_preset("my own model")
    (True, False)
    """
    return _key(name) in _names()


def _key(name: str) -> str:
    """Name without organisation, case, brackets and endings that do not change the shape."""
    last = name[:_MOST_CHARACTERS].rstrip("/").rsplit("/", 1)[-1]
    key = _BRACKETS.sub("", last).strip().lower().removeprefix("meta-")
    key = key.replace("_", "-").replace("llama3", "llama-3")
    previous = ""
    while previous != key:
        previous, key = key, _ENDING.sub("", key)
    return key


@cache
def _names() -> Mapping[str, str]:
    """Packaged model by the key of each of its names; its own name goes before aliases."""
    known = {_key(name): name for name in presets()}
    for name, each in presets().items():
        for alias in each.aliases:
            known.setdefault(_key(alias), name)
    return MappingProxyType(known)


def _preset(row: Row) -> Preset:
    """Record of one row."""
    shape = ModelShape(
        name=row["model"],
        architecture=row["architecture"],
        hidden_size=_count(row, "hidden_size"),
        vocab_size=_count(row, "vocab_size"),
        layers=grouped_layers(zip(_attentions(row), _mlps(row), strict=True)),
        tie_embeddings=row["tie_embeddings"] == "true",
        mtp_layers=_count(row, "mtp_layers"),
        other_parameters=round(float(row["other_parameters_b"] or 0) * GIGA),
        weights=quantisation(row["weights"]),
    )
    return Preset(
        shape=shape,
        aliases=(*filter(None, row["aliases"].split(";")), row["hf_id"]),
        published_parameters=float(row["published_total_b"]) * GIGA,
        published_active_parameters=float(row["published_active_b"]) * GIGA,
        confidence=row["confidence"],
        source=row["source"],
    )


def _count(row: Row, column: str) -> int:
    """Whole number of a cell; an empty one is 0."""
    return int(row[column] or 0)


def _attentions(row: Row) -> list[Attention]:
    """Attention of every layer."""
    layers = _count(row, "num_layers")
    if row["compressed_layers"]:
        return _compressed(row)
    full = _count(row, "full_attention_layers") or layers
    other: Attention | None = None
    if row["attention"] == "hybrid":
        other = _linear(row)
    elif row["sliding_window_tokens"]:
        other = _sliding(row)
    indexed = _count(row, "index_layers") or (full if row["index_heads"] else 0)
    shared = row["attention"] == "latent"  # layers without an indexer use the choice of another
    rest = _index(row, owned=False) if indexed and shared else None
    blocks = [_full(row, rest)] * (full - indexed) + [_full(row, _index(row, owned=True))] * indexed
    return blocks if other is None else blocks + [other] * (layers - full)


def _index(row: Row, *, owned: bool) -> SparseIndex | None:
    """Indexer of a layer."""
    if not row["index_heads"]:
        return None
    return SparseIndex(
        num_heads=_count(row, "index_heads"),
        head_dim=_count(row, "index_head_dim"),
        topk_tokens=_count(row, "index_topk_tokens"),
        owned=owned,
        query_from_hidden=not row["q_lora_rank"],
    )


def _full(row: Row, index: SparseIndex | None) -> Attention:
    """Block of a layer that sees all tokens."""
    flags = row["attention_flags"].split()
    heads = _count(row, "num_heads")
    if row["kv_lora_rank"]:
        return LatentAttention(
            num_heads=heads,
            q_lora_rank=_count(row, "q_lora_rank") or None,
            kv_lora_rank=_count(row, "kv_lora_rank"),
            qk_nope_head_dim=_count(row, "qk_nope_head_dim"),
            qk_rope_head_dim=_count(row, "qk_rope_head_dim"),
            v_head_dim=_count(row, "v_head_dim"),
            output_gate="gate" in flags,
            index=index,
        )
    return _grouped(row, "", stored_key_is_value="stored_key_is_value" in flags, index=index)


def _sliding(row: Row) -> Attention:
    """Block of a layer that sees a window."""
    prefix = "sliding_" if row["sliding_num_heads"] else ""
    return _grouped(row, prefix, window_tokens=_count(row, "sliding_window_tokens"))


def _grouped(
    row: Row,
    prefix: str,
    *,
    window_tokens: int | None = None,
    stored_key_is_value: bool = False,
    index: SparseIndex | None = None,
) -> GroupedAttention:
    """Grouped attention from the columns with that prefix."""
    flags = row["attention_flags"].split()
    heads, head_dim = _count(row, f"{prefix}num_heads"), _count(row, f"{prefix}head_dim")
    gate = heads * head_dim if "gate" in flags else heads if "head_gate" in flags else 0
    return GroupedAttention(
        num_heads=heads,
        num_kv_heads=_count(row, f"{prefix}num_kv_heads"),
        head_dim=head_dim,
        window_tokens=window_tokens,
        qkv_bias="qkv_bias" in flags,
        output_bias="output_bias" in flags,
        qk_norm="qk_norm" in flags,
        sinks="sinks" in flags,
        gate_width=gate,
        stored_key_is_value=stored_key_is_value,
        index=index,
    )


def _linear(row: Row) -> LinearAttention:
    """Block of a layer with a state."""
    return LinearAttention(
        num_key_heads=_count(row, "linear_key_heads"),
        num_value_heads=_count(row, "linear_value_heads"),
        key_head_dim=_count(row, "linear_key_head_dim"),
        value_head_dim=_count(row, "linear_value_head_dim"),
        conv_kernel=_count(row, "linear_conv"),
        channel_decay="channel_decay" in row["attention_flags"].split(),
    )


def _compressed(row: Row) -> list[Attention]:
    """Blocks with compressed entries."""
    found: list[Attention] = []
    for part in row["compressed_layers"].split(";"):
        ratio, count, *marks = part.split(":")
        block = CompressedAttention(
            num_heads=_count(row, "num_heads"),
            head_dim=_count(row, "head_dim"),
            q_lora_rank=_count(row, "q_lora_rank"),
            output_groups=_count(row, "output_groups"),
            output_lora_rank=_count(row, "output_lora_rank"),
            window_tokens=_count(row, "sliding_window_tokens"),
            compress_ratio=int(ratio),
            owns_cache="reuse" not in marks,
            index=_index(row, owned="reuse" not in marks) if "index" in marks else None,
        )
        found += [block] * int(count)
    return found


def _mlps(row: Row) -> list[Mlp]:
    """Feed-forward block of every layer; dense ones come first."""
    layers, experts = _count(row, "num_layers"), _count(row, "num_experts")
    dense = _count(row, "num_dense_layers") if experts else layers
    blocks: list[Mlp] = []
    if dense:
        blocks += [DenseMlp(width=_count(row, "dense_width"))] * dense
    if experts:
        flags = row["mlp_flags"].split()
        block = MoeMlp(
            width=_count(row, "expert_width"),
            num_experts=experts,
            experts_per_token=_count(row, "experts_per_token"),
            shared_width=_count(row, "shared_width"),
            shared_gate="shared_gate" in flags,
            bias="bias" in flags,
            routed_hidden_size=_count(row, "routed_hidden_size") or None,
        )
        blocks += [block] * (layers - dense)
    return blocks
