"""Constants drawn from the prior, points simulated, constants and predictions recovered."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.evaluate import seen_only
from calibration.fit.posterior_mode import fit_rows
from specmodel.constants import NUM_CONSTANTS, to_natural
from specmodel.cost import round_terms
from specmodel.effects import LOAD_OCTAVES, TREE_SHARE
from specmodel.posterior import Rows
from specmodel.prior import Prior, load_prior
from specmodel.statistics import student_t_quantile
from tests.extent import coverage_bounds, extent, sample

Array = NDArray[np.float64]

NUM_SYSTEMS = extent(test=120, prove=2000)
NORMAL_95 = 1.6448536269514722
DEPTHS = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0])
WORKLOADS = 4


def random_rows(generator: np.random.Generator, count: int) -> Rows:
    """Rows of a MoE system at batch 8: random depth, tree, workload, accept length."""
    steps = generator.choice(DEPTHS, count)
    topk = np.where(generator.random(count) < 0.3, 4.0, 1.0)
    workload = generator.integers(0, WORKLOADS, count)
    deficit = np.array([0.0, 0.05, 0.12, 0.25])[workload]
    codes = {key: index for index, key in enumerate(dict.fromkeys(zip(steps, topk, strict=True)))}
    runs = {
        key: index for index, key in enumerate(dict.fromkeys(zip(workload, topk > 1, strict=True)))
    }
    return Rows(
        terms=round_terms(
            num_steps=steps,
            topk=topk,
            batch_size=8,
            num_experts=128,
            experts_per_token=8,
            step_time_s=0.012,
        ),
        accept_length=1.0 + steps * generator.uniform(0.2, 0.9, count),
        baseline_deficit=deficit,
        measured_share=np.full(count, np.nan),
        configuration=np.array([codes[key] for key in zip(steps, topk, strict=True)]),
        run=np.array([runs[key] for key in zip(workload, topk > 1, strict=True)]),
        workload=workload,
    )


def simulate(
    rows: Rows, natural: Array, prior: Prior, scale: float, generator: np.random.Generator
) -> Array:
    """Logarithm of measured speed-up, written from the formulas of theory.md, not from the code."""
    noise, terms = prior.noise, rows.terms
    c0, c1, c_tree, omega, share, kappa, _, eta, _ = natural
    growth = omega * terms.loads_added / (1.0 + omega * terms.loads)
    deep = np.log2(terms.num_steps + 1.0)
    cost = c0 * (1.0 + growth) + (c1 * terms.num_steps + c_tree * terms.tree) * (
        (0.010 / 0.012) ** eta
    )

    def over(octaves: float) -> Array:
        return np.asarray(np.exp(-0.5 * ((deep[:, None] - deep) / octaves) ** 2))

    # Verified rows are depth + 1 for each of 8 requests, so octaves of both are the same here.
    together = noise.load_log_sd**2 + noise.rows_log_sd**2 * over(LOAD_OCTAVES["rows"])
    together += noise.depth_log_sd**2 * over(LOAD_OCTAVES["depth"])
    together += noise.tree_log_sd**2 * terms.tree[:, None] * terms.tree
    kind = np.where(terms.tree[:, None] == terms.tree, 1.0, TREE_SHARE)
    assert rows.workload is not None
    same = rows.workload[:, None] == rows.workload
    by_workload = noise.workload_log_sd**2 * kind * same
    by_configuration = generator.normal(0, noise.configuration_log_sd, 50)[rows.configuration]
    by_run = generator.normal(0, noise.run_log_sd, 50)[rows.run]
    by_configuration += generator.multivariate_normal(np.zeros(len(rows)), together)
    by_run += generator.multivariate_normal(np.zeros(len(rows)), by_workload)
    cost = cost * np.exp(scale * by_configuration)
    idle = share + kappa * (1.0 - share) * rows.baseline_deficit
    speedup = 1.0 / (idle + (1.0 - idle) * cost / rows.accept_length)
    return np.asarray(
        np.log(speedup) + scale * by_run + generator.normal(0, scale * noise.row_log_sd, len(rows))
    )


@pytest.mark.slow
@sample(2)
@pytest.mark.parametrize("num_points", [1, 2, 5, 20])
def test_intervals_of_constants_and_predictions_cover_ninety_per_cent(
    num_points: int, capsys: pytest.CaptureFixture[str]
) -> None:
    prior = load_prior(experts_known=True, engine="sglang")
    prior = replace(prior, noise=replace(prior.noise, growth_share=0.0))  # held by its own tests
    generator = np.random.default_rng(20261129 + num_points)
    factor = np.linalg.cholesky(prior.covariance)
    freedom = prior.noise.degrees_of_freedom
    inside_constants, inside_predictions = [], []
    for _ in range(NUM_SYSTEMS):
        truth = prior.mean + factor @ generator.normal(size=NUM_CONSTANTS)
        scale = float(np.sqrt(freedom / generator.chisquare(freedom)))
        rows = random_rows(generator, num_points + 1)
        measured = simulate(rows, to_natural(truth), prior, scale, generator)
        seen = np.arange(num_points)
        rows = seen_only(rows, np.arange(len(rows)) < num_points)
        fitted = fit_rows(rows.take(seen), measured[:-1], prior).posterior
        sd = np.sqrt(np.diag(fitted.covariance)[:NUM_CONSTANTS])
        inside_constants.append(np.abs(truth - fitted.mean[:NUM_CONSTANTS]) < NORMAL_95 * sd)
        new = rows.take(np.array([num_points]))
        answer = fitted.predict(new)
        width = student_t_quantile(0.95, answer.degrees_of_freedom) * answer.log_sd
        inside_predictions.append(abs(answer.location[0] - measured[-1]) < width[0])
    constants = float(np.mean(inside_constants))
    predictions = float(np.mean(inside_predictions))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{num_points} points: coverage of constants {constants:.3f}, "
            f"of predictions {predictions:.3f}\n"
        )
    low, high = coverage_bounds(NUM_SYSTEMS, proven=(0.87, 0.93))
    assert low <= constants <= high
    assert low <= predictions <= high
