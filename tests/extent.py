"""How much is tested: `make test` runs every kind of check on few cases, `make prove` on all of them."""

import os

import pytest

PROVES = os.environ.get("SPECMODEL_PROVE") == "1"
sample = pytest.mark.sample  # of the cases of a test so many in `make test`, all in `make prove`
prove = pytest.mark.sample(0)


def extent(*, test: int, prove: int) -> int:
    """The size of a study in `make test` and in `make prove`."""
    return prove if PROVES else test


def coverage_bounds(trials: int, *, proven: tuple[float, float]) -> tuple[float, float]:
    """Shares between which intervals of 90 % must hold the truth.

    Those of the whole study; of a small one those that as many independent trials leave once in 500 times
    where the coverage is 90 % (a false alarm).
    """
    if PROVES:
        return proven
    from scipy.stats import binom

    low, high = binom.interval(0.998, trials, 0.9)
    return low / trials, high / trials
