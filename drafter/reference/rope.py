"""Rotary embedding: frequencies of every published scaling, and the turn itself."""

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor

from drafter.spec import Rope
from specmodel.errors import ParameterError


def rotary_frequencies(
    rope: Rope, rotary_dim: int, *, max_positions: int, context_tokens: int | None = None
) -> Tensor:
    r"""Angle that each pair of a head turns by per position.

    .. math:: \omega_i = \theta^{-2i/d}

    and, for the other kinds, with factor :math:`s`:

    where the blend :math:`b_i` is 1 for fast pairs, which stay, and 0 for slow ones, which are stretched.

    [su2021]_ section 3.2.2; YaRN is [peng2023]_ sections 3.2 and 3.4; llama3 and dynamic as in
    [transformers-models]_, which stretches the dynamic kind only as far as the present context asks.
    An engine with one fixed table asks for the longest context that it serves.
    """
    if rotary_dim < 2 or rotary_dim % 2:
        raise ParameterError("rotary_dim", rotary_dim, "even and positive")
    theta = rope.theta
    if rope.kind == "dynamic":
        theta *= _dynamic_growth(rope, rotary_dim, max_positions, context_tokens)
    pairs = torch.arange(0, rotary_dim, 2, dtype=torch.float64)
    frequencies = theta ** (-pairs / rotary_dim)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        blend = _llama3_blend(rope, frequencies)
    elif rope.kind == "yarn":
        blend = _yarn_blend(rope, rotary_dim)
    else:
        return frequencies
    return frequencies * (blend + (1.0 - blend) / rope.factor)


def rotary_magnitude(rope: Rope) -> float:
    """Factor on cosine and sine, by which yarn sharpens attention over a long context.

    [peng2023]_ section 3.4, in the form of [transformers-models]_: a temperature of 0 counts as not
    given. Queries and keys both carry it, so that scores carry its square.
    """
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return _temperature(rope, rope.mscale) / _temperature(rope, rope.mscale_all_dim)
    return _temperature(rope, 1.0)


def latent_score_factor(rope: Rope) -> float:
    """Factor on the scores of latent attention, for the part of a head that does not turn too.

    Only latent attention has it; grouped heads do not. [deepseek-v3-2024]_, as in
    [transformers-models]_, where every kind but the default one has it.
    """
    if rope.kind == "default" or not rope.mscale_all_dim:
        return 1.0
    return _temperature(rope, rope.mscale_all_dim) ** 2


def _temperature(rope: Rope, scale: float) -> float:
    """Square root of the inverse softmax temperature; 1 where nothing is stretched."""
    return 1.0 if rope.factor <= 1.0 else 1.0 + 0.1 * scale * math.log(rope.factor)


def _dynamic_growth(
    rope: Rope, rotary_dim: int, max_positions: int, context_tokens: int | None
) -> float:
    """Factor on the base: 1 up to the trained context."""
    if rotary_dim <= 2:
        raise ParameterError("rotary_dim", rotary_dim, "above 2 for the dynamic kind")
    trained = rope.original_max_positions or max_positions
    asked = max(context_tokens or trained, trained)
    stretch = rope.factor * asked / trained - (rope.factor - 1.0)
    return float(stretch ** (rotary_dim / (rotary_dim - 2)))


def _llama3_blend(rope: Rope, frequencies: Tensor) -> Tensor:
    """Linear in the turns a pair makes within the trained context, between the two factors."""
    turns = (rope.original_max_positions or 0) * frequencies / (2.0 * math.pi)
    span = rope.high_freq_factor - rope.low_freq_factor
    return ((turns - rope.low_freq_factor) / span).clamp(0.0, 1.0)


def _yarn_blend(rope: Rope, rotary_dim: int) -> Tensor:
    """Linear in the index of a pair, between the pairs that make `beta_fast` and `beta_slow` turns."""

    def pair_that_makes(turns: float) -> float:
        # theta ** (-2 i / d) * n0 = 2 pi turns, solved for i
        trained = rope.original_max_positions or 0
        return (
            rotary_dim * math.log(trained / (2.0 * math.pi * turns)) / (2.0 * math.log(rope.theta))
        )

    first = max(math.floor(pair_that_makes(rope.beta_fast)), 0)
    last = min(math.ceil(pair_that_makes(rope.beta_slow)), rotary_dim - 1)
    width = (last - first) or 1e-3  # a step where both ends meet
    index = torch.arange(rotary_dim // 2, dtype=torch.float64)
    return 1.0 - ((index - first) / width).clamp(0.0, 1.0)


class RotaryTable(NamedTuple):
    """Cosine and sine of every pair at some positions."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(
        cls,
        positions: Tensor,
        frequencies: Tensor,
        *,
        magnitude: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> Self:
        r"""Table of some positions.

        .. math:: c_{ti} = a\cos(t\,\omega_i), \qquad s_{ti} = a\sin(t\,\omega_i)
        """
        angles = positions.to(torch.float64)[:, None] * frequencies.to(torch.float64)
        return cls((angles.cos() * magnitude).to(dtype), (angles.sin() * magnitude).to(dtype))


def rotate_halves(x: Tensor, table: RotaryTable) -> Tensor:
    r"""Heads turned, where the partner of a value stands half a head further.

    .. math:: (x_i,\ x_{i+d/2}) \to (x_i c_i - x_{i+d/2} s_i,\ x_{i+d/2} c_i + x_i s_i)

    The order of grouped heads in Llama and Qwen3 checkpoints. [su2021]_ section 3.4.2, up to a
    permutation.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat(_turn(first, second, table), dim=-1)


def rotate_neighbours(x: Tensor, table: RotaryTable) -> Tensor:
    r"""Heads turned, where the partner of a value stands next to it.

    .. math:: (x_{2i},\ x_{2i+1}) \to (x_{2i} c_i - x_{2i+1} s_i,\ x_{2i+1} c_i + x_{2i} s_i)

    The order of latent heads in DeepSeek checkpoints. [su2021]_ section 3.4.2.
    """
    turned = _turn(x[..., 0::2], x[..., 1::2], table)
    return torch.stack(turned, dim=-1).flatten(start_dim=-2)


def _turn(first: Tensor, second: Tensor, table: RotaryTable) -> tuple[Tensor, Tensor]:
    """Both members of every pair after the turn."""
    cos, sin = table.cos[:, None, :], table.sin[:, None, :]
    return first * cos - second * sin, second * cos + first * sin
