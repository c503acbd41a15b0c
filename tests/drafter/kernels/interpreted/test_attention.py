"""Attention over a cut context against fp64: both masks, windows, empty parts."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from drafter.kernels.attention import attention, attention_merge
from drafter.kernels.numerics import Seen
from tests.extent import sample

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor
) -> torch.Tensor:
    """fp64 attention of [B W, NH, D] over [B, S, NKV, D]; rows that see nothing give zeros."""
    batch, _, kv_heads, width = keys.shape
    rows, group = query.shape[0] // batch, query.shape[1] // kv_heads
    out = torch.zeros(query.shape, dtype=torch.float64)
    for request in range(batch):
        for head in range(query.shape[1]):
            for row in range(rows):
                which = seen[request, row].nonzero()[:, 0]
                if len(which):
                    line = query[request * rows + row, head].double()
                    score = keys[request, which, head // group].double() @ line / math.sqrt(width)
                    out[request * rows + row, head] = (
                        score.softmax(0) @ values[request, which, head // group].double()
                    )
    return out.flatten(start_dim=1)


def run(
    guard: Any,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    positions: torch.Tensor,
    lengths: torch.Tensor,
    splits: int,
    **masks: Any,
) -> torch.Tensor:
    query = tensors[0]
    part_out = guard.space(*query.shape[:2], splits, query.shape[2])
    part_log = guard.space(*query.shape[:2], splits)
    query, keys, values = map(guard.given, tensors)
    window = masks.pop("sliding_window", None)
    seen = Seen(positions, lengths, **masks)
    attention(query, keys, values, seen, part_out, part_log, sliding_window=window)
    out: torch.Tensor = guard.space(
        query.shape[0], query.shape[1] * query.shape[2], dtype=query.dtype
    )
    attention_merge(part_out, part_log, out)
    return out


@sample(4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(6, 2, 20), (4, 4, 16)])
def test_a_token_sees_what_is_not_after_it(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    splits: int,
    window: int | None,
    heads: int,
    kv_heads: int,
    width: int,
) -> None:
    batch, rows, slots = 2, 3, 90
    query = normal(batch * rows, heads, width, dtype=dtype)
    keys, values = (normal(batch, slots, kv_heads, width, dtype=dtype) for _ in range(2))
    lengths = torch.tensor([80, 3], dtype=torch.int32)
    positions = torch.tensor([77, 78, 79, 2, -1, -1], dtype=torch.int32)
    for request, length in enumerate(lengths.tolist()):
        keys[request, length:] = values[request, length:] = float("nan")  # never written
    out = run(guard, (query, keys, values), positions, lengths, splits, sliding_window=window)
    slot = torch.arange(slots)
    distance = positions.view(batch, rows, 1) - slot
    seen = (distance >= 0) & (distance < (window or slots))
    check_close(out, attend(query, keys, values, seen), dtype)
    assert torch.all(out[4:] == 0.0)  # rows without a token


@sample(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("window", [None, 6])
def test_a_node_sees_the_prefix_and_its_ancestors(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    splits: int,
    window: int | None,
) -> None:
    batch, rows, heads, kv_heads, width, slots = 2, 4, 4, 2, 16, 90
    query = normal(batch * rows, heads, width, dtype=dtype)
    keys, values = (normal(batch, slots, kv_heads, width, dtype=dtype) for _ in range(2))
    starts = torch.tensor([70, 2], dtype=torch.int32)
    lengths = starts + 3 * rows  # third level of four nodes each
    generator = torch.Generator().manual_seed(3)
    chosen = torch.rand(batch * rows, 3 * rows, generator=generator) < 0.4
    chosen[torch.arange(batch * rows), 2 * rows + torch.arange(batch * rows) % rows] = True
    bits = (chosen.long() << torch.arange(3 * rows)).sum(-1)
    for request, length in enumerate(lengths.tolist()):
        keys[request, length:] = values[request, length:] = float("nan")
    positions = (starts + 2).repeat_interleave(rows)
    out = run(
        guard,
        (query, keys, values),
        positions,
        lengths,
        splits,
        tail_starts=starts,
        ancestors=bits,
        sliding_window=window,
    )
    seen = torch.zeros(batch, rows, slots, dtype=torch.bool)
    for request, start in enumerate(starts.tolist()):
        low = 0 if window is None else max(0, start + 2 - window + 1)
        seen[request, :, low:start] = True
        seen[request, :, start : start + 3 * rows] = chosen[request * rows : (request + 1) * rows]
    check_close(out, attend(query, keys, values, seen), dtype)


def test_the_sixty_fourth_node_of_a_tree_is_seen(
    guard: Any, normal: Any, check_close: Callable[..., None]
) -> None:
    query, keys, values = normal(1, 1, 16), normal(1, 70, 1, 16), normal(1, 70, 1, 16)
    starts = torch.tensor([5], dtype=torch.int32)
    bits = torch.tensor([-(2**63) + 1])
    out = run(
        guard,
        (query, keys, values),
        torch.tensor([9], dtype=torch.int32),
        starts + 64,
        2,
        tail_starts=starts,
        ancestors=bits,
    )
    seen = torch.zeros(1, 1, 70, dtype=torch.bool)
    seen[0, 0, :6] = seen[0, 0, 68] = True
    check_close(out, attend(query, keys, values, seen), torch.float32)


def test_parts_without_weight_may_hold_anything(guard: Any) -> None:
    part_out = torch.full((1, 2, 3, 4), float("nan"))
    part_out[0, 0, 1] = 2.0
    part_log = torch.full((1, 2, 3), float("-inf"))
    part_log[0, 0, 1] = -700.0
    out = guard.space(1, 8)
    attention_merge(guard.given(part_out), guard.given(part_log), out)
    assert out.tolist() == [[2.0] * 4 + [0.0] * 4]
