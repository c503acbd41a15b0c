import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodel.architecture import (
    ModelShape,
    collectives,
    kv_cache,
    memory_fit,
    parameter_counts,
    preset,
    shape_from_config,
    weight_bytes,
)
from specmodel.architecture.config_json import parsed_config
from specmodel.errors import FormatError, SpecModelError
from tests.extent import extent

Config = dict[str, Any]
Read = Callable[[str], Config]

PRESETS = {
    "llama-3.1-8b": "Llama-3.1-8B",
    "qwen2.5-7b": "Qwen2.5-7B",
    "qwen3-4b": "Qwen3-4B",
    "qwen3-235b-a22b": "Qwen3-235B-A22B",
    "qwen3-next-80b-a3b": "Qwen3-Next-80B-A3B",
    "qwen3.5-27b": "Qwen3.5-27B",
    "gpt-oss-120b": "gpt-oss-120b",
    "deepseek-v3": "DeepSeek-V3",
    "kimi-k2.5": "Kimi-K2.5",
    "glm-4.7": "GLM-4.7",
    "glm-5": "GLM-5",
    "llama-4-scout": "Llama-4-Scout-17B-16E",
    "llama-4-maverick": "Llama-4-Maverick-17B-128E",
    "minimax-m2.5": "MiniMax-M2.5",
    "deepseek-v4-flash": "DeepSeek-V4-Flash",
}
ALL = (*PRESETS, "mixtral-8x7b")


def blocks(shape: ModelShape, field: str) -> dict[object, int]:
    """How many layers have each block."""
    found: dict[object, int] = {}
    for group in shape.layers:
        block = getattr(group, field)
        found[block] = found.get(block, 0) + group.count
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_gives_the_shape_of_the_packaged_model(config: Read, name: str) -> None:
    found, packaged = shape_from_config(config(name)), preset(PRESETS[name])
    assert blocks(found, "attention") == blocks(packaged, "attention")
    assert blocks(found, "mlp") == blocks(packaged, "mlp")
    assert (found.hidden_size, found.vocab_size) == (packaged.hidden_size, packaged.vocab_size)
    assert found.tie_embeddings == packaged.tie_embeddings
    language = parameter_counts(packaged).total - packaged.other_parameters
    assert parameter_counts(found).total == language


def test_mixtral_has_its_published_size(config: Read) -> None:
    counts = parameter_counts(shape_from_config(config("mixtral-8x7b")))
    assert counts.total == pytest.approx(46.7e9, abs=0.05e9)  # 46.7 B, 12.9 B a token
    assert counts.active == pytest.approx(12.9e9, abs=0.05e9)


@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2.5", "glm-4.7", "minimax-m2.5"])
def test_a_configuration_gives_the_formats_of_the_released_checkpoint(
    config: Read, name: str
) -> None:
    assert shape_from_config(config(name)).weights == preset(PRESETS[name]).weights


def test_gpt_oss_stores_its_experts_in_four_bits_and_attention_in_sixteen(config: Read) -> None:
    weights = shape_from_config(config("gpt-oss-120b")).weights
    assert (weights.routed_experts.name, weights.attention.name) == ("mxfp4", "bf16")


def test_a_vision_tower_is_said_not_counted(config: Read) -> None:
    assert shape_from_config(config("qwen3.5-27b")).notes == (
        "vision_config: its parameters are not counted",
    )


def test_multi_token_prediction_layers_are_read_where_they_are_stated(config: Read) -> None:
    layers = {name: shape_from_config(config(name)).mtp_layers for name in ALL}
    assert {name for name, count in layers.items() if count} == {
        "deepseek-v3",
        "deepseek-v4-flash",
        "glm-4.7",
        "glm-5",
        "qwen3.5-27b",
    }


def test_layers_that_route_are_every_other_one_of_maverick(config: Read) -> None:
    shape = shape_from_config(config("llama-4-maverick"))
    assert (shape.num_layers, shape.num_moe_layers) == (48, 24)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llama-3.1-8b", "hidden_size"),
        ("llama-3.1-8b", "intermediate_size"),
        ("llama-3.1-8b", "vocab_size"),
        ("llama-3.1-8b", "num_hidden_layers"),
        ("qwen3-235b-a22b", "num_experts"),
        ("qwen3-235b-a22b", "num_experts_per_tok"),
        ("deepseek-v3", "kv_lora_rank"),
        ("qwen3-next-80b-a3b", "linear_num_value_heads"),
        ("glm-5", "index_n_heads"),
        ("deepseek-v4-flash", "compress_ratios"),
    ],
)
def test_a_missing_field_is_named_with_the_architecture(
    config: Read, name: str, field: str
) -> None:
    values = config(name)
    architecture = values["architectures"][0]
    del values[field]
    with pytest.raises(FormatError, match=f"{field} is missing, which {architecture} needs"):
        shape_from_config(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1, 2]", "must be a JSON object"),
        ("{}", "architectures and model_type are missing"),
        ('{"architectures": []}', "architectures and model_type are missing"),
        ('{"architectures": [7], "model_type": 3}', "architectures and model_type are missing"),
        ('{"architectures": ["MambaForCausalLM"]}', "architecture MambaForCausalLM is not known"),
        ('{"model_type": "rwkv"}', "architecture rwkv is not known"),
        ("[" * 100_000, "not JSON"),
        ('{"architectures": ["' + "A\\n" * 3000 + '"]}', "is not known"),
    ],
)
def test_what_is_no_known_configuration_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        shape_from_config(parsed_config(text, path="config.json"))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", -1),
        ("hidden_size", 1.5),
        ("hidden_size", "4096"),
        ("hidden_size", True),
        ("hidden_size", 10**30),
        ("hidden_size", float("nan")),
        ("num_hidden_layers", 10**7),
        ("num_key_value_heads", 7),
        ("vocab_size", [1]),
        ("tie_word_embeddings", "yes"),
        ("attention_bias", 3),
        ("head_dim", -128),
    ],
)
def test_an_impossible_value_is_refused_with_its_field(
    config: Read, field: str, value: object
) -> None:
    values = config("llama-3.1-8b") | {field: value}
    with pytest.raises(FormatError, match=field):
        shape_from_config(values)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-3, 130), max_size=70),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "x"]), max_size=70),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
)


@settings(max_examples=extent(test=100, prove=300), deadline=None)
@given(st.sampled_from(ALL), st.data())
def test_any_value_in_any_field_gives_a_shape_or_one_line(
    config: Read, name: str, data: st.DataObject
) -> None:
    values = copy.deepcopy(config(name))
    places = [values]
    inner = values.get("text_config")
    if isinstance(inner, dict):
        places.append(inner)
    places += [each["quantization_config"] for each in places if each.get("quantization_config")]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places))
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JUNK)
    try:
        shape = shape_from_config(json.loads(json.dumps(values)))
        weights = weight_bytes(shape, tp_size=4)
        assert 0 < weights.active <= weights.total + weights.head
        assert kv_cache(shape, tp_size=4).held_bytes(100) >= 0
        assert collectives(shape, 4).all_reduces == 2 * shape.num_layers + 1
        assert memory_fit(shape, 4, 80e9).sentence
    except SpecModelError as error:
        assert "\n" not in str(error)  # noqa: PT017 - only the form of a refusal


EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "torch_dtype": "float16",
}


def test_an_eagle3_draft_of_an_8b_model_has_its_two_wide_inputs_fusion_and_small_head() -> None:
    shape = shape_from_config(EAGLE3)
    attention = 2 * 4096 * (4096 + 2 * 1024) + 4096 * 4096
    matrices = attention + 3 * 4096 * 14336 + 32000 * 4096
    weights = weight_bytes(shape)
    fusion = 3 * 4096 * 4096
    small = (3 * 4096) * 2
    assert weights.dense == 2 * (matrices + fusion) + small
    assert weights.dense == pytest.approx(0.8e9, rel=0.08)  # theory.md B4: about 0.8 GB
    assert collectives(shape, 4).all_reduces == 3  # allreduce.md 10.4


def test_gemma3_has_five_window_layers_for_each_full_one() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "intermediate_size": 21504,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
            "vocab_size": 262208,
        },
    }
    shape = shape_from_config(config)
    windows = {
        getattr(group.attention, "window_tokens", None): group.count for group in shape.layers
    }
    assert windows == {1024: 52, None: 10}
    assert parameter_counts(shape).total == pytest.approx(27.0e9, rel=0.005)  # 27 B, text alone
