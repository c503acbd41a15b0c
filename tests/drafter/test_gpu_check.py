"""The script for a GPU: it runs to its end in a dry mode, and refuses what it does not know."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drafter.check_cases import check_cases
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
    assert "refused for predictions, as it must be" in done.stdout
    assert "nothing was measured" in parts[-1]
    assert [each.name for each in (tmp_path / "gpu_check").iterdir()] == ["dry.json"]


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
    assert asked[:3] == ["drafter check", "drafter check one", "drafter floor"]
    limits = [int(line.partition("--most-s ")[2].split()[0]) for line in asked[3:]]
    # pretended times take no time, so each model is offered its part of 720 less 60 s less a little
    for limit, part in zip(limits, (396, 330, 660), strict=True):
        assert part - 60 < limit <= part
    assert asked[3].startswith("drafter time one --grid quick")
    assert "--batch-size 1 --batch-size 8 --context-tokens 2048 --topk 1" in asked[4]


def test_a_verdict_on_each_record_ends_the_run_and_a_missed_bar_exits_0(tmp_path: Path) -> None:
    done, _ = pretended(tmp_path, "one")
    assert done.returncode == 0
    (start,) = (n for n, line in enumerate(done.stdout.splitlines()) if "=== verdicts" in line)
    against, floor = done.stdout.splitlines()[start + 1 : start + 3]
    assert against.startswith("example on a GPU that does not exist: faster than torch + cuBLAS")
    assert "MISSED" in against
    assert floor.endswith("1.35: passed")


def test_models_that_the_time_does_not_suffice_for_are_named(tmp_path: Path) -> None:
    done, asked = pretended(tmp_path, "one", "two", MOST_S="70")
    assert done.returncode == 0
    assert "left out for time: two" in done.stdout
    # the first has one load in any case; 70 s less the 60 s that are kept back are left for it
    assert [line.split()[2] for line in asked if " time " in line] == ["one"]
    assert 0 <= int(asked[-1].partition("--most-s ")[2].split()[0]) <= 10


def test_a_model_that_no_time_is_left_for_is_not_offered_any(tmp_path: Path) -> None:
    _, asked = pretended(tmp_path, "one", MOST_S="20")
    assert "--most-s 0 " in asked[-1]


@pytest.mark.parametrize(
    ("hangs", "words"),
    [("drafter check", "small models"), ("drafter check one", "one")],
    ids=["small models", "first model"],
)
def test_a_check_that_does_not_end_is_ended_and_named(
    hangs: str, words: str, tmp_path: Path
) -> None:
    begun = time.monotonic()
    # of 720 s 240 and 120 are for the checks, so of 12 s 4 and 2
    done, asked = pretended(tmp_path, "one", MOST_S="12", HANGS=hangs)
    assert time.monotonic() - begun < 40
    assert done.returncode == 1
    assert asked[-1] == hangs
    limit_s = 4 if words == "small models" else 2
    assert done.stderr.splitlines()[-1] == (
        f"out of time: the check of {words} did not end within {limit_s} s"
    )


def test_a_check_that_fails_is_not_said_to_be_out_of_time(tmp_path: Path) -> None:
    done, asked = pretended(tmp_path, "one", CHECKED="1")
    assert (done.returncode, asked) == (1, ["drafter check"])
    assert "out of time" not in done.stderr


def test_models_of_one_name_have_records_of_their_own(tmp_path: Path) -> None:
    done, _ = pretended(tmp_path, "a/draft", "b/draft")
    assert done.returncode == 0, done.stderr
    records = sorted(each.name for each in (tmp_path / "gpu_check").iterdir())
    assert records == ["1-draft.json", "2-draft.json"]
    assert done.stdout.count("faster than torch + cuBLAS") == 2


def test_a_model_that_cannot_be_timed_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    done, asked = pretended(tmp_path, "one", "two", cannot="one")
    assert done.returncode == 1
    assert [line.split()[2] for line in asked if " time " in line] == ["one", "two"]
    assert "=== verdicts" in done.stdout
    alone, _ = pretended(tmp_path, "one", cannot="one")
    assert alone.returncode == 1
    assert alone.stderr.splitlines()[-1] == "nothing could be timed"
