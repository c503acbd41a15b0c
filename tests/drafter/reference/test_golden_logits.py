"""Logits that speculators' own model class computed; made by scripts/make_drafter_goldens.py."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint import load_checkpoint
from drafter.reference import DraftModel, draft_chain
from drafter.spec import DraftSpec, Rope

FOLDER = Path(__file__).parents[2] / "golden" / "drafter"
NORMS = ("plain", "norm_before_residual", "fc_norm_norm_output", "norm_before_fc")
EIGHT = [f"{layer}_{norms}" for layer in ("llama", "qwen3") for norms in NORMS]
VARIANTS = [*EIGHT, "llama_biases_llama3_rope", "llama_yarn_rope"]
WINDOW = "qwen3_sliding_window"

LARGEST_DIFFERENCE = 1e-6
"""transformers takes angles and softmax in single precision."""


def drafts(spec: DraftSpec, weights: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """Logits of our reference and of speculators, [starts, steps, Vd]."""
    golden = load_file(FOLDER / name / "golden.safetensors")
    tokens, steps = golden["tokens"], golden["logits"].shape[1]
    model = DraftModel(spec, weights)
    ours = [
        draft_chain(
            model,
            tokens[: start + 1],
            golden["aux_states"][: start + 1],
            1 + torch.arange(start + 1),  # speculators counts from one
            num_steps=steps,
            forced_tokens=tokens[start + 1 : start + steps],
        ).logits
        for start in golden["starts"].tolist()
    ]
    return torch.stack(ours), golden["logits"]


def test_there_is_a_golden_draft_for_every_variant() -> None:
    assert sorted(path.parent.name for path in FOLDER.glob("*/golden.safetensors")) == sorted(
        [*VARIANTS, WINDOW]
    )
    for name in (*VARIANTS, WINDOW):
        logits = load_file(FOLDER / name / "golden.safetensors")["logits"]
        assert logits.shape == (3, 3, 48)
        assert 0.3 < float(logits.std()) < 3.0  # neither degenerate nor so large that 1e-6 is easy


@pytest.mark.parametrize("name", VARIANTS)
def test_the_logits_of_speculators_are_reproduced_from_the_checkpoint_it_saved(name: str) -> None:
    checkpoint = load_checkpoint(FOLDER / name)
    assert checkpoint.substituted == ()
    ours, theirs = drafts(checkpoint.config.spec, checkpoint.weights, name)
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=LARGEST_DIFFERENCE)


def test_a_window_is_that_of_speculators_in_the_extend_pass() -> None:
    checkpoint = load_checkpoint(FOLDER / WINDOW)
    ours, theirs = drafts(checkpoint.config.spec, checkpoint.weights, WINDOW)
    torch.testing.assert_close(ours[:, 0], theirs[:, 0], rtol=0.0, atol=LARGEST_DIFFERENCE)
    everything = dataclasses.replace(checkpoint.config.spec, sliding_window=None)
    seen = drafts(everything, checkpoint.weights, WINDOW)[0]
    assert float((seen[-1, 0] - theirs[-1, 0]).abs().max()) > 0.1


def test_in_training_the_window_stays_where_the_draft_began() -> None:
    """As served, it moves on with the position: the one point where speculators differs from us."""
    checkpoint = load_checkpoint(FOLDER / WINDOW)
    golden = load_file(FOLDER / WINDOW / "golden.safetensors")
    model = DraftModel(checkpoint.config.spec, checkpoint.weights)
    window = checkpoint.config.spec.sliding_window
    assert window == 3
    for start, logits in zip(golden["starts"].tolist(), golden["logits"], strict=True):
        rows, positions = slice(start + 1), torch.arange(start + 1)
        step = model.extend(golden["tokens"][rows], golden["aux_states"][rows], positions).last()
        for index in (1, 2):
            visible = torch.ones(1, start + 1 + index, dtype=torch.bool)
            visible[:, : max(start + 1 - window, 0)] = False
            fed = golden["tokens"][start + index : start + index + 1]
            step = model.step(fed, step.carry, positions[-1:] + index, step.cache, visible)
            torch.testing.assert_close(
                step.logits[0], logits[index], rtol=0.0, atol=LARGEST_DIFFERENCE
            )


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("step", [0, 1, 2])
def test_greedy_tokens_are_those_of_speculators(name: str, step: int) -> None:
    checkpoint = load_checkpoint(FOLDER / name)
    ours, theirs = drafts(checkpoint.config.spec, checkpoint.weights, name)
    best_two = theirs[:, step].topk(2).values
    assert float((best_two[:, 0] - best_two[:, 1]).min()) > 4 * LARGEST_DIFFERENCE
    assert ours[:, step].argmax(dim=-1).tolist() == theirs[:, step].argmax(dim=-1).tolist()


def flat_twin(name: str, folder: Path) -> Path:
    """The same draft model as SafeAILab and SpecForge write it."""
    config = json.loads((FOLDER / name / "config.json").read_text(encoding="utf-8"))
    layer: dict[str, Any] = config["transformer_layer_config"]
    rope: dict[str, Any] = dict(layer["rope_parameters"])
    flat = {key: value for key, value in layer.items() if key != "rope_parameters"} | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": config["draft_vocab_size"],
        "rope_theta": rope.pop("rope_theta"),
        "rope_scaling": rope if rope["rope_type"] != "default" else None,
        **{key: config[key] for key in ("fc_norm", "norm_output", "norm_before_fc")},
    }
    (folder / "config.json").write_text(json.dumps(flat), encoding="utf-8")
    tensors = {
        tensor.replace("layers.0.", "midlayer."): values
        for tensor, values in load_file(FOLDER / name / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    "name", ["llama_plain", "llama_fc_norm_norm_output", "llama_norm_before_fc", "llama_yarn_rope"]
)
def test_a_twin_in_the_flat_layout_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    twin, checkpoint = load_checkpoint(flat_twin(name, tmp_path)), load_checkpoint(FOLDER / name)
    assert twin.config.layout != checkpoint.config.layout
    ours, theirs = drafts(twin.config.spec, twin.weights, name)
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=LARGEST_DIFFERENCE)
    assert torch.equal(ours, drafts(checkpoint.config.spec, checkpoint.weights, name)[0])


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("layer", ["midlayer.", "model.layers.0.", "model.midlayer."])
def test_other_names_of_the_same_tensors_give_the_same_logits(
    name: str, layer: str, tmp_path: Path
) -> None:
    shutil.copy(FOLDER / name / "config.json", tmp_path)
    above = "model." if layer.startswith("model.") else ""
    tensors = {
        tensor.replace("layers.0.", layer) if "layers.0." in tensor else f"{above}{tensor}": values
        for tensor, values in load_file(FOLDER / name / "model.safetensors").items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    twin, checkpoint = load_checkpoint(tmp_path), load_checkpoint(FOLDER / name)
    ours, theirs = drafts(twin.config.spec, twin.weights, name)
    assert torch.equal(ours, drafts(checkpoint.config.spec, checkpoint.weights, name)[0])
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=LARGEST_DIFFERENCE)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_switch_that_is_read_wrongly_is_seen(name: str) -> None:
    checkpoint = load_checkpoint(FOLDER / name)
    spec = checkpoint.config.spec
    wrong: list[DraftSpec] = [
        dataclasses.replace(spec, norm_before_residual=not spec.norm_before_residual),
        dataclasses.replace(spec, norm_output=not spec.norm_output),
    ]
    if spec.attention_bias:
        without = checkpoint.weights | {"layers.0.self_attn.o_proj.bias": torch.zeros(24)}
        ours, theirs = drafts(spec, without, name)
        assert float((ours - theirs).abs().max()) > 1e3 * LARGEST_DIFFERENCE
    wrong += [
        dataclasses.replace(spec, **{switch: False})  # type: ignore[arg-type]
        for switch in ("fc_norm", "norm_before_fc", "qk_norm")
        if getattr(spec, switch)
    ]
    if spec.rope.kind != "default":
        wrong.append(dataclasses.replace(spec, rope=Rope(theta=spec.rope.theta)))
    for each in wrong:
        ours, theirs = drafts(each, checkpoint.weights, name)
        assert float((ours - theirs).abs().max()) > 1e3 * LARGEST_DIFFERENCE, each
