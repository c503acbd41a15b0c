"""Golden logits of an EAGLE-3 draft model, made by the model classes of speculators and transformers.

Needs an environment of its own, since nothing else of this repository needs them: torch 2.13.0 (CPU)
first, then speculators 0.9.0 under that pin; without torchvision and torchaudio, which it may bring for
another torch. With that interpreter:

    python scripts/make_drafter_goldens.py tests/golden/drafter

``SPECMODEL_PARITY_PYTHON=<that interpreter> pytest tests/drafter/reference/test_parity.py`` makes the
files again elsewhere and compares.

A tiny draft model of every variant is filled with seeded values, rounded to bf16 and saved by
speculators itself; its own forward, in fp64, gives the logits. Beside them stand the heads of one
latent attention and the frequencies of every rope kind, made by transformers.
"""

import argparse
import copy
import csv
import importlib.metadata
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from speculators import SpeculatorsConfig, VerifierConfig  # type: ignore[import-not-found]
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # type: ignore[import-not-found]
from speculators.proposals.greedy import GreedyTokenProposalConfig  # type: ignore[import-not-found]
from torch import Tensor
from transformers import DeepseekV3Config, LlamaConfig, Qwen3Config  # type: ignore[import-not-found]
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # type: ignore[import-not-found]
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (  # type: ignore[import-not-found]
    DeepseekV3Attention,
    DeepseekV3RotaryEmbedding,
)

SEED: Final = 20260
NUM_STEPS: Final = 3
"""Extend and two draft steps."""

NUM_ROWS: Final = 7
STARTS: Final = (0, 2, 4)
"""Last rows of the extend pass: drafts begin after 1, 3 and 5 tokens."""

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB, DRAFT_VOCAB = 24, 4, 2, 8, 40, 96, 48
NORM_SWITCHES: Final = ("norm_before_residual", "fc_norm", "norm_output", "norm_before_fc")
LLAMA3_ROPE: Final = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE: Final = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One draft model: the type of its layer, its switches, and what else is not the default."""

    name: str
    model_type: str
    switches: tuple[str, ...] = ()
    layer: dict[str, Any] = field(default_factory=dict)


def variants() -> list[Variant]:
    """Both layer types with every combination of norms that is in use, then biases, scaled rope and a window."""
    norms: dict[str, tuple[str, ...]] = {
        "plain": (),
        "norm_before_residual": ("norm_before_residual",),
        "fc_norm_norm_output": ("fc_norm", "norm_output"),
        "norm_before_fc": ("norm_before_fc",),
    }
    found = [
        Variant(name=f"{model_type}_{name}", model_type=model_type, switches=switches)
        for model_type in ("llama", "qwen3")
        for name, switches in norms.items()
    ]
    return [
        *found,
        Variant(
            name="llama_biases_llama3_rope",
            model_type="llama",
            layer={"attention_bias": True, "rope_parameters": LLAMA3_ROPE},
        ),
        Variant(name="llama_yarn_rope", model_type="llama", layer={"rope_parameters": YARN_ROPE}),
        Variant(
            name="qwen3_sliding_window",
            model_type="qwen3",
            layer={
                "use_sliding_window": True,
                "sliding_window": 3,
                "max_window_layers": 0,
                "layer_types": ["sliding_attention"],
            },
        ),
    ]


def draft_model(variant: Variant) -> Any:
    """Draft model of the variant with unfilled parameters."""
    layer_config = {"llama": LlamaConfig, "qwen3": Qwen3Config}[variant.model_type](
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        vocab_size=VOCAB,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        **({"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}} | variant.layer),
    )
    layer_config._attn_implementation = "eager"  # noqa: SLF001 - the only way that transformers has
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer_config,
        draft_vocab_size=DRAFT_VOCAB,
        eagle_aux_hidden_state_layer_ids=[2, 4, 6],
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=NUM_STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=[]),
        ),
        **{name: name in variant.switches for name in NORM_SWITCHES},
    )
    return Eagle3DraftModel(config)


def fill(parameters: dict[str, Tensor], generator: torch.Generator) -> None:
    """Seeded values that keep activations near one, rounded to bf16; by name, so order plays no part."""
    for name in sorted(parameters):
        tensor = parameters[name]
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if name.endswith("norm.weight") or ".fc_norm." in f".{name}":
            values = 1.0 + 0.1 * values
        elif name.endswith("bias"):
            values = 0.1 * values
        elif not name.endswith("embed_tokens.weight"):
            values = values * tensor.shape[-1] ** -0.5
        with torch.no_grad():
            tensor.copy_(values.to(torch.bfloat16))


def vocabulary_map(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Target ids that have a draft id, as flags, and the offsets of the draft ids."""
    kept = torch.randperm(VOCAB, generator=generator)[:DRAFT_VOCAB].sort().values
    flags = torch.zeros(VOCAB, dtype=torch.bool)
    flags[kept] = True
    return flags, kept - torch.arange(DRAFT_VOCAB)


def golden_draft(variant: Variant, folder: Path, generator: torch.Generator) -> None:
    """Checkpoint and logits of one variant."""
    model = draft_model(variant)
    fill(dict(model.named_parameters()), generator)
    model.load_vocab_mappings(*vocabulary_map(generator))
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    for code in folder.glob("*.py"):  # it saves its own source beside the weights
        code.unlink()

    tokens = torch.randint(VOCAB, (NUM_ROWS,), generator=generator)
    states = torch.randn(NUM_ROWS, 3 * HIDDEN, generator=generator, dtype=torch.float64)
    seen: list[Tensor] = []
    hook = model.lm_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    with torch.no_grad():
        model.double().eval()(
            hidden_states=states[None],
            input_ids=tokens[None],
            document_ids=torch.zeros(1, NUM_ROWS, dtype=torch.int64),
            ttt_steps=NUM_STEPS,
        )
    hook.remove()
    # row r of step j is draft step j after the prefix 0 .. r, fed tokens r+1 .. r+j
    logits = torch.stack(seen)[:, 0][:, list(STARTS)].transpose(0, 1)
    save_file(
        {
            "tokens": tokens,
            "aux_states": states,
            "starts": torch.tensor(STARTS),
            "logits": logits.contiguous(),
        },
        folder / "golden.safetensors",
    )


def golden_latent_attention(
    path: Path, rope: dict[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Heads of DeepSeek-V3's attention before its output projection, and its shapes."""
    shapes = {
        "num_attention_heads": 3,
        "q_lora_rank": 12,
        "kv_lora_rank": 10,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 5,
    }
    config = DeepseekV3Config(
        hidden_size=2 * HIDDEN,
        num_key_value_heads=shapes["num_attention_heads"],
        max_position_embeddings=128,
        rope_parameters=rope,
        **shapes,
    )
    config._attn_implementation = "eager"  # noqa: SLF001 - the only way that transformers has
    attention = DeepseekV3Attention(config, layer_idx=0)
    parameters = dict(attention.named_parameters())
    fill(parameters, generator)
    x = torch.randn(1, NUM_ROWS, 2 * HIDDEN, generator=generator, dtype=torch.float64)
    positions = 3 + torch.arange(NUM_ROWS)[None]
    hidden = torch.full((NUM_ROWS, NUM_ROWS), float("-inf"), dtype=torch.float64).triu(1)
    heads: list[Tensor] = []
    attention.o_proj.register_forward_hook(lambda _module, inputs, _output: heads.append(inputs[0]))
    with torch.no_grad():
        table = DeepseekV3RotaryEmbedding(config)(x, positions)
        attention.double().eval()(x, position_embeddings=table, attention_mask=hidden[None, None])
    weights = {
        f"layers.0.self_attn.{name}": tensor.detach().to(torch.bfloat16)
        for name, tensor in parameters.items()
        if name != "o_proj.weight"
    }
    save_file(
        weights | {"x": x[0], "positions": positions[0], "heads": heads[0][0].contiguous()}, path
    )
    return shapes


def rope_rows() -> list[dict[str, Any]]:
    """Frequencies and magnitude of every kind, one row for each pair of a head."""
    cases: list[dict[str, Any]] = [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0, "context_tokens": 6000},
        LLAMA3_ROPE,
        LLAMA3_ROPE | {"rope_theta": 500_000.0, "original_max_position_embeddings": 8192},
        *(
            {"rope_type": "yarn", "original_max_position_embeddings": 4096} | case
            for case in (
                {"factor": 32.0},
                {"factor": 64.0, "mscale": 1.0, "mscale_all_dim": 1.0},
                {"factor": 40.0, "mscale": 0.7, "mscale_all_dim": 1.0},
                {"factor": 8.0, "attention_factor": 1.5},
                {"factor": 8.0, "beta_fast": 4.0, "beta_slow": 0.5, "rope_theta": 150_000.0},
            )
        ),
    ]
    rows = []
    for case in cases:
        stated = dict(case)
        context = stated.pop("context_tokens", None)
        trained = stated.get("original_max_position_embeddings")
        max_positions = int(trained * stated["factor"]) if trained else 2048
        config = LlamaConfig(
            hidden_size=64,
            num_attention_heads=4,
            head_dim=16,
            max_position_embeddings=max_positions,
            rope_parameters={"rope_theta": 10_000.0} | stated,
        )
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[stated["rope_type"]](config, seq_len=context)
        rows += [
            {
                "rope": json.dumps({"rope_theta": 10_000.0} | stated, sort_keys=True),
                "rotary_dim": 16,
                "max_positions": max_positions,
                "context_tokens": context or "",
                "pair": pair,
                "frequency_rad_per_token": f"{frequency:.9g}",
                "magnitude": f"{magnitude:.12g}",
            }
            for pair, frequency in enumerate(frequencies.tolist())
        ]
    return rows


def write_rope(path: Path) -> None:
    """Table of `rope_rows`."""
    rows = rope_rows()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_provenance(folder: Path, latent: dict[str, Any]) -> None:
    """What was made with what, beside the files."""
    versions = {name: importlib.metadata.version(name) for name in ("speculators", "transformers")}
    facts = {
        "speculators": (
            "speculators-eagle3",
            "Eagle3DraftModel.forward (training unroll) and save_pretrained",
            "Checkpoints as saved; logits of extend and two forced draft steps, three start rows.",
        ),
        "latent_attention": (
            "transformers-models",
            "DeepseekV3Attention.forward, input of o_proj",
            "Heads of latent attention with default and with yarn rope.",
        ),
        "rope_frequencies": (
            "transformers-models",
            "ROPE_INIT_FUNCTIONS, computed in fp32",
            "Frequencies and magnitude of cosine and sine for every rope kind.",
        ),
    }
    for name, (source, locator, what) in facts.items():
        lines = [f'source = "{source}"', f'locator = "{locator}"', f'what = "{what}"']
        lines += ['command = "python scripts/make_drafter_goldens.py FOLDER"', f"seed = {SEED}"]
        lines += [f'torch = "{torch.__version__}"']
        lines += [f'{package} = "{version}"' for package, version in versions.items()]
        if name == "latent_attention":
            lines += ["", "[shapes]", *(f"{key} = {value}" for key, value in latent.items())]
        (folder / f"{name}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write everything into a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for variant in variants():
        golden_draft(variant, folder / variant.name, torch.Generator().manual_seed(SEED))
    yarn = YARN_ROPE | {"mscale": 0.7, "mscale_all_dim": 1.2}
    for name, rope in (("default", {"rope_type": "default", "rope_theta": 1e4}), ("yarn", yarn)):
        latent = golden_latent_attention(
            folder / f"latent_attention_{name}.safetensors",
            rope,
            torch.Generator().manual_seed(SEED),
        )
    write_rope(folder / "rope_frequencies.csv")
    write_provenance(folder, latent)


if __name__ == "__main__":
    main()
