"""The engine, dry runs, checks and the sweep of tiles in Triton's interpreter, in a process of their own.

A kernel is compiled or interpreted as its process was started; without TRITON_INTERPRET the folders
`interpreted/` are not collected.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["engine/interpreted", "timing/interpreted", "interpreted"])
def test_what_runs_kernels_holds_in_the_interpreter(part: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    folder = HERE / part
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout
