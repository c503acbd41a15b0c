"""Launches of plain products: fusion, queries with keys and values, output projection, down."""

from collections.abc import Callable
from typing import final

import torch

from drafter.kernels.launch_plan import Tiles
from drafter.kernels.linear import linear
from drafter.tuned_launches.launches import SMALL_SD, WrittenLaunches


@final
class LinearLaunches(WrittenLaunches):
    """Fusion, queries with keys and values, output projection, second half of the MLP: `linear`.

    Notes
    -----
    Queries with keys and values are launched so for more than `FUSED_NORM_TOKENS` tokens. All read the
    storage type and write fp32. To the output projection and the second half of the MLP the fp32 residual
    is added; a bias where the model has one.

    Examples
    --------
    >>> from drafter.tuned_products import Product
    >>> down = LinearLaunches(
    ...     Product("down", 8, 16), 2, copies=2, dtype=torch.bfloat16, device=torch.device("cpu")
    ... )
    >>> down.residual.dtype, down.bias is None
    (torch.float32, True)
    """

    def prepare(self) -> None:
        """Make inputs, residual and bias."""
        product, tokens = self.product, self.tokens
        self.inputs = self.random(tokens, product.width, dtype=self.dtype)
        self.out = torch.empty(tokens, product.rows, device=self.device, dtype=torch.float32)
        self.residual = (
            self.random(tokens, product.rows, dtype=torch.float32)
            if product.name in {"out", "down"}
            else None
        )
        self.bias = (
            self.random(product.rows, dtype=self.dtype, scale=SMALL_SD)
            if product.has_bias
            else None
        )

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
        return lambda copy: linear(
            self.inputs,
            self.weights[copy, 0],
            self.out,
            bias=self.bias,
            residual=self.residual,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64.

        Returns
        -------
        torch.Tensor, shape (T, N)
        """
        truth = self.exact()
        for added in (self.bias, self.residual):
            if added is not None:
                truth = truth + added.double()
        return truth
