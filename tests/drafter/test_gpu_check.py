"""The script for a GPU: it runs to its end in a dry mode, and refuses what it does not know."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "drafter" / "gpu_check.sh"


def run(
    *arguments: str, folder: Path, python: Path | str = sys.executable
) -> "subprocess.CompletedProcess[str]":
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own |= {"PYTHON": str(python), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],  # noqa: S607 - the shell of the path
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=own,
    )


@pytest.mark.slow
def test_a_dry_run_goes_through_every_part_and_ends_well(tmp_path: Path) -> None:
    done = run("--dry", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = [line for line in done.stdout.splitlines() if line.startswith("=== ")]
    assert len(parts) == 5
    assert "all 11 passed" in done.stdout
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
