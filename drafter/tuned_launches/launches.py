"""What the launches of every product share: weights, norm, fp64 product, rotation over copies, error."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Final

import torch

from drafter.kernels.launch_plan import Tiles
from drafter.tuned_launches.element_error import element_error
from drafter.tuned_products import Product

EPS: Final = 1e-5
"""Of the norms; no time depends on it, [-]."""

SMALL_SD: Final = 0.1
"""Spread of norms and biases, [-]."""


class Launches(ABC):
    """One product with the types, the prologue and the epilogue that a draft step gives it.

    Parameters
    ----------
    product : Product
        The product.
    tokens : int
        Of the pass, [tokens].
    copies : int
        Copies of its weights, which are launched in turn so that each is cold, [-].
    dtype : torch.dtype
        Storage type.
    device : torch.device
        Where.
    programmatic : bool
        Launches overlap.

    Notes
    -----
    Random numbers at the scale of a model. drafter.md 11.

    Examples
    --------
    >>> sorted(Launches.__abstractmethods__)
    ['error', 'launched', 'prepare']
    """

    def __init__(
        self,
        product: Product,
        tokens: int,
        *,
        copies: int,
        dtype: torch.dtype,
        device: torch.device,
        programmatic: bool = False,
    ) -> None:
        self.product, self.tokens, self.copies = product, tokens, copies
        self.dtype, self.device, self.programmatic = dtype, device, programmatic
        shape = (copies, product.num_matrices, product.rows, product.width)
        self.weights = self.random(*shape, dtype=dtype, scale=product.width**-0.5)
        self.norm: torch.Tensor | None = None
        self.prepare()

    inputs: torch.Tensor

    @abstractmethod
    def prepare(self) -> None:
        """Make inputs, and what else the launches need besides weights."""

    def random(
        self, *shape: int, dtype: torch.dtype, scale: float = 1.0, mean: float = 0.0
    ) -> torch.Tensor:
        """Normal numbers on the device.

        Parameters
        ----------
        *shape : int
            Of the tensor, [-].
        dtype : torch.dtype
            Of the tensor.
        scale, mean : float
            Standard deviation and mean, [-].

        Returns
        -------
        torch.Tensor
        """
        normal = torch.randn(shape, device=self.device, dtype=torch.float32)
        return normal.mul_(scale).add_(mean).to(dtype)

    def normed_inputs(self) -> torch.Tensor:
        """The inputs in fp64, after the norm of the prologue where there is one.

        Returns
        -------
        torch.Tensor, shape (T, K)
        """
        inputs = self.inputs.double()
        if self.norm is None:
            return inputs
        scale = (inputs.square().mean(dim=-1, keepdim=True) + EPS).rsqrt()
        return inputs * scale * self.norm.double()

    def exact(self, matrix: int = 0) -> torch.Tensor:
        """Product of the first copy in fp64.

        Parameters
        ----------
        matrix : int
            0, or 1 for the second stream of weights, [-].

        Returns
        -------
        torch.Tensor, shape (T, N)
        """
        return self.normed_inputs() @ self.weights[0, matrix].double().T

    @abstractmethod
    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy, on buffers made now.

        Parameters
        ----------
        tiles : Tiles
            How it is cut.

        Returns
        -------
        callable
            Of the copy's number.
        """

    @abstractmethod
    def error(self, tiles: Tiles) -> float:
        """Largest error of a launch against fp64, over the allowed one.

        Parameters
        ----------
        tiles : Tiles
            How it is cut.

        Returns
        -------
        float
            Sound up to 1, [-].
        """

    def rotation(self, tiles: Tiles) -> Callable[[], None]:
        """Launches over all copies.

        Parameters
        ----------
        tiles : Tiles
            How each is cut.

        Returns
        -------
        callable
        """
        launch = self.launched(tiles)

        def run() -> None:
            for copy in range(self.copies):
                launch(copy)

        return run


class WrittenLaunches(Launches):
    """A product of which every element is written to `out`.

    Notes
    -----
    The head is none: it keeps the best of each tile.

    Examples
    --------
    >>> sorted(WrittenLaunches.__abstractmethods__)
    ['launched', 'prepare', 'truth']
    """

    out: torch.Tensor

    @abstractmethod
    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64.

        Returns
        -------
        torch.Tensor, shape (T, N)
        """

    @cached_property
    def _truth(self) -> torch.Tensor:
        """The same, computed once for all tiles."""
        return self.truth()

    def error(self, tiles: Tiles) -> float:
        """Largest error of an element, over the allowed one.

        Parameters
        ----------
        tiles : Tiles
            How it is cut.

        Returns
        -------
        float
            Sound up to 1, [-].
        """
        self.out.fill_(float("nan"))
        self.launched(tiles)(0)
        return element_error(self.out, self._truth)
