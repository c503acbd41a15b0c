"""What a set of static buffers is made for: batch, steps, branches, capacity."""

from dataclasses import dataclass
from typing import final

from drafter.kernels.argument_checks import check_range
from drafter.kernels.attention import MOST_TAIL_SLOTS
from drafter.kernels.head import MOST_TOPK
from specmodel.errors import ParameterError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShape:
    """What one set of static buffers is made for.

    Parameters
    ----------
    batch_size : int
        Requests, [-].
    num_steps : int
        Draft tokens on the longest path: one from the extend pass, one from each further step.
    topk : int
        Branches kept per step; 1 is a chain, [-].
    num_draft_tokens : int or None
        Nodes of the verified tree, root included; None for a chain, [tokens].
    most_accepted : int
        Most newly accepted tokens of a request in one extend pass, [tokens].
    capacity : int
        Slots of a request's cache, drafts included, [tokens].
    num_splits : int
        Parts into which attention cuts the context, [-].
    is_fused : bool
        Norms are folded into the products that follow them, for few tokens.
    is_programmatic : bool
        Launches overlap (programmatic dependent launch; compute capability 9.0 or later).
    keeps_logits : bool
        The logits of every step are kept too, for checks.

    Raises
    ------
    ParameterError
        If a count is outside its range.

    Notes
    -----
    One graph is captured per shape. drafter.md 14.

    Examples
    --------
    >>> DraftShape(batch_size=1, num_steps=3).topk
    1
    """

    batch_size: int
    num_steps: int
    topk: int = 1
    num_draft_tokens: int | None = None
    most_accepted: int = 8
    capacity: int = 2048
    num_splits: int = 8
    is_fused: bool = True
    is_programmatic: bool = False
    keeps_logits: bool = False

    def __post_init__(self) -> None:
        check_range("batch_size", self.batch_size, 1, 1024)
        check_range("num_steps", self.num_steps, 1, MOST_TAIL_SLOTS)
        check_range("topk", self.topk, 1, MOST_TOPK)
        check_range("num_splits", self.num_splits, 1, 128)
        check_range("most_accepted", self.most_accepted, 1, self.capacity)
        if self.topk > 1:
            slots = (self.num_steps - 1) * self.topk
            hint = "fewer steps or fewer branches"
            check_range("slots of the tree", slots, 0, MOST_TAIL_SLOTS, hint)
            if self.num_draft_tokens is None:
                raise ParameterError("num_draft_tokens", None, "given for a tree")

    @property
    def num_candidates(self) -> int:
        """Nodes that a tree considers, root left out, [-]."""
        return self.topk + (self.num_steps - 1) * self.topk**2
