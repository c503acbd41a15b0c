"""Which loads are timed, and which fit into memory."""

from typing import Any

import pytest

from drafter.public_models import public_shape
from drafter.timing.works import FULL_GRID, GRIDS, QUICK_GRID, TimingGrid, fitting_contexts
from specmodel.errors import ParameterError


def test_the_full_grid_is_that_of_the_reference() -> None:
    """drafter.md 20: batch {1,2,4,8,16,32,64} x context {0.5k,2k,8k,32k} x topk; depths 1, 3, 5, 7."""
    assert FULL_GRID.batch_sizes == (1, 2, 4, 8, 16, 32, 64)
    assert FULL_GRID.contexts == (512, 2048, 8192, 32768)
    assert FULL_GRID.depths == (1, 3, 5, 7)
    assert {1, 8} <= set(FULL_GRID.topks)


@pytest.mark.parametrize("name", GRIDS)
def test_trees_of_a_grid_fit_into_the_bits_of_an_ancestor_mask(name: str) -> None:
    grid = GRIDS[name]
    assert (grid.num_steps - 1) * max(grid.topks) <= 64
    assert grid.num_draft_tokens <= 64


@pytest.mark.parametrize(
    "change",
    [
        {"batch_sizes": ()},
        {"batch_sizes": (0,)},
        {"contexts": (-1,)},
        {"contexts": (5, 5)},
        {"depths": (3,)},
        {"accepted": (0, 1)},
    ],
    ids=str,
)
def test_an_impossible_grid_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(change))):
        TimingGrid(**({"batch_sizes": (1,), "contexts": (8,)} | change))


def test_caches_of_draft_and_baseline_have_to_fit() -> None:
    spec = public_shape("Llama-3.1-8B").spec
    # 64 requests of 32768 + 33 slots, 8 heads of 128, keys and values, bf16, twice
    slots = 32768 + 8 + 6 * 4 + 1
    needed = 2 * 64 * slots * 8 * 128 * 2 * 2
    ask = {"batch_size": 64, "value_bytes": 2}
    assert 32768 in fitting_contexts(spec, QUICK_GRID, free_bytes=needed, **ask)
    assert fitting_contexts(spec, QUICK_GRID, free_bytes=needed - 1, **ask) == (2048,)
    assert fitting_contexts(spec, QUICK_GRID, free_bytes=0, **ask) == ()


def test_a_latent_cache_has_to_fit_once() -> None:
    spec = public_shape("Kimi-K2.5-MLA").spec
    # no baseline beside it; 512 + 64 values a token for all heads
    needed = 64 * (32768 + 8 + 6 * 4 + 1) * 576 * 2
    ask = {"batch_size": 64, "value_bytes": 2}
    assert 32768 in fitting_contexts(spec, QUICK_GRID, free_bytes=needed, **ask)
    assert fitting_contexts(spec, QUICK_GRID, free_bytes=needed - 1, **ask) == (2048,)
