"""Products of a layer: linear, gate and up, first product with its norms, per head."""

from typing import Any

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import (
    GATED_REGISTERS,
    Tiles,
    device_sm,
    dot_tokens,
    launch,
    launch_product,
    power_of_two,
)
from drafter.kernels.numerics import Given, dot, matvec, product, rounded, side_by_side, token_rows


@triton.jit(do_not_specialize=["num_tokens"])
def linear_kernel(
    given,
    weight,
    bias,
    residual,
    out,
    num_tokens,
    num_rows,
    width,
    CUT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes some outputs of some tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * CUT.block_n + tl.arange(0, CUT.block_n)
    tokens = tl.program_id(1) * CUT.tokens + tl.arange(0, CUT.tokens)
    value = product(given, tokens, weight, rows, num_tokens, num_rows, width, CUT, PDL)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    inside = (rows[:, None] < num_rows) & (tokens[None, :] < num_tokens)
    place = tokens[None, :].to(tl.int64) * num_rows + rows[:, None]
    if bias is not None:
        value += tl.load(bias + rows, mask=rows < num_rows, other=0.0).to(tl.float32)[:, None]
    if residual is not None:
        value += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, rounded(value, out.dtype.element_ty), mask=inside)


def linear(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    tiles: Tiles | None = None,
) -> None:
    """Write a linear map of each token, and what is added to it.

    .. math:: y_t = r_t + b + W x_t

    fp32 sums. drafter.md 11, K2, K6 and K8.
    """
    arguments = (Given(inputs), weight, bias, residual, out)
    launch_product(linear_kernel, len(inputs), weight, *arguments, tiles=tiles)


@triton.jit
def gated(gate, up):
    """silu(gate) * up in fp32; a gate of minus infinity gives NaN, as in torch."""
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit(do_not_specialize=["num_tokens"])
def gate_up_kernel(
    given,
    gate_weight,
    up_weight,
    out,
    num_tokens,
    num_rows,
    width,
    CUT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes some outputs of some tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * CUT.block_n + tl.arange(0, CUT.block_n)
    tokens = tl.program_id(1) * CUT.tokens + tl.arange(0, CUT.tokens)
    gate = product(given, tokens, gate_weight, rows, num_tokens, num_rows, width, CUT, PDL)
    up = product(given, tokens, up_weight, rows, num_tokens, num_rows, width, CUT, WAIT=False)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    value = rounded(gated(gate, up), out.dtype.element_ty)
    inside = (rows[:, None] < num_rows) & (tokens[None, :] < num_tokens)
    place = tokens[None, :].to(tl.int64) * num_rows + rows[:, None]
    tl.store(out + place, value, mask=inside)


def gate_up(
    inputs: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    out: torch.Tensor,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    tiles: Tiles | None = None,
) -> None:
    r"""Write the gated activations of each token; with a norm of up to `MATVEC_TOKENS` of them.

    .. math:: a_t = \mathrm{silu}(W_g\, n(y_t)) \odot W_u\, n(y_t)

    A program reads its gate rows, then its up rows; the inputs come from the cache the second time.
    """
    arguments = (Given(inputs, None, norm, eps), gate_weight, up_weight, out)
    how: dict[str, Any] = {"tiles": tiles, "registers": GATED_REGISTERS, "is_wide": True}
    launch_product(gate_up_kernel, len(inputs), gate_weight, *arguments, **how)


@triton.jit(do_not_specialize=["num_tokens"])
def input_product_kernel(
    embedded,
    carried,
    weight,
    bias,
    out,
    residual,
    num_tokens,
    num_rows,
    both_widths,
    CUT: tl.constexpr,
    NORMED_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes some outputs of at most CUT.tokens tokens: out [T, num_rows].

    A row of the weights has `width` columns for the embedding, then as many for the hidden state. The
    residual [T, width] is copied by the way, N columns a program.
    """
    width = both_widths // 2
    rows = tl.program_id(0) * CUT.block_n + tl.arange(0, CUT.block_n)
    first, _ = matvec(embedded, weight, rows, num_tokens, num_rows, width, 2 * width, CUT, PDL)
    second, scales = matvec(
        carried, weight + width, rows, num_tokens, num_rows, width, 2 * width, CUT, WAIT=False
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    tokens = tl.arange(0, CUT.tokens)
    value = side_by_side(first, CUT.block_n, CUT.tokens) + side_by_side(
        second, CUT.block_n, CUT.tokens
    )
    inside = (rows[:, None] < num_rows) & (tokens[None, :] < num_tokens)
    if bias is not None:
        value += tl.load(bias + rows, mask=rows < num_rows, other=0.0).to(tl.float32)[:, None]
    place = out + tokens[None, :].to(tl.int64) * num_rows + rows[:, None]
    tl.store(place, rounded(value, out.dtype.element_ty), mask=inside)
    hidden_rows = token_rows(carried.input_index, num_tokens, CUT.tokens)
    for start in range(tl.program_id(0) * CUT.block_n, width, tl.num_programs(0) * CUT.block_n):
        column = start + tl.arange(0, CUT.block_n)
        for token in tl.static_range(CUT.tokens):
            is_column = column < tl.where(token < num_tokens, width, 0)
            hidden = carried.inputs + hidden_rows[token] * width + column
            copied = tl.load(hidden, mask=is_column, other=0.0).to(tl.float32)
            if NORMED_RESIDUAL:
                gain = tl.load(carried.norm + column, mask=is_column, other=0.0).to(tl.float32)
                copied = copied * scales[token] * gain
            row = tl.minimum(num_tokens - 1, token).to(tl.int64)
            copy = residual + row * width + column
            tl.store(copy, rounded(copied, residual.dtype.element_ty), mask=is_column)


def input_product(
    tokens: torch.Tensor,
    embedding: torch.Tensor,
    hidden: torch.Tensor,
    embed_norm: torch.Tensor,
    hidden_norm: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor,
    *,
    eps: float,
    normed_residual: bool,
    hidden_rows: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    tiles: Tiles | None = None,
) -> None:
    """Write the first product of up to `FUSED_NORM_TOKENS` tokens and hidden states, and the residual.

    `layer_input` and `linear` in one launch. Each norm is a factor per token, so both halves are summed
    apart and scaled at the end; nothing is rounded between norm and product. drafter.md 11.
    """
    embedded = Given(embedding, tokens, embed_norm, eps)
    carried = Given(hidden, hidden_rows, hidden_norm, eps)
    arguments = (embedded, carried, weight, bias, out, residual)
    more = (normed_residual,)
    launch_product(
        input_product_kernel, len(tokens), weight, *arguments, tiles=tiles, halves=2, more=more
    )


LEAST_COLUMNS = 16
"""Smallest depth of a matrix product, [-]."""

MOST_COLUMNS = 128
"""Columns of a tile, [-]."""


@triton.jit(do_not_specialize=["num_tokens", "num_angles"])
def head_product_kernel(
    inputs,
    weight,
    positions,
    cosine,
    sine,
    out,
    num_tokens,
    num_angles,
    NUM_HEADS: tl.constexpr,
    NUM_ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    TURNED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of one head for BLOCK_T tokens.

    inputs [T, NUM_HEADS, WIDTH + TURNED], weight [NUM_HEADS, NUM_ROWS, WIDTH], out [T, NUM_HEADS,
    NUM_ROWS + TURNED]. The first program of a head also turns its last TURNED values.
    """
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(2) * BLOCK_T + tl.arange(0, BLOCK_T)
    is_token = tokens < num_tokens
    token = tl.minimum(tokens, num_tokens - 1).to(tl.int64)
    line = token * NUM_HEADS + head
    source = inputs + line * (WIDTH + TURNED)  # [BLOCK_T]
    target = out + line * (NUM_ROWS + TURNED)
    # rows past the end repeat the last one and are not stored
    weight_row = weight + (head * NUM_ROWS + tl.minimum(rows, NUM_ROWS - 1)) * WIDTH
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    total = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        column = start + tl.arange(0, BLOCK_K)
        is_column = column < WIDTH
        left = tl.load(weight_row[:, None] + column[None, :], mask=is_column[None, :], other=0.0)
        place = source[None, :] + column[:, None]
        right = tl.load(place, mask=is_column[:, None], other=0.0).to(tl.float32)
        total = dot(left, rounded(right, left.dtype), total)
    inside = (rows < NUM_ROWS)[:, None] & is_token[None, :]
    storage = out.dtype.element_ty
    tl.store(target[None, :] + rows[:, None], rounded(total, storage), mask=inside)
    if TURNED > 0 and tl.program_id(0) == 0:
        half: tl.constexpr = TURNED // 2
        pair = tl.arange(0, BLOCK_R)
        is_pair = is_token[:, None] & (pair < half)[None, :]  # [BLOCK_T, BLOCK_R]
        position = tl.load(positions + token).to(tl.int64)
        # rows without a token sit below 0, drafts past the end of the cache above its last angle
        line = tl.minimum(tl.maximum(position, 0), num_angles - 1)
        angle = line[:, None] * half + pair[None, :]
        cos = tl.load(cosine + angle, mask=is_pair, other=0.0)
        sin = tl.load(sine + angle, mask=is_pair, other=0.0)
        place = source[:, None] + WIDTH + 2 * pair[None, :]
        first = tl.load(place, mask=is_pair, other=0.0).to(tl.float32)
        second = tl.load(place + 1, mask=is_pair, other=0.0).to(tl.float32)
        end = target[:, None] + NUM_ROWS + 2 * pair[None, :]
        tl.store(end, rounded(first * cos - second * sin, storage), mask=is_pair)
        tl.store(end + 1, rounded(second * cos + first * sin, storage), mask=is_pair)


def head_product(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    positions: torch.Tensor | None = None,
    cosine: torch.Tensor | None = None,
    sine: torch.Tensor | None = None,
) -> None:
    r"""Write each head's linear map of its values, and behind it what is turned by the position.

    .. math:: y_{th} = \left[W_h x_{th}^{(1)},\; R_{m(t)}\, x_{th}^{(2)}\right]

    Inputs are rounded to the weights' type, sums are fp32. Any number of tokens goes through tensor
    cores: a head's matrix is one tile or a few, read once for all of them. drafter.md 11, Ma and Mb.
    """
    num_tokens = inputs.shape[0]
    num_heads, num_rows, width = weight.shape
    turned = 0 if cosine is None else 2 * cosine.shape[1]
    block_t = dot_tokens(num_tokens)
    # the interpreter pays by the program, a GPU by the multiprocessor without one
    block_n = 32 if device_sm(weight.device) else 128
    block_k = min(max(power_of_two(width), LEAST_COLUMNS), MOST_COLUMNS)
    grid = (triton.cdiv(num_rows, block_n), num_heads, triton.cdiv(num_tokens, block_t))
    num_angles = 0 if cosine is None else cosine.shape[0]
    given = (inputs, weight, positions, cosine, sine, out, num_tokens, num_angles)
    sizes = (num_heads, num_rows, width, turned, block_n, block_k, block_t)
    half = power_of_two(max(turned // 2, 1))
    launch(head_product_kernel, grid, *given, *sizes, half, warps=4, stages=2)
