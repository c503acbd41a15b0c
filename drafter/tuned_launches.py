"""Launches of single products as a draft step makes them, on copies of weights, and what they should give."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Final, final

from drafter.kernels.gate_up import gate_up
from drafter.kernels.head import head, head_tiles
from drafter.kernels.launch_plan import FUSED_NORM_TOKENS, MATVEC_TOKENS, Tiles
from drafter.kernels.linear import linear
from drafter.torch_extra import torch
from drafter.tuned_products import Product

EPS: Final = 1e-5
"""Of the norms; no time depends on it, [-]."""

_NORM_SD: Final = 0.1
_INDEX_BITS: Final = 0x7FFFFFFF


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
    >>> [kind.__name__ for kind in Launches.__subclasses__()]
    ['LinearLaunches', 'GateUpLaunches', 'HeadLaunches']
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


def element_error(out: torch.Tensor, truth: torch.Tensor) -> float:
    r"""Largest error of an element, in what its type allows.

    .. math:: \max_i \frac{|y_i - \hat y_i|}{\epsilon\,(\sigma + |\hat y_i|)}, \qquad
        \sigma^2 = \overline{\hat y^2}

    Parameters
    ----------
    out : torch.Tensor
        What a kernel wrote.
    truth : torch.Tensor
        :math:`\hat y`, fp64, of that shape.

    Returns
    -------
    float
        Infinite where an element is no number, [-].

    Notes
    -----
    A norm over the whole would hide one wrong row among thousands. :math:`\epsilon` is 0.01 for what is
    written in 16 bits, whose rounding alone is 0.004, and 0.001 for fp32, whose sums over ten thousand
    columns are off by some 1e-5. Judgements.

    Examples
    --------
    >>> truth = torch.ones(1000, dtype=torch.float64)
    >>> element_error(truth.float(), truth)
    0.0
    >>> wrong = truth.float()
    >>> wrong[7] = 2.0
    >>> element_error(wrong, truth) > 100
    True
    """
    allowed = 1e-3 if out.dtype == torch.float32 else 1e-2
    scale = truth.square().mean().sqrt() + truth.abs()
    error = float(((out.double() - truth).abs() / scale).max()) / allowed
    return error if error == error else float("inf")  # noqa: PLR0124 - NaN is no small error


@final
class LinearLaunches(Launches):
    """Fusion, queries with keys and values, output projection, second half of the MLP: `linear`.

    Notes
    -----
    All read the storage type and write fp32. To the output projection and the second half of the MLP
    the fp32 residual is added; a bias where the model has one.

    Examples
    --------
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
            self.random(product.rows, dtype=self.dtype, scale=_NORM_SD)
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

    @cached_property
    def _truth(self) -> torch.Tensor:
        """What the first copy gives in fp64."""
        truth = self.exact()
        for added in (self.bias, self.residual):
            if added is not None:
                truth = truth + added.double()
        return truth


@final
class GateUpLaunches(Launches):
    """First half of the MLP: `gate_up`.

    Notes
    -----
    Up to `FUSED_NORM_TOKENS` tokens it reads the fp32 residual stream and norms it; more are normed and
    rounded before. It writes the storage type.

    Examples
    --------
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
            self.norm = self.random(product.width, dtype=self.dtype, scale=_NORM_SD, mean=1.0)
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

    @cached_property
    def _truth(self) -> torch.Tensor:
        """What the first copy gives in fp64."""
        return torch.nn.functional.silu(self.exact(0)) * self.exact(1)


@final
class HeadLaunches(Launches):
    """The head of a chain: `head`, which keeps of each tile maximum, sum of exponentials and best id.

    Notes
    -----
    Up to `FUSED_NORM_TOKENS` tokens it reads the fp32 residual stream and norms it; with `norm_output`
    up to `MATVEC_TOKENS` it reads the fp32 carry, which is normed; more are normed and rounded before.

    Examples
    --------
    >>> last = HeadLaunches(
    ...     Product("head", 40, 16), 1, copies=2, dtype=torch.bfloat16, device=torch.device("cpu")
    ... )
    >>> last.inputs.dtype, last.norm is None
    (torch.float32, False)
    """

    def prepare(self) -> None:
        """Make inputs, and the norm of a few tokens."""
        product, tokens = self.product, self.tokens
        reads_carry = product.feeds_normed and tokens <= MATVEC_TOKENS
        is_fused = tokens <= FUSED_NORM_TOKENS and not reads_carry
        exact = torch.float32 if is_fused or reads_carry else self.dtype
        self.inputs = self.random(tokens, product.width, dtype=exact)
        if is_fused:
            self.norm = self.random(product.width, dtype=self.dtype, scale=_NORM_SD, mean=1.0)

    def _buffers(self, tiles: Tiles) -> tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids of a tile, and space for what is kept of each."""
        tile, _ = head_tiles(self.tokens, self.weights[0, 0], tiles)
        shape = (self.tokens, -(-self.product.rows // tile))
        best, total = (torch.full(shape, float("nan"), device=self.device) for _ in range(2))
        return tile, best, total, torch.full((*shape, 1), -1, device=self.device)

    def _launch(
        self, copy: int, tiles: Tiles, space: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    ) -> None:
        """Launch with one copy into some buffers."""
        head(
            self.inputs,
            self.weights[copy, 0],
            *space,
            norm=self.norm,
            eps=EPS,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy, on buffers of these tiles.

        Parameters
        ----------
        tiles : Tiles
            How it is cut.

        Returns
        -------
        callable
            Of the copy's number.
        """
        _, *space = self._buffers(tiles)
        kept = (space[0], space[1], space[2])
        return lambda copy: self._launch(copy, tiles, kept)

    def error(self, tiles: Tiles) -> float:
        """Largest error of maximum, logarithm of the sum, or the logit of the best id of a tile.

        Parameters
        ----------
        tiles : Tiles
            How it is cut.

        Returns
        -------
        float
            Sound up to 1; infinite where a best id is of another tile, [-].

        Notes
        -----
        Of two logits that nearly tie either may be the best, so what counts is how far the logit of the
        chosen id is below the true maximum.
        """
        tile, best, total, keys = self._buffers(tiles)
        self._launch(0, tiles, (best, total, keys))
        logits = self._truth
        num_ids, num_tiles = self.product.rows, best.shape[1]
        room = torch.full(
            (self.tokens, num_tiles * tile), float("-inf"), dtype=torch.float64, device=self.device
        )
        room[:, :num_ids] = logits
        parts = room.unflatten(1, (num_tiles, tile))
        ids = _INDEX_BITS - (keys[..., 0] & _INDEX_BITS)
        inside = ids // tile == torch.arange(num_tiles, device=self.device)
        if not bool((inside & (ids < num_ids)).all()):
            return float("inf")
        true_best = parts.amax(dim=2)
        return max(
            element_error(best, true_best),
            element_error(best.double().add(total.double().log()).float(), parts.logsumexp(dim=2)),
            element_error(logits.gather(1, ids).float(), true_best),
        )

    @cached_property
    def _truth(self) -> torch.Tensor:
        """Logits of the first copy in fp64."""
        return self.exact()


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
    kinds = {"gate and up": GateUpLaunches, "head": HeadLaunches}
    kind: Callable[..., Launches] = kinds.get(product.name, LinearLaunches)
    return kind(
        product,
        tokens,
        copies=copies,
        dtype=dtype,
        device=device,
        programmatic=programmatic,
    )
