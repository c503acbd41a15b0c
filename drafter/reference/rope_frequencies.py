"""How fast each pair of a head turns with the position, for every kind of rotary embedding."""

import math

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

    .. math::
        \text{linear: } & \omega_i/s \\
        \text{dynamic: } & \theta \to \theta\left(s\,n/n_0-(s-1)\right)^{d/(d-2)},\quad n \ge n_0 \\
        \text{llama3, yarn: } & \omega_i\left(b_i + (1-b_i)/s\right)

    where the blend :math:`b_i` is 1 for fast pairs, which stay, and 0 for slow ones, which are stretched.

    Parameters
    ----------
    rope : Rope
        Kind and constants.
    rotary_dim : int
        :math:`d`, width of a head that turns, even, [-].
    max_positions : int
        :math:`n_0` of the dynamic kind unless `rope` states its own, [tokens].
    context_tokens : int, optional
        :math:`n`, longest context the dynamic kind is asked for; None: it is not stretched, [tokens].

    Returns
    -------
    Tensor, shape [rotary_dim / 2]
        In fp64 whatever the dtype of the model, [rad/token].

    Raises
    ------
    ParameterError
        If `rotary_dim` is odd or not positive, or too small for the dynamic kind.

    Notes
    -----
    [su2021]_ section 3.2.2; YaRN is [peng2023]_ sections 3.2 and 3.4; llama3 and dynamic as in
    [transformers-models]_, which stretches the dynamic kind only as far as the present context asks.
    An engine with one fixed table asks for the longest context that it serves.

    Examples
    --------
    >>> rotary_frequencies(Rope(), 4, max_positions=2048).tolist()
    [1.0, 0.01]
    >>> rotary_frequencies(Rope(kind="linear", factor=4.0), 4, max_positions=2048).tolist()
    [0.25, 0.0025]
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
    r"""Factor on cosine and sine, by which yarn sharpens attention over a long context.

    .. math:: m(a) = 1 + 0.1\,a\ln s, \qquad
        \frac{m(a_\text{mscale})}{m(a_\text{all})} \text{ if both are given, else } m(1)

    Parameters
    ----------
    rope : Rope
        Kind and constants; a stated `attention_factor` is taken as it is.

    Returns
    -------
    float
        1 for every kind but yarn, [-].

    Notes
    -----
    [peng2023]_ section 3.4, in the form of [transformers-models]_: a temperature of 0 counts as not
    given. Queries and keys both carry it, so that scores carry its square.

    Examples
    --------
    >>> rotary_magnitude(Rope(kind="yarn", factor=4.0, original_max_positions=4096))
    1.1386294361119891
    >>> rotary_magnitude(Rope(kind="llama3", factor=8.0, original_max_positions=8192))
    1.0
    """
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return _temperature(rope, rope.mscale) / _temperature(rope, rope.mscale_all_dim)
    return _temperature(rope, 1.0)


def latent_score_factor(rope: Rope) -> float:
    r"""Factor on the scores of latent attention, for the part of a head that does not turn too.

    .. math:: m(a_\text{all})^2

    Parameters
    ----------
    rope : Rope
        Kind and constants.

    Returns
    -------
    float
        1 without `mscale_all_dim`, [-].

    Notes
    -----
    Only latent attention has it; grouped heads do not. [deepseek-v3-2024]_, as in
    [transformers-models]_, where every kind but the default one has it.

    Examples
    --------
    >>> rope = Rope(kind="yarn", factor=64.0, original_max_positions=4096, mscale_all_dim=1.0)
    >>> latent_score_factor(rope)
    2.00474
    >>> latent_score_factor(Rope())
    1.0
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
