"""The script for a GPU: it runs to its end in a dry mode, and refuses what it does not know."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drafter.check_cases import check_cases
from specmodel.errors import FormatError
from specmodel.measurement import load_record
from tests.extent import prove

SCRIPT = Path(__file__).resolve().parents[2] / "drafter" / "gpu_check.sh"


def run(
    *arguments: str, folder: Path, python: Path | str = sys.executable, **variables: str
) -> "subprocess.CompletedProcess[str]":
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own |= {"PYTHON": str(python), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    own |= variables
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],  # noqa: S607 - the shell of the path
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=own,
    )


@prove
@pytest.mark.slow
def test_a_dry_run_goes_through_every_part_and_ends_well(tmp_path: Path) -> None:
    done = run("--dry", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = [line for line in done.stdout.splitlines() if line.startswith("=== ")]
    assert len(parts) == 5
    assert f"all {len(check_cases())} passed" in done.stdout
    assert "no device was measured" in parts[-1]
    with pytest.raises(FormatError, match="its times are of no device"):
        load_record(tmp_path / "gpu_check" / "dry.json")
    assert [each.name for each in (tmp_path / "gpu_check").iterdir()] == ["dry.json"]


def test_a_tree_that_is_not_installed_is_enough(tmp_path: Path) -> None:
    """Nothing but the tree and a few libraries: no entry point names the commands."""
    bare = tmp_path / "tree"
    for package in ("drafter", "specmodel"):
        copied = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SCRIPT.parents[1] / package, bare / package, ignore=copied)
    code = f"import sys; sys.path.insert(0, {str(bare)!r}); import drafter; print(drafter.__file__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).startswith(str(bare))
    asked = subprocess.run(
        [sys.executable, "-m", "drafter.cli", "floor", "--gpu", "H100"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(bare)},
    )
    assert asked.returncode == 0, asked.stderr
    assert "Llama-3.1-8B" in asked.stdout
    refused = subprocess.run(
        [sys.executable, "-m", "drafter.cli", "inspect", "nowhere/at/all"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(bare)},
    )
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)


def test_without_a_gpu_the_real_run_ends_in_one_line(tmp_path: Path) -> None:
    done = run("-o", "records", "gpt-oss", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("--dry rehearses on the CPU")
    assert list((tmp_path / "records").iterdir()) == []


@pytest.mark.parametrize("arguments", [("--wet",), ("-o",)])
def test_what_the_script_does_not_know_is_refused_with_its_usage(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("drafter/gpu_check.sh [--dry]")
    assert list(tmp_path.iterdir()) == []


def test_the_help_is_the_usage(tmp_path: Path) -> None:
    done = run("--help", folder=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "drafter/gpu_check.sh")


def test_an_interpreter_without_torch_is_told_in_one_line(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    done = run("--dry", folder=tmp_path, python=bare)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "torch is missing: pip install 'specmodel[drafter]', or name an interpreter with PYTHON"
    ]


PRETENDER = """\
#!{python}
import os, subprocess, sys, time

arguments = sys.argv[1:]
if arguments[0] == "-":
    code = sys.stdin.read()
    if "import torch" in code:
        print("a pretended device")
    else:
        sys.exit(subprocess.run([{python!r}, "-", *arguments[1:]], input=code, text=True).returncode)
else:
    with open("asked.txt", "a") as asked:
        print(*arguments[2:], file=asked)
    if arguments[2:] == os.environ.get("HANGS", "nothing").split():
        time.sleep(60)
    if "check" in arguments:
        sys.exit(int(os.environ.get("CHECKED", "0")))
    if "time" in arguments:
        if {cannot!r} in arguments:
            sys.exit("Error: it was refused")
        from specmodel.measurement import save_record
        from tests.specmodel.measurement.example_record import example_record
        save_record(example_record(), arguments[arguments.index("-o") + 1])
"""


def pretended(
    folder: Path, *models: str, cannot: str = "none", **variables: str
) -> tuple[Any, ...]:
    """The script on a machine that pretends to have a GPU: result, and what `specmodel` was asked."""
    python = folder / "pretender"
    python.write_text(PRETENDER.format(python=sys.executable, cannot=cannot), encoding="utf-8")
    python.chmod(0o755)
    root = str(SCRIPT.parents[1])
    done = run(*models, folder=folder, python=python, PYTHONPATH=root, **variables)
    return done, (folder / "asked.txt").read_text(encoding="utf-8").splitlines()


def test_on_a_gpu_the_first_model_is_checked_and_all_share_the_time(tmp_path: Path) -> None:
    done, asked = pretended(tmp_path, "one", "two", "three")
    assert done.returncode == 0, done.stderr
    assert asked[:3] == ["check", "check one", "floor"]
    limits = [int(line.partition("--most-s ")[2].split()[0]) for line in asked[3:]]
    # pretended times take no time, so each model is offered its part of 480 less 35 s less a little
    for limit, part in zip(limits, (267, 222, 445), strict=True):
        assert part - 60 < limit <= part
    assert asked[3].startswith("time one --grid quick")
    assert "--batch-size 1 --batch-size 8 --context-tokens 2048 --topk 1" in asked[4]


def test_models_that_the_time_does_not_suffice_for_are_named(tmp_path: Path) -> None:
    done, asked = pretended(tmp_path, "one", "two", MOST_S="42")
    assert done.returncode == 0
    assert "left out for time: two" in done.stdout
    # the first has one load in any case; 42 s less the 3 s that are kept back are left for it
    assert [line.split()[1] for line in asked if line.startswith("time")] == ["one"]
    assert 0 <= int(asked[-1].partition("--most-s ")[2].split()[0]) <= 39


def test_a_model_that_no_time_is_left_for_is_not_offered_any(tmp_path: Path) -> None:
    _, asked = pretended(tmp_path, "one", MOST_S="0")
    assert "--most-s 0 " in asked[-1]


@pytest.mark.parametrize(
    ("hangs", "words"), [("check", "small models"), ("check one", "one")], ids=["small", "first"]
)
def test_a_check_that_does_not_end_is_ended_and_the_times_are_taken(
    hangs: str, words: str, tmp_path: Path
) -> None:
    begun = time.monotonic()
    # of 480 s 150 and 80 are for the checks, so of 14 s 4 and 2
    done, asked = pretended(tmp_path, "one", MOST_S="14", HANGS=hangs)
    assert time.monotonic() - begun < 40
    assert done.returncode == 1
    assert asked[-1].startswith("time one")
    limit_s = 4 if words == "small models" else 2
    assert f"out of time: the check of {words} did not end within {limit_s} s" in done.stderr
    assert "=== done: 1 records" in done.stdout


def test_a_check_that_fails_is_said_and_the_times_are_taken(tmp_path: Path) -> None:
    done, asked = pretended(tmp_path, "one", CHECKED="1")
    assert done.returncode == 1
    assert [line.split()[0] for line in asked] == ["check", "check", "floor", "time"]
    assert "FAILED: the check of small models" in done.stderr
    assert "out of time" not in done.stderr
    assert "=== done: 1 records" in done.stdout


def test_models_of_one_name_have_records_of_their_own(tmp_path: Path) -> None:
    done, _ = pretended(tmp_path, "a/draft", "b/draft")
    assert done.returncode == 0, done.stderr
    records = sorted(each.name for each in (tmp_path / "gpu_check").iterdir())
    assert records == ["1-draft.json", "2-draft.json"]


def test_a_model_that_cannot_be_timed_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    done, asked = pretended(tmp_path, "one", "two", cannot="one")
    assert done.returncode == 1
    assert [line.split()[1] for line in asked if line.startswith("time")] == ["one", "two"]
    assert "=== done: 1 records" in done.stdout
    alone, _ = pretended(tmp_path, "one", cannot="one")
    assert alone.returncode == 1
    assert alone.stderr.splitlines()[-1] == "nothing could be timed"
