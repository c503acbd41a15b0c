"""What a pass of the layer is fed: tokens, hidden states, places, and what each token sees."""

from typing import NamedTuple

import torch


class Fed(NamedTuple):
    """What a pass over T tokens of B requests is fed.

    Parameters
    ----------
    tokens : torch.Tensor, shape (T,)
        Ids of the target vocabulary.
    hidden : torch.Tensor, shape (R, H)
        Fused states, or carries of the step before.
    hidden_rows : torch.Tensor or None, shape (T,)
        Which of them each token is fed; None: its own.
    positions, slots : torch.Tensor, shape (T,)
        Position, and place in the cache; -1 for a row without a token.
    lengths : torch.Tensor, shape (B,)
        Slots in use once this pass has written its own.
    tail_starts : torch.Tensor or None, shape (B,)
        First slot of the tree.
    ancestors : torch.Tensor or None, shape (T,)
        Slots of the tree that each token sees; None for a chain or an extend pass.

    Notes
    -----
    All on the device.

    Examples
    --------
    >>> Fed._fields[-1]
    'ancestors'
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    hidden_rows: torch.Tensor | None
    positions: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    tail_starts: torch.Tensor | None = None
    ancestors: torch.Tensor | None = None
