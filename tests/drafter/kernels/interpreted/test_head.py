"""The head and its best guesses against fp64: ties, minus infinity, NaN, ragged vocabularies."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton

from drafter.kernels.head import Chain, head, head_tiles, pick
from tests.extent import sample

TYPES = [torch.float32, torch.bfloat16, torch.float16]
INF = float("inf")


def guesses_of(
    guard: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    topk: int,
    offsets: torch.Tensor,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, log-probabilities and logits of every row."""
    rows = options.get("input_index", x[:, 0]).shape[0]
    tile, _ = head_tiles(rows, weight)
    tiles = triton.cdiv(weight.shape[0], tile)
    tile_max, tile_sum = guard.space(rows, tiles), guard.space(rows, tiles)
    keys = guard.space(rows, tiles, topk, dtype=torch.int64)
    logits = guard.space(rows, weight.shape[0])
    head(guard.given(x), guard.given(weight), tile_max, tile_sum, keys, logits=logits, **options)
    tokens, log_probs = guard.space(rows, topk, dtype=torch.int64), guard.space(rows, topk)
    pick(tile_max, tile_sum, keys, offsets, tokens, log_probs, tile=tile)
    return tokens, log_probs, logits


def stated(guard: Any, logits: torch.Tensor, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Guesses for logits that are given: the head of an identity. Rows are tokens."""
    rows, ids = logits.shape
    eye = torch.eye(rows)
    safe = torch.where(logits.isfinite(), logits, 0.0)
    assert torch.equal(safe, logits), "a product cannot make infinite logits"
    tokens, log_probs, _ = guesses_of(
        guard, eye, safe.T.contiguous(), topk, torch.zeros(ids).long()
    )
    return tokens, log_probs


@sample(5)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("rows", "ids", "width", "topk"),
    [(1, 160, 96, 1), (2, 131, 63, 3), (8, 65, 64, 8), (9, 131, 63, 2), (20, 200, 64, 4)],
)
def test_best_guesses_are_those_of_the_fp64_logits(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    limits: dict[torch.dtype, float],
    dtype: torch.dtype,
    rows: int,
    ids: int,
    width: int,
    topk: int,
) -> None:
    x, weight = normal(rows, width, dtype=dtype), normal(ids, width, dtype=dtype, scale=0.2)
    offsets = torch.arange(ids) * 2 + 5
    tokens, log_probs, logits = guesses_of(guard, x, weight, topk, offsets)
    truth = x.double() @ weight.double().T
    check_close(logits, truth, torch.float32)
    truth_log = truth.log_softmax(-1)
    best = truth_log.sort(dim=-1, descending=True, stable=True)
    chosen = (tokens - 5) // 3  # 3 i + 5
    assert torch.equal(chosen * 3 + 5, tokens)
    check_close(log_probs, truth_log.gather(1, chosen), dtype)
    margin = (best.values[:, :topk] - best.values[:, 1 : topk + 1]).amin(-1)
    clear = margin > 4 * limits[torch.float32] * truth.abs().amax()
    assert clear.any()
    assert torch.equal(chosen[clear], best.indices[clear][:, :topk])


def test_the_final_norm_can_be_part_of_the_head(
    guard: Any, normal: Any, check_close: Callable[..., None]
) -> None:
    x, weight, gain = normal(5, 72, scale=9.0), normal(70, 72, scale=0.2), normal(72)
    rows = torch.tensor([4, 1], dtype=torch.int32)
    _, _, logits = guesses_of(
        guard,
        x,
        weight,
        1,
        torch.zeros(70).long(),
        norm=guard.given(gain),
        eps=1e-5,
        input_index=rows,
    )
    y = x.double()[rows.long()]
    y = y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain.double()
    check_close(logits, y @ weight.double().T, torch.float32)


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("topk", [1, 4])
def test_the_lowest_id_wins_among_equals_in_a_tile_and_across_tiles(
    guard: Any, rows: int, topk: int
) -> None:
    logits = torch.zeros(rows, 150)
    logits[:, [7, 9, 70, 140]] = 3.0
    logits[0] = 0.0
    logits[0, 100:] = -0.0  # equals +0
    tokens, log_probs = stated(guard, logits, topk)
    assert tokens[0].tolist() == list(range(topk))
    for row in range(1, rows):
        assert tokens[row].tolist() == [7, 9, 70, 140][:topk]
    truth = logits.double().log_softmax(-1).sort(dim=-1, descending=True).values[:, :topk]
    torch.testing.assert_close(log_probs.double(), truth, rtol=1e-6, atol=1e-6)


def keys_of(values: torch.Tensor) -> torch.Tensor:
    """Keys as the documentation of `candidate_keys` says, in Python integers."""
    found = []
    for index, value in enumerate(values.tolist()):
        number = -INF if value != value else value + 0.0  # noqa: PLR0124
        bits = int(torch.tensor(number).view(torch.int32)) & 0xFFFFFFFF
        order = bits if bits < 2**31 else (0x7FFFFFFF ^ (bits & 0x7FFFFFFF)) - 2**31
        found.append(order * 2**32 + 2**31 - 1 - index)
    return torch.tensor(found)


@pytest.mark.parametrize("topk", [1, 2, 3])
def test_rows_of_minus_infinity_give_the_first_ids_and_no_nan(guard: Any, topk: int) -> None:
    tile = 4
    values = torch.full((2, 10), -INF)
    values[1, 6] = 2.0
    tiles = triton.cdiv(10, tile)
    tile_max, tile_sum = torch.full((2, tiles), -INF), torch.zeros(2, tiles)
    tile_max[1, 1], tile_sum[1, 1] = 2.0, 1.0
    keys = torch.full((2, tiles, topk), -(2**63))
    for row in range(2):
        for part in range(tiles):
            own = keys_of(values[row])[part * tile : (part + 1) * tile].sort(descending=True).values
            keys[row, part, : min(topk, len(own))] = own[:topk]
    tokens, log_probs = guard.space(2, topk, dtype=torch.int64), guard.space(2, topk)
    pick(tile_max, tile_sum, keys, torch.zeros(10).long(), tokens, log_probs, tile=tile)
    assert tokens.tolist() == [[0, 1, 2][:topk], [6, 0, 1][:topk]]
    assert log_probs.tolist() == [[-INF] * topk, [0.0, -INF, -INF][:topk]]


@pytest.mark.parametrize("rows", [2, 9])
def test_nan_never_wins_and_adds_nothing(guard: Any, rows: int) -> None:
    weight = torch.linspace(-1.0, 1.0, 70)[:, None].repeat(1, 16) / 16
    weight[69] = float("nan")
    x = torch.ones(rows, 16)
    tokens, log_probs, _ = guesses_of(guard, x, weight, 2, torch.zeros(70).long())
    truth = torch.linspace(-1.0, 1.0, 70).double()[:69].log_softmax(-1)
    assert tokens.tolist() == [[68, 67]] * rows
    expected = truth[[68, 67]].expand(rows, 2)
    torch.testing.assert_close(log_probs.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_chain_moves_on_from_where_the_extend_pass_ended(guard: Any, normal: Any) -> None:
    x, weight = normal(2, 32), normal(40, 32)
    tile, _ = head_tiles(2, weight)
    tiles = triton.cdiv(40, tile)
    parts = (
        guard.space(2, tiles),
        guard.space(2, tiles),
        guard.space(2, tiles, 1, dtype=torch.int64),
    )
    head(x, weight, *parts)
    chain = Chain(
        starts=torch.tensor([5, 9]).int(),
        positions=guard.space(2, dtype=torch.int32),
        lengths=guard.space(2, dtype=torch.int32),
        drafted=guard.space(2, 3, dtype=torch.int64),
        scores=guard.space(2, 3),
    )
    tokens, log_probs = guard.space(2, 1, dtype=torch.int64), guard.space(2, 1)
    for step in range(3):
        pick(*parts, torch.ones(40).long(), tokens, log_probs, tile=tile, chain=chain, step=step)
        assert chain.positions.tolist() == [5 + step, 9 + step]
        assert chain.lengths.tolist() == [6 + step, 10 + step]
    assert torch.equal(chain.drafted, tokens.expand(2, 3))
    torch.testing.assert_close(chain.scores, log_probs * torch.arange(1, 4))
