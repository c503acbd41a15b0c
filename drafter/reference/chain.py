"""A draft without branches: each step is fed the best token of the step before, or a forced one."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from drafter.reference.cache import KvCache
from drafter.reference.draft_model import DraftModel
from specmodel.errors import ParameterError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChainDraft:
    """The draft of one round, its first token at index 0.

    Parameters
    ----------
    tokens, draft_ids : Tensor of int64, shape [num_steps]
        Best guess of each step in the target's and in the draft vocabulary, whatever was forced.
    log_probs : Tensor, shape [num_steps]
        Of those guesses, not positive, [-].
    logits : Tensor, shape [num_steps, Vd]
        [-].
    carries : Tensor, shape [num_steps, H]
        Hidden state after each step, [-].
    cache : KvCache
        After the extend pass: what the next round starts from.
    draft_cache : KvCache
        With the rows of the draft steps too.
    """

    tokens: Tensor
    draft_ids: Tensor
    log_probs: Tensor
    logits: Tensor
    carries: Tensor
    cache: KvCache
    draft_cache: KvCache


def draft_chain(
    model: DraftModel,
    tokens: Tensor,
    aux_states: Tensor,
    positions: Tensor,
    *,
    num_steps: int,
    cache: KvCache | None = None,
    forced_tokens: Tensor | None = None,
) -> ChainDraft:
    r"""Extend pass over the accepted tokens, then draft steps.

    .. math:: i_j = \operatorname{argmax} \text{logits}_j, \qquad
        \text{token}_j = i_j + \text{d2t}_{i_j}

    Parameters
    ----------
    model : DraftModel
        The draft model.
    tokens, aux_states, positions : Tensor
        Of the extend pass, see `DraftModel.extend`.
    num_steps : int
        Draft tokens: one from the extend pass, then one for each of num_steps - 1 steps, at least 1.
    cache : KvCache, optional
        Of the rounds before; None for a new request.
    forced_tokens : Tensor of int64, shape [num_steps - 1], optional
        Target ids that the steps are fed instead of the guesses before them.

    Returns
    -------
    ChainDraft
        The lowest id wins among equal logits.

    Raises
    ------
    ParameterError
        If `num_steps` is below 1, or there are not num_steps - 1 forced tokens.

    Notes
    -----
    drafter.md 6; the counts are SGLang's. [li2025]_ section 3.1.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> model = DraftModel(spec, random_weights(spec, seed=0, dtype=torch.float64))
    >>> states = torch.ones(3, 60, dtype=torch.float64)
    >>> chain = draft_chain(model, torch.tensor([5, 6, 7]), states, torch.arange(3), num_steps=4)
    >>> chain.tokens.shape, chain.logits.shape, len(chain.cache), len(chain.draft_cache)
    (torch.Size([4]), torch.Size([4, 29]), 3, 6)
    """
    if num_steps < 1:
        raise ParameterError("num_steps", num_steps, "at least 1")
    if forced_tokens is not None and len(forced_tokens) != num_steps - 1:
        allowed = f"num_steps - 1 = {num_steps - 1} of them"
        raise ParameterError("forced_tokens", f"{len(forced_tokens)} of them", allowed)
    extended = model.extend(tokens, aux_states, positions, cache)
    passes = [extended.last()]
    for step in range(num_steps - 1):
        before = passes[-1]
        if forced_tokens is None:
            fed = model.target_ids(lowest_argmax(before.logits))
        else:
            fed = forced_tokens[step : step + 1]
        passes.append(model.step(fed, before.carry, positions[-1:] + 1 + step, before.cache))
    logits = torch.cat([each.logits for each in passes])
    draft_ids = lowest_argmax(logits)
    return ChainDraft(
        tokens=model.target_ids(draft_ids),
        draft_ids=draft_ids,
        log_probs=logits.log_softmax(dim=-1).gather(1, draft_ids[:, None])[:, 0],
        logits=logits,
        carries=torch.cat([each.carry for each in passes]),
        cache=extended.cache,
        draft_cache=passes[-1].cache,
    )


def lowest_argmax(logits: Tensor) -> Tensor:
    """Index of the largest value of each row, the lowest one among equals.

    Parameters
    ----------
    logits : Tensor, shape [T, n]
        [-].

    Returns
    -------
    Tensor of int64, shape [T]

    Notes
    -----
    `torch.argmax` promises no order among equals.

    Examples
    --------
    >>> lowest_argmax(torch.tensor([[1.0, 3.0, 3.0]])).tolist()
    [1]
    """
    largest = logits.amax(dim=-1, keepdim=True)
    index = torch.arange(logits.shape[-1]).expand_as(logits)
    return torch.where(logits == largest, index, logits.shape[-1]).amin(dim=-1)
