"""Configurations in every layout: keys, defaults, conflicts, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafter.config_json import draft_config, read_draft_config
from drafter.spec import LatentHeads, Rope
from specmodel.errors import FormatError

Config = Callable[..., dict[str, Any]]

MLA = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "kimi_k2",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "vocab_size": 163840,
    "draft_vocab_size": 163840,
    "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 64.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 1.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "max_position_embeddings": 262144,
}


@pytest.fixture
def flat_config(configs: tuple[Config, Config]) -> Config:
    return configs[0]


@pytest.fixture
def speculators(configs: tuple[Config, Config]) -> Config:
    return configs[1]


def said(notes: tuple[str, ...], *words: str) -> bool:
    return any(all(word in note for word in words) for note in notes)


# --- layouts ---


def test_the_flat_layout_is_read(flat_config: Config) -> None:
    found = draft_config(flat_config())
    spec = found.spec
    assert (found.layout, found.architecture, found.stored_dtype) == (
        "flat",
        "LlamaForCausalLMEagle3",
        "bfloat16",
    )
    assert (spec.hidden_size, spec.target_hidden_size, spec.num_aux_states) == (32, 32, 3)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.mlp_width) == (4, 2, 8, 48)
    assert (spec.target_vocab_size, spec.draft_vocab_size) == (64, 20)
    assert (spec.rope, spec.rms_norm_eps, spec.max_positions) == (Rope(theta=500000.0), 1e-5, 256)
    assert found.notes == ()


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"]
)
def test_every_class_of_the_flat_layout_is_known(flat_config: Config, name: str) -> None:
    assert draft_config(flat_config(architectures=[name], model_type="phi3")).layout == "flat"


def test_the_speculators_layout_is_read(speculators: Config) -> None:
    found = draft_config(speculators(norm_before_residual=True))
    assert (found.layout, found.target_model, found.aux_layer_ids) == (
        "speculators",
        "Llama-3.1-8B-Instruct",
        (2, 16, 29),
    )
    assert found.spec.norm_before_residual
    assert not found.spec.qk_norm
    assert found.spec.rope.theta == 1000000.0
    assert said(found.notes, "SGLang", "norm_before_residual")


def test_a_qwen3_layer_has_norms_of_q_and_k_and_a_llama_layer_has_none(speculators: Config) -> None:
    assert draft_config(speculators(model_type="qwen3")).spec.qk_norm
    assert not draft_config(speculators(model_type="llama")).spec.qk_norm


def test_a_latent_head_is_known_by_its_class_and_by_its_ranks() -> None:
    for names in (MLA["architectures"], ["SomethingNew"]):
        found = draft_config(MLA | {"architectures": names})
        assert found.layout == "mla"
        assert found.spec.latent == LatentHeads(
            query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128
        )
        assert found.spec.head_dim == 192
        assert found.spec.rope == Rope(
            kind="yarn",
            theta=50000.0,
            factor=64.0,
            original_max_positions=4096,
            beta_fast=1.0,
            beta_slow=1.0,
            mscale=1.0,
            mscale_all_dim=1.0,
        )


# --- defaults ---


def test_a_missing_rope_theta_is_10000_and_said(flat_config: Config) -> None:
    found = draft_config(flat_config(rope_theta=...))
    assert found.spec.rope.theta == 10000.0
    assert said(found.notes, "rope_theta", "10000")


def test_a_missing_head_dim_is_hidden_size_over_heads_and_a_stated_one_is_kept(
    flat_config: Config,
) -> None:
    assert draft_config(flat_config(head_dim=..., num_attention_heads=2)).spec.head_dim == 16
    assert draft_config(flat_config(head_dim=64)).spec.head_dim == 64
    with pytest.raises(FormatError, match="head_dim is missing"):
        draft_config(flat_config(head_dim=..., hidden_size=30))


@pytest.mark.parametrize("stated", [..., None])
def test_without_a_draft_vocabulary_it_is_the_targets(flat_config: Config, stated: Any) -> None:
    found = draft_config(flat_config(draft_vocab_size=stated))
    assert found.spec.draft_vocab_size == found.spec.target_vocab_size == 64
    assert not found.own_vocabulary
    assert said(found.notes, "draft_vocab_size")


def test_a_missing_norm_before_residual_is_false_and_the_conflict_is_said(
    speculators: Config,
) -> None:
    found = draft_config(speculators(norm_before_residual=...))
    assert not found.spec.norm_before_residual
    assert said(found.notes, "norm_before_residual", "vLLM", "true")
    assert not said(draft_config(speculators()).notes, "norm_before_residual")


def test_states_are_counted_by_ids_then_by_number_then_three(flat_config: Config) -> None:
    ids = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]}}
    assert draft_config(flat_config(**ids)).spec.num_aux_states == 4
    assert draft_config(flat_config(num_aux_layers=5)).spec.num_aux_states == 5
    empty: list[int] = []
    none_listed = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": empty}}
    assert draft_config(flat_config(**none_listed)).spec.num_aux_states == 3
    with pytest.raises(FormatError, match="4 layer ids, but 5"):
        draft_config(flat_config(num_aux_hidden_states=5, **ids))


def test_what_layer_ids_mean_is_said_by_layout(flat_config: Config, speculators: Config) -> None:
    flat = draft_config(flat_config(eagle_aux_hidden_state_layer_ids=[1, 46, 90]))
    assert said(flat.notes, "outputs of these layers", "vLLM")
    assert said(draft_config(speculators()).notes, "entering")


def test_without_fusion_there_is_one_state(flat_config: Config) -> None:
    config = flat_config(eagle_config={"use_aux_hidden_state": False})
    assert draft_config(config).spec.num_aux_states == 1
    assert not draft_config(config).spec.use_aux_hidden_state


def test_old_and_new_names_of_switches_are_one(flat_config: Config) -> None:
    assert draft_config(flat_config(use_aux_norm=True)).spec.fc_norm
    assert draft_config(flat_config(eagle_config={"norm_before_fc": True})).spec.norm_before_fc
    assert draft_config(flat_config(bias=True)).spec.fc_bias
    with pytest.raises(FormatError, match=r"fc_norm is false and use_aux_norm is true"):
        draft_config(flat_config(fc_norm=False, use_aux_norm=True))


def test_the_two_meanings_of_norm_output_are_said(flat_config: Config) -> None:
    found = draft_config(flat_config(norm_output=True))
    assert found.spec.norm_output
    assert said(found.notes, "norm_output", "SpecForge")


def test_a_sliding_window_is_read_for_a_qwen3_layer_only(
    flat_config: Config, speculators: Config
) -> None:
    layer = {"layer_types": ["sliding_attention"], "sliding_window": 128}
    assert draft_config(speculators(model_type="qwen3", layer=layer)).spec.sliding_window == 128
    old = {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 128}
    assert draft_config(speculators(model_type="qwen3", layer=old)).spec.sliding_window == 128
    full = {"layer_types": ["full_attention"], "sliding_window": 128}
    assert draft_config(speculators(model_type="qwen3", layer=full)).spec.sliding_window is None
    flat = draft_config(flat_config(sliding_window=128))
    assert flat.spec.sliding_window is None
    assert said(flat.notes, "sliding_window")


def test_counts_of_experts_that_a_template_copies_from_its_target_are_not_read(
    flat_config: Config,
) -> None:
    found = draft_config(
        flat_config(num_local_experts=16, experts_per_token=4, model_type="gpt_oss")
    )
    assert found.layout == "flat"


# --- rope ---

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_both_spellings_of_rope_are_one(flat_config: Config) -> None:
    old = draft_config(flat_config(rope_scaling=LLAMA3))
    older = {**LLAMA3, "type": "llama3"}
    del older["rope_type"]
    new = flat_config(rope_theta=..., rope_parameters={**LLAMA3, "rope_theta": 500000.0})
    expected = Rope(kind="llama3", theta=500000.0, factor=8.0, original_max_positions=8192)
    assert old.spec.rope == expected
    assert draft_config(flat_config(rope_scaling=older)).spec.rope == expected
    assert draft_config(new).spec.rope == expected


def test_mrope_is_the_usual_rotation_for_text_and_said(flat_config: Config) -> None:
    scaling = {"type": "mrope", "mrope_section": [16, 24, 24]}
    found = draft_config(flat_config(rope_scaling=scaling))
    assert found.spec.rope.kind == "default"
    assert said(found.notes, "mrope")


def test_yarn_without_its_start_takes_the_longest_context_and_says_so(flat_config: Config) -> None:
    found = draft_config(flat_config(rope_scaling={"type": "yarn", "factor": 4.0}))
    assert found.spec.rope.original_max_positions == 256
    assert said(found.notes, "original_max_position_embeddings")


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (
            {"rope_type": "longrope", "factor": 4.0},
            "rope kind 'longrope' is not known; known: default",
        ),
        ({"type": "linear"}, "factor is missing"),
        ({"type": "linear", "factor": "two"}, "factor must be a number, got two"),
        ({"type": "linear", "factor": 0}, "rope factor must be finite and positive"),
        (
            {"type": "yarn", "rope_type": "linear", "factor": 2.0},
            "rope_type is yarn in rope_scaling",
        ),
        (
            {"type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8},
            "low_freq_factor",
        ),
        ({**LLAMA3, "original_max_position_embeddings": None}, "original_max_position_embeddings"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, "truncate is false"),
        ({"rope_type": "yarn", "factor": 2.0, "attn_factor": 2.0}, "attn_factor is 2"),
        ("yarn", "rope_scaling must be an object"),
    ],
)
def test_an_unknown_or_unsound_rope_is_refused(
    flat_config: Config, scaling: Any, message: str
) -> None:
    with pytest.raises(FormatError) as caught:
        draft_config(flat_config(rope_scaling=scaling))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_bases_that_disagree_are_refused(flat_config: Config) -> None:
    with pytest.raises(
        FormatError, match=r"rope_theta is 1000000\.0 in rope_parameters and 500000\.0"
    ):
        draft_config(flat_config(rope_parameters={"rope_theta": 1000000.0}))


# --- refused ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["LlamaForCausalLMEagle"]}, "LlamaForCausalLMEagle is no EAGLE-3 draft"),
        ({"architectures": ["PEagleDraftModel"]}, "PEagleDraftModel is no EAGLE-3 draft"),
        ({"architectures": ...}, "a file without architectures"),
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"hidden_size": "wide"}, "hidden_size must be a whole number, got wide"),
        ({"vocab_size": -1}, "vocab_size must be from 1"),
        ({"draft_vocab_size": 65}, "draft_vocab_size must be at most the target_vocab_size 64"),
        ({"hidden_act": "gelu"}, "hidden_act must be one of silu"),
        ({"mlp_bias": True}, "mlp_bias is true"),
        ({"use_moe": True}, "experts"),
        ({"num_key_value_heads": 3}, "num_heads must be a multiple of num_kv_heads 3"),
        ({"fc_norm": True, "norm_before_fc": True}, "fc_norm must be false where norm_before_fc"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be above 0"),
        ({"eagle_config": {"use_last_layernorm": False}}, "use_last_layernorm is false"),
        ({"eagle_config": {"use_mtp_layernorm": True}}, "use_mtp_layernorm is true"),
        (
            {"eagle_config": {"use_input_layernorm_in_first_layer": False}},
            "in_first_layer is false",
        ),
        ({"eagle_config": [1]}, "eagle_config must be an object"),
        ({"eagle_aux_hidden_state_layer_ids": [-1, 2, 3]}, "none negative"),
        (
            {
                "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]},
            },
            "keep one of them",
        ),
    ],
)
def test_a_flat_file_that_cannot_be_computed_is_refused_in_one_line(
    flat_config: Config, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FormatError) as caught:
        draft_config(flat_config(**changes), path="head/config.json")
    text = str(caught.value)
    assert message in text
    assert text.startswith("head/config.json")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speculators_model_type": "peagle"}, "speculators_model_type must be eagle3, got peagle"),
        ({"transformer_layer_config": ...}, "transformer_layer_config is missing"),
        ({"draft_vocab_size": ...}, "draft_vocab_size is missing"),
        ({"model_type": "gemma"}, "model_type must be one of llama, qwen3, got gemma"),
        ({"model_type": "qwen3", "layer": {"head_dim": ...}}, "head_dim is missing"),
        ({"norm_before_fc": True, "fc_norm": True}, "fc_norm must be false"),
    ],
)
def test_a_speculators_file_that_cannot_be_computed_is_refused(
    speculators: Config, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FormatError) as caught:
        draft_config(speculators(**changes))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q_lora_rank": None}, "q_lora_rank is missing"),
        ({"n_routed_experts": 384, "first_k_dense_replace": 0}, "experts"),
        ({"mla_use_nope": True}, "mla_use_nope is true"),
        ({"qk_rope_head_dim": 63}, "rope_dim must be even"),
    ],
)
def test_a_latent_head_that_cannot_be_computed_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FormatError) as caught:
        draft_config(MLA | changes)
    assert message in str(caught.value)


# --- the file ---


def test_the_folder_and_the_file_are_both_understood(tmp_path: Path, flat_config: Config) -> None:
    (tmp_path / "config.json").write_text(json.dumps(flat_config()), encoding="utf-8")
    assert read_draft_config(tmp_path) == read_draft_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"\xff\xfe", "not a text in UTF-8"),
        (None, "no config.json here"),
    ],
)
def test_a_folder_without_a_readable_configuration_is_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_draft_config(tmp_path)
