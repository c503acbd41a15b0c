"""Floors against the roofline table of the drafter reference, computed from shapes."""

import dataclasses
from types import MappingProxyType

import pytest

from drafter.checkpoint_files import expected_shapes
from drafter.floors import (
    USUAL_GPUS,
    cached_values_per_token,
    gpu_label,
    memory_bound_tokens,
    step_floor,
    step_weights,
    step_work,
)
from drafter.public_models import public_shape, public_shapes
from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.hardware import Gpu, gpu
from specmodel.sources import sources

# Section 9 of the drafter reference: parameters and bytes of a step in millions, share of the head in per
# cent, microseconds at batch 1 and 2k context on H200, H100, RTX PRO 6000 and 4090, and what an extend adds
# on H200; all at the bandwidths of the datasheets that it names.
ROOFLINE = {
    "Qwen3-30B-A3B": (170, 341, 38, (72, 103, 193, 342), 5),
    "Qwen3-4B": (199, 397, 41, (84, 121, 227, 402), 8),
    "gpt-oss": (283, 565, 33, (119, 170, 318, 565), 10),
    "Qwen3-8B": (349, 698, 38, (147, 211, 395, 701), 21),
    "Llama-3.1-8B": (374, 749, 35, (158, 226, 423, 751), 21),
    "Qwen3-235B-A22B": (542, 1084, 24, (227, 325, 608, 1080), 21),
    "Llama-3.3-70B-6144": (637, 1274, 31, (267, 383, 716, 1272), 63),
    "Qwen3-32B": (704, 1408, 23, (295, 423, 791, 1405), 33),
    "Kimi-K2.7-Code-MLA": (742, 1484, 31, (310, 444, 830, 1475), 64),
    "Llama-3.3-70B": (1202, 2403, 22, (502, 720, 1347, 2393), 84),
    "DeepSeek-V3": (1294, 2587, 18, (541, 775, 1450, 2575), 64),
    "Kimi-K2.5-MLA": (1687, 3374, 70, (703, 1008, 1886, 3350), 64),
    "Kimi-K2.5-MHA": (1850, 3699, 63, (785, 1124, 2104, 3737), 64),
}
BANDWIDTHS = (4.8e12, 3.35e12, 1.79e12, 1.008e12)
CONTEXT = 2048

# An 8B head at batch 64 and 2k context, on the same devices.
BATCH_64 = (268, 384, 718, 1275)

# Tokens up to which a step is bound by memory, on the same devices; the third is printed as about.
MEMORY_BOUND = {"H200": 206, "H100": 295, "RTX 4090": 164}


def device(bandwidth_bytes_per_s: float) -> Gpu:
    """A device of that bandwidth whose arithmetic takes no time."""
    return dataclasses.replace(
        gpu("H200"),
        memory_bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        dense_flop_per_s=MappingProxyType({}),
    )


@pytest.mark.parametrize("name", ROOFLINE)
def test_the_roofline_table_follows_from_the_shapes(name: str) -> None:
    millions, megabytes, head_percent, times_us, extend_us = ROOFLINE[name]
    spec = public_shape(name).spec
    weights = step_weights(spec)
    assert weights.step / 1e6 == pytest.approx(millions, abs=0.5)
    assert 2 * weights.step / 1e6 == pytest.approx(megabytes, abs=0.5)
    assert 100 * weights.head_share == pytest.approx(head_percent, abs=0.51)
    for bandwidth, time_us in zip(BANDWIDTHS, times_us, strict=True):
        floor = step_floor(spec, device(bandwidth), context_tokens=CONTEXT)
        assert floor.datasheet_s * 1e6 == pytest.approx(time_us, abs=0.5)
    extend = step_floor(spec, device(BANDWIDTHS[0]), context_tokens=CONTEXT)
    assert extend.extend_adds_s * 1e6 == pytest.approx(extend_us, abs=0.5)


def test_a_batch_reads_the_weights_once_and_a_cache_for_each_request() -> None:
    spec = public_shape("Llama-3.1-8B").spec
    for bandwidth, time_us in zip(BANDWIDTHS, BATCH_64, strict=True):
        floor = step_floor(spec, device(bandwidth), context_tokens=CONTEXT, batch_size=64)
        assert floor.datasheet_s * 1e6 == pytest.approx(time_us, abs=0.5)


def test_the_usual_devices_have_the_bandwidths_of_the_table() -> None:
    for name, bandwidth in zip(USUAL_GPUS, BANDWIDTHS, strict=True):
        assert gpu(name).bandwidth_bytes_per_s() == pytest.approx(bandwidth, rel=2e-3)


@pytest.mark.parametrize("name", MEMORY_BOUND)
def test_steps_are_bound_by_memory_up_to_the_ratio_of_the_rates(name: str) -> None:
    assert memory_bound_tokens(gpu(name)) == pytest.approx(MEMORY_BOUND[name], abs=0.5)


@pytest.mark.parametrize("name", list(public_shapes()))
def test_the_parameters_of_a_step_are_those_of_its_matrices(name: str) -> None:
    """The closed form against the list of tensors that a checkpoint of this spec has."""
    spec = public_shape(name).spec
    matrices = {
        tensor: shape[0] * shape[1]
        for tensor, shape in expected_shapes(spec).items()
        if len(shape) == 2 and tensor != "embed_tokens.weight"
    }
    fusion = matrices.pop("fc.weight", 0)
    assert step_weights(spec).step == sum(matrices.values())
    assert step_weights(spec).fusion == fusion


def test_a_long_context_adds_what_the_reference_says() -> None:
    work = step_work(public_shape("Llama-3.1-8B").spec, context_tokens=32 * 1024)
    assert work.cache_bytes / 1e6 == pytest.approx(134, abs=0.5)
    assert work.cache_bytes / BANDWIDTHS[0] * 1e6 == pytest.approx(28, abs=0.5)


def test_a_step_of_the_8b_head_computes_0_75_gflop_a_token() -> None:
    assert step_work(public_shape("Llama-3.1-8B").spec).flop / 1e9 == pytest.approx(0.75, abs=0.005)


def test_a_latent_cache_holds_one_row_for_all_heads() -> None:
    assert cached_values_per_token(public_shape("Kimi-K2.5-MLA").spec) == 512 + 64


def test_a_sliding_window_caps_the_cache() -> None:
    spec = dataclasses.replace(public_shape("Llama-3.1-8B").spec, sliding_window=1000)
    assert step_work(spec, context_tokens=5000) == step_work(spec, context_tokens=1000)
    assert (
        step_work(spec, context_tokens=999).cache_bytes
        < step_work(spec, context_tokens=1000).cache_bytes
    )


def test_a_large_batch_is_bound_by_arithmetic() -> None:
    spec, h200 = public_shape("Llama-3.1-8B").spec, gpu("H200")
    ridge = memory_bound_tokens(h200)
    below = step_floor(spec, h200, context_tokens=0, batch_size=int(ridge))
    above = step_floor(spec, h200, context_tokens=0, batch_size=int(ridge) + 1)
    assert (below.compute_bound, above.compute_bound) == (False, True)
    assert above.datasheet_s == pytest.approx(above.work.flop / h200.flop_per_s("bf16"))


def test_the_measured_bandwidth_gives_a_longer_floor_and_none_where_there_is_none() -> None:
    spec = public_shape("gpt-oss").spec
    floor = step_floor(spec, gpu("H100"))
    assert floor.measured_s is not None
    assert floor.measured_s > floor.datasheet_s
    assert step_floor(spec, gpu("RTX PRO 6000 WS")).measured_s is None


@pytest.mark.parametrize(
    "arguments", [{"context_tokens": -1}, {"batch_size": 0}, {"value_bytes": 3}], ids=str
)
def test_an_impossible_load_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ParameterError):
        step_work(public_shape("gpt-oss").spec, **arguments)


def test_a_device_of_unknown_bandwidth_is_refused() -> None:
    with pytest.raises(ParameterError, match="bandwidth"):
        step_floor(public_shape("gpt-oss").spec, gpu("RTX PRO 6000"))


def test_the_label_of_a_device_finds_it() -> None:
    for name in USUAL_GPUS:
        assert gpu(gpu_label(gpu(name))) == gpu(name)


# --- public shapes ---


def test_every_shape_names_registered_sources_and_a_known_confidence() -> None:
    for shape in public_shapes().values():
        assert set(shape.source_keys) <= set(sources())
        assert shape.confidence in {"template", "card", "secondary", "unverified"}
        assert shape.locator


def test_a_shape_is_found_without_its_marks_and_an_unknown_one_names_the_closest() -> None:
    assert public_shape("llama3.1_8b").name == "Llama-3.1-8B"
    with pytest.raises(UnknownKeyError, match=r"Llama-3\.1-8B"):
        public_shape("Llama-3.1-80B")
