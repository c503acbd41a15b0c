"""Row kernels against fp64: norms, the layer's input, rotation and cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from drafter.kernels.draft_steps import extend_plan
from drafter.kernels.norm_rope import CacheSpace, layer_input, rope_cache, rope_table, row_norm
from drafter.spec import Rope
from tests.extent import sample

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def normed(values: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return values * (values.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


@sample(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 123), (2, 3, 63), (2, 1, 5000)])
def test_each_part_of_a_row_has_its_own_norm(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    shape: tuple[int, ...],
) -> None:
    x, weight = normal(*shape, dtype=dtype), normal(*shape[1:], dtype=dtype)
    out = guard.space(*shape, dtype=dtype)
    row_norm(guard.given(x), guard.given(weight), out, eps=1e-6)
    check_close(out, normed(x.double(), weight.double(), 1e-6), dtype)


@sample(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize("has_rows", [False, True])
def test_the_embedding_comes_first_and_never_enters_the_residual(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    is_normed: bool,
    has_rows: bool,
) -> None:
    width = 63
    tokens = torch.tensor([4, 0, 8, 4])
    table, hidden = normal(9, width, dtype=dtype), normal(6 if has_rows else 4, width)
    first, second = normal(width, dtype=dtype), normal(width, dtype=dtype)
    rows = torch.tensor([5, 0, 0, 3], dtype=torch.int32) if has_rows else None
    out, residual = guard.space(4, 2 * width, dtype=dtype), guard.space(4, width)
    layer_input(
        tokens,
        guard.given(table),
        guard.given(hidden),
        guard.given(first),
        guard.given(second),
        out,
        residual,
        eps=1e-5,
        normed_residual=is_normed,
        hidden_rows=rows,
    )
    taken = hidden.double()[rows.long() if rows is not None else slice(None)]
    states = normed(taken, second.double(), 1e-5)
    embedded = normed(table.double()[tokens], first.double(), 1e-5)
    check_close(out, torch.cat([embedded, states], dim=-1), dtype)
    check_close(residual, states if is_normed else taken, torch.float32)


@pytest.mark.parametrize("head_dim", [32, 6])
def test_the_table_holds_cosine_and_sine_of_every_position(head_dim: int) -> None:
    cosine, sine = rope_table(Rope(), head_dim=head_dim, num_positions=300, max_positions=64)
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.arange(300, dtype=torch.float64)[:, None] / 10_000.0**pairs
    torch.testing.assert_close(cosine.double(), angles.cos(), rtol=0, atol=2e-7)
    torch.testing.assert_close(sine.double(), angles.sin(), rtol=0, atol=2e-7)


@sample(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(6, 2, 20), (4, 4, 16)])
def test_queries_and_keys_turn_and_the_cache_is_written_at_its_slots(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    has_norm: bool,
    heads: int,
    kv_heads: int,
    width: int,
) -> None:
    batch, rows, capacity = 2, 3, 7
    fused = normal(batch * rows, (heads + 2 * kv_heads) * width)
    positions = torch.tensor([4, 5, -1, 0, 1, 40], dtype=torch.int32)
    slots = torch.tensor([6, 2, -1, 0, 3, 7], dtype=torch.int32)  # the last one is past the end
    cosine, sine = rope_table(Rope(), head_dim=width, num_positions=8, max_positions=64)
    gains = (normal(width, dtype=dtype), normal(width, dtype=dtype)) if has_norm else (None, None)
    query = guard.space(batch * rows, heads, width, dtype=dtype)
    keys = guard.space(batch, capacity, kv_heads, width, dtype=dtype)
    values = guard.space(batch, capacity, kv_heads, width, dtype=dtype)
    rope_cache(
        guard.given(fused),
        CacheSpace(keys, values, guard.given(cosine), guard.given(sine)),
        positions,
        slots,
        query,
        norms=None if gains[0] is None else tuple(map(guard.given, gains)),
        eps=1e-5,
    )
    parts = fused.double().view(batch * rows, -1, width).split([heads, kv_heads, kv_heads], dim=1)
    turned = []
    for part, gain in zip(parts[:2], gains, strict=True):
        x = part if gain is None else normed(part, gain.double(), 1e-5)
        angle = positions.clamp(0, 7).double()[:, None] * 10_000.0 ** (
            -torch.arange(width // 2, dtype=torch.float64) / (width // 2)
        )
        number = torch.polar(torch.ones_like(angle), angle)[:, None]
        spun = torch.complex(x[..., : width // 2], x[..., width // 2 :]) * number
        turned.append(torch.cat([spun.real, spun.imag], dim=-1))
    check_close(query, turned[0], dtype)
    written = [row for row in range(6) if 0 <= slots[row] < capacity]
    for cache, truth in ((keys, turned[1]), (values, parts[2])):
        found = torch.stack([cache[row // rows, slots[row]] for row in written])
        check_close(found, truth[written], dtype)
        assert int(cache.isnan().sum()) == (batch * capacity - len(written)) * kv_heads * width


def test_an_extend_pass_is_placed_from_counts_on_the_device(guard: Any) -> None:
    positions = guard.space(9, dtype=torch.int32)
    lengths, last = (guard.space(3, dtype=torch.int32) for _ in range(2))
    before, accepted = torch.tensor([0, 7, 4]).int(), torch.tensor([3, 1, 2]).int()
    extend_plan(before, accepted, positions, lengths, last)
    assert positions.view(3, 3).tolist() == [[0, 1, 2], [7, -1, -1], [4, 5, -1]]
    assert lengths.tolist() == [3, 8, 6]
    assert last.tolist() == [2, 3, 7]
