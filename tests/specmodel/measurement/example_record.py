"""A record small enough for examples; its numbers are made up."""

from specmodel.measurement.draft_record import (
    COLD,
    MEASURED,
    Clocks,
    DraftRecord,
    DraftShapes,
    DraftTiming,
    ExtendTiming,
    KernelTiming,
    StepTiming,
)

_CLOCKS = Clocks(multiprocessor_hz=1.98e9, memory_hz=3.2e9)


def example_record() -> DraftRecord:
    """A record with two loads of a chain; nobody measured it."""
    return DraftRecord(
        kind=MEASURED,
        draft_model="example",
        layout="none: example",
        shapes=DraftShapes(
            hidden_size=4096,
            target_hidden_size=4096,
            num_aux_states=3,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            mlp_width=14336,
            target_vocab_size=128256,
            draft_vocab_size=32000,
        ),
        dtype="bfloat16",
        substituted=("embed_tokens.weight: random",),
        device="a GPU that does not exist",
        device_uuid="GPU-0",
        driver="0.0",
        sm=90,
        clocks_before=_CLOCKS,
        clocks_after=_CLOCKS,
        torch_version="2.13.0",
        triton_version="3.9.0",
        package_version="0.0.0",
        read_bandwidth_bytes_per_s=4.3e12,
        cache_state=COLD,
        spread=0.012,
        steps=(
            StepTiming(
                batch_size=1,
                context_tokens=2048,
                topk=1,
                time_s=2.0e-4,
                floor_s=1.6e-4,
                baseline_s=2.3e-4,
                baseline_spread=0.01,
                spread=0.012,
                num_samples=40,
            ),
            StepTiming(
                batch_size=1,
                context_tokens=8192,
                topk=1,
                time_s=2.2e-4,
                floor_s=1.8e-4,
                baseline_s=2.21e-4,
                baseline_spread=0.02,
                spread=0.01,
                num_samples=40,
            ),
        ),
        extends=(
            ExtendTiming(
                tokens=4,
                batch_size=1,
                context_tokens=2048,
                time_s=2.6e-4,
                spread=0.008,
                num_samples=40,
            ),
        ),
        drafts=(
            DraftTiming(
                batch_size=1,
                context_tokens=2048,
                topk=1,
                num_steps=3,
                num_draft_tokens=4,
                graph_s=6.7e-4,
                graph_nodes=37,
                spread=0.01,
                num_samples=40,
            ),
        ),
        kernels=(KernelTiming(name="linear_matvec_kernel", calls=9, time_s=2.1e-5),),
        kernels_of="batch 1, context 2048, chain of 3",
    )
