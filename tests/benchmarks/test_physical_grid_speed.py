"""A million cells of the physical form: depth, branches, batch, context and interconnect of one model.

Beside them as many of numpy's own logarithms and exponentials, in one process and on one core.
"""

import os
import subprocess
import sys
from statistics import median
from time import process_time

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from specmodel.architecture import preset
from specmodel.rig import Rig, mtp_passes
from specmodel.units import KIBI, MEGA

MOST_S = 2.0
MOST_MEMORY_MB = 1000
LINKS = ("pcie4", "pcie5", "nvlink3", "nvlink4", "nvlink5")
GRIDS = {"100 contexts": (10, 50, 100), "1000 contexts": (5, 10, 1000)}
"""Depths, batches and contexts; four branchings and five interconnects make a million of each."""

IN_A_PROCESS = """
import re, resource
from pathlib import Path
from tests.benchmarks.test_physical_grid_speed import GRIDS, grid_s
cells = sum(each.size for each in grid_s(*GRIDS["1000 contexts"], every_part=True))
status = Path("/proc/self/status")  # getrusage would count the process that started this one
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
print(cells, peak[1] if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""

Array = NDArray[np.float64]


def grid_s(
    num_depths: int, num_batches: int, num_contexts: int, *, every_part: bool = False
) -> list[Array]:
    """Round times of a grid for each interconnect; with every part in memory where asked."""
    depth = np.arange(1, num_depths + 1)[:, None, None, None]
    topk = np.array([1, 2, 4, 8])[:, None, None]
    verified = np.where(topk == 1, depth + 1, np.minimum(topk * depth + 1, 32))
    batch = np.arange(1, 2 * num_batches, 2)[:, None]
    context = np.linspace(0, 131_072, num_contexts).round()
    target = "Qwen3-235B-A22B"
    found, parts = [], []
    for link in LINKS:
        rig = Rig(
            target=target,
            device="H100",
            tp_size=8,
            interconnect=link,
            draft=mtp_passes(preset(target)),
        )
        rounds = rig.round_parts(depth, topk, verified, batch, context)
        found.append(rounds.total_s)
        if every_part:
            parts.append(rounds)
    return found


@pytest.mark.benchmark(group="physical grid")
@pytest.mark.parametrize("name", GRIDS)
def test_a_million_cells(
    benchmark: BenchmarkFixture, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    busy_s: list[float] = []

    def price() -> list[Array]:
        started = process_time()
        found = grid_s(*GRIDS[name])
        busy_s.append(process_time() - started)
        return found

    found = benchmark.pedantic(price, rounds=3)  # type: ignore[no-untyped-call]
    assert sum(each.size for each in found) == 1_000_000
    assert all(np.all(np.isfinite(each)) and np.all(each > 0) for each in found)
    values = np.random.default_rng(0).uniform(1.0, 2.0, 1_000_000)
    started = process_time()
    for _ in range(10):
        np.exp(np.log(values))
    plain_s = process_time() - started
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {median(busy_s):.2f} s of one core for a million cells, "
            f"{median(busy_s) / plain_s:.1f} times ten million log and exp ({plain_s:.2f} s)\n"
        )
    assert median(busy_s) < MOST_S


@pytest.mark.benchmark(group="physical grid")
def test_memory_of_a_million_cells(
    benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = benchmark.pedantic(  # type: ignore[no-untyped-call]
        subprocess.run,
        ([sys.executable, "-c", IN_A_PROCESS],),
        {"capture_output": True, "text": True, "check": True, "env": environment},
        rounds=1,
    )
    cells, peak = (int(word) for word in done.stdout.split())
    unit = 1 if sys.platform == "darwin" else KIBI
    with capsys.disabled():
        sys.stdout.write(
            f"\npeak {peak * unit / MEGA:.0f} MB of memory for every part of {cells} rounds\n"
        )
    assert peak * unit / MEGA < MOST_MEMORY_MB
