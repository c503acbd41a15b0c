"""A small matrix for each head: queries into the space of latents, attended latents into values."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import INDEX_TYPES, STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import device_sm, dot_tokens, options, power_of_two
from drafter.kernels.numerics import dot, rounded

LEAST_COLUMNS = 16
"""Smallest depth of a matrix product, [-]."""

MOST_COLUMNS = 128
"""Columns of a tile, [-]."""


@triton.jit(do_not_specialize=["num_tokens", "num_angles"])
def head_product_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    positions: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    num_angles: tl.tensor,
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
    programmatic: bool = False,
) -> None:
    r"""Write each head's linear map of its values, and behind it what is turned by the position.

    .. math:: y_{th} = \left[W_h x_{th}^{(1)},\; R_{m(t)}\, x_{th}^{(2)}\right]

    Parameters
    ----------
    inputs : torch.Tensor, shape (T, NH, K + R)
        :math:`x`; R is 0 without positions.
    weight : torch.Tensor, shape (NH, N, K)
        :math:`W`.
    out : torch.Tensor, shape (T, NH, N + R)
        :math:`y`.
    positions : torch.Tensor, optional, shape (T,)
        :math:`m`, with `cosine` and `sine`; -1 for a row without a token.
    cosine, sine : torch.Tensor, optional, shape (P, R / 2)
        fp32 tables of `rope_table`; neighbouring values turn together.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    Inputs are rounded to the weights' type, sums are fp32. Any number of tokens goes through tensor
    cores: a head's matrix is one tile or a few, read once for all of them. drafter.md 11, Ma and Mb.

    Examples
    --------
    >>> head_product(torch.ones(1, 2, 4), torch.ones(2, 3, 5), torch.empty(1, 2, 3))
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: inputs must be of shape (1, 2, 5), got (1, 2, 4)
    """
    num_tokens = inputs.shape[0]
    num_heads, num_rows, width = weight.shape
    turned = 0 if cosine is None else 2 * cosine.shape[1]
    check_tensor("weight", weight, weight.shape, STORAGE_TYPES)
    check_tensor("inputs", inputs, (num_tokens, num_heads, width + turned), STORAGE_TYPES, weight)
    check_tensor("out", out, (num_tokens, num_heads, num_rows + turned), STORAGE_TYPES, weight)
    if positions is not None and cosine is not None and sine is not None:
        check_tensor("positions", positions, (num_tokens,), INDEX_TYPES, weight)
        check_tensor("cosine", cosine, cosine.shape, (torch.float32,), weight)
        check_tensor("sine", sine, cosine.shape, (torch.float32,), weight)
    block_t = dot_tokens(num_tokens)
    # the interpreter pays by the program, a GPU by the multiprocessor without one
    block_n = 32 if device_sm(weight.device) else 128
    block_k = min(max(power_of_two(width), LEAST_COLUMNS), MOST_COLUMNS)
    grid = (triton.cdiv(num_rows, block_n), num_heads, triton.cdiv(num_tokens, block_t))
    head_product_kernel[grid](
        inputs,
        weight,
        positions,
        cosine,
        sine,
        out,
        num_tokens,
        0 if cosine is None else cosine.shape[0],
        num_heads,
        num_rows,
        width,
        turned,
        block_n,
        block_k,
        block_t,
        power_of_two(max(turned // 2, 1)),
        programmatic,
        **options(4, 2, programmatic),
    )
