"""Which accept lengths are possible at a draft configuration."""

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, IntArray, finite, whole
from specmodel.errors import ParameterError

ROUNDING_SLACK = 5e-3
"""An accept length printed with two decimals may pass its limit by half a unit."""


def accept_length_limit(
    num_steps: ArrayLike,
    num_draft_tokens: ArrayLike | None = None,
    *,
    block_drafter: bool = False,
) -> IntArray:
    r"""Largest accept length that a draft configuration can give.

    .. math:: \tau_{max} = \min(k + 1,\; n) \quad\text{chain, tree}; \qquad n \quad\text{block}

    Parameters
    ----------
    num_steps : array-like of int
        :math:`k`, draft steps per round, [tokens].
    num_draft_tokens : array-like of int, optional
        :math:`n`, tokens the target verifies, root included; num_steps + 1 when left out, [tokens].
    block_drafter : bool
        Whether one draft step proposes a whole block (DFlash, DSpark), so that `num_steps` does
        not bound the path.

    Returns
    -------
    numpy.ndarray of int, broadcast shape
        The longest path plus the bonus token, [tokens].

    Raises
    ------
    ParameterError
        If a number is negative or not whole, or a block drafter has no `num_draft_tokens`.

    Notes
    -----
    An identity: a round emits one accepted path and one token of the target.

    Examples
    --------
    >>> int(accept_length_limit(5)), int(accept_length_limit(5, 4))
    (6, 4)
    >>> int(accept_length_limit(1, 8, block_drafter=True))
    8
    """
    depth = whole("num_steps", num_steps)
    if num_draft_tokens is None:
        if block_drafter:
            raise ParameterError(
                "num_draft_tokens", None, "given for a block drafter", "its steps do not bound it"
            )
        return np.asarray(depth + 1)
    tokens = whole("num_draft_tokens", num_draft_tokens, 1)
    if block_drafter:
        return np.broadcast_arrays(tokens, depth)[0].copy()
    return np.asarray(np.minimum(depth + 1, tokens))


def check_accept_length(
    accept_length: ArrayLike,
    num_steps: ArrayLike,
    num_draft_tokens: ArrayLike | None = None,
    *,
    block_drafter: bool = False,
) -> FloatArray:
    """Accept lengths, as floats, after the check that their configuration can give them.

    Parameters
    ----------
    accept_length : array-like, any shape
        Tokens emitted per request per round, bonus token included, [tokens].
    num_steps : array-like of int, broadcast with `accept_length`
        Draft steps per round, [tokens].
    num_draft_tokens : array-like of int, optional
        Tokens the target verifies, root included, [tokens].
    block_drafter : bool
        Whether one draft step proposes a whole block.

    Returns
    -------
    numpy.ndarray, broadcast shape
        The accept lengths, [tokens].

    Raises
    ------
    ParameterError
        If one is below 1 or above the longest path plus 1 by more than rounding.

    Notes
    -----
    An accept length of 3.1 at depth 2 is a wrong number, whatever its source; a value below 1
    usually lacks the bonus token.

    Examples
    --------
    >>> float(check_accept_length(2.75, 5))
    2.75
    >>> check_accept_length(4.2, 3)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: accept_length must be between 1 and 4 ...
    """
    limit = accept_length_limit(num_steps, num_draft_tokens, block_drafter=block_drafter)
    length, limit = np.broadcast_arrays(finite("accept_length", accept_length), limit)
    wrong = (length < 1.0) | (length > limit + ROUNDING_SLACK)
    if np.any(wrong):
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"[{', '.join(map(str, index))}]" if index else ""
        hint = (
            "every round emits the target model's own token; if the bonus token is left out, add 1"
            if length[index] < 1.0
            else "check num_steps and num_draft_tokens, or give the depth it was measured at"
        )
        raise ParameterError(
            f"accept_length{place}",
            f"{length[index]:g}",
            f"between 1 and {limit[index]} (longest draft path + 1)",
            hint,
        )
    return np.array(length)
