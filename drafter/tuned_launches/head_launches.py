"""Launches of the head, of which only the best of each tile is kept."""

from collections.abc import Callable
from functools import cached_property
from typing import Final, final

import torch

from drafter.kernels.head import head, head_tiles
from drafter.kernels.launch_plan import FUSED_NORM_TOKENS, MATVEC_TOKENS, Tiles
from drafter.tuned_launches.element_error import element_error
from drafter.tuned_launches.launches import EPS, SMALL_SD, Launches

_INDEX_BITS: Final = 0x7FFFFFFF


@final
class HeadLaunches(Launches):
    """The head of a chain: `head`, which keeps of each tile maximum, sum of exponentials and best id.

    Notes
    -----
    Up to `FUSED_NORM_TOKENS` tokens it reads the fp32 residual stream and norms it; with `norm_output`
    up to `MATVEC_TOKENS` it reads the fp32 carry, which is normed; more are normed and rounded before.

    Examples
    --------
    >>> from drafter.tuned_products import Product
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
            self.norm = self.random(product.width, dtype=self.dtype, scale=SMALL_SD, mean=1.0)

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
