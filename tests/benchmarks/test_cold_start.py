"""A cold `specmodel predict` beside a bare import of numpy and click, in turn, as whole processes."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

PREDICT = [sys.executable, "-m", "calibration", "predict", "--accept", "2.75", "--depth", "5"]
REFERENCE = [sys.executable, "-c", "import numpy, click"]
ROUNDS = 15


def seconds(command: list[str], folder: Path) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - start


@pytest.mark.benchmark(group="cold start")
def test_cold_prediction_beside_bare_imports(
    benchmark: BenchmarkFixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds(PREDICT, tmp_path)
    seconds(REFERENCE, tmp_path)
    ratios = [seconds(PREDICT, tmp_path) / seconds(REFERENCE, tmp_path) for _ in range(ROUNDS)]
    benchmark.extra_info["ratio_median"] = float(np.median(ratios))
    with capsys.disabled():
        sys.stdout.write(
            f"\ncold predict / (import numpy, click): median ratio {np.median(ratios):.2f}\n"
        )
    benchmark.pedantic(seconds, (PREDICT, tmp_path), rounds=ROUNDS)  # type: ignore[no-untyped-call]
