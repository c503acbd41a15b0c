"""Kernels of latent heads, each against torch in fp64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from drafter.kernels.attention import attention_merge, latent_attention, latent_cache
from drafter.kernels.norm_rope import rope_table
from drafter.kernels.numerics import Seen
from drafter.kernels.products import head_product
from drafter.spec import Rope
from tests.extent import sample

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def normed(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return values * (values.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()


def turned(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Neighbours as one complex number, which the angle of the position multiplies."""
    half = values.shape[-1] // 2
    turn = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = positions.clamp(min=0).double()[:, None] * turn
    angle = angle.view(len(positions), *[1] * (values.ndim - 2), half)
    number = torch.view_as_complex(values.double().unflatten(-1, (half, 2)).contiguous())
    spun = number * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(spun).flatten(-2)


@sample(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("query_rank", "kv_rank", "rope_dim"), [(37, 21, 6), (16, 64, 2)])
def test_latents_are_normed_and_keys_turn_into_their_slots(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    query_rank: int,
    kv_rank: int,
    rope_dim: int,
) -> None:
    batch, rows, capacity = 2, 3, 7
    fused = normal(batch * rows, query_rank + kv_rank + rope_dim)
    positions = torch.tensor([4, 5, -1, 0, 1, 2], dtype=torch.int32)
    slots = torch.tensor([6, 2, -1, 0, 3, 7], dtype=torch.int32)  # the last one is past the end
    cosine, sine = rope_table(Rope(), head_dim=rope_dim, num_positions=8, max_positions=64)
    gains = normal(query_rank, dtype=dtype), normal(kv_rank, dtype=dtype)
    query = guard.space(batch * rows, query_rank, dtype=dtype)
    cache = guard.space(batch, capacity, 1, kv_rank + rope_dim, dtype=dtype)
    latent_cache(
        guard.given(fused),
        guard.given(cosine),
        guard.given(sine),
        positions,
        slots,
        guard.given(gains[0]),
        guard.given(gains[1]),
        query,
        cache,
        eps=1e-5,
    )
    parts = fused.double().split([query_rank, kv_rank, rope_dim], dim=-1)
    check_close(query, normed(parts[0], gains[0]), dtype)
    written = [row for row in range(6) if 0 <= slots[row] < capacity]
    found = torch.stack([cache[row // rows, slots[row], 0] for row in written])
    latents, keys = normed(parts[1], gains[1])[written], turned(parts[2], positions)[written]
    check_close(found[:, :kv_rank], latents, dtype)
    check_close(found[:, kv_rank:], keys, dtype)
    unwritten = batch * capacity - len(written)
    assert int(cache.isnan().sum()) == unwritten * (kv_rank + rope_dim)


@sample(4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("tokens", "heads", "rows", "width", "rope_dim"),
    [(1, 3, 21, 13, 6), (5, 2, 11, 150, 0), (70, 2, 150, 16, 4), (17, 1, 5, 7, 2)],
)
def test_each_head_has_its_own_matrix_and_what_follows_its_inputs_turns(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    tokens: int,
    heads: int,
    rows: int,
    width: int,
    rope_dim: int,
) -> None:
    inputs = normal(tokens, heads, width + rope_dim, dtype=dtype)
    weight = normal(heads, rows, width, dtype=dtype)
    out = guard.space(tokens, heads, rows + rope_dim, dtype=dtype)
    positions = torch.arange(tokens, dtype=torch.int32) % 9 - 1  # from -1 to past the last angle
    angles: dict[str, Any] = {}
    if rope_dim:
        tables = rope_table(Rope(), head_dim=rope_dim, num_positions=6, max_positions=64)
        angles = dict(zip(("cosine", "sine"), map(guard.given, tables), strict=True))
        angles["positions"] = positions
    head_product(guard.given(inputs), guard.given(weight), out, **angles)
    truth = torch.einsum("hnk,thk->thn", weight.double(), inputs[..., :width].double())
    check_close(out[..., :rows], truth, dtype)
    if rope_dim:
        check_close(out[..., rows:], turned(inputs[..., width:], positions.clamp(max=5)), dtype)


def attend(
    query: torch.Tensor, cache: torch.Tensor, seen: torch.Tensor, *, rank: int, scale: float
) -> torch.Tensor:
    """fp64 attention of [B W, NH, C + R] over [B, S, 1, C + R]; rows that see nothing give zeros."""
    stored = cache[:, :, 0].double().nan_to_num()  # what is unseen has weight zero
    queries = query.double().unflatten(0, (len(cache), -1))
    scores = torch.einsum("bwhc,bsc->bwhs", queries, stored) * scale
    weights = scores.masked_fill(~seen[:, :, None], float("-inf")).softmax(-1).nan_to_num()
    return torch.einsum("bwhs,bsc->bwhc", weights, stored[..., :rank]).flatten(0, 1).flatten(1)


def run(
    guard: Any,
    query: torch.Tensor,
    cache: torch.Tensor,
    positions: torch.Tensor,
    lengths: torch.Tensor,
    *,
    rank: int,
    splits: int,
    **masks: Any,
) -> torch.Tensor:
    window = masks.pop("sliding_window", None)
    part_out = guard.space(*query.shape[:2], splits, rank)
    part_log = guard.space(*query.shape[:2], splits)
    latent_attention(
        guard.given(query),
        guard.given(cache),
        Seen(positions, lengths, **masks),
        part_out,
        part_log,
        scale=0.3,
        sliding_window=window,
    )
    out: torch.Tensor = guard.space(query.shape[0], query.shape[1] * rank, dtype=query.dtype)
    attention_merge(part_out, part_log, out)
    return out


@sample(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(
    ("heads", "rank", "rope_dim", "window"), [(6, 20, 6, None), (6, 20, 6, 5), (3, 150, 2, None)]
)
def test_a_token_sees_what_is_not_after_it(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    splits: int,
    heads: int,
    rank: int,
    rope_dim: int,
    window: int | None,
) -> None:
    batch, rows, slots = 2, 3, 90
    query = normal(batch * rows, heads, rank + rope_dim, dtype=dtype)
    cache = normal(batch, slots, 1, rank + rope_dim, dtype=dtype)
    lengths = torch.tensor([80, 3], dtype=torch.int32)
    positions = torch.tensor([77, 78, 79, 2, -1, -1], dtype=torch.int32)
    for request, length in enumerate(lengths.tolist()):
        cache[request, length:] = float("nan")  # never written
    out = run(
        guard, query, cache, positions, lengths, rank=rank, splits=splits, sliding_window=window
    )
    distance = positions.view(batch, rows, 1) - torch.arange(slots)
    seen = (distance >= 0) & (distance < (window or slots))
    check_close(out, attend(query, cache, seen, rank=rank, scale=0.3), dtype)
    assert torch.all(out[4:] == 0.0)  # rows without a token


@sample(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("window", [None, 6])
def test_a_node_sees_the_prefix_and_its_ancestors(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    window: int | None,
) -> None:
    batch, rows, heads, rank, rope_dim, slots = 2, 4, 5, 24, 4, 90
    query = normal(batch * rows, heads, rank + rope_dim, dtype=dtype)
    cache = normal(batch, slots, 1, rank + rope_dim, dtype=dtype)
    starts = torch.tensor([70, 2], dtype=torch.int32)
    lengths = starts + 3 * rows  # third level of four nodes each
    generator = torch.Generator().manual_seed(3)
    chosen = torch.rand(batch * rows, 3 * rows, generator=generator) < 0.4
    chosen[torch.arange(batch * rows), 2 * rows + torch.arange(batch * rows) % rows] = True
    for request, length in enumerate(lengths.tolist()):
        cache[request, length:] = float("nan")
    out = run(
        guard,
        query,
        cache,
        (starts + 2).repeat_interleave(rows),
        lengths,
        rank=rank,
        splits=2,
        tail_starts=starts,
        ancestors=(chosen.long() << torch.arange(3 * rows)).sum(-1),
        sliding_window=window,
    )
    seen = torch.zeros(batch, rows, slots, dtype=torch.bool)
    for request, start in enumerate(starts.tolist()):
        low = 0 if window is None else max(0, start + 2 - window + 1)
        seen[request, :, low:start] = True
        seen[request, :, start : start + 3 * rows] = chosen[request * rows : (request + 1) * rows]
    check_close(out, attend(query, cache, seen, rank=rank, scale=0.3), dtype)
