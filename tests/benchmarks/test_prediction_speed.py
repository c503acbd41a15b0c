"""Predictions per second: medians through the public functions, intervals through the posterior."""

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from specmodel import load_prior, round_cost, round_terms
from specmodel.effects import NEW
from specmodel.posterior import Posterior, Rows
from specmodel.speedup import speedup

MEDIANS = 1_000_000
INTERVALS = 100_000


def random_rows(count: int) -> Rows:
    """Configurations of a dense model, every one with another accept length."""
    generator = np.random.default_rng(3)
    steps = generator.integers(1, 11, count).astype(np.float64)
    return Rows(
        terms=round_terms(num_steps=steps, step_time_s=0.011),
        accept_length=1.0 + steps * generator.random(count),
        baseline_deficit=np.zeros(count),
        measured_share=np.full(count, np.nan),
        configuration=np.full(count, NEW),
        run=np.full(count, NEW),
    )


@pytest.mark.benchmark(group="predictions")
def test_a_million_medians(benchmark: BenchmarkFixture) -> None:
    rows = random_rows(MEDIANS)
    constants = Posterior.from_prior(load_prior(experts_known=True)).constants

    def medians() -> NDArray[np.float64]:
        return speedup(rows.accept_length, round_cost(constants, rows.terms), constants[4])

    assert benchmark(medians).size == MEDIANS
    if benchmark.stats is not None:
        benchmark.extra_info["predictions_per_s"] = MEDIANS / benchmark.stats.stats.median


@pytest.mark.benchmark(group="predictions")
def test_intervals_of_100000_configurations(benchmark: BenchmarkFixture) -> None:
    rows = random_rows(INTERVALS)
    posterior = Posterior.from_prior(load_prior(experts_known=True))

    def intervals() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        answer = posterior.predict(rows)
        return answer.quantile(0.05), answer.quantile(0.95)

    low, high = benchmark(intervals)
    assert np.all(low < high)
