"""Which launches belong to a product."""

from collections.abc import Callable

import torch

from drafter.kernels.launch_plan import FUSED_NORM_TOKENS
from drafter.tuned_launches.gate_up_launches import GateUpLaunches
from drafter.tuned_launches.head_launches import HeadLaunches
from drafter.tuned_launches.input_launches import InputLaunches
from drafter.tuned_launches.launches import Launches
from drafter.tuned_launches.linear_launches import LinearLaunches
from drafter.tuned_products import Product


def launches_of(
    product: Product,
    tokens: int,
    *,
    copies: int,
    dtype: torch.dtype,
    device: torch.device,
    programmatic: bool = False,
) -> Launches:
    r"""Launches of a product, as a draft step makes them.

    .. math:: \text{product} \mapsto \text{kernel, prologue, epilogue}

    Parameters
    ----------
    product : Product
        The product.
    tokens : int
        Of the pass, [tokens].
    copies : int
        Copies of its weights, [-].
    dtype : torch.dtype
        Storage type.
    device : torch.device
        Where.
    programmatic : bool
        Launches overlap.

    Returns
    -------
    Launches

    Notes
    -----
    A test holds them against the launches of a whole draft.

    Examples
    --------
    >>> launches_of(
    ...     Product("head", 40, 16), 9, copies=2, dtype=torch.float16, device=torch.device("cpu")
    ... ).inputs.dtype
    torch.float16
    """
    kinds: dict[str, Callable[..., Launches]] = {
        "gate and up": GateUpLaunches,
        "head": HeadLaunches,
    }
    if tokens <= FUSED_NORM_TOKENS:
        kinds["qkv"] = InputLaunches
    kind = kinds.get(product.name, LinearLaunches)
    return kind(
        product,
        tokens,
        copies=copies,
        dtype=dtype,
        device=device,
        programmatic=programmatic,
    )
