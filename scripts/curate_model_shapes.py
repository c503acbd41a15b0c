"""Make the packaged table of model shapes from the raw collection.

Run as ``python scripts/curate_model_shapes.py MODEL_SHAPES``. The raw table states in prose what
its columns cannot hold (gates, biases, widths of sliding layers, compressed layers); ``DETAILS``
has it as columns, typed from those notes and from the configurations that the rows cite.
"""

import argparse
import csv
import re
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "specmodel" / "data" / "model_shapes.csv"
COLUMNS = (  # noqa: SIM905 - one name a line would be 50 lines
    "model,aliases,hf_id,architecture,num_layers,num_dense_layers,hidden_size,vocab_size,"
    "tie_embeddings,attention,num_heads,num_kv_heads,head_dim,attention_flags,"
    "full_attention_layers,sliding_window_tokens,sliding_num_heads,sliding_num_kv_heads,"
    "sliding_head_dim,q_lora_rank,kv_lora_rank,qk_nope_head_dim,qk_rope_head_dim,v_head_dim,"
    "linear_key_heads,linear_value_heads,linear_key_head_dim,linear_value_head_dim,linear_conv,"
    "index_heads,index_head_dim,index_topk_tokens,index_layers,output_groups,output_lora_rank,"
    "compressed_layers,dense_width,expert_width,num_experts,experts_per_token,shared_width,"
    "routed_hidden_size,mlp_flags,mtp_layers,other_parameters_b,weights,published_total_b,"
    "published_active_b,confidence,source,notes"
).split(",")
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


def curated(raw: dict[str, str]) -> dict[str, str]:
    """One row of the packaged table."""
    row = {name: raw.get(name, "") for name in COLUMNS}
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


def main() -> None:
    """Read the raw table and write the packaged one, by name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model_shapes", type=Path, metavar="MODEL_SHAPES")
    source = parser.parse_args().model_shapes
    with source.open(encoding="utf-8", newline="") as file:
        rows = sorted((curated(raw) for raw in csv.DictReader(file)), key=lambda row: row["model"])
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} models")


if __name__ == "__main__":
    main()
