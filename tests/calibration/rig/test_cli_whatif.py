"""`specmodel whatif`: output, JSON, measured all-reduces and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]

LLAMA = ("--model", "Llama-3.1-8B", "--gpu", "H100", "--depth", "3", "--accept", "2.5")
KIMI = (
    *("--model", "Kimi-K2.6", "--gpu", "RTX PRO 6000 Server", "--num-gpus", "8"),
    *("--interconnect", "pcie5", "--depth", "3", "--accept", "2.5"),
)


def asked(run: Run, *arguments: str | Path) -> dict[str, Any]:
    result = run("whatif", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def refused(run: Run, *arguments: str | Path) -> str:
    result = run("whatif", *arguments)
    assert result.exit_code in {1, 2}
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return str(line)


def test_help_and_output_say_that_nothing_is_fitted(specmodel: Run) -> None:
    for arguments in (("--help",), LLAMA):
        text = " ".join(specmodel("whatif", *arguments).stdout.split())
        assert "not fitted to your points yet" in text


def test_the_json_of_a_base_and_its_changes(specmodel: Run) -> None:
    answer = asked(specmodel, *KIMI, "--set", "interconnect=nvlink4", "--set", "tp_size=4")
    assert answer["schema_version"] == 1
    assert answer["fitted_to_points"] is False
    base = answer["base"]
    assert sum(part["share"] for part in base["breakdown"]) == pytest.approx(1)
    assert base["memory"]["fits"] is True
    link, gpus = answer["changes"]
    assert link["change"] == "interconnect=nvlink4"
    assert link["speedup_ratio"]["median"] == pytest.approx(
        link["priced"]["speedup"]["median"] / base["speedup"]["median"]
    )
    assert (gpus["priced"], gpus["speedup_ratio"]) == (None, None)
    assert "does not fit" in gpus["reason"]
    assert answer["all_together"]["priced"] is None


def test_a_configuration_file_is_a_model(specmodel: Run, tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    named = asked(specmodel, *LLAMA)["base"]["speedup"]["median"]
    read = asked(specmodel, "--model", file, *LLAMA[2:])["base"]["speedup"]["median"]
    assert read == pytest.approx(named, rel=0.01)


def test_several_gpus_of_a_rig_from_names_have_the_card_s_usual_link(specmodel: Run) -> None:
    usual = asked(specmodel, *LLAMA, "--num-gpus", "2")
    named = asked(specmodel, *LLAMA, "--num-gpus", "2", "--interconnect", "nvlink4")
    assert usual["base"] == named["base"]
    text = specmodel("whatif", *LLAMA, "--num-gpus", "2").stdout
    assert text.startswith("Base: Llama-3.1-8B (weights as released) on 2 x H100 SXM over nvlink4")


def test_a_measured_all_reduce_is_used(specmodel: Run, tmp_path: Path) -> None:
    sizes = [1024 * 4**power for power in range(6)]
    table = "size_bytes,time_us\n" + "".join(f"{size},{300 + size / 1e4}\n" for size in sizes)
    (tmp_path / "slow.csv").write_text(table, encoding="utf-8")
    assert specmodel("allreduce", "fit", "slow.csv", "--ranks", "8").exit_code == 0
    slow = asked(specmodel, *KIMI, "--allreduce", "allreduce.json")["base"]
    assert slow["allreduce_measured"] is True
    assert (
        slow["base_step_ms"]["median"] > asked(specmodel, *KIMI)["base"]["base_step_ms"]["median"]
    )
    assert "8" in refused(specmodel, *LLAMA, "--num-gpus", "2", "--allreduce", "allreduce.json")


def test_a_round_cheaper_than_a_step_is_refused_with_its_likely_cause(
    specmodel: Run, tmp_path: Path
) -> None:
    """An all-reduce of 8 KiB (the base step's) that takes 20 times as long as one of 32 KiB (a round's)."""
    table = "size_bytes,time_us\n4096,400\n8192,400\n16384,100\n32768,20\n65536,20\n"
    (tmp_path / "falling.csv").write_text(table, encoding="utf-8")
    assert specmodel("allreduce", "fit", "falling.csv", "--ranks", "2").exit_code == 0
    two = (*LLAMA, "--num-gpus", "2", "--allreduce", "allreduce.json")
    said = refused(specmodel, *two)
    assert "none can take less than one" in said
    assert "all-reduce curve" in said
    found = asked(specmodel, *two, "--batch-size", "64", "--set", "batch_size=1")
    (change,) = found["changes"]
    assert change["priced"] is None
    assert "none can take less than one" in change["reason"]
    assert found["base"]["speedup"]["high"] <= 2.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "batch=2"), "batch_size"),
        (("--set", "gpu=H10O"), "H100"),
        (("--set", "interconnect=nvlinc4"), "nvlink5"),
        (("--set", "dtype=fp7"), "fp8"),
        (("--set", "depth"), "KEY=VALUE"),
        (("--set", "depth=0"), "from 1"),
        (("--set", "batch_size=inf"), "from 1"),
        (("--gpu", "H10O"), "H100"),
        (("--model", "Llama-3.1-9B"), "Llama-3.1-8B"),
        (("--model", "no/such/config.json"), "cannot be read"),
        (("--interconnect", "nvlinc4", "--num-gpus", "2"), "nvlink5"),
        (("--interconnect", "nvlinc4"), "nvlink5"),
        (("--dtype", "fp7"), "fp8"),
        (("--accept", "4.5"), "depth + 1"),
        (("--topk", "4"), "num_draft_tokens"),
        (("--batch-size", "1000000"), "does not fit"),
        (("--allreduce", "no.json"), "no.json"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    specmodel: Run, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(specmodel, *LLAMA, *arguments)
