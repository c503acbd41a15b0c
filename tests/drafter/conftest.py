"""Small draft checkpoints in every layout, and the command line in an empty folder."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from calibration.cli import main

# A kernel is compiled or interpreted as its process was started; `make interpreted` starts one for these.
if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["*interpreted/*"]
else:
    from triton import language
    from triton.runtime import interpreter

    patched_by_launch = interpreter._patch_lang

    def patched_once(function: Any) -> Any:
        """Not again by each device function that a kernel calls: that is two fifths of the time."""
        used = [each for each in (language, language.core) if each in function.__globals__.values()]
        if any(language.core.is_builtin(each.load) for each in used):
            return patched_by_launch(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = patched_once

Tensors = dict[str, torch.Tensor]

HIDDEN, HEADS, KEY_HEADS, WIDTH, MLP, VOCAB, DRAFT_VOCAB = 32, 4, 2, 8, 48, 64, 20


def flat_config(**changes: Any) -> dict[str, Any]:
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": WIDTH,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 256,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    config |= changes
    return {key: value for key, value in config.items() if value is not ...}


def speculators_config(
    *, model_type: str = "llama", layer: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    inner = {
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": WIDTH,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "vocab_size": VOCAB,
    }
    inner |= layer or {}
    config = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": DRAFT_VOCAB,
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": [2, 16, 29],
        "speculators_config": {
            "algorithm": "eagle3",
            "verifier": {"name_or_path": "Llama-3.1-8B-Instruct"},
        },
        "transformer_layer_config": {k: v for k, v in inner.items() if v is not ...},
        "dtype": "bfloat16",
    }
    config |= changes
    return {key: value for key, value in config.items() if value is not ...}


def flat_tensors(*, layer: str = "midlayer.", prefix: str = "") -> Tensors:
    """The tensors of `flat_config`, written down from section 3 of the drafter reference."""
    generator = torch.Generator().manual_seed(5)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(torch.bfloat16)

    tensors = {
        "fc.weight": values(HIDDEN, 3 * HIDDEN),
        f"{layer}self_attn.q_proj.weight": values(HEADS * WIDTH, 2 * HIDDEN),
        f"{layer}self_attn.k_proj.weight": values(KEY_HEADS * WIDTH, 2 * HIDDEN),
        f"{layer}self_attn.v_proj.weight": values(KEY_HEADS * WIDTH, 2 * HIDDEN),
        f"{layer}self_attn.o_proj.weight": values(HIDDEN, HEADS * WIDTH),
        f"{layer}mlp.gate_proj.weight": values(MLP, HIDDEN),
        f"{layer}mlp.up_proj.weight": values(MLP, HIDDEN),
        f"{layer}mlp.down_proj.weight": values(HIDDEN, MLP),
        f"{layer}input_layernorm.weight": values(HIDDEN),
        f"{layer}hidden_norm.weight": values(HIDDEN),
        f"{layer}post_attention_layernorm.weight": values(HIDDEN),
        "norm.weight": values(HIDDEN),
    }
    tensors = {prefix + name: value for name, value in tensors.items()}
    tensors["lm_head.weight"] = values(DRAFT_VOCAB, HIDDEN)
    tensors[f"{prefix}embed_tokens.weight"] = values(VOCAB, HIDDEN)
    chosen = torch.arange(DRAFT_VOCAB) * 3 + 1
    known = torch.zeros(VOCAB, dtype=torch.bool)
    known[chosen] = True
    tensors["d2t"] = chosen - torch.arange(DRAFT_VOCAB)
    tensors["t2d"] = known
    return tensors


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors"
    )
    return folder


@pytest.fixture
def flat(tmp_path: Path) -> Callable[..., Path]:
    """A writer of flat checkpoints; `without` names tensors to leave out, `replace` others to put in."""

    def write(
        *,
        config: dict[str, Any] | None = None,
        without: tuple[str, ...] = (),
        replace: Tensors | None = None,
        layer: str = "midlayer.",
        prefix: str = "",
        name: str = "head",
    ) -> Path:
        tensors = flat_tensors(layer=layer, prefix=prefix) | (replace or {})
        kept = {each: value for each, value in tensors.items() if each not in without}
        return write_checkpoint(tmp_path / name, flat_config(**(config or {})), kept)

    return write


@pytest.fixture
def specmodel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line, run in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def configs() -> tuple[Callable[..., dict[str, Any]], Callable[..., dict[str, Any]]]:
    """Makers of the flat and the speculators configuration; ``...`` leaves a key out."""
    return flat_config, speculators_config


@pytest.fixture
def tensors_of_flat() -> Callable[..., Tensors]:
    """Maker of the tensors of the flat configuration."""
    return flat_tensors


@pytest.fixture
def write() -> Callable[..., Path]:
    """Writer of a configuration and tensors into a folder."""
    return write_checkpoint
