import csv
from pathlib import Path

import pytest

from specmodel.architecture import has_preset, preset, stated_weights, weight_bytes
from specmodel.errors import ParameterError
from specmodel.units import GIBI, GIGA

ROOT = Path(__file__).resolve().parents[3]


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
