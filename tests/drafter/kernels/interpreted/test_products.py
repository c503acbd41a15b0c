"""Products of weights and tokens against fp64: both paths, odd shapes, every storage type."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from drafter.kernels.launch_plan import Tiles
from drafter.kernels.products import gate_up, input_product, linear
from tests.extent import sample

TYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 63, 123), (3, 40, 256), (8, 97, 1030), (9, 63, 123), (17, 130, 256), (70, 33, 72)]


def normed(values: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return values * (values.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


@sample(6)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("tokens", "rows", "width"), SHAPES)
def test_linear_with_bias_and_residual_is_the_fp64_product(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    tokens: int,
    rows: int,
    width: int,
) -> None:
    x, weight = normal(tokens, width, dtype=dtype), normal(rows, width, dtype=dtype)
    bias, residual = normal(rows, dtype=dtype), normal(tokens, rows)
    out = guard.space(tokens, rows, dtype=dtype)
    linear(
        guard.given(x),
        guard.given(weight),
        out,
        bias=guard.given(bias),
        residual=guard.given(residual),
    )
    check_close(out, x.double() @ weight.double().T + bias.double() + residual.double(), dtype)


@pytest.mark.parametrize("tiles", [(4, 1024, 1), (2, 64, 1), (8, 16, 1)])
def test_linear_does_not_depend_on_the_tiles(
    guard: Any, normal: Any, check_close: Callable[..., None], tiles: tuple[int, int, int]
) -> None:
    x, weight = normal(2, 90), normal(21, 90)
    out = guard.space(2, 21)
    cut = Tiles(block_n=tiles[0], block_k=tiles[1], num_warps=4, num_stages=tiles[2])
    linear(guard.given(x), guard.given(weight), out, tiles=cut)
    check_close(out, x.double() @ weight.double().T, torch.float32)


@sample(4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("tokens", "rows", "width"), [(1, 63, 123), (4, 130, 64), (11, 63, 123), (20, 70, 64)]
)
def test_gate_and_up_are_gated_by_silu(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    tokens: int,
    rows: int,
    width: int,
) -> None:
    x = normal(tokens, width, dtype=dtype)
    gate, up = (normal(rows, width, dtype=dtype, scale=0.2) for _ in range(2))
    out = guard.space(tokens, rows, dtype=dtype)
    gate_up(guard.given(x), guard.given(gate), guard.given(up), out)
    left, right = x.double() @ gate.double().T, x.double() @ up.double().T
    check_close(out, left / (1 + torch.exp(-left)) * right, dtype)


def test_the_norm_before_the_mlp_can_be_part_of_it(
    guard: Any, normal: Any, check_close: Callable[..., None]
) -> None:
    x, gain = normal(2, 96, scale=5.0), normal(96)
    gate, up = normal(40, 96, scale=0.2), normal(40, 96, scale=0.2)
    out = guard.space(2, 40)
    gate_up(
        guard.given(x), guard.given(gate), guard.given(up), out, norm=guard.given(gain), eps=1e-5
    )
    y = normed(x.double(), gain.double(), 1e-5)
    left = y @ gate.double().T
    check_close(out, left / (1 + torch.exp(-left)) * (y @ up.double().T), torch.float32)


@sample(4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize(
    ("rows", "tiles"), [(None, None), ([5, 0, 3], (2, 32)), ([1, 1, 4], (64, 512))]
)
def test_the_norms_of_both_halves_can_be_part_of_the_first_product(
    guard: Any,
    normal: Any,
    check_close: Callable[..., None],
    dtype: torch.dtype,
    is_normed: bool,
    rows: list[int] | None,
    tiles: tuple[int, int] | None,
) -> None:
    width, num_rows, tokens = 63, 21, torch.tensor([4, 0, 8])
    table, hidden = normal(9, width, dtype=dtype), normal(6 if rows else 3, width, scale=30.0)
    first, second = normal(width, dtype=dtype), normal(width, dtype=dtype)
    weight, bias = normal(num_rows, 2 * width, dtype=dtype), normal(num_rows, dtype=dtype)
    out, residual = guard.space(3, num_rows), guard.space(3, width)
    cut = tiles and Tiles(block_n=tiles[0], block_k=tiles[1], num_warps=4, num_stages=1)
    input_product(
        tokens,
        guard.given(table),
        guard.given(hidden),
        guard.given(first),
        guard.given(second),
        guard.given(weight),
        out,
        residual,
        eps=1e-5,
        normed_residual=is_normed,
        hidden_rows=None if rows is None else torch.tensor(rows, dtype=torch.int32),
        bias=guard.given(bias),
        tiles=cut,
    )
    taken = hidden.double()[rows if rows is not None else slice(None)]
    states = normed(taken, second.double(), 1e-5)
    embedded = normed(table.double()[tokens], first.double(), 1e-5)
    truth = torch.cat([embedded, states], dim=-1) @ weight.double().T + bias.double()
    check_close(out, truth, torch.float32)  # nothing but the sums is rounded
    check_close(residual, states if is_normed else taken, torch.float32)
