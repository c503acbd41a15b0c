"""Checkpoints: every accepted spelling gives the same weights, every unsound one a line of its own."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter.checkpoint import load_checkpoint, random_weights
from drafter.checkpoint_files import checkpoint_contents, draft_to_target, expected_shapes
from drafter.config_json import draft_config
from specmodel.errors import FormatError

Flat = Callable[..., Path]
Tensors = dict[str, torch.Tensor]


def refused(folder: Path) -> str:
    """The line that a checkpoint is refused with, by the header check or the map check."""
    with pytest.raises(FormatError) as caught:
        draft_to_target(checkpoint_contents(folder))
    text = str(caught.value)
    assert "\n" not in text
    with pytest.raises(FormatError) as loaded:
        load_checkpoint(folder)
    assert str(loaded.value) == text
    return text


# --- accepted ---


def test_weights_come_back_under_canonical_names_bit_by_bit(
    flat: Flat, tensors_of_flat: Callable[..., Tensors]
) -> None:
    loaded = load_checkpoint(flat())
    expected = tensors_of_flat(layer="layers.0.")
    assert set(loaded.weights) == set(expected)
    assert all(torch.equal(loaded.weights[name], value) for name, value in expected.items())
    assert loaded.weights["d2t"].dtype == torch.int64
    assert loaded.weights["lm_head.weight"].dtype == torch.bfloat16
    assert loaded.substituted == ()


@pytest.mark.parametrize("layer", ["midlayer.", "layers.0."])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_both_layer_names_and_both_prefixes_give_the_same_weights(
    flat: Flat, layer: str, prefix: str
) -> None:
    first = load_checkpoint(flat(name="first")).weights
    second = load_checkpoint(flat(name="second", layer=layer, prefix=prefix)).weights
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_speculators_layout_and_its_flat_twin_give_the_same_weights(
    flat: Flat,
    configs: tuple[Callable[..., Any], Callable[..., Any]],
    tensors_of_flat: Callable[..., Tensors],
    write: Callable[..., Path],
    tmp_path: Path,
) -> None:
    tensors = tensors_of_flat(layer="layers.0.")
    del tensors["embed_tokens.weight"]
    folder = write(tmp_path / "speculators", configs[1](), tensors)
    first, second = load_checkpoint(folder), load_checkpoint(flat(without=("embed_tokens.weight",)))
    assert first.config.layout == "speculators"
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in second.weights)


def test_old_names_of_the_state_norms_are_understood(flat: Flat) -> None:
    norms = {
        f"aux_norm_{name}.weight": torch.full((32,), float(n))
        for n, name in enumerate(("low", "mid", "high"))
    }
    loaded = load_checkpoint(flat(config={"use_aux_norm": True}, replace=norms))
    assert [float(loaded.weights[f"fc_norm.{state}.weight"][0]) for state in range(3)] == [
        0.0,
        1.0,
        2.0,
    ]


def test_shards_give_the_same_weights_as_one_file(flat: Flat) -> None:
    whole, sharded = flat(name="whole"), flat(name="sharded")
    tensors = load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, sharded / file)
    index = {"weight_map": {name: file for file, part in halves.items() for name in part}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    first, second = load_checkpoint(whole).weights, load_checkpoint(sharded).weights
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_conversion_leaves_the_maps_alone(flat: Flat) -> None:
    weights = load_checkpoint(flat(), dtype=torch.float64).weights
    assert weights["fc.weight"].dtype == torch.float64
    assert (weights["d2t"].dtype, weights["t2d"].dtype) == (torch.int64, torch.bool)


def test_every_needed_tensor_of_a_shape_is_the_one_that_is_needed(flat: Flat) -> None:
    folder = flat()
    needed = expected_shapes(checkpoint_contents(folder).config.spec)
    replaceable = {"embed_tokens.weight"}
    for name in sorted(set(needed) - replaceable):
        stored = name.replace("layers.0.", "midlayer.")
        text = refused(flat(without=(stored,), name=f"without-{name}"))
        assert f"tensor {name} is missing" in text
        assert str(list(needed[name])) in text


# --- substitutes ---


def test_a_missing_embedding_is_random_and_said_and_equal_for_equal_seeds(flat: Flat) -> None:
    folder = flat(without=("embed_tokens.weight",))
    assert checkpoint_contents(folder).replaced == {"embed_tokens.weight": "the target's embedding"}
    first, second = load_checkpoint(folder, seed=1), load_checkpoint(folder, seed=1)
    assert first.weights["embed_tokens.weight"].shape == (64, 32)
    assert first.weights["embed_tokens.weight"].dtype == torch.bfloat16
    assert torch.equal(first.weights["embed_tokens.weight"], second.weights["embed_tokens.weight"])
    assert "embed_tokens.weight: random" in first.substituted[0]


@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.language_model.embed_tokens.weight"]
)
def test_a_missing_embedding_is_the_targets_where_one_is_given(
    flat: Flat, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    table = torch.arange(64 * 32, dtype=torch.float32).reshape(64, 32)
    copy = {"model.layers.61.embed_tokens.weight": torch.zeros(64, 32)}
    save_file({name: table, **copy}, target / "model.safetensors")
    loaded = load_checkpoint(flat(without=("embed_tokens.weight",)), target=target)
    assert torch.equal(loaded.weights["embed_tokens.weight"], table)
    assert loaded.substituted == ("embed_tokens.weight: the target model's",)


def test_a_target_of_another_width_is_refused(flat: Flat, tmp_path: Path) -> None:
    save_file({"model.embed_tokens.weight": torch.zeros(64, 16)}, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=r"\[64, 16\], but .* \[64, 32\] is expected"):
        load_checkpoint(flat(without=("embed_tokens.weight",)), target=tmp_path)


def test_without_a_draft_vocabulary_head_and_map_may_be_missing(flat: Flat) -> None:
    folder = flat(config={"draft_vocab_size": None}, without=("lm_head.weight", "d2t", "t2d"))
    loaded = load_checkpoint(folder)
    assert loaded.weights["lm_head.weight"].shape == (64, 32)
    assert torch.equal(loaded.weights["d2t"], torch.zeros(64, dtype=torch.int64))
    assert "lm_head.weight: random" in loaded.substituted[0]


def test_a_tied_head_is_the_embedding(flat: Flat) -> None:
    config = {"draft_vocab_size": 64, "tie_word_embeddings": True}
    loaded = load_checkpoint(flat(config=config, without=("lm_head.weight", "d2t", "t2d")))
    assert loaded.weights["lm_head.weight"] is loaded.weights["embed_tokens.weight"]
    assert loaded.substituted == ()


def test_a_narrower_draft_model_has_to_bring_its_embedding(flat: Flat) -> None:
    fc = {"fc.weight": torch.ones(32, 3 * 48)}
    config = {"target_hidden_size": 48}
    assert load_checkpoint(flat(config=config, replace=fc, name="own")).substituted == ()
    text = refused(flat(config=config, replace=fc, without=("embed_tokens.weight",)))
    assert (
        "tensor embed_tokens.weight is missing, and the target's has width 48 instead of 32" in text
    )


def test_a_head_with_its_own_vocabulary_is_never_replaced(flat: Flat) -> None:
    assert "tensor lm_head.weight is missing" in refused(flat(without=("lm_head.weight",)))


# --- refused ---


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (
            {"midlayer.self_attn.q_proj.weight": torch.ones(32, 32)},
            "tensor midlayer.self_attn.q_proj.weight has shape [32, 32], but config.json implies [32, 64]",
        ),
        (
            {"lm_head.weight": torch.ones(64, 32)},
            "has shape [64, 32], but config.json implies [20, 32]",
        ),
        (
            {"fc.weight": torch.ones(32, 128)},
            "has shape [32, 128], but config.json implies [32, 96]",
        ),
        ({"norm.weight": torch.ones(32, dtype=torch.int8)}, "has type I8, but BF16 or F16"),
        (
            {"d2t": torch.zeros(21, dtype=torch.int64)},
            "has shape [21], but config.json implies [20]",
        ),
        ({"d2t": torch.zeros(20)}, "tensor d2t has type F32, but I64 or I32"),
        ({"t2d": torch.zeros(64, dtype=torch.int64)}, "tensor t2d has type I64, but BOOL"),
        (
            {"t2d": torch.zeros(63, dtype=torch.bool)},
            "has shape [63], but config.json implies [64]",
        ),
        ({"mask_hidden": torch.ones(1, 96)}, "P-EAGLE"),
        (
            {"layers.1.mlp.up_proj.weight": torch.ones(48, 32)},
            "is of layer 1; only draft models of one",
        ),
        ({"model.norm.weight": torch.ones(32)}, "norm.weight are the same tensor under two names"),
        ({"layers.0.hidden_norm.weight": torch.ones(32)}, "are the same tensor under two names"),
        (
            {"fc.bias": torch.ones(32)},
            "tensor fc.bias is in the files, but config.json does not ask",
        ),
        ({"midlayer.self_attn.q_proj.bias": torch.ones(32)}, "attention_bias"),
        ({"midlayer.self_attn.q_norm.weight": torch.ones(8)}, "the qwen3 type of the layer"),
        ({"input_norm.weight": torch.ones(96)}, "norm_before_fc"),
        ({"fc_norm.0.weight": torch.ones(32)}, "(fc_norm)"),
    ],
)
def test_tensors_that_contradict_the_configuration_are_refused(
    flat: Flat, replace: Tensors, message: str
) -> None:
    assert message in refused(flat(replace=replace))


def test_a_tensor_that_no_draft_model_has_is_said_and_left_out(flat: Flat) -> None:
    extra = {"midlayer.self_attn.rotary_emb.inv_freq": torch.ones(4), "step": torch.ones(1)}
    contents = checkpoint_contents(flat(replace=extra))
    (note,) = (note for note in contents.notes if "not read" in note)
    assert note.endswith(": step")
    assert "step" not in load_checkpoint(contents.folder).weights


def test_values_that_are_not_finite_are_refused(flat: Flat) -> None:
    folder = flat(replace={"lm_head.weight": torch.full((20, 32), float("nan"))})
    with pytest.raises(FormatError, match=r"tensor lm_head\.weight has values that are not finite"):
        load_checkpoint(folder)


def chosen(*tokens: int) -> torch.Tensor:
    """Offsets of draft tokens 0, 1, ... that map to these target tokens."""
    return torch.tensor(tokens) - torch.arange(len(tokens))


TOKENS = [3 * token + 1 for token in range(20)]


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (chosen(*TOKENS[:-1], 64), "draft token 19 maps to 64, outside the 64 target tokens"),
        (chosen(-1, *TOKENS[1:]), "draft token 0 maps to -1, outside"),
        (chosen(*TOKENS[:-1], TOKENS[0]), "draft tokens 0 and 19 both map to 1"),
        (
            torch.zeros(20, dtype=torch.int64),
            "tensor t2d is false at 0, which draft token 0 maps to",
        ),
        (torch.tensor(TOKENS), "the entries look like target tokens"),
    ],
)
def test_a_wrong_map_of_the_vocabularies_is_refused(
    flat: Flat, offsets: torch.Tensor, message: str
) -> None:
    assert message in refused(flat(replace={"d2t": offsets}))


def test_rising_offsets_with_one_error_are_not_taken_for_target_tokens(flat: Flat) -> None:
    text = refused(flat(replace={"d2t": chosen(TOKENS[0], TOKENS[0], *TOKENS[2:])}))
    assert text.endswith("draft tokens 0 and 1 both map to 1")


def test_a_t2d_with_more_tokens_than_the_draft_has_is_refused(flat: Flat) -> None:
    known = torch.zeros(64, dtype=torch.bool)
    known[TOKENS] = True
    known[0] = True
    text = refused(flat(replace={"t2d": known}))
    assert "tensor t2d is true for 21 target tokens, but there are 20 draft tokens" in text


def test_a_map_in_any_order_is_sound(flat: Flat) -> None:
    offsets = chosen(*reversed(TOKENS))
    assert torch.equal(load_checkpoint(flat(replace={"d2t": offsets})).weights["d2t"], offsets)


def test_a_missing_map_of_a_smaller_vocabulary_is_refused(flat: Flat) -> None:
    assert "tensor d2t is missing: [20] offsets" in refused(flat(without=("d2t", "t2d")))


# --- files ---


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "old"])
def test_a_pickle_gives_the_same_tensors_and_runs_no_code(
    flat: Flat, tmp_path: Path, is_zip: bool
) -> None:
    folder, path = flat(), tmp_path / "head" / "pytorch_model.bin"
    stored = load_file(folder / "model.safetensors")
    truth = load_checkpoint(folder).weights
    (folder / "model.safetensors").unlink()
    torch.save(stored, path, _use_new_zipfile_serialization=is_zip)
    loaded = load_checkpoint(folder).weights
    assert truth.keys() == loaded.keys()
    assert all(torch.equal(loaded[name], truth[name]) for name in truth)
    ran = tmp_path / "ran"
    path.write_bytes(pickle.dumps(Runs(ran)))
    assert "no pickle of tensors" in refused(folder)
    assert not ran.exists()


class Runs:
    """What a pickle can do to who loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_padded_head_is_cut_and_its_mark_of_tokens_may_be_bytes(
    flat: Flat, tensors_of_flat: Callable[..., Any]
) -> None:
    own = tensors_of_flat()
    rows = torch.cat([own["lm_head.weight"], torch.zeros(12, 32)])
    folder = flat(replace={"lm_head.weight": rows, "t2d": own["t2d"].to(torch.uint8)})
    loaded = load_checkpoint(folder)
    assert torch.equal(loaded.weights["lm_head.weight"], own["lm_head.weight"])
    assert loaded.weights["t2d"].dtype == torch.bool
    assert any("padded to 32 rows; the first 20" in note for note in loaded.notes)


def test_a_count_of_layers_that_is_the_target_s_counts_less_than_the_files(
    flat: Flat, configs: tuple[Callable[..., Any], Callable[..., Any]]
) -> None:
    loaded = load_checkpoint(flat(config=configs[0](num_hidden_layers=36)))
    assert any("num_hidden_layers is 36, the target's" in note for note in loaded.notes)


def test_a_folder_without_weights_is_refused(flat: Flat) -> None:
    folder = flat()
    (folder / "model.safetensors").unlink()
    assert "no safetensors file or pickle here" in refused(folder)


def test_a_file_cut_short_is_refused(flat: Flat) -> None:
    path = flat() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "copy the file again, it may be cut short" in refused(path.parent)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (
            {"weight_map": {"fc.weight": "gone.safetensors"}},
            "missing, but model.safetensors.index.json",
        ),
        ({"weight_map": {"gone": "model.safetensors"}}, "tensor gone is missing, but"),
        (
            {"weight_map": {"fc.weight": "../model.safetensors"}},
            "must be in a safetensors file beside it",
        ),
        ({"weight_map": {}}, "has no weight_map"),
        ([], "has no weight_map"),
    ],
)
def test_an_index_that_points_nowhere_is_refused(flat: Flat, index: Any, message: str) -> None:
    folder = flat()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert message in refused(folder)


def test_two_files_with_one_tensor_are_refused(flat: Flat) -> None:
    folder = flat()
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    for name in ("a.safetensors", "b.safetensors"):
        (folder / name).write_bytes(data)
    assert "is also in a.safetensors; keep one" in refused(folder)


# --- other attentions ---


def test_a_latent_head_is_loaded_from_its_own_layout(
    configs: tuple[Callable[..., Any], Callable[..., Any]],
    write: Callable[..., Path],
    tmp_path: Path,
) -> None:
    ranks = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
    names = ["Eagle3DeepseekV2ForCausalLM"]
    config = configs[0](architectures=names, v_head_dim=8, **ranks)
    spec = draft_config(config).spec
    weights = random_weights(spec, seed=0, dtype=torch.bfloat16)
    folder = write(tmp_path / "latent", config, weights)
    loaded = load_checkpoint(folder)
    assert loaded.config.layout == "mla"
    # section 3 of the drafter reference: 4 heads, and only the two first projections see 2H = 64
    shapes = {name: tuple(value.shape) for name, value in loaded.weights.items()}
    assert shapes["layers.0.self_attn.q_a_proj.weight"] == (24, 64)
    assert shapes["layers.0.self_attn.q_b_proj.weight"] == (4 * (8 + 4), 24)
    assert shapes["layers.0.self_attn.kv_a_proj_with_mqa.weight"] == (16 + 4, 64)
    assert shapes["layers.0.self_attn.kv_b_proj.weight"] == (4 * (8 + 8), 16)
    assert shapes["layers.0.self_attn.o_proj.weight"] == (32, 4 * 8)
    assert all(torch.equal(loaded.weights[name], weights[name]) for name in weights)


def test_a_qwen3_layer_with_biases_and_state_norms_is_loaded(
    configs: tuple[Callable[..., Any], Callable[..., Any]],
    write: Callable[..., Path],
    tmp_path: Path,
) -> None:
    config = configs[1](model_type="qwen3", fc_norm=True, layer={"attention_bias": True})
    weights = random_weights(draft_config(config).spec, seed=0, dtype=torch.float16)
    needed = {
        *(f"layers.0.self_attn.{name}_norm.weight" for name in "qk"),
        *(f"layers.0.self_attn.{name}_proj.bias" for name in "qkvo"),
        *(f"fc_norm.{state}.weight" for state in range(3)),
    }
    assert needed <= set(weights)
    loaded = load_checkpoint(write(tmp_path / "qwen3", config, weights))
    assert all(torch.equal(loaded.weights[name], weights[name]) for name in weights)
    # the bias of the output alone may be missing: some layers have none there
    output = "layers.0.self_attn.o_proj.bias"
    rest = {each: value for each, value in weights.items() if each != output}
    bare = load_checkpoint(write(tmp_path / "bare", config, rest))
    assert not bare.weights[output].any()
    for name in sorted(needed - {output}):
        rest = {each: value for each, value in weights.items() if each != name}
        assert f"tensor {name} is missing" in refused(write(tmp_path / "broken", config, rest))
