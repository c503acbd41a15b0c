"""Products of a layer: linear, gate and up, first product with its norms, per head."""

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import (
    FUSED_NORM_TOKENS,
    GATED_REGISTERS,
    INDEX_TYPES,
    MATVEC_TOKENS,
    STORAGE_TYPES,
    Tiles,
    check_range,
    check_tensor,
    device_sm,
    dot_tokens,
    options,
    power_of_two,
    product_options,
    tiles_for,
    vector_width,
)
from drafter.kernels.numerics import dot, matvec, rounded, swap_dot, token_rows
from specmodel.errors import ParameterError


@triton.jit(do_not_specialize=["num_tokens"])
def linear_matvec_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    residual: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of at most NUM_TOKENS tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    results, _ = matvec(
        inputs,
        None,
        num_tokens,
        weight,
        rows,
        None,
        0.0,
        num_rows,
        width,
        width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        PDL,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    input_rows = token_rows(None, num_tokens, NUM_TOKENS)
    for token in tl.static_range(NUM_TOKENS):
        inside = rows < tl.where(token < num_tokens, num_rows, 0)
        value = results[token]
        if bias is not None:
            value += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
        if residual is not None:
            place = residual + input_rows[token] * num_rows + rows
            value += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        place = out + input_rows[token] * num_rows + rows
        tl.store(place, rounded(value, out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_tokens"])
def linear_dot_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    residual: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of BLOCK_T tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    input_rows = tl.minimum(tokens, num_tokens - 1).to(tl.int64)
    value = swap_dot(
        inputs, input_rows, weight, rows, num_rows, width, BLOCK_N, BLOCK_K, BLOCK_T, IS_WHOLE, PDL
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    inside = (rows[:, None] < num_rows) & (tokens[None, :] < num_tokens)
    place = input_rows[None, :] * num_rows + rows[:, None]
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
    programmatic: bool = False,
) -> None:
    """Write a linear map of each token, and what is added to it.

    .. math:: y_t = r_t + b + W x_t

    fp32 sums. drafter.md 11, K2, K6 and K8.
    """
    num_tokens = inputs.shape[0]
    num_rows, width = weight.shape
    check_tensor("weight", weight, (num_rows, width), STORAGE_TYPES)
    is_matvec = num_tokens <= MATVEC_TOKENS
    types = STORAGE_TYPES if is_matvec else (weight.dtype,)
    check_tensor("inputs", inputs, (num_tokens, width), types, weight)
    check_tensor("out", out, (num_tokens, num_rows), STORAGE_TYPES, weight)
    if bias is not None:
        check_tensor("bias", bias, (num_rows,), STORAGE_TYPES, weight)
    if residual is not None:
        check_tensor("residual", residual, (num_tokens, num_rows), STORAGE_TYPES, weight)
    sm, value_bytes = device_sm(weight.device), weight.element_size()
    cut = tiles or tiles_for(sm, num_tokens, num_rows, width, value_bytes=value_bytes)
    grid = triton.cdiv(num_rows, cut.block_n)
    chosen = product_options(cut, programmatic)
    if is_matvec:
        linear_matvec_kernel[(grid,)](
            inputs,
            weight,
            bias,
            residual,
            out,
            num_tokens,
            num_rows,
            width,
            power_of_two(num_tokens),
            cut.block_n,
            cut.block_k,
            vector_width(weight),
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )
    else:
        block_t = dot_tokens(num_tokens)
        linear_dot_kernel[(grid, triton.cdiv(num_tokens, block_t))](
            inputs,
            weight,
            bias,
            residual,
            out,
            num_tokens,
            num_rows,
            width,
            cut.block_n,
            cut.block_k,
            block_t,
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )


@triton.jit
def gated(gate: tl.tensor, up: tl.tensor) -> tl.tensor:
    """silu(gate) * up in fp32; a gate of minus infinity gives NaN, as in torch."""
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit(do_not_specialize=["num_tokens"])
def gate_up_matvec_kernel(
    inputs: tl.tensor,
    gate_weight: tl.tensor,
    up_weight: tl.tensor,
    norm: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of at most NUM_TOKENS tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    gate, _ = matvec(
        inputs,
        None,
        num_tokens,
        gate_weight,
        rows,
        norm,
        eps,
        num_rows,
        width,
        width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        PDL,
    )
    up, _ = matvec(
        inputs,
        None,
        num_tokens,
        up_weight,
        rows,
        norm,
        eps,
        num_rows,
        width,
        width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    input_rows = token_rows(None, num_tokens, NUM_TOKENS)
    for token in tl.static_range(NUM_TOKENS):
        value = rounded(gated(gate[token], up[token]), out.dtype.element_ty)
        inside = rows < tl.where(token < num_tokens, num_rows, 0)
        tl.store(out + input_rows[token] * num_rows + rows, value, mask=inside)


@triton.jit(do_not_specialize=["num_tokens"])
def gate_up_dot_kernel(
    inputs: tl.tensor,
    gate_weight: tl.tensor,
    up_weight: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of BLOCK_T tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    input_rows = tl.minimum(tokens, num_tokens - 1).to(tl.int64)
    gate = swap_dot(
        inputs,
        input_rows,
        gate_weight,
        rows,
        num_rows,
        width,
        BLOCK_N,
        BLOCK_K,
        BLOCK_T,
        IS_WHOLE,
        PDL,
    )
    up = swap_dot(
        inputs,
        input_rows,
        up_weight,
        rows,
        num_rows,
        width,
        BLOCK_N,
        BLOCK_K,
        BLOCK_T,
        IS_WHOLE,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    value = rounded(gated(gate, up), out.dtype.element_ty)
    inside = (rows[:, None] < num_rows) & (tokens[None, :] < num_tokens)
    tl.store(out + input_rows[None, :] * num_rows + rows[:, None], value, mask=inside)


def gate_up(
    inputs: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    out: torch.Tensor,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    tiles: Tiles | None = None,
    programmatic: bool = False,
) -> None:
    r"""Write the gated activations of each token.

    .. math:: a_t = \mathrm{silu}(W_g\, n(y_t)) \odot W_u\, n(y_t)

    A program reads its gate rows, then its up rows; the inputs come from the cache the second time.
    """
    num_tokens = inputs.shape[0]
    num_rows, width = gate_weight.shape
    check_tensor("gate_weight", gate_weight, (num_rows, width), STORAGE_TYPES)
    check_tensor("up_weight", up_weight, (num_rows, width), (gate_weight.dtype,), gate_weight)
    is_matvec = num_tokens <= MATVEC_TOKENS
    types = STORAGE_TYPES if is_matvec else (gate_weight.dtype,)
    check_tensor("inputs", inputs, (num_tokens, width), types, gate_weight)
    check_tensor("out", out, (num_tokens, num_rows), STORAGE_TYPES, gate_weight)
    if norm is not None:
        check_tensor("norm", norm, (width,), STORAGE_TYPES, gate_weight)
        if not is_matvec:
            allowed = f"at most {MATVEC_TOKENS} with a norm in the product"
            raise ParameterError("tokens", num_tokens, allowed, "normalise the rows before")
    sm, value_bytes = device_sm(gate_weight.device), gate_weight.element_size()
    cut = tiles or tiles_for(sm, num_tokens, num_rows, width, value_bytes=value_bytes, is_wide=True)
    grid = triton.cdiv(num_rows, cut.block_n)
    chosen = product_options(cut, programmatic, most_registers=GATED_REGISTERS)
    if is_matvec:
        gate_up_matvec_kernel[(grid,)](
            inputs,
            gate_weight,
            up_weight,
            norm,
            out,
            num_tokens,
            eps,
            num_rows,
            width,
            power_of_two(num_tokens),
            cut.block_n,
            cut.block_k,
            vector_width(gate_weight),
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )
    else:
        block_t = dot_tokens(num_tokens)
        gate_up_dot_kernel[(grid, triton.cdiv(num_tokens, block_t))](
            inputs,
            gate_weight,
            up_weight,
            out,
            num_tokens,
            num_rows,
            width,
            cut.block_n,
            cut.block_k,
            block_t,
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )


@triton.jit(do_not_specialize=["num_tokens"])
def input_product_kernel(
    tokens: tl.tensor,
    embedding: tl.tensor,
    hidden: tl.tensor,
    hidden_rows: tl.tensor,
    embed_norm: tl.tensor,
    hidden_norm: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    residual: tl.tensor,
    num_tokens: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    NORMED_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of at most NUM_TOKENS tokens: out [T, num_rows].

    A row of the weights has `width` columns for the embedding, then as many for the hidden state. The
    residual [T, width] is copied by the way, BLOCK_N columns a program.
    """
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    embedded, _ = matvec(
        embedding,
        tokens,
        num_tokens,
        weight,
        rows,
        embed_norm,
        eps,
        num_rows,
        width,
        2 * width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        PDL,
    )
    carried, scales = matvec(
        hidden,
        hidden_rows,
        num_tokens,
        weight + width,
        rows,
        hidden_norm,
        eps,
        num_rows,
        width,
        2 * width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    out_rows = token_rows(None, num_tokens, NUM_TOKENS)
    for token in tl.static_range(NUM_TOKENS):
        inside = rows < tl.where(token < num_tokens, num_rows, 0)
        value = embedded[token] + carried[token]
        if bias is not None:
            value += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
        place = out + out_rows[token] * num_rows + rows
        tl.store(place, rounded(value, out.dtype.element_ty), mask=inside)
    hidden_places = token_rows(hidden_rows, num_tokens, NUM_TOKENS)
    for start in range(tl.program_id(0) * BLOCK_N, width, tl.num_programs(0) * BLOCK_N):
        column = start + tl.arange(0, BLOCK_N)
        for token in tl.static_range(NUM_TOKENS):
            inside = column < tl.where(token < num_tokens, width, 0)
            place = hidden + hidden_places[token] * width + column
            value = tl.load(place, mask=inside, other=0.0).to(tl.float32)
            if NORMED_RESIDUAL:
                gain = tl.load(hidden_norm + column, mask=inside, other=0.0).to(tl.float32)
                value = value * scales[token] * gain
            place = residual + out_rows[token] * width + column
            tl.store(place, rounded(value, residual.dtype.element_ty), mask=inside)


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
    programmatic: bool = False,
) -> None:
    """Write the first product of each token, from token and hidden state, and the residual.

    `layer_input` and `linear` in one launch. Each norm is a factor per token, so both halves are summed
    apart and scaled at the end; nothing is rounded between norm and product. drafter.md 11.
    """
    num_tokens, width = tokens.shape[0], hidden.shape[1]
    num_rows = weight.shape[0]
    check_range("tokens", num_tokens, 1, FUSED_NORM_TOKENS, "normalise the rows before")
    check_tensor("tokens", tokens, (num_tokens,), INDEX_TYPES, hidden)
    check_tensor("embedding", embedding, (embedding.shape[0], width), STORAGE_TYPES, hidden)
    source_rows = hidden.shape[0] if hidden_rows is not None else num_tokens
    check_tensor("hidden", hidden, (source_rows, width), STORAGE_TYPES)
    check_tensor("embed_norm", embed_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("hidden_norm", hidden_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("weight", weight, (num_rows, 2 * width), STORAGE_TYPES, hidden)
    check_tensor("out", out, (num_tokens, num_rows), STORAGE_TYPES, hidden)
    check_tensor("residual", residual, (num_tokens, width), STORAGE_TYPES, hidden)
    if hidden_rows is not None:
        check_tensor("hidden_rows", hidden_rows, (num_tokens,), INDEX_TYPES, hidden)
    if bias is not None:
        check_tensor("bias", bias, (num_rows,), STORAGE_TYPES, hidden)
    sm, value_bytes = device_sm(weight.device), weight.element_size()
    cut = tiles or tiles_for(sm, num_tokens, num_rows, 2 * width, value_bytes=value_bytes)
    input_product_kernel[(triton.cdiv(num_rows, cut.block_n),)](
        tokens,
        embedding,
        hidden,
        hidden_rows,
        embed_norm,
        hidden_norm,
        weight,
        bias,
        out,
        residual,
        num_tokens,
        eps,
        num_rows,
        width,
        power_of_two(num_tokens),
        cut.block_n,
        cut.block_k,
        vector_width(weight),
        width % cut.block_k == 0,
        normed_residual,
        programmatic,
        **product_options(cut, programmatic),
    )


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

    Inputs are rounded to the weights' type, sums are fp32. Any number of tokens goes through tensor
    cores: a head's matrix is one tile or a few, read once for all of them. drafter.md 11, Ma and Mb.
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
