"""The round cost against measurements that others published."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import least_squares

from specmodel.cost import expected_experts
from specmodel.speedup import round_cost_from_throughput

Array = NDArray[np.float64]
Table = list[dict[str, str]]

METHODS = ("EAGLE-1", "EAGLE-3")


def columns(table: Table, *names: str) -> list[Array]:
    return [np.array([float(row[name]) for row in table]) for name in names]


@pytest.mark.parametrize("method", METHODS)
def test_the_identity_gives_the_published_round_costs(
    cost_table: Callable[[str], Table], method: str
) -> None:
    table = [row for row in cost_table("vllm20780") if row["method"] == method]
    accept, tpot_ms, base_ms, published = columns(
        table, "accept_length", "tpot_ms", "baseline_tpot_ms", "round_cost"
    )
    found = round_cost_from_throughput(accept, 1 / tpot_ms, 1 / base_ms)
    np.testing.assert_allclose(found, published, atol=6e-4)


@pytest.mark.parametrize(("method", "worst"), [("EAGLE-1", 0.008), ("EAGLE-3", 0.021)])
def test_a_dense_round_is_linear_in_depth(
    cost_table: Callable[[str], Table], method: str, worst: float
) -> None:
    table = [row for row in cost_table("vllm20780") if row["method"] == method]
    depth, cost = columns(table, "num_steps", "round_cost")
    slope, intercept = np.polyfit(depth, cost, 1)
    assert np.max(np.abs((intercept + slope * depth) / cost - 1)) < worst + 0.0005


def mean_absolute_error(table: Table, growth: Callable[[Array, Array], Array]) -> float:
    """Mean error of a fit of throughput over batch and depth, accept lengths free per depth.

    Time of a round: a + b * depth + c * growth + d * verified rows; throughput is batch times accept
    length over it. The scale of the accept lengths is not known, so the first one is set.
    """
    batch, depth, verified, rate = columns(
        table, "batch_size", "num_steps", "num_draft_tokens", "output_tokens_per_s"
    )
    rows = batch * verified
    parts = np.stack([np.ones_like(depth), depth, growth(batch, rows), rows])
    depths = np.unique(depth)

    def log_rate(parameters: Array) -> Array:
        coefficients = np.exp(parameters[:4])
        log_accept = np.append(0.0, parameters[4:])[np.searchsorted(depths, depth)]
        return np.asarray(np.log(batch) + log_accept - np.log(coefficients @ parts))

    def residual(parameters: Array) -> Array:
        return np.asarray(log_rate(parameters) - np.log(rate))

    start = np.log([5e-3, 1e-4, 1e-3, 1e-4, *np.linspace(1.2, 1.6, depths.size - 1)])
    fit = least_squares(residual, start, bounds=(-25, 5))
    return float(np.mean(np.abs(np.exp(fit.fun) - 1)))


def test_expert_coverage_beats_a_cost_linear_in_tokens(cost_table: Callable[[str], Table]) -> None:
    table = cost_table("sglang22246")
    assert len(table) == 42
    linear = mean_absolute_error(table, lambda batch, _: batch)
    coverage = mean_absolute_error(table, lambda _, rows: expected_experts(rows, 128, 8))
    assert linear == pytest.approx(0.0898, abs=0.004)
    assert coverage == pytest.approx(0.0208, abs=0.002)
