"""The sweep leaves out tiles whose result is wrong, and computes what it times."""

import pytest
import torch

from drafter import tuning
from drafter.kernels.launch_plan import Tiles
from drafter.kernels.linear import linear
from drafter.timing.dry_stopwatch import DryStopwatch
from drafter.tuning import Product, best_tiles

TRIES = [Tiles(block_n=block_n, block_k=64, num_warps=2, num_stages=1) for block_n in (4, 16, 32)]


@pytest.mark.parametrize("product", [Product("out", 33, 48), Product("mlp", 40, 24, is_gated=True)])
@pytest.mark.parametrize("tokens", [2, 16])
def test_tiles_are_timed_on_copies_that_give_the_product(product: Product, tokens: int) -> None:
    operands = tuning._Operands(product, tokens, torch.bfloat16, torch.device("cpu"), 4096)
    assert operands.copies * product.rows * product.width * 2 >= 4 * 4096 / 2
    for tiles in TRIES[1:]:
        assert operands.error(tiles) < 1e-2
    found = best_tiles(
        product, tokens, DryStopwatch(), device=torch.device("cpu"), tries=TRIES[1:2]
    )
    assert found.time_s > 0


def test_tiles_whose_result_is_wrong_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:

    def wrong_for_16(*arguments: object, tiles: Tiles) -> None:
        linear(*arguments, tiles=tiles)  # type: ignore[arg-type]
        if tiles.block_n != 4:
            out = arguments[2]
            assert isinstance(out, torch.Tensor)
            out[0, 0] += 10.0

    monkeypatch.setattr(tuning, "linear", wrong_for_16)
    product = Product("out", 33, 48)
    found = best_tiles(product, 2, DryStopwatch(), device=torch.device("cpu"), tries=TRIES)
    assert found.tiles.block_n == 4
    assert found.default_s == float("inf")  # the rule's own 64 rows were wrong too
