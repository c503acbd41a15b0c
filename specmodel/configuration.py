"""What a round is configured as, and what a run is: the keys under which effects are learned."""

from dataclasses import dataclass
from typing import final

from specmodel.errors import ParameterError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """How a round drafts and verifies, and the load; None where it is not known.

    What follows from the rest is filled in, so that two spellings of one configuration are equal:
    an unstated topk is a chain, and a chain verifies ``num_steps + 1`` tokens.

    Parameters
    ----------
    num_steps : float or None
        Draft depth, at least 0, [tokens].
    topk : float or None
        Branching, at least 1; 1 = chain.
    num_draft_tokens : float or None
        Verified tokens per request, root included, at least 1, [tokens].
    batch_size : float or None
        Running requests, at least 1.
    context_tokens : float or None
        Context, not negative, [tokens].

    Raises
    ------
    ParameterError
        If a number is below what is possible.
    """

    num_steps: float | None = None
    topk: float | None = None
    num_draft_tokens: float | None = None
    batch_size: float | None = None
    context_tokens: float | None = None

    def __post_init__(self) -> None:
        least = {"num_steps": 0, "topk": 1, "num_draft_tokens": 1, "batch_size": 1}
        for name, bound in {**least, "context_tokens": 0}.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise ParameterError(name, f"{value:g}", f"at least {bound}")
        if self.topk is None:
            object.__setattr__(self, "topk", 1.0)
        if self.num_draft_tokens is None and self.num_steps is not None:
            object.__setattr__(self, "num_draft_tokens", self.num_steps + 1.0)

    def __str__(self) -> str:
        """Short form for tables."""
        parts = ["depth not stated" if self.num_steps is None else f"depth {self.num_steps:g}"]
        if self.topk is not None and self.topk > 1:
            parts.append(f"topk {self.topk:g}")
        chain = self.num_steps is not None and self.num_draft_tokens == self.num_steps + 1
        if self.num_draft_tokens is not None and not (chain and self.topk == 1):
            parts.append(f"{self.num_draft_tokens:g} draft tokens")
        if self.batch_size is not None:
            parts.append(f"batch {self.batch_size:g}")
        if self.context_tokens is not None:
            parts.append(f"context {self.context_tokens:g}")
        return ", ".join(parts)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Rows that share a baseline and a way of drafting.

    Parameters
    ----------
    workload : str
        Empty where the points do not name it.
    tree : bool
        Whether topk is above 1.
    batch_size, context_tokens : float or None
        The load.
    """

    workload: str
    tree: bool
    batch_size: float | None = None
    context_tokens: float | None = None
