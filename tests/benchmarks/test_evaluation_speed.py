"""How long the evaluation of all packaged systems takes."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from calibration import evaluate
from calibration.evaluate import systems_to_evaluate


@pytest.mark.benchmark(group="evaluate")
def test_every_split_of_all_packaged_systems(benchmark: BenchmarkFixture) -> None:
    found, _ = systems_to_evaluate([], [])
    result = benchmark.pedantic(  # type: ignore[no-untyped-call]
        evaluate, (found,), {"splits": ["all"]}, rounds=1
    )
    assert len(result.overall) > 5
