"""Logits that speculators' own model class computed, from the kernels on the checkpoints that it saved."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from drafter.checkpoint import load_checkpoint
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from tests.extent import sample

FOLDER = Path(__file__).parents[3] / "golden" / "drafter"
NORMS = ("plain", "norm_before_residual", "fc_norm_norm_output", "norm_before_fc")
EIGHT = [f"{layer}_{norms}" for layer in ("llama", "qwen3") for norms in NORMS]
LIMIT = 1e-5


@sample(1)
@pytest.mark.parametrize("name", [*EIGHT, "llama_biases_llama3_rope", "llama_yarn_rope"])
def test_kernels_reproduce_the_logits_of_speculators(name: str) -> None:
    checkpoint, golden = (
        load_checkpoint(FOLDER / name),
        load_file(FOLDER / name / "golden.safetensors"),
    )
    num_steps = golden["logits"].shape[1]
    for start, truth in zip(golden["starts"].tolist(), golden["logits"], strict=True):
        count = start + 1
        steps = DraftSteps.alone(
            checkpoint.config.spec,
            checkpoint.weights,
            DraftShape(
                batch_size=1,
                num_steps=num_steps,
                most_accepted=count,
                capacity=64,
                num_splits=2,
                keeps_logits=True,
            ),
            dtype=torch.float32,
            device="cpu",
        )
        steps.load(
            golden["tokens"][None, :count],
            golden["aux_states"][None, :count],
            torch.zeros(1, dtype=torch.int32),
            torch.full((1,), count, dtype=torch.int32),
        )
        steps.extend()
        for step in range(1, num_steps):
            # speculators feeds the tokens of the text, whatever was guessed
            space = steps._extend_head if step == 1 else steps._step_head
            space.guesses.fill_(int(golden["tokens"][start + step]))
            steps.step(step)
        assert steps.logits is not None
        ours = steps.logits[:, 0].double()
        errors = torch.linalg.vector_norm(ours - truth, dim=-1) / torch.linalg.vector_norm(
            truth, dim=-1
        )
        assert float(errors.max()) <= LIMIT, (start, errors)
