"""The kernels against fp64 in Triton's interpreter, in a process of its own.

A kernel is compiled or interpreted as its process was started, so `interpreted/` is collected only
where TRITON_INTERPRET is set before anything imports Triton.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.mark.slow
def test_every_kernel_agrees_with_fp64_in_the_interpreter() -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            HERE / "interpreted",
        ],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout


def test_the_interpreted_tests_are_left_alone_without_the_interpreter() -> None:
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST_") and name != "TRITON_INTERPRET"
    }
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "interpreted"],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, run.stdout
