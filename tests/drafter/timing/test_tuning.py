"""The sweep on a fake clock: what is tried, what wins, what gets a row."""

from typing import Any

import pytest
import torch

from drafter.kernels.launch_plan import Tiles, default_tiles
from drafter.public_models import public_shape
from drafter.timing.refusals import MeasurementRefusedError
from drafter.tuning import (
    Found,
    Product,
    best_tiles,
    by_row,
    candidates,
    products,
    shared_candidates,
    tuned_rows,
)

PRODUCT = Product("down", 64, 96)
TRIES = [Tiles(block_n=n, block_k=64, num_warps=4, num_stages=1) for n in (2, 8, 16)]


def sweep(watch: Any) -> Found:
    return best_tiles([PRODUCT], 4, watch, device=torch.device("cpu"), tries=TRIES, checks=False)


def test_the_fastest_tiles_win_and_stand_beside_those_of_the_rule(fake: Any) -> None:
    seconds = zip(TRIES, (3e-4, 1e-4, 2e-4), strict=True)
    times = {f"down {tiles}": time_s for tiles, time_s in seconds}
    found = sweep(fake(time_s=lambda work, _: times.get(work.name, 4e-4)))
    assert found.tiles == TRIES[1]
    assert found.default_s / found.time_s == pytest.approx(4.0)


def test_products_of_a_row_are_timed_together(fake: Any) -> None:
    """The best tiles of either are not the best of both."""
    seconds = {"down": (1e-4, 2e-4, 6e-4), "fc": (7e-4, 4e-4, 1e-4)}
    times = {
        f"{name} {tiles}": time_s
        for name, each in seconds.items()
        for tiles, time_s in zip(TRIES, each, strict=True)
    }
    row = [PRODUCT, Product("fc", 64, 72)]
    watch = fake(time_s=lambda work, _: times.get(work.name, 9e-4), cache_bytes=2 * 64 * 72 * 2)
    found = best_tiles(row, 4, watch, device=torch.device("cpu"), tries=TRIES, checks=False)
    assert found.tiles == TRIES[1]
    # four caches: six copies of the larger, eight of the smaller
    assert found.time_s == pytest.approx(2e-4 / 6 + 4e-4 / 8)
    assert found.default_s == pytest.approx(9e-4 / 6 + 9e-4 / 8)


def test_the_time_is_that_of_one_launch_of_the_rotation(fake: Any) -> None:
    watch = fake(time_s=lambda *_: 8e-4, cache_bytes=2 * 64 * 96 * 2)
    # four caches of two matrices each: eight copies
    assert sweep(watch).time_s == pytest.approx(1e-4)


def test_a_winner_that_does_not_repeat_is_refused(fake: Any) -> None:
    restless = fake(time_s=lambda _, number: 1e-4 * (1.3 if number > 3 else 1.0))
    with pytest.raises(MeasurementRefusedError, match="down, 4 tokens: refused: two identical"):
        sweep(restless)


def test_a_device_whose_cache_is_unknown_is_refused(fake: Any) -> None:
    with pytest.raises(MeasurementRefusedError, match="cache is not known"):
        sweep(fake(cache_bytes=None))


def test_only_what_beats_the_rule_by_more_than_noise_gets_a_row() -> None:
    def found(time_s: float, tokens: int) -> Found:
        return Found((Product("down", 4096, 14336),), tokens, TRIES[0], time_s, 1e-4)

    rows = tuned_rows([found(0.5e-4, 1), found(0.985e-4, 2), found(1e-4, 4)], sm=90, record="a GPU")
    (row,) = rows
    assert row.key == (90, 1, 4096, 16384)
    assert (row.how, row.record) == ("measured", "a GPU")
    # a gain of 4 % between runs that differ by as much is noise
    near = found(0.96e-4, 8)
    assert tuned_rows([near._replace(spread=0.03)], sm=90, record="a GPU")
    assert not tuned_rows([near._replace(spread=0.045)], sm=90, record="a GPU")


def test_the_spread_of_a_choice_is_that_of_the_winner_or_of_the_rule(fake: Any) -> None:
    rule = f"down {default_tiles(90, 4, PRODUCT.rows, PRODUCT.width)}"

    def time_s(work: Any, number: int) -> float:
        return 1e-4 if work.name != rule else 4e-4 * (1.04 if number > 3 else 1.0)

    assert sweep(fake(time_s=time_s)).spread == pytest.approx(0.04, rel=0.05)


def test_every_product_of_a_step_is_swept_in_its_row_of_the_table() -> None:
    spec = public_shape("gpt-oss").spec
    shapes = {each.name: (each.rows, each.width) for each in products(spec)}
    # drafter.md 3: [(NH + 2 NKV) D, 2H], [H, NH D], [I, H], [H, I], [Vd, H], [H, A Ht]
    assert shapes == {
        "qkv": ((64 + 16) * 64, 5760),
        "out": (2880, 64 * 64),
        "gate and up": (17280, 2880),
        "down": (2880, 17280),
        "head": (32000, 2880),
        "fc": (2880, 8640),
    }
    rows = [[each.name for each in row] for row in by_row(products(spec))]
    assert rows == [["qkv"], ["out"], ["gate and up", "head"], ["down"], ["fc"]]


def test_tiles_of_a_row_fit_each_of_its_products() -> None:
    spec = public_shape("gpt-oss").spec
    (row,) = (each for each in by_row(products(spec)) if len(each) > 1)
    shared = set(shared_candidates(89, 64, row))
    assert shared == set(candidates(89, 64, row[0])) & set(candidates(89, 64, row[1]))
    # two streams of weights leave less room than one
    assert shared < set(candidates(89, 64, row[1]))


def test_products_of_latent_heads_have_their_own_shapes() -> None:
    shapes = {
        each.name: (each.rows, each.width) for each in products(public_shape("Kimi-K2.5-MLA").spec)
    }
    # drafter.md 3: [ql + kl + rope, 2H], [NH (nope + rope), ql], [H, NH v]
    assert shapes["qkv"] == (1536 + 512 + 64, 2 * 7168)
    assert shapes["expand"] == (64 * 192, 1536)
    assert shapes["out"] == (7168, 64 * 128)


@pytest.mark.parametrize("sm", [80, 89, 90, 100, 120])
@pytest.mark.parametrize("tokens", [1, 8, 9, 64])
def test_tiles_that_are_tried_fit_the_device(sm: int, tokens: int) -> None:
    most = {80: 166_912, 90: 232_448, 100: 232_448}.get(sm, 101_376)  # drafter.md 17
    for product in products(public_shape("Llama-3.1-8B").spec):
        tried = list(candidates(sm, tokens, product))
        assert len(tried) == len(set(tried)) > 10
        for tiles in tried:
            if tokens <= 8:
                assert tiles.block_n * tiles.block_k <= 64 * 32 * tiles.num_warps
            else:
                rows = tiles.block_n * (2 if product.is_gated else 1)
                width = max(16, 1 << (tokens - 1).bit_length())
                used = tiles.num_stages * 2 * tiles.block_k * (rows + width)
                assert used <= most
        assert default_tiles(sm, tokens, product.rows, product.width).block_n in {
            tiles.block_n for tiles in tried
        }
