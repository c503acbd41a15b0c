import csv
from pathlib import Path

import pytest

from specmodel.architecture import (
    has_preset,
    parameter_counts,
    preset,
    presets,
    stated_weights,
    weight_bytes,
)
from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.units import GIBI, GIGA

ROOT = Path(__file__).resolve().parents[3]


def test_counted_parameters_are_within_three_percent_of_the_published_total_for_every_model() -> (
    None
):
    assert len(presets()) == 63
    ratios = {
        name: parameter_counts(each.shape).total / each.published_parameters
        for name, each in presets().items()
    }
    assert {name: ratio for name, ratio in ratios.items() if abs(ratio - 1.0) > 0.03} == {}


def test_parameters_of_one_token_are_those_published_with_or_without_the_embedding() -> None:
    """Some publishers round to a whole billion, down too, and some leave the embedding out."""
    wrong = {}
    for name, each in presets().items():
        counts, published = parameter_counts(each.shape), each.published_active_parameters
        low, high = counts.active - counts.embedding, counts.active
        if not low - max(0.06 * published, 0.6 * GIGA) <= published:
            wrong[name] = (low / GIGA, high / GIGA, published / GIGA)
        if not published <= high + max(0.06 * published, 0.6 * GIGA):
            wrong[name] = (low / GIGA, high / GIGA, published / GIGA)
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "total"), [("Llama-3.1-8B", 8_030_261_248), ("Qwen3-8B", 8_190_735_360)]
)
def test_counts_equal_those_of_the_checkpoint_metadata(name: str, total: int) -> None:
    """Totals that the hub shows for the checkpoints."""
    assert parameter_counts(preset(name)).total == pytest.approx(total, rel=2e-6)


def test_ling_flash_equals_its_checkpoint_to_the_router_biases() -> None:
    """102,889,697,280 bf16 parameters; 7,936 router biases in f32 are not counted."""
    assert parameter_counts(preset("Ling-flash-2.0")).total == 102_889_697_280


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("moonshotai/Kimi-K2.5", "Kimi-K2.5"),
        ("nvidia/Kimi-K2.5-NVFP4", "Kimi-K2.5"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "Llama-3-8B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("KIMI-K2.6 (INT4)", "Kimi-K2.6"),
        ("zai-org/GLM-5.1-FP8", "GLM-5.1"),
    ],
)
def test_a_model_is_found_under_the_names_people_write(written: str, name: str) -> None:
    assert has_preset(written)
    assert preset(written).name == name


@pytest.mark.parametrize("name", ["", "Kimi-K9.9", "(" * 5000, "x" * 100_000, "-fp8" * 40])
def test_an_unknown_name_is_refused_with_what_is_known(name: str) -> None:
    assert not has_preset(name)
    with pytest.raises(UnknownKeyError, match="unknown model") as error:
        preset(name)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2000


def test_every_row_names_its_documents() -> None:
    assert {each.confidence for each in presets().values()} == {"confirmed", "secondary", "memory"}
    assert [name for name, each in presets().items() if not each.source.strip()] == []


# --- formats that a label means ---


def test_every_label_of_the_packaged_points_is_read_but_one_of_three_bits() -> None:
    unknown = set()
    for path in sorted((ROOT / "calibration" / "data" / "points").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if not row["target_model"]:
                    continue
                assert has_preset(row["target_model"]), row["target_model"]
                try:
                    stated_weights(preset(row["target_model"]), row["dtype"])
                except ParameterError:
                    unknown.add(row["dtype"])
    assert unknown == {"nf3 hybrid"}


@pytest.mark.parametrize(
    ("name", "label", "experts", "attention"),
    [
        ("DeepSeek-R1", "nvfp4", "nvfp4", "fp8"),
        ("GLM-5.2", "amd mxfp4 experts a8", "mxfp4", "bf16"),
        ("GLM-4.7", "fp8", "fp8", "fp8"),
        ("gpt-oss-120b", "mxfp4", "mxfp4", "bf16"),
        ("Gemma-4-26B-A4B", "awq", "awq4-g128", "bf16"),
        ("Qwen3.6-27B", "nvfp4", "nvfp4", "nvfp4"),
        ("Gemma-4-31B", "autoround-int4", "int4-g128", "int4-g128"),
        ("Kimi-K2.5", "nvfp4", "nvfp4", "bf16"),
        ("Kimi-K2.5", "", "int4-g32", "bf16"),
        ("Kimi-K2.5", "fp8 + int4-g32 experts", "int4-g32", "fp8"),
    ],
)
def test_a_label_means_the_release_that_people_serve(
    name: str, label: str, experts: str, attention: str
) -> None:
    found = stated_weights(preset(name), label)
    assert (found.routed_experts.name, found.attention.name) == (experts, attention)


@pytest.mark.parametrize(
    ("name", "label", "size_gb"),
    [
        ("gpt-oss-120b", "", 60.8 * GIBI / GIGA),  # model card of gpt-oss, table 1
        ("gpt-oss-20b", "mxfp4", 12.8 * GIBI / GIGA),
        ("Kimi-K2.6", "int4", 595),  # serving recipe of the row
    ],
)
def test_sizes_of_released_checkpoints(name: str, label: str, size_gb: float) -> None:
    shape = preset(name).with_weights(stated_weights(preset(name), label))
    assert weight_bytes(shape).total / GIGA == pytest.approx(size_gb, rel=0.015)


@pytest.mark.parametrize("label", ["nf3", "x", "q4_k_m", "fp88", "?" * 10_000])
def test_an_unknown_label_is_refused(label: str) -> None:
    with pytest.raises(ParameterError, match="weights"):
        stated_weights(preset("Qwen3-8B"), label)
