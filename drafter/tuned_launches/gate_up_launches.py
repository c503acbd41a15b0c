"""Launches of the first half of the MLP."""

from collections.abc import Callable
from typing import final

import torch

from drafter.kernels.gate_up import gate_up
from drafter.kernels.launch_plan import FUSED_NORM_TOKENS, Tiles
from drafter.tuned_launches.launches import EPS, SMALL_SD, WrittenLaunches


@final
class GateUpLaunches(WrittenLaunches):
    """First half of the MLP: `gate_up`.

    Notes
    -----
    Up to `FUSED_NORM_TOKENS` tokens it reads the fp32 residual stream and norms it; more are normed and
    rounded before. It writes the storage type.

    Examples
    --------
    >>> from drafter.tuned_products import Product
    >>> mlp = Product("gate and up", 8, 16)
    >>> few, many = (
    ...     GateUpLaunches(mlp, tokens, copies=2, dtype=torch.float16, device=torch.device("cpu"))
    ...     for tokens in (4, 5)
    ... )
    >>> few.inputs.dtype, many.inputs.dtype, many.norm is None
    (torch.float32, torch.float16, True)
    """

    def prepare(self) -> None:
        """Make inputs, and the norm of a few tokens."""
        product, tokens = self.product, self.tokens
        is_fused = tokens <= FUSED_NORM_TOKENS
        self.inputs = self.random(
            tokens, product.width, dtype=torch.float32 if is_fused else self.dtype
        )
        if is_fused:
            self.norm = self.random(product.width, dtype=self.dtype, scale=SMALL_SD, mean=1.0)
        self.out = torch.empty(tokens, product.rows, device=self.device, dtype=self.dtype)

    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy.

        Parameters
        ----------
        tiles : Tiles
            How it is cut.

        Returns
        -------
        callable
            Of the copy's number.
        """
        return lambda copy: gate_up(
            self.inputs,
            self.weights[copy, 0],
            self.weights[copy, 1],
            self.out,
            norm=self.norm,
            eps=EPS,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64.

        Returns
        -------
        torch.Tensor, shape (T, N)
        """
        return torch.nn.functional.silu(self.exact(0)) * self.exact(1)
