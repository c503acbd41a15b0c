"""Medians in bounded memory: exact while they can be, near where they cannot."""

import numpy as np
import pytest

from calibration.readers.sglang_decode_pool import DecodePool, Group

CHANCE = np.random.default_rng(3)


def pooled(
    times_ms: np.ndarray, batches: np.ndarray, pieces: int, most: int = 3 << 19
) -> tuple[DecodePool, dict[int, Group]]:
    """A pool of lines with these round times, and its groups by batch."""
    pool = DecodePool(most=most)
    for part in np.array_split(np.arange(len(times_ms)), pieces):
        same = np.ones(len(part))
        lines = (
            0 * same,
            part + 1,
            batches[part],
            same,
            same,
            2.5 * same,
            times_ms[part],
            0 * same,
        )
        pool.add(np.array(lines))
        pool.groups()  # takes in what waits
    return pool, {group.batch: group for group in pool.groups()[0][0]}


@pytest.mark.parametrize("size", [1, 2, 3, 10, 4001, 20_000])
def test_medians_of_small_groups_are_exact(size: int) -> None:
    times_ms = CHANCE.lognormal(3, 0.3, size)
    batches = CHANCE.integers(1, 4, size)
    _, groups = pooled(times_ms, batches, pieces=min(size, 7))
    for batch in set(batches.tolist()):
        inside = times_ms[batches == batch]
        assert groups[batch].lines == len(inside)
        assert groups[batch].round_time_ms == pytest.approx(np.median(inside), rel=1e-10)
        assert groups[batch].accept_length == 2.5
        assert groups[batch].context_tokens == 0


def test_a_median_of_many_lines_is_within_its_rounding() -> None:
    times_ms = CHANCE.lognormal(3, 0.03, 400_000)
    pool, groups = pooled(times_ms, np.ones(len(times_ms)), pieces=9)
    assert groups[1].lines == len(times_ms)
    assert len(pool._codes) < 50_000
    assert groups[1].round_time_ms == pytest.approx(np.median(times_ms), rel=8e-6)


def test_numbers_with_few_digits_stay_exact_however_many_there_are() -> None:
    times_ms = np.round(CHANCE.normal(2.5, 0.2, 300_000), 2)
    _, groups = pooled(times_ms, np.ones(len(times_ms)), pieces=5)
    assert groups[1].round_time_ms == np.median(times_ms)


def test_memory_is_bounded_whatever_comes() -> None:
    times_ms = CHANCE.lognormal(3, 0.4, 200_000)
    batches = CHANCE.integers(1, 50, len(times_ms))
    pool, groups = pooled(times_ms, batches, pieces=20, most=20_000)
    assert len(pool._codes) <= 20_000
    for batch in range(1, 50, 7):
        inside = times_ms[batches == batch]
        assert groups[batch].round_time_ms == pytest.approx(np.median(inside), rel=0.1)


def test_extreme_values_are_kept_in_order() -> None:
    _, groups = pooled(np.array([1e-30, 1e30]), np.array([1, 2]), pieces=1)
    assert groups[1].round_time_ms < 1e-17
    assert 2 not in groups  # a gap beside the other
