"""How long a fit takes inside the process, and what the physical form adds."""

from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from calibration import fit, read_points
from calibration.points.packaged import packaged_table


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


def thirty_rows(path: Path, target: str, *, contexts: bool) -> Path:
    """Rounds of a made-up rig; its name decides whether the physical form can be fitted."""
    generator = np.random.default_rng(0)
    columns = "target_model,gpu,num_gpus,tp_size,interconnect,batch_size,context_tokens,num_steps"
    lines = [f"{columns},accept_length,throughput,baseline"]
    for row in range(30):
        batch, depth = 2 ** (row % 6), 1 + row % 5
        context = 1000 + 700 * row if contexts else 1000 + 15_000 * (row % 2)
        accept, cost = 1 + 0.45 * depth, 1.2 + 0.07 * depth + 0.005 * batch
        baseline = 90 * batch**0.8 / (1 + context / 60_000)
        rate = baseline * accept / cost * np.exp(0.02 * generator.standard_normal())
        lines.append(
            f"{target},H100,8,8,nvlink4,{batch},{context},{depth},{accept:.3f},{rate:.2f},"
            f"{baseline:.2f}"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.benchmark(group="fit of 30 rows")
@pytest.mark.parametrize("contexts", [False, True], ids=["2 contexts", "30 contexts"])
@pytest.mark.parametrize("target", ["no model of that name", "Qwen3-235B-A22B"])
def test_fit_of_30_rows_without_and_with_the_physical_form(
    benchmark: BenchmarkFixture, tmp_path: Path, target: str, contexts: bool
) -> None:
    points = read_points(thirty_rows(tmp_path / "bench.csv", target, contexts=contexts))
    calibration = benchmark(fit, points)
    assert (calibration.physical is not None) == (target == "Qwen3-235B-A22B")
