import pytest

from specmodel.architecture import kv_cache, memory_fit, preset, quantisation, require_fit
from specmodel.errors import ParameterError
from specmodel.units import GIBI

RTX_PRO_6000_BYTES = 96 * GIBI


@pytest.mark.parametrize("memory", [96e9, RTX_PRO_6000_BYTES])
def test_kimi_in_int4_is_refused_on_four_gpus_of_96_gb_and_fits_eight(memory: float) -> None:
    four = memory_fit(preset("Kimi-K2.5"), 4, memory)
    assert not four.fits
    assert four.smallest_num_gpus == 8
    with pytest.raises(ParameterError, match="num_gpus must be at least 8") as error:
        require_fit(four)
    assert "does not fit 4 x" in str(error.value)
    assert "\n" not in str(error.value)
    require_fit(memory_fit(preset("Kimi-K2.5"), 8, memory, batch_size=1, context_tokens=4096))


@pytest.mark.parametrize(
    ("name", "weights", "num_gpus", "memory", "fits"),
    [
        ("Llama-3.1-8B", "bf16", 1, 24 * GIBI, True),
        ("Llama-3.1-8B", "bf16", 1, 16 * GIBI, False),
        ("Llama-3.1-70B", "bf16", 1, 80 * GIBI, False),
        ("Llama-3.1-70B", "bf16", 2, 80 * GIBI, True),
        ("Llama-3.1-70B", "bf16", 4, 80 * GIBI, True),
        ("DeepSeek-V3", "fp8", 8, 80 * GIBI, False),  # 8 x H100 do not hold it, 8 x H200 do
        ("DeepSeek-V3", "fp8", 8, 141e9, True),
        ("Qwen3-235B-A22B", "bf16", 8, 80 * GIBI, True),
        ("gpt-oss-120b", "mxfp4 experts + bf16", 1, 80 * GIBI, True),
    ],
)
def test_models_fit_where_people_serve_them(
    name: str, weights: str, num_gpus: int, memory: float, fits: bool
) -> None:
    shape = preset(name).with_weights(quantisation(weights))
    found = memory_fit(shape, num_gpus, memory, context_tokens=8192)
    assert found.fits is fits, found.sentence


def test_requests_fill_what_the_weights_leave() -> None:
    shape, memory = preset("Llama-3.1-8B"), 80 * GIBI
    empty = memory_fit(shape, 1, memory)
    room = (empty.usable_bytes - empty.needed_bytes) / kv_cache(shape).bytes_per_token
    assert memory_fit(shape, 1, memory, batch_size=1, context_tokens=0.99 * room).fits
    assert not memory_fit(shape, 1, memory, batch_size=1, context_tokens=1.01 * room).fits


def test_what_no_number_of_gpus_holds_is_said() -> None:
    found = memory_fit(preset("Kimi-K2.5"), 8, 2e9)
    assert found.smallest_num_gpus is None
    with pytest.raises(ParameterError, match="no number of these GPUs is enough"):
        require_fit(found)


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_memory_bytes": 0.0},
        {"gpu_memory_bytes": float("nan")},
        {"batch_size": -1},
        {"context_tokens": float("inf")},
        {"usable_share": 1.5},
        {"num_gpus": 0},
    ],
)
def test_an_impossible_value_is_refused_with_its_name(change: dict[str, float]) -> None:
    arguments: dict[str, float] = {"num_gpus": 8, "gpu_memory_bytes": 80e9} | change
    with pytest.raises(ParameterError, match=next(iter(change))):
        memory_fit(preset("Qwen3-8B"), **arguments)  # type: ignore[arg-type]
