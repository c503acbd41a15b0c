"""How long a fit takes inside the process."""

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from calibration import fit, read_points
from calibration.packaged import packaged_table


@pytest.mark.benchmark(group="fit")
def test_fit_of_70_rows(benchmark: BenchmarkFixture) -> None:
    points = read_points(packaged_table("specbundle-llama31-8b").path)
    calibration = benchmark(fit, points)
    assert calibration.num_points == 70


@pytest.mark.benchmark(group="fit")
def test_fit_of_2000_rows(benchmark: BenchmarkFixture, large_bench: Path) -> None:
    points = read_points(large_bench)
    calibration = benchmark.pedantic(fit, (points,), rounds=3)  # type: ignore[no-untyped-call]
    assert calibration.num_points == 2000
