"""`specmodel drafter inspect`: what it says of checkpoints and shapes, and how it refuses bad ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

Run = Callable[..., Result]
Flat = Callable[..., Path]


def said(run: Run, *arguments: str | Path) -> str:
    result = run("drafter", "inspect", *arguments)
    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []
    return " ".join(result.stdout.split())


def told(run: Run, *arguments: str | Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run("drafter", "inspect", *arguments, "--json").stdout)
    return answer


def refused(run: Run, *arguments: str | Path, status: int = 1) -> str:
    result = run("drafter", "inspect", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return str(line)


def test_a_checkpoint_is_described_from_its_files(specmodel: Run, flat: Flat) -> None:
    text = said(specmodel, flat(config={"norm_output": True, "rope_theta": ...}))
    for piece in (
        "head (checkpoint)",
        "flat (LlamaForCausalLMEagle3)",
        "4 heads, 2 for keys and values, of 8",
        "20 of 64 tokens; map: offsets, ascending",
        "switches norm_output",
        "16 tensors",
        "rope_theta is not stated: 10000",
        "nothing was measured here",
    ):
        assert piece in text


def test_the_json_of_a_checkpoint_counts_its_files(specmodel: Run, flat: Flat) -> None:
    folder = flat(without=("embed_tokens.weight",))
    answer = told(specmodel, folder)
    assert (answer["schema_version"], answer["kind"], answer["measured"]) == (
        1,
        "checkpoint",
        False,
    )
    # section 3 of the drafter reference, for H = 32, NH/NKV/D = 4/2/8, I = 48, Vd = 20, A = 3
    step = 64 * (32 + 16 + 16) + 32 * 32 + 3 * 32 * 48 + 20 * 32
    norms = 4 * 32
    assert answer["parameters"]["step"] == step
    assert answer["stored_bytes"] == {
        "BF16": 2 * (step + 32 * 96 + norms),
        "I64": 8 * 20,
        "BOOL": 64,
    }
    assert answer["weight_bytes"] == 2 * step
    assert answer["replaced"] == {"embed_tokens.weight": "the target's embedding"}
    assert answer["spec"]["rope"]["theta"] == 500000.0


def test_a_missing_embedding_is_said(specmodel: Run, flat: Flat) -> None:
    text = said(specmodel, flat(without=("embed_tokens.weight",)))
    assert "embed_tokens.weight; the target's embedding is used" in text


def test_a_shape_is_described_with_its_source(specmodel: Run) -> None:
    text = said(specmodel, "kimi-k2.5-mla", "--gpu", "B200", "--batch-size", "4")
    for piece in ("latent (MLA): 64 heads", "yarn, theta 50000, factor 64 from 4096", "TorchSpec"):
        assert piece in text
    assert "unverified" in said(specmodel, "Llama-3.3-70B-6144")
    assert "without fusion" in said(specmodel, "gpt-oss-short")


def test_the_floor_of_a_shape_is_that_of_the_reference(specmodel: Run) -> None:
    floors = told(specmodel, "gpt-oss", "--gpu", "H200", "--gpu", "H100")["floors"]
    assert [floor["floor_us"] for floor in floors] == pytest.approx([119, 170], abs=0.5)


def test_a_folder_and_its_configuration_are_one(specmodel: Run, flat: Flat) -> None:
    folder = flat()
    assert told(specmodel, folder) == told(specmodel, folder / "config.json")


def test_a_folder_wins_over_a_shape_of_that_name(specmodel: Run, flat: Flat) -> None:
    flat(name="gpt-oss")
    assert told(specmodel, "gpt-oss")["kind"] == "checkpoint"


# --- refused ---


def test_a_missing_folder_is_refused(specmodel: Run, tmp_path: Path) -> None:
    assert "no such folder" in refused(specmodel, tmp_path / "nowhere")
    assert "nowhere" in refused(specmodel, "nowhere", status=2)
    assert "Llama-3.1-8B" in refused(specmodel, "llama-3.1-9b", status=2)


def test_a_folder_without_a_configuration_is_refused(specmodel: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no config.json here" in refused(specmodel, tmp_path / "empty")


def test_a_configuration_that_is_no_json_is_refused(specmodel: Run, flat: Flat) -> None:
    folder = flat()
    (folder / "config.json").write_text("model: llama", encoding="utf-8")
    assert "not JSON" in refused(specmodel, folder)


def test_a_target_model_is_refused(
    specmodel: Run, flat: Flat, configs: tuple[Callable[..., Any], Callable[..., Any]]
) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}
    folder = flat(config=configs[0](**config))
    (folder / "model.safetensors").unlink()
    assert "num_hidden_layers is 32; only draft models of one" in refused(specmodel, folder)


def test_a_truncated_file_is_refused(specmodel: Run, flat: Flat) -> None:
    path = flat() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-64])
    assert "copy the file again, it may be cut short" in refused(specmodel, path.parent)


def test_a_file_of_another_kind_is_refused(specmodel: Run, flat: Flat) -> None:
    path = flat() / "model.safetensors"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "not a sound safetensors file" in refused(specmodel, path.parent)


def test_a_wrong_d2t_is_refused(specmodel: Run, flat: Flat) -> None:
    folder = flat(replace={"d2t": torch.full((20,), 60)})
    assert "draft token 4 maps to 64, outside the 64 target tokens" in refused(specmodel, folder)


def test_a_wrong_shape_is_refused_with_both_shapes(specmodel: Run, flat: Flat) -> None:
    folder = flat(replace={"fc.weight": torch.zeros(32, 64)})
    assert "fc.weight has shape [32, 64], but config.json implies [32, 96]" in refused(
        specmodel, folder
    )


def test_a_pickle_of_something_else_is_refused(specmodel: Run, flat: Flat) -> None:
    folder = flat()
    (folder / "model.safetensors").unlink()
    torch.save({"fc.weight": Path}, folder / "pytorch_model.bin")
    assert "no pickle of tensors" in refused(specmodel, folder)


def test_a_configuration_alone_is_arithmetic(
    specmodel: Run, configs: tuple[Callable[..., Any], Callable[..., Any]], tmp_path: Path
) -> None:
    """Hidden 1024, 16 and 4 heads of 64, MLP 4096, 8000 draft tokens, bf16: worked out by hand."""
    shape = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64}
    config = configs[0](hidden_size=1024, intermediate_size=4096, draft_vocab_size=8000, **shape)
    config |= {"vocab_size": 128_256, "target_hidden_size": 1024}
    for name in ("config.json", "eagle3.json"):
        path = tmp_path / "alone" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(config), encoding="utf-8")
        found = told(specmodel, path)
        assert found["kind"] == "config.json alone"
        assert found["parameters"]["step"] == 24_969_216
        assert found["weight_bytes"] == 49_938_432
    assert told(specmodel, tmp_path / "alone")["parameters"]["step"] == 24_969_216


def test_bad_usage_ends_with_status_2(specmodel: Run) -> None:
    assert "Missing argument" in refused(specmodel, status=2)
    assert "--gpu" in refused(specmodel, "gpt-oss", "--gpu", "RTX PRO 6000", status=2)
