"""Weights of any shape at a realistic scale, for tests and for timing without a checkpoint."""

import math

from drafter.spec import DraftSpec
from drafter.tensor_names import DRAFT_TO_TARGET, EMBEDDING, TARGET_HAS_DRAFT
from drafter.tensor_shapes import Shape, expected_shapes
from drafter.torch_extra import torch

EMBEDDING_SD = 0.02
"""Standard deviation of the entries of an embedding, as models are started with."""

_NORM_SD = 0.1


def random_weights(
    spec: DraftSpec,
    *,
    seed: int,
    dtype: torch.dtype,
    device: str = "cpu",
    ascending: bool = True,
) -> dict[str, torch.Tensor]:
    r"""Random weights of a draft model, with every tensor that its spec needs.

    .. math:: W_{ij} \sim N(0, 1/K),\quad g_i \sim N(1, 0.1^2)

    Parameters
    ----------
    spec : DraftSpec
        The draft model.
    seed : int
        Equal seeds give equal weights on one device, whatever the dtype (up to its rounding).
    dtype : torch.dtype
        Floating type of the weights.
    device : str
        Where they are made.
    ascending : bool
        Whether draft tokens are in the order of their target tokens, as speculators writes them; else
        they are shuffled.

    Returns
    -------
    dict of str to torch.Tensor
        Canonical names, with ``d2t`` (int64) and ``t2d`` (bool).

    Notes
    -----
    :math:`K` is the number of inputs of a matrix, so activations stay of order one and no argmax is
    degenerate; constant data would also run faster than real weights.

    Examples
    --------
    >>> import torch
    >>> from drafter.public_shapes import public_shape
    >>> weights = random_weights(public_shape("Qwen2.5-0.5B").spec, seed=0, dtype=torch.bfloat16)
    >>> weights["lm_head.weight"].shape, bool((weights["d2t"] >= 0).all())
    (torch.Size([16000, 896]), True)
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    weights = {
        name: _values(name, shape, generator, device).to(dtype)
        for name, shape in expected_shapes(spec).items()
    }
    tokens = torch.randperm(spec.target_vocab_size, generator=generator, device=device)
    tokens = tokens[: spec.draft_vocab_size]
    if ascending:
        tokens = tokens.sort().values
    known = torch.zeros(spec.target_vocab_size, dtype=torch.bool, device=device)
    known[tokens] = True
    weights[DRAFT_TO_TARGET] = tokens - torch.arange(spec.draft_vocab_size, device=device)
    weights[TARGET_HAS_DRAFT] = known
    return weights


def _values(name: str, shape: Shape, generator: torch.Generator, device: str) -> torch.Tensor:
    """Entries of one tensor in single precision."""
    normal = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    if name.endswith(".bias"):
        return normal.mul_(_NORM_SD)
    if len(shape) == 1:
        return normal.mul_(_NORM_SD).add_(1.0)
    if name == EMBEDDING:
        return normal.mul_(EMBEDDING_SD)
    return normal.mul_(1.0 / math.sqrt(shape[-1]))
