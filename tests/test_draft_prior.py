"""Two packages price a draft step from its bytes: the floor of `drafter`, and the prior of a rig without a record."""

import dataclasses

import pytest

from drafter.floors import step_floor, step_work
from drafter.public_models import public_shape, public_shapes
from drafter.spec import DraftSpec
from specmodel.architecture import preset
from specmodel.cost.forward import StepParts
from specmodel.hardware import gpu
from specmodel.rig import DraftPasses, Rig, eagle3_passes
from specmodel.rig.shape_work import shape_work

GROUPED = [name for name, shape in public_shapes().items() if shape.spec.latent is None]


def passes_of(spec: DraftSpec) -> DraftPasses:
    """What a prediction knows of a head when it is told its counts."""
    target = dataclasses.replace(preset("Llama-3.1-8B"), hidden_size=spec.target_hidden_size)
    return eagle3_passes(
        target,
        mlp_width=spec.mlp_width,
        vocab_size=spec.draft_vocab_size,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        hidden_size=spec.hidden_size,
        head_dim=spec.head_dim,
    )


def prior_step(spec: DraftSpec, device: str, *, batch: int, context: int) -> StepParts:
    """One further draft step of a rig of which nothing was measured."""
    rig = Rig(target="Llama-3.1-8B", device=device, dtype="bf16", draft=passes_of(spec))
    parts = rig.round_parts([1, 2], batch_size=batch, context_tokens=context).draft
    return StepParts(
        **{
            field.name: getattr(parts, field.name)[1] - getattr(parts, field.name)[0]
            for field in dataclasses.fields(StepParts)
        }
    )


@pytest.mark.parametrize("device", ["H200", "H100", "RTX PRO 6000 WS", "RTX 4090"])
@pytest.mark.parametrize("name", GROUPED)
def test_without_a_record_a_step_reads_for_a_quarter_more_than_its_floor(
    name: str, device: str
) -> None:
    """drafter/README.md states 1.25 floors, 14 kernels of 1.2 us and 0.25 ms of the host."""
    spec = public_shape(name).spec
    floor_s = step_floor(spec, gpu(device), context_tokens=2048).datasheet_s
    step = prior_step(spec, device, batch=1, context=2048)
    assert step.memory_s == pytest.approx(1.25 * floor_s, rel=0.01)
    assert step.host_s == pytest.approx(14 * 1.2e-6 + 0.25e-3)
    assert step.total_s == pytest.approx(1.25 * floor_s + 266.8e-6, rel=0.01)


@pytest.mark.parametrize(("batch", "context"), [(8, 2048), (16, 2048), (1, 32768)])
def test_the_cache_of_a_batch_is_read_by_both_alike(batch: int, context: int) -> None:
    spec = public_shape("Llama-3.1-8B").spec
    floor = step_floor(spec, gpu("H200"), context_tokens=context, batch_size=batch)
    step = prior_step(spec, "H200", batch=batch, context=context)
    assert step.memory_s == pytest.approx(1.25 * floor.datasheet_s, rel=0.02)


@pytest.mark.parametrize("name", ["Kimi-K2.5-MLA", "Kimi-K2.7-Code-MLA"])
def test_of_latent_heads_the_prior_leaves_out_a_few_percent_as_it_says(name: str) -> None:
    """The second input of its first projections: up to 3 % of the weights; the cache is the same."""
    spec = public_shape(name).spec
    passes = eagle3_passes(
        preset("Kimi-K2.5"), mlp_width=spec.mlp_width, vocab_size=spec.draft_vocab_size
    )
    assert passes.later is not None
    priced = shape_work(passes.later, 1, context_tokens=2048)
    work = step_work(spec, context_tokens=2048)
    assert 0.97 < priced.weight_bytes / work.weight_bytes < 1.0
    assert priced.kv_bytes_per_token * 2048 == work.cache_bytes
