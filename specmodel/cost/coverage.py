"""How many experts of a mixture a batch of tokens touches."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError


def expected_experts(
    num_tokens: ArrayLike, num_experts: ArrayLike, experts_per_token: ArrayLike
) -> NDArray[np.float64]:
    r"""Expected number of different experts that a step touches in one MoE layer.

    .. math:: N(t) = E\left(1-\left(\frac{E-K}{E}\right)^{t}\right)

    Parameters
    ----------
    num_tokens : array-like
        :math:`t`, tokens in the step: verify rows = requests x num_draft_tokens, [tokens].
    num_experts : array-like
        :math:`E`, routed experts of a layer, at least 1, [-].
    experts_per_token : array-like
        :math:`K`, routed experts each token uses, between 1 and `num_experts`, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        Between 0 and `num_experts`, [-].

    Raises
    ------
    ParameterError
        If a count is outside its range.

    Notes
    -----
    Holds for independent uniform routing, which is an upper bound: tokens of one request share
    experts. [moesd2025]_.

    Examples
    --------
    >>> round(float(expected_experts(4, 512, 10)), 2)
    38.84
    """
    tokens = np.asarray(num_tokens, dtype=np.float64)
    experts = np.asarray(num_experts, dtype=np.float64)
    per_token = np.asarray(experts_per_token, dtype=np.float64)
    if np.any(tokens < 0):
        raise ParameterError("num_tokens", np.min(tokens), "at least 0")
    if np.any(experts < 1):
        raise ParameterError("num_experts", np.min(experts), "at least 1")
    if np.any(per_token < 1) or np.any(per_token > experts):
        raise ParameterError("experts_per_token", per_token, "between 1 and num_experts")
    return experts * -np.expm1(tokens * np.log1p(-np.minimum(per_token / experts, 1.0 - 1e-15)))


def expert_loads(
    num_tokens: ArrayLike, num_experts: ArrayLike, experts_per_token: ArrayLike
) -> NDArray[np.float64]:
    r"""Experts that a step reads, counted in tokens' worth; 0 for dense models.

    .. math:: x(t) = N(t) / K

    Parameters
    ----------
    num_tokens : array-like
        :math:`t`, tokens in the step, [tokens].
    num_experts, experts_per_token : array-like
        :math:`E, K`; zero or NaN for a dense model and where unknown, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        1 for one token, at most :math:`E/K`, [-].

    Raises
    ------
    ParameterError
        If a count is outside its range.

    Notes
    -----
    Tokens share experts, so x grows slower than t. theory.md B3.

    Examples
    --------
    >>> float(expert_loads(8, 0, 0))
    0.0
    >>> round(float(expert_loads(8, 128, 8)), 3)
    6.452
    """
    tokens, experts, per_token = np.broadcast_arrays(
        *(
            np.asarray(value, dtype=np.float64)
            for value in (num_tokens, num_experts, experts_per_token)
        )
    )
    moe = np.isfinite(experts) & (experts > 0) & np.isfinite(per_token) & (per_token > 0)
    experts, per_token = np.where(moe, experts, 2.0), np.where(moe, per_token, 1.0)
    return np.where(moe, expected_experts(tokens, experts, per_token) / per_token, 0.0)


def verify_growth_of_experts(
    expert_ratio: ArrayLike, loads: ArrayLike, loads_added: ArrayLike
) -> NDArray[np.float64]:
    r"""Relative growth of a step when verification touches more experts.

    .. math:: \varphi g = \frac{\omega (x(Bn) - x(B))}{1 + \omega x(B)}

    Parameters
    ----------
    expert_ratio : array-like
        :math:`\omega`, time to read one token's experts per time of the rest of the step, [-].
    loads, loads_added : array-like
        :math:`x(B)` and :math:`x(Bn) - x(B)`, from `expert_loads`, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        Not negative; 0 for dense models, [-].

    Notes
    -----
    The share of step time spent on experts is :math:`\varphi = \omega x/(1+\omega x)`; it changes with
    the batch, the ratio does not. On SpecBundle it is nearly the same for models of 30 to 1000 billion
    parameters, because experts and the rest of a model grow together. theory.md B3, design.md 4.

    Examples
    --------
    >>> round(float(verify_growth_of_experts(1.0, 0.4, 0.4)), 4)
    0.2857
    """
    ratio = np.asarray(expert_ratio, dtype=np.float64)
    return np.asarray(ratio * np.asarray(loads_added) / (1.0 + ratio * np.asarray(loads)))
