from typing import Any

import pytest

from specmodel.architecture import preset, quantisation, weight_bytes, weight_format
from specmodel.architecture.quantisation import _expanded, any_matches, weights_from_config
from specmodel.errors import FormatError, ParameterError
from specmodel.units import GIGA


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16),
        ("fp8", 8 + 32 / 128**2),
        ("nvfp4", 4 + 8 / 16),
        ("mxfp4", 4 + 8 / 32),
        ("mxfp8", 8 + 8 / 32),
        ("int4-g32", 4 + 16 / 32),
        ("int4-g128", 4 + 16 / 128),
        ("awq-g128", 4 + (16 + 4) / 128),
        ("int8", 8),
    ],
)
def test_bytes_of_a_weight_are_its_bits_and_its_share_of_the_scales(name: str, bits: float) -> None:
    assert weight_format(name).bytes_per_weight == bits / 8


def test_kimi_in_int4_has_571_gb_of_experts_and_23_gb_besides() -> None:
    weights = weight_bytes(preset("Kimi-K2.5"))  # allreduce.md 1
    assert weights.routed_experts / GIGA == pytest.approx(571, abs=0.5)
    assert (weights.total - weights.routed_experts) / GIGA == pytest.approx(23, abs=0.5)
    assert weights.total / GIGA == pytest.approx(595, rel=0.002)  # serving recipe, 595 GB


@pytest.mark.parametrize("name", ["int3.5", "fp7", "", "int4-g0", "x" * 10_000, "int9-g32"])
def test_an_unknown_format_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="weight format"):
        weight_format(name)


@pytest.mark.parametrize("text", ["", "fp8 +", "fp8 brain", "fp8 mlp experts", "+", "bf16 + 4bit"])
def test_a_text_that_names_no_formats_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        quantisation(text)


def test_a_term_with_a_part_wins_whatever_the_order() -> None:
    first, second = quantisation("fp8 + nvfp4 experts"), quantisation("nvfp4 experts + fp8")
    assert first == second
    assert (first.routed_experts.name, first.attention.name, first.head.name) == (
        "nvfp4",
        "fp8",
        "bf16",
    )


CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, {"": "int4-g128"}),
    ({"quant_method": "auto-round", "bits": 2, "group_size": 64}, {"": "int2-g64"}),
    (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*", "lm_head"]},
        {"": "nvfp4", "attention": "bf16"},
    ),
    (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["model.layers.0*"]},
        {"": "nvfp4", "dense_mlp": "bf16"},
    ),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, {"": "mxfp4"}),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}
            },
            "ignore": ["re:.*shared_expert.*"],
        },
        {"": "fp8", "shared_experts": "bf16"},
    ),
    ({"quant_method": "mxfp4"}, {"": "bf16", "routed_experts": "mxfp4"}),
]


@pytest.mark.parametrize(("config", "expected"), CASES)
def test_formats_are_read_from_each_method(
    config: dict[str, Any], expected: dict[str, str]
) -> None:
    found = weights_from_config({}, config, "config.json")
    for part in ("routed_experts", "shared_experts", "dense_mlp", "attention"):
        assert getattr(found, part).name == expected.get(part, expected[""]), part
    assert found.head.name == "bf16"
    assert found.rest.name == "bf16"


@pytest.mark.parametrize(
    "config",
    [
        "fp8",
        {"quant_method": "new"},
        {"quant_method": "gptq", "bits": 900},
        {"quant_method": "gptq", "bits": "4"},
        {"quant_method": "modelopt", "quant_algo": "NF3"},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": None}}},
        {"quant_method": "quark"},
    ],
)
def test_an_unknown_method_is_refused_in_one_line(config: object) -> None:
    with pytest.raises(FormatError) as error:
        weights_from_config({}, config, "config.json")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("pattern", "module", "expected"),
    [
        ("lm_head", "lm_head", True),
        ("mlp.gate", "model.layers.7.mlp.gate_proj", False),
        ("model.layers.1", "model.layers.10.mlp", False),
        ("model.layers.*.self_attn*", "model.layers.7.self_attn.o_proj", True),
        ("re:.*self_attn.*", "model.layers.7.self_attn.o_proj", True),
        (r"re:.*mlp\.(gate|up|down)_proj.*", "model.layers.7.mlp.down_proj", True),
        (r"re:.*mlp\.(gate|up|down)_proj.*", "model.layers.7.mlp.experts.0.down_proj", False),
        ("re:^lm_head$", "model.lm_heads", False),
    ],
)
def test_patterns_name_modules(pattern: str, module: str, expected: bool) -> None:
    assert any_matches([pattern], module) is expected


@pytest.mark.parametrize(
    "pattern",
    ["re:" + "(a|b)" * 60, "re:" + "(.*a)" * 60, "re:(a+)+$" * 20, "*" * 5000, "re:" + "(" * 5000],
)
def test_a_hostile_pattern_is_tried_in_a_bounded_number_of_ways(pattern: str) -> None:
    ways = list(_expanded(pattern[:300]))
    assert len(ways) <= 64
    assert sum(len(pieces) for pieces in ways) < 64 * 300
    assert any_matches([pattern] * 50, "model.layers.7.x") in {True, False}
