"""Published tables, and rows, priors and curves to test with."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from specmodel.constants import NUM_CONSTANTS, to_internal
from specmodel.cost import RoundTerms, round_terms
from specmodel.effects import NEW
from specmodel.posterior import Posterior, Rows
from specmodel.prior import Noise, Prior

GOLDEN = Path(__file__).parents[1] / "golden"

Array = NDArray[np.float64]
Table = list[dict[str, str]]

TYPICAL = np.array([1.15, 0.07, 0.12, 0.06, 0.1, 0.6, 0.8, 0.7, 0.9])
QUIET = Noise(row_log_sd=0.02, configuration_log_sd=0.02, run_log_sd=0.03, degrees_of_freedom=1e9)


@pytest.fixture(scope="session")
def cost_table() -> Callable[[str], Table]:
    def read(name: str) -> Table:
        with (GOLDEN / f"cost_{name}.csv").open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))

    return read


@pytest.fixture
def typical() -> Array:
    """Constants in natural units, none of them at a bound."""
    return TYPICAL.copy()


@pytest.fixture
def make_prior() -> Callable[..., Prior]:
    def make(
        *, natural: Array = TYPICAL, sd: ArrayLike = 0.5, noise: Noise = QUIET, systems: int = 0
    ) -> Prior:
        spread = np.broadcast_to(np.asarray(sd, dtype=np.float64), NUM_CONSTANTS)
        return Prior(
            mean=to_internal(natural),
            covariance=np.diag(spread**2),
            noise=noise,
            name="test",
            learned_from=tuple(f"system {index}" for index in range(systems)),
        )

    return make


@pytest.fixture
def make_rows() -> Callable[..., Rows]:
    def make(
        *,
        terms: RoundTerms | None = None,
        num_steps: ArrayLike = 3,
        accept_length: ArrayLike = 2.5,
        baseline_deficit: ArrayLike = 0.0,
        measured_share: ArrayLike = np.nan,
        configuration: ArrayLike = NEW,
        run: ArrayLike = NEW,
    ) -> Rows:
        known = round_terms(num_steps=num_steps) if terms is None else terms
        count = len(known)

        def column(values: ArrayLike) -> Array:
            return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), count))

        return Rows(
            terms=known,
            accept_length=column(accept_length),
            baseline_deficit=column(baseline_deficit),
            measured_share=column(measured_share),
            configuration=column(configuration).astype(np.intp),
            run=column(run).astype(np.intp),
        )

    return make


@pytest.fixture
def known_posterior() -> Callable[..., Posterior]:
    """Posterior whose constants are known exactly, to see what remains."""

    def make(natural: Array = TYPICAL, *, noise: Noise = QUIET) -> Posterior:
        return Posterior(
            mean=to_internal(natural),
            covariance=np.zeros((NUM_CONSTANTS, NUM_CONSTANTS)),
            num_configurations=0,
            noise=noise,
            noise_scale=1.0,
            effect_scale=1.0,
            degrees_of_freedom=1e9,
            prior_covariance=np.eye(NUM_CONSTANTS),
        )

    return make
