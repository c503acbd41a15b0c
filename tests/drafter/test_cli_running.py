"""`specmodel drafter check`, `time` and `tune`, without a GPU: what they answer and what they refuse."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

from drafter.check_cases import CheckResult
from drafter.checkpoint import random_weights
from drafter.commands import check as check_command
from drafter.config_json import draft_config
from specmodel.errors import FormatError
from specmodel.measurement import load_record
from tests.extent import prove

Run = Callable[..., Result]
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
SOUND = CheckResult(
    name="chain",
    dtype="float32",
    quantity="logits",
    error=2e-7,
    limit=1e-5,
    tokens=3,
    equal_tokens=3,
)
WRONG = CheckResult(
    name="tree",
    dtype="bfloat16",
    quantity="logits",
    error=0.3,
    limit=1.5e-2,
    tokens=9,
    equal_tokens=4,
)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Answers of the process that interprets, written by the test; what it was asked is returned."""

    def answer(*results: CheckResult) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def run(task: str, **options: object) -> dict[str, Any]:
            asked.append({"task": task, **options})
            return {"rows": [asdict(each) for each in results]}

        monkeypatch.setattr(check_command, "run_interpreted", run)
        return asked

    return answer


@without_gpu
def test_checks_that_pass_are_a_table_and_exit_0(specmodel: Run, interpreted: Any) -> None:
    asked = interpreted(SOUND)
    result = specmodel("drafter", "check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "all 1 passed" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert asked == [{"task": "check", "model": None, "dtype": "bfloat16"}]


@without_gpu
def test_a_check_that_fails_is_shown_and_exits_1_in_one_line(
    specmodel: Run, interpreted: Any
) -> None:
    interpreted(SOUND, WRONG)
    result = specmodel("drafter", "check")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert "4/9" in result.stdout
    assert result.stderr == "Error: 1 of 2 checks failed; trust no time of these kernels\n"


@without_gpu
def test_checks_for_machines_carry_their_schema(specmodel: Run, interpreted: Any) -> None:
    interpreted(SOUND, WRONG)
    answer = json.loads(specmodel("drafter", "check", "--json").stdout)
    assert (answer["schema_version"], answer["passed"]) == (1, False)
    assert [each["passed"] for each in answer["checks"]] == [True, False]


@without_gpu
def test_a_real_model_is_too_large_for_the_interpreter(specmodel: Run) -> None:
    result = specmodel("drafter", "check", "gpt-oss")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: parameters of a step must be at most 4e+06 without a GPU"
    )
    assert len(result.stderr.splitlines()) == 1


@without_gpu
def test_a_small_checkpoint_is_checked_in_the_interpreter(
    specmodel: Run, flat: Callable[..., Path]
) -> None:
    result = specmodel("drafter", "check", flat(), "--dtype", "float32", "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert [each["name"] for each in answer["checks"]] == ["chain", "tree"]
    assert all(0 < each["error"] <= 1e-5 for each in answer["checks"])


@prove
@without_gpu
def test_a_small_checkpoint_of_latent_heads_is_checked_in_the_interpreter(
    specmodel: Run,
    configs: tuple[Callable[..., Any], Callable[..., Any]],
    write: Callable[..., Path],
    tmp_path: Path,
) -> None:
    ranks = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
    names = ["Eagle3DeepseekV2ForCausalLM"]
    config = configs[0](architectures=names, v_head_dim=8, **ranks)
    weights = random_weights(draft_config(config).spec, seed=0, dtype=torch.float32)
    folder = write(tmp_path / "latent", config, weights)
    result = specmodel("drafter", "check", folder, "--dtype", "float32", "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert [each["name"] for each in answer["checks"]] == ["chain", "tree"]
    assert all(0 < each["error"] <= 1e-5 for each in answer["checks"])


@without_gpu
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("time", "gpt-oss"), "there is nothing to time"),
        (("tune", "gpt-oss"), "there is nothing to tune"),
        (("time", "--dry", "-o", "no/such/folder.json"), "there is no such folder"),
        (("tune", "gpt-oss", "-o", "no/such/folder.toml"), "there is no such folder"),
        (("time", "no/such/checkpoint"), "no such folder"),
        (("tune", "no/such/checkpoint"), "no such folder"),
        (("check", "no/such/checkpoint"), "no such folder"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_here_is_one_line_and_exit_1(
    specmodel: Run, arguments: tuple[str, ...], words: str
) -> None:
    result = specmodel("drafter", *arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("time",),
        ("time", "--dry", "gpt-oss"),
        ("time", "gpt-oss", "--most-s", "-1"),
        ("time", "gpt-oss", "--most-s", "nan"),
        ("time", "gpt-oss", "--most-s", "inf"),
        ("time", "gpt-oss", "--batch-size", "0"),
        ("time", "gpt-oss", "--grid", "huge"),
        ("time", "gpt-oss", "--dtype", "float64"),
        ("tune",),
        ("tune", "gpt-oss", "--tokens", "65"),
        ("check", "one", "two"),
        ("check", "nonsense"),
        ("tune", "nonsense"),
        ("time", "nonsense"),
    ],
    ids=" ".join,
)
def test_bad_usage_exits_2(specmodel: Run, arguments: tuple[str, ...]) -> None:
    assert specmodel("drafter", *arguments).exit_code == 2


@pytest.mark.parametrize(
    "option",
    [
        ("--grid", "quick"),
        ("--batch-size", "1"),
        ("--context-tokens", "2048"),
        ("--topk", "1"),
        ("--dtype", "bfloat16"),
        ("--target", "."),
        ("--most-s", "10"),
    ],
    ids=" ".join,
)
def test_a_rehearsal_takes_no_option_of_a_measurement(
    specmodel: Run, option: tuple[str, str]
) -> None:
    """Not even where it has the value of the default: it would be ignored."""
    result = specmodel("drafter", "time", "--dry", *option, "-o", "dry.json")
    assert result.exit_code == 2
    assert f"leave {option[0]} out" in result.stderr
    assert list(Path().iterdir()) == []


def test_all_options_that_a_rehearsal_would_ignore_are_named_at_once(specmodel: Run) -> None:
    result = specmodel("drafter", "time", "--dry", "--topk", "1", "--grid", "full")
    assert "leave --grid, --topk out" in result.stderr


@prove
@pytest.mark.slow
def test_a_rehearsal_writes_a_record_that_predicts_nothing(specmodel: Run) -> None:
    result = specmodel("drafter", "time", "--dry", "-o", "dry.json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("DRY RUN: every time is of Triton")
    assert "wrote dry.json" in result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    with pytest.raises(FormatError, match="its times are of no device"):
        load_record("dry.json")
    assert load_record("dry.json", allow_dry=True).kind == "dry"


@pytest.mark.parametrize("name", ["check", "time", "tune"])
def test_help_needs_no_torch(name: str) -> None:
    code = (
        "import sys\n"
        "for each in ('torch', 'triton', 'safetensors'): sys.modules[each] = None\n"
        "from calibration.cli import main\n"
        f"main(['drafter', '{name}', '--help'])"
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert f"specmodel drafter {name}" in run.stdout


@pytest.mark.parametrize("arguments", ["'check'", "'time', '--dry'", "'tune', 'gpt-oss'"])
def test_without_the_extra_a_command_says_how_to_install_it(arguments: str, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for each in ('torch', 'triton', 'safetensors'): sys.modules[each] = None\n"
        "from calibration.cli import main\n"
        f"main(['drafter', {arguments}])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert (run.returncode, run.stdout) == (1, "")
    (line,) = run.stderr.splitlines()
    assert "pip install 'specmodel[drafter]'" in line
