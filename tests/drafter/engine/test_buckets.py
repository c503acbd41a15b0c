"""Which bucket serves a request: the smallest that holds it, and parts that fill a chip."""

import pytest

from drafter.engine.draft_engine import (
    BATCH_BUCKETS,
    LEAST_PART_TOKENS,
    batch_bucket,
    cache_readers,
    row_bucket,
    split_bucket,
)
from drafter.public_models import public_shape
from specmodel.errors import ParameterError


@pytest.mark.parametrize("batch_size", range(1, 65))
def test_the_smallest_bucket_that_holds_a_batch_serves_it(batch_size: int) -> None:
    bucket = batch_bucket(batch_size)
    assert bucket in BATCH_BUCKETS
    assert bucket // 2 < batch_size <= bucket


@pytest.mark.parametrize("batch_size", [0, -1, 65])
def test_a_batch_that_no_bucket_holds_is_refused(batch_size: int) -> None:
    with pytest.raises(ParameterError, match="batch_size must be between 1 and 64"):
        batch_bucket(batch_size)


def test_rows_are_padded_to_a_power_of_two() -> None:
    assert [row_bucket(count) for count in (1, 2, 5, 8, 500)] == [1, 2, 8, 8, 512]
    with pytest.raises(ParameterError, match="at least 1"):
        row_bucket(0)


@pytest.mark.parametrize("context", [1, 2048, 2049, 32768, 100_000])
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_parts_are_a_power_of_two_and_no_finer_than_a_part_is_worth(
    context: int, batch_size: int
) -> None:
    splits = split_bucket(context, batch_size=batch_size, num_kv_heads=8, num_multiprocessors=132)
    assert splits & (splits - 1) == 0
    assert 1 <= splits <= 128
    held = next((size for size in (2048, 8192, 32768) if size >= context), context)
    assert splits < 2 * max(held / LEAST_PART_TOKENS, 1)


def test_few_requests_are_cut_finer_than_many() -> None:
    splits = [
        split_bucket(32768, batch_size=size, num_kv_heads=8, num_multiprocessors=132)
        for size in BATCH_BUCKETS
    ]
    assert splits == sorted(splits, reverse=True)
    # two programs a multiprocessor: 264 of 8 KV heads are 33 parts, and 32 is nearer than 64
    assert splits[0] == 32


def test_latent_heads_are_cut_by_the_rows_that_share_a_request() -> None:
    spec = public_shape("Kimi-K2.5-MLA").spec
    counts = {"batch_size": 1, "num_multiprocessors": 132}
    parts = [
        split_bucket(32768, num_kv_heads=cache_readers(spec, topk=topk), **counts)
        for topk in (1, 8)
    ]
    # 64 heads are 4 programs of 16 rows, those of eight branches 32: 264 / 4 and 264 / 32, to the nearest
    assert parts == [64, 8]


def test_parts_are_rounded_to_the_power_of_two_whose_ratio_is_smaller() -> None:
    for multiprocessors in range(1, 200):
        wanted = -(-2 * multiprocessors // 8)
        parts = split_bucket(
            10**6, batch_size=1, num_kv_heads=8, num_multiprocessors=multiprocessors
        )
        assert 2**-0.5 <= parts / wanted <= 2**0.5


def test_contexts_of_one_bucket_share_a_graph() -> None:
    parts = {
        split_bucket(context, batch_size=1, num_kv_heads=8, num_multiprocessors=132)
        for context in (2049, 5000, 8192)
    }
    assert len(parts) == 1
