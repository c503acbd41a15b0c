"""Launches of the first product of few tokens, which norms both halves of its input."""

from collections.abc import Callable
from typing import Final, final

import torch

from drafter.kernels.input_product import input_product
from drafter.kernels.launch_plan import Tiles
from drafter.tuned_launches.element_error import element_error
from drafter.tuned_launches.launches import EPS, SMALL_SD, WrittenLaunches

_NUM_EMBEDDED: Final = 64


@final
class InputLaunches(WrittenLaunches):
    """Queries with keys and values of up to `FUSED_NORM_TOKENS` tokens: `input_product`.

    Notes
    -----
    It reads rows of the embedding and the fp32 hidden states, and writes fp32 beside the fp32 residual.

    Examples
    --------
    >>> from drafter.tuned_products import Product
    >>> first = InputLaunches(
    ...     Product("qkv", 8, 16), 2, copies=2, dtype=torch.bfloat16, device=torch.device("cpu")
    ... )
    >>> first.inputs.shape, first.inputs.dtype
    (torch.Size([2, 8]), torch.float32)
    """

    def prepare(self) -> None:
        """Make hidden states, embedding, norms and bias."""
        product, tokens, half = self.product, self.tokens, self.product.width // 2
        self.ids = torch.arange(tokens, device=self.device)
        self.embedding = self.random(_NUM_EMBEDDED, half, dtype=self.dtype)
        self.inputs = self.random(tokens, half, dtype=torch.float32)
        self.embed_norm, self.hidden_norm = (
            self.random(half, dtype=self.dtype, scale=SMALL_SD, mean=1.0) for _ in range(2)
        )
        self.norm = self.hidden_norm
        self.bias = (
            self.random(product.rows, dtype=self.dtype, scale=SMALL_SD)
            if product.has_bias
            else None
        )
        self.out, self.residual = (
            torch.empty(tokens, rows, device=self.device, dtype=torch.float32)
            for rows in (product.rows, half)
        )

    def normed_inputs(self) -> torch.Tensor:
        """Both halves in fp64, after their norms.

        Returns
        -------
        torch.Tensor, shape (T, K)
        """
        embedded = self.embedding[self.ids].double()
        scale = (embedded.square().mean(dim=-1, keepdim=True) + EPS).rsqrt()
        return torch.cat(
            [embedded * scale * self.embed_norm.double(), super().normed_inputs()], dim=-1
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
        return lambda copy: input_product(
            self.ids,
            self.embedding,
            self.inputs,
            self.embed_norm,
            self.hidden_norm,
            self.weights[copy, 0],
            self.out,
            self.residual,
            eps=EPS,
            normed_residual=False,
            bias=self.bias,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    def error(self, tiles: Tiles) -> float:
        """Largest error of an element of product or residual, over the allowed one.

        Parameters
        ----------
        tiles : Tiles
            How it is cut.

        Returns
        -------
        float
            Sound up to 1, [-].
        """
        self.residual.fill_(float("nan"))
        return max(super().error(tiles), element_error(self.residual, self.inputs.double()))

    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64.

        Returns
        -------
        torch.Tensor, shape (T, N)
        """
        return self.exact() if self.bias is None else self.exact() + self.bias.double()
