"""Make the packaged shapes of models from the raw collection.

Run as ``python scripts/curate_model_shapes.py MODEL_SHAPES``. The raw table states in prose what
its columns cannot hold (gates, biases, widths of sliding layers, compressed layers); ``DETAILS``
has it as columns, typed from those notes and from the configurations that the rows cite.
"""

import argparse
import csv
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from specmodel.architecture.quantisation import quantisation
from specmodel.architecture.shape import (
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
from specmodel.records import to_record
from specmodel.units import GIGA

Row = dict[str, str]

TARGET = Path(__file__).resolve().parent.parent / "specmodel" / "data" / "packaged_models.json"
COPIED = {
    "mla_q_lora_rank": "q_lora_rank",
    "mla_kv_lora_rank": "kv_lora_rank",
    "mla_qk_nope": "qk_nope_head_dim",
    "mla_qk_rope": "qk_rope_head_dim",
    "mla_v": "v_head_dim",
    "sliding_window": "sliding_window_tokens",
    "intermediate_size": "dense_width",
    "moe_intermediate_size": "expert_width",
    "total_params_b": "published_total_b",
    "active_params_b": "published_active_b",
}
WEIGHTS = {
    "fp4 experts + fp8": "mxfp4 experts + fp8",
    "int4 experts + bf16": "int4-g32 experts + bf16",
}
FLAGS = {  # by architecture
    "Qwen2ForCausalLM": "qkv_bias",
    "Qwen2AudioForConditionalGeneration": "qkv_bias",
    "Glm4MoeForCausalLM": "qkv_bias qk_norm",
    "GptOssForCausalLM": "qkv_bias output_bias sinks",
    "Step3p5ForCausalLM": "qk_norm head_gate",
    **dict.fromkeys(
        (
            "Qwen3ForCausalLM",
            "Qwen3MoeForCausalLM",
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "MiniMaxM2ForCausalLM",
            "MiniMaxM3SparseForConditionalGeneration",
            "BailingMoeV2ForCausalLM",
            "HYV3ForCausalLM",
            "HunYuanVLForConditionalGeneration",
            "InklingForConditionalGeneration",
        ),
        "qk_norm",
    ),
    **dict.fromkeys(
        (
            "Qwen3NextForCausalLM",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ),
        "qk_norm gate",
    ),
    "Gemma4ForConditionalGeneration": "qk_norm stored_key_is_value",
    "KimiK3ForConditionalGeneration": "gate",
}
MLP_FLAGS = {"GptOssForCausalLM": "bias"} | dict.fromkeys(
    ("Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration"), "shared_gate"
)


def linear(key_heads: int, value_heads: int) -> dict[str, str]:
    """Columns of gated DeltaNet with heads of 128 and four taps."""
    return {
        "linear_key_heads": str(key_heads),
        "linear_value_heads": str(value_heads),
        "linear_key_head_dim": "128",
        "linear_value_head_dim": "128",
        "linear_conv": "4",
    }


def index(heads: int, topk: int, layers: str = "") -> dict[str, str]:
    """Columns of an indexer with heads of 128."""
    return {
        "index_heads": str(heads),
        "index_head_dim": "128",
        "index_topk_tokens": str(topk),
        "index_layers": layers,
    }


def compressed(layers: str, groups: int) -> dict[str, str]:
    """Columns of compressed attention: layers as ``ratio:count`` with marks ``index`` and ``reuse``."""
    return {
        "attention": "compressed",
        "compressed_layers": layers,
        "output_groups": str(groups),
        "output_lora_rank": "1024",
    }


def sliding(full: int, heads: int, kv_heads: int, head_dim: int) -> dict[str, str]:
    """Columns of window layers whose heads differ from those of the full layers."""
    return {
        "full_attention_layers": str(full),
        "sliding_num_heads": str(heads),
        "sliding_num_kv_heads": str(kv_heads),
        "sliding_head_dim": str(head_dim),
    }


DETAILS: dict[str, dict[str, str]] = {
    "DeepSeek-V4-Flash": index(64, 512) | compressed("0:2;4:21:index;128:20", 8),
    "DeepSeek-V4-Pro": index(64, 1024) | compressed("4:30:index;128:31", 16),
    "DeepSeek-V4.1-Flash": index(32, 512)
    | compressed("0:2;2:3:index;2:15:index:reuse;1:1:index;1:19:index:reuse", 8),
    "DeepSeek-V3.2": index(64, 2048),
    "GLM-5": index(32, 2048),
    "GLM-5.1": index(32, 2048),
    "GLM-5.2": index(32, 2048, "21"),
    "MiniMax-M3": index(4, 16 * 128, "57") | {"other_parameters_b": "0.87"},
    "Qwen3.5-397B-A17B": linear(16, 64) | {"shared_width": "1024", "other_parameters_b": "0.46"},
    "Qwen3.6-35B-A3B": linear(16, 32) | {"shared_width": "512", "other_parameters_b": "0.45"},
    "Qwen3-Next-80B-A3B": linear(16, 32) | {"shared_width": "512"},
    "Qwen3.5-27B": linear(16, 48) | {"other_parameters_b": "0.46"},
    "Qwen3.6-27B": linear(16, 48) | {"other_parameters_b": "0.46"},
    "Qwen3.8-27B": linear(16, 48) | {"other_parameters_b": "0.46"},
    "Kimi-K3": linear(96, 96)
    | {
        "full_attention_layers": "24",
        "attention_flags": "gate channel_decay",
        "routed_hidden_size": "3584",
    },
    "Llama-4-Scout-17B-16E": {"other_parameters_b": "0.46"},
    "Llama-4-Maverick-17B-128E": {"other_parameters_b": "0.46"},
    "Gemma-4-31B": sliding(10, 32, 16, 256)
    | {"num_kv_heads": "4", "head_dim": "512", "other_parameters_b": "0.58"},
    "Gemma-4-26B-A4B": sliding(5, 16, 8, 256)
    | {"num_kv_heads": "2", "head_dim": "512", "other_parameters_b": "0.57"},
    "Step-3.5-Flash": sliding(12, 96, 8, 128),
    "Inkling": sliding(11, 64, 16, 128),
    "Qwen3-VL-2B": {"other_parameters_b": "0.41"},
    "Qwen3-VL-4B": {"other_parameters_b": "0.42"},
    "Qwen3-VL-30B-A3B": {"other_parameters_b": "0.54"},
    "HunyuanOCR": {"other_parameters_b": "0.46"},
    "Qwen2-Audio-7B": {"other_parameters_b": "0.64"},
}
KINDS = {"gqa": "grouped", "mla": "latent", "hybrid-linear": "hybrid"}
COMPUTED = re.compile(r"computed_total_b=[\d.]+ \(([^)]*)\) within 3 %(; )?")


def curated(raw: Row) -> Row:
    """One model with what the raw table says in prose as columns; an empty text where it says nothing."""
    row = defaultdict(str, raw)
    row |= {name: raw[old] for old, name in COPIED.items()}
    row["attention"] = KINDS[raw["attention"]]
    row["attention_flags"] = FLAGS.get(raw["architecture"], "")
    row["mlp_flags"] = MLP_FLAGS.get(raw["architecture"], "")
    row["weights"] = WEIGHTS.get(raw["native_dtype"], raw["native_dtype"])
    if raw["num_shared_experts"] not in {"", "0"}:
        width = int(raw["num_shared_experts"]) * int(raw["moe_intermediate_size"])
        row["shared_width"] = str(width)
    if raw["full_attention_interval"]:
        layers = int(raw["num_layers"]) // int(raw["full_attention_interval"])
        row["full_attention_layers"] = str(layers)
    row["notes"] = COMPUTED.sub("", raw["notes"]).strip()
    return row | DETAILS.get(raw["model"], {})


def record(row: Row) -> dict[str, Any]:
    """Packaged record of a curated row."""
    shape = ModelShape(
        name=row["model"],
        architecture=row["architecture"],
        hidden_size=number(row, "hidden_size"),
        vocab_size=number(row, "vocab_size"),
        layers=grouped_layers(zip(attentions(row), mlps(row), strict=True)),
        tie_embeddings=row["tie_embeddings"] == "true",
        mtp_layers=number(row, "mtp_layers"),
        other_parameters=round(float(row["other_parameters_b"] or 0) * GIGA),
        weights=quantisation(row["weights"]),
    )
    return {
        "aliases": [*filter(None, row["aliases"].split(";")), row["hf_id"]],
        "published_parameters": float(row["published_total_b"]) * GIGA,
        "published_active_parameters": float(row["published_active_b"]) * GIGA,
        "confidence": row["confidence"],
        "source": row["source"],
        "notes": row["notes"],
        "shape": to_record(shape),
    }


def number(row: Row, column: str) -> int:
    """Whole number of a cell; an empty one is 0."""
    return int(row[column] or 0)


def attentions(row: Row) -> list[Attention]:
    """Attention of every layer."""
    layers = number(row, "num_layers")
    if row["compressed_layers"]:
        return compressed_blocks(row)
    full = number(row, "full_attention_layers") or layers
    other: Attention | None = None
    if row["attention"] == "hybrid":
        other = linear_block(row)
    elif row["sliding_window_tokens"]:
        other = sliding_block(row)
    indexed = number(row, "index_layers") or (full if row["index_heads"] else 0)
    shared = row["attention"] == "latent"  # layers without an indexer use the choice of another
    rest = indexer(row, owned=False) if indexed and shared else None
    blocks = [full_block(row, rest)] * (full - indexed) + [
        full_block(row, indexer(row, owned=True))
    ] * indexed
    return blocks if other is None else blocks + [other] * (layers - full)


def indexer(row: Row, *, owned: bool) -> SparseIndex | None:
    """Indexer of a layer."""
    if not row["index_heads"]:
        return None
    return SparseIndex(
        num_heads=number(row, "index_heads"),
        head_dim=number(row, "index_head_dim"),
        topk_tokens=number(row, "index_topk_tokens"),
        owned=owned,
        query_from_hidden=not row["q_lora_rank"],
    )


def full_block(row: Row, index: SparseIndex | None) -> Attention:
    """Block of a layer that sees all tokens."""
    flags = row["attention_flags"].split()
    heads = number(row, "num_heads")
    if row["kv_lora_rank"]:
        return LatentAttention(
            num_heads=heads,
            q_lora_rank=number(row, "q_lora_rank") or None,
            kv_lora_rank=number(row, "kv_lora_rank"),
            qk_nope_head_dim=number(row, "qk_nope_head_dim"),
            qk_rope_head_dim=number(row, "qk_rope_head_dim"),
            v_head_dim=number(row, "v_head_dim"),
            output_gate="gate" in flags,
            index=index,
        )
    return grouped_block(row, "", stored_key_is_value="stored_key_is_value" in flags, index=index)


def sliding_block(row: Row) -> Attention:
    """Block of a layer that sees a window."""
    prefix = "sliding_" if row["sliding_num_heads"] else ""
    return grouped_block(row, prefix, window_tokens=number(row, "sliding_window_tokens"))


def grouped_block(
    row: Row,
    prefix: str,
    *,
    window_tokens: int | None = None,
    stored_key_is_value: bool = False,
    index: SparseIndex | None = None,
) -> GroupedAttention:
    """Grouped attention from the columns with that prefix."""
    flags = row["attention_flags"].split()
    heads, head_dim = number(row, f"{prefix}num_heads"), number(row, f"{prefix}head_dim")
    gate = heads * head_dim if "gate" in flags else heads if "head_gate" in flags else 0
    return GroupedAttention(
        num_heads=heads,
        num_kv_heads=number(row, f"{prefix}num_kv_heads"),
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


def linear_block(row: Row) -> LinearAttention:
    """Block of a layer with a state."""
    return LinearAttention(
        num_key_heads=number(row, "linear_key_heads"),
        num_value_heads=number(row, "linear_value_heads"),
        key_head_dim=number(row, "linear_key_head_dim"),
        value_head_dim=number(row, "linear_value_head_dim"),
        conv_kernel=number(row, "linear_conv"),
        channel_decay="channel_decay" in row["attention_flags"].split(),
    )


def compressed_blocks(row: Row) -> list[Attention]:
    """Blocks with compressed entries."""
    found: list[Attention] = []
    for part in row["compressed_layers"].split(";"):
        ratio, count, *marks = part.split(":")
        block = CompressedAttention(
            num_heads=number(row, "num_heads"),
            head_dim=number(row, "head_dim"),
            q_lora_rank=number(row, "q_lora_rank"),
            output_groups=number(row, "output_groups"),
            output_lora_rank=number(row, "output_lora_rank"),
            window_tokens=number(row, "sliding_window_tokens"),
            compress_ratio=int(ratio),
            owns_cache="reuse" not in marks,
            index=indexer(row, owned="reuse" not in marks) if "index" in marks else None,
        )
        found += [block] * int(count)
    return found


def mlps(row: Row) -> list[Mlp]:
    """Feed-forward block of every layer; dense ones come first."""
    layers, experts = number(row, "num_layers"), number(row, "num_experts")
    dense = number(row, "num_dense_layers") if experts else layers
    blocks: list[Mlp] = []
    if dense:
        blocks += [DenseMlp(width=number(row, "dense_width"))] * dense
    if experts:
        flags = row["mlp_flags"].split()
        block = MoeMlp(
            width=number(row, "expert_width"),
            num_experts=experts,
            experts_per_token=number(row, "experts_per_token"),
            shared_width=number(row, "shared_width"),
            shared_gate="shared_gate" in flags,
            bias="bias" in flags,
            routed_hidden_size=number(row, "routed_hidden_size") or None,
        )
        blocks += [block] * (layers - dense)
    return blocks


def main() -> None:
    """Read the raw table and write the packaged records, one a line, by name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model_shapes", type=Path, metavar="MODEL_SHAPES")
    source = parser.parse_args().model_shapes
    with source.open(encoding="utf-8", newline="") as file:
        rows = sorted((curated(raw) for raw in csv.DictReader(file)), key=lambda row: row["model"])
    lines = [f"{json.dumps(row['model'])}: {json.dumps(record(row))}" for row in rows]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(rows)} models")


if __name__ == "__main__":
    main()
