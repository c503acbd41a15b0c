import json
import shutil
from pathlib import Path

import pytest

from calibration.rig.from_points import named_model, read_model_config
from specmodel.errors import FormatError, UnknownKeyError

CONFIGS = Path(__file__).resolve().parents[2] / "fixtures" / "configs"


def test_a_folder_a_file_and_a_name_give_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "Kimi-K2.5"
    folder.mkdir()
    shutil.copy(CONFIGS / "kimi-k2.5.json", folder / "config.json")
    by_folder, by_file = named_model(str(folder)), named_model(str(folder / "config.json"))
    assert by_folder == by_file
    assert by_folder.name == "Kimi-K2.5"
    assert by_folder.weights == named_model("moonshotai/Kimi-K2.5").weights


def test_formats_beside_the_configuration_are_read(tmp_path: Path) -> None:
    shutil.copy(CONFIGS / "qwen3-235b-a22b.json", tmp_path / "config.json")
    quantization = {"quant_algo": "NVFP4", "exclude_modules": ["*self_attn*", "lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
    weights = read_model_config(tmp_path).weights
    assert (weights.routed_experts.name, weights.attention.name) == ("nvfp4", "bf16")


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    text = (CONFIGS / "llama-3.1-8b.json").read_text(encoding="utf-8")
    (tmp_path / "config.json").write_text(text, encoding="utf-8-sig")
    assert read_model_config(tmp_path).num_layers == 32


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"PK\x03\x04", b"null", b"[]", b'{"a":1}']
)
def test_a_file_that_is_no_configuration_is_refused_with_its_path(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(FormatError, match=r"config\.json: ") as error:
        read_model_config(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["[]", "{", '{"quantization": 3}'])
def test_broken_formats_beside_the_configuration_are_refused(tmp_path: Path, content: str) -> None:
    shutil.copy(CONFIGS / "llama-3.1-8b.json", tmp_path / "config.json")
    (tmp_path / "hf_quant_config.json").write_text(content)
    with pytest.raises(FormatError, match="hf_quant_config"):
        read_model_config(tmp_path)


def test_a_name_that_is_neither_a_model_nor_a_path_is_refused() -> None:
    with pytest.raises(UnknownKeyError, match="unknown model"):
        named_model("no-such-model")
    with pytest.raises(FormatError, match="cannot be read"):
        named_model("./no/such/config.json")
    with pytest.raises((FormatError, UnknownKeyError)):
        named_model("a\0b")
