"""Cosines and sines of the rotary embedding by position, for every kind of scaling."""

import math

import torch

from drafter.spec import Rope


def rope_table(
    rope: Rope,
    *,
    head_dim: int,
    num_positions: int,
    max_positions: int,
    context_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Tables that `rope_cache`, `latent_cache` and `head_product` read.

    .. math:: c_{mi} = a \cos(m\,\omega_i), \qquad s_{mi} = a \sin(m\,\omega_i)

    Parameters
    ----------
    rope : Rope
        Kind and constants.
    head_dim : int
        :math:`D`, even, [-].
    num_positions : int
        Rows of the tables: positions from 0, [tokens].
    max_positions : int
        Longest trained context, for the dynamic kind, [tokens].
    context_tokens : int, optional
        Context for which the dynamic kind is stretched, once for all positions; None: not stretched.
    device : torch.device or str
        Where the tables are wanted.

    Returns
    -------
    cosine, sine : torch.Tensor, shape (num_positions, D / 2)
        fp32, each rounded once from fp64.

    Notes
    -----
    The kinds are those of [transformers-5.19.0]_; :math:`a` is 1 but for yarn ([peng2023]_ Eq. 24).

    Examples
    --------
    >>> cosine, sine = rope_table(Rope(), head_dim=4, num_positions=3, max_positions=16)
    >>> cosine.shape, round(float(sine[2, 0]), 6)
    (torch.Size([3, 2]), 0.909297)
    """
    half = torch.arange(head_dim // 2, dtype=torch.float64) / (head_dim // 2)
    base = rope.theta
    if rope.kind == "dynamic":
        trained = rope.original_max_positions or max_positions
        over = max(context_tokens or 0, trained) / trained
        base *= (1.0 + rope.factor * (over - 1.0)) ** (head_dim / (head_dim - 2))
    turn = torch.exp(-half * math.log(base))  # radians per position
    stretched = turn / rope.factor
    if rope.kind == "linear":
        turn = stretched
    elif rope.kind == "llama3":
        turn = torch.lerp(stretched, turn, _turns_share(rope, turn))
    elif rope.kind == "yarn":
        turn = torch.lerp(stretched, turn, _pair_share(rope, head_dim))
    angle = torch.outer(torch.arange(num_positions, dtype=torch.float64), turn)
    gain = _gain(rope)
    tables = (gain * angle.cos(), gain * angle.sin())
    return (
        tables[0].to(device=device, dtype=torch.float32),
        tables[1].to(device=device, dtype=torch.float32),
    )


def _turns_share(rope: Rope, turn: torch.Tensor) -> torch.Tensor:
    """How much of each frequency of llama3 stays: 1 from `high_freq_factor` turns in training on."""
    turns = turn * (rope.original_max_positions or 1) / math.tau
    low, high = rope.low_freq_factor, rope.high_freq_factor
    return ((turns - low) / (high - low)).clip(0.0, 1.0)


def _pair_share(rope: Rope, head_dim: int) -> torch.Tensor:
    """How much of each frequency of yarn stays: 1 for the pairs that make `beta_fast` turns or more."""
    log_base = math.log(rope.theta)

    def pair(turns: float) -> float:
        return (
            head_dim
            * math.log((rope.original_max_positions or 1) / (turns * math.tau))
            / 2
            / log_base
        )

    first = max(math.floor(pair(rope.beta_fast)), 0)
    last = min(math.ceil(pair(rope.beta_slow)), head_dim - 1)
    ramp = (torch.arange(head_dim // 2, dtype=torch.float64) - first) / max(last - first, 1e-3)
    return 1.0 - ramp.clip(0.0, 1.0)


def _gain(rope: Rope) -> float:
    """Factor on both tables."""
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    growth = 0.1 * math.log(max(rope.factor, 1.0))
    if rope.mscale and rope.mscale_all_dim:
        return (1.0 + rope.mscale * growth) / (1.0 + rope.mscale_all_dim * growth)
    return 1.0 + growth
