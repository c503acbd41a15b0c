"""Acceptance of one draft token from the two distributions, and the effect of temperature."""

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, at_least, finite, unit_interval
from specmodel.errors import ParameterError

TEMPERATURE_ONE_LOGIT_OFFSET = -0.66
"""Mean change of logit(acceptance rate) from temperature 0 to 1 with a sampled draft: six pairs
of [leviathan2023]_, Table 2 (T5-XXL; inputs not confirmed against the paper)."""

_SUM_SLACK = 1e-6


def softmax(logits: ArrayLike, temperature: float = 1.0) -> FloatArray:
    r"""Token distribution of a model at a sampling temperature.

    .. math:: P_v = \frac{e^{z_v/T}}{\sum_u e^{z_u/T}}, \qquad T = 0: \text{one-hot at the maximum}

    Parameters
    ----------
    logits : array-like, shape (..., vocabulary)
        :math:`z`, [-].
    temperature : float
        :math:`T`, not negative, [-]. Zero means greedy; the first of equal maxima wins.

    Returns
    -------
    numpy.ndarray, shape of `logits`
        Probabilities that sum to 1 over the last axis, [-].

    Raises
    ------
    ParameterError
        If the temperature is negative or a logit is not finite.

    Notes
    -----
    The definition; temperature acts on logits, never as a multiplier on accept length.

    Examples
    --------
    >>> softmax([0.0, 1.0], temperature=0.5).tolist()
    [0.119, 0.881]
    """
    scores = finite("logits", logits)
    heat = float(at_least("temperature", temperature, 0.0))
    top = scores.max(axis=-1, keepdims=True)
    if heat == 0.0:
        chosen = scores.argmax(axis=-1)[..., None]
        return np.where(np.arange(scores.shape[-1]) == chosen, 1.0, 0.0)
    weights = np.exp((scores - top) / heat)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def sampled_acceptance(target_probs: ArrayLike, draft_probs: ArrayLike) -> FloatArray:
    r"""Chance that rejection sampling accepts a token drawn from the draft distribution.

    .. math:: \beta = \sum_v \min(P_v, D_v) = 1 - \mathrm{TV}(P, D)

    Parameters
    ----------
    target_probs : array-like, shape (..., vocabulary)
        :math:`P`, distribution of the target model, sums to 1, [-].
    draft_probs : array-like, shape (..., vocabulary)
        :math:`D`, distribution the draft token was drawn from, sums to 1, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape without the last axis
        :math:`\beta`, in [0, 1], [-].

    Raises
    ------
    ParameterError
        If a distribution leaves [0, 1] or does not sum to 1.

    Notes
    -----
    Theorem 3.5 of [leviathan2023]_. Exact for one draft token with the standard sampler. Block
    verification accepts the longest prefix that passes jointly: never fewer tokens, about 3 to
    10 % more of (accept_length - 1) when sampling, nothing at temperature 0 [sun2025]_.

    Examples
    --------
    >>> float(sampled_acceptance([0.6, 0.4], [0.9, 0.1]))
    0.7
    """
    target, draft = (
        _distribution("target_probs", target_probs),
        _distribution("draft_probs", draft_probs),
    )
    return np.asarray(np.minimum(target, draft).sum(axis=-1))


def greedy_draft_acceptance(target_probs: ArrayLike, draft_probs: ArrayLike) -> FloatArray:
    r"""Chance that a sampled target accepts the draft model's most likely token.

    .. math:: \beta = P_{\hat v}, \qquad \hat v = \arg\max_v D_v

    Parameters
    ----------
    target_probs : array-like, shape (..., vocabulary)
        :math:`P`, distribution of the target model, sums to 1, [-].
    draft_probs : array-like, shape (..., vocabulary)
        :math:`D`, distribution of the draft model, sums to 1, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape without the last axis
        :math:`\beta`, in [0, 1], [-].

    Raises
    ------
    ParameterError
        If a distribution leaves [0, 1] or does not sum to 1.

    Notes
    -----
    A one-hot draft distribution in `sampled_acceptance`; what engines do that draft greedily
    without draft probabilities. Acceptance falls faster with temperature than for a sampled
    draft.

    Examples
    --------
    >>> float(greedy_draft_acceptance([0.6, 0.4], [0.1, 0.9]))
    0.4
    """
    target, draft = np.broadcast_arrays(
        _distribution("target_probs", target_probs), _distribution("draft_probs", draft_probs)
    )
    best = draft.argmax(axis=-1)[..., None]
    return np.asarray(np.take_along_axis(target, best, axis=-1)[..., 0])


def greedy_agreement(target_scores: ArrayLike, draft_scores: ArrayLike) -> FloatArray:
    r"""Whether greedy target and greedy draft choose the same token; its mean is acceptance.

    .. math:: \beta = 1\{\arg\max P = \arg\max D\}

    Parameters
    ----------
    target_scores : array-like, shape (..., vocabulary)
        Probabilities or logits of the target model, [-].
    draft_scores : array-like, shape (..., vocabulary)
        Probabilities or logits of the draft model, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape without the last axis
        1.0 where they agree, else 0.0, [-].

    Raises
    ------
    ParameterError
        If a score is not finite.

    Notes
    -----
    Temperature 0 on both sides.

    Examples
    --------
    >>> greedy_agreement([[0.6, 0.4], [0.2, 0.8]], [[0.9, 0.1], [0.7, 0.3]]).tolist()
    [1.0, 0.0]
    """
    target, draft = finite("target_scores", target_scores), finite("draft_scores", draft_scores)
    return np.asarray((target.argmax(axis=-1) == draft.argmax(axis=-1)).astype(np.float64))


def shift_acceptance_rate(acceptance_rate: ArrayLike, logit_offset: ArrayLike) -> FloatArray:
    r"""Acceptance rate after a shift on the logit scale, as a change of temperature makes it.

    .. math:: \mathrm{logit}\,\alpha' = \mathrm{logit}\,\alpha + \delta

    Parameters
    ----------
    acceptance_rate : array-like
        :math:`\alpha`, in [0, 1], [-].
    logit_offset : array-like, broadcast with `acceptance_rate`
        :math:`\delta`, one per temperature, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\alpha'`, in [0, 1]; 0 and 1 stay where they are, [-].

    Raises
    ------
    ParameterError
        If `acceptance_rate` is outside [0, 1] or the offset is not finite.

    Notes
    -----
    An offset per temperature keeps the rate lawful where a multiplier
    does not. `TEMPERATURE_ONE_LOGIT_OFFSET` is what six published pairs give.

    Examples
    --------
    >>> float(shift_acceptance_rate(0.75, TEMPERATURE_ONE_LOGIT_OFFSET))
    0.61
    """
    rate = unit_interval("acceptance_rate", acceptance_rate)
    factor = np.exp(finite("logit_offset", logit_offset))
    return np.asarray(rate * factor / (1.0 - rate + rate * factor))


def _distribution(name: str, values: ArrayLike) -> FloatArray:
    """Return probabilities that sum to 1 over the last axis."""
    array = unit_interval(name, values)
    total = array.sum(axis=-1)
    wrong = np.abs(total - 1.0) > _SUM_SLACK * array.shape[-1]
    if np.any(wrong):
        raise ParameterError(
            f"sum of {name}", f"{np.ravel(total)[np.flatnonzero(wrong)[0]]:g}", "1", "normalise it"
        )
    return array
