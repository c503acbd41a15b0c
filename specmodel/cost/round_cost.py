"""Round cost in baseline steps: the relative form, its gradient and its parts."""

import numpy as np
from numpy.typing import NDArray

from specmodel.constants import NUM_CONSTANTS, index_of
from specmodel.cost.coverage import verify_growth_of_experts
from specmodel.cost.round_terms import RoundTerms

Array = NDArray[np.float64]

_FIXED, _STEP, _TREE, _EXPERT, _GROWTH, _EXPONENT, _KV = (
    index_of(name)
    for name in (
        "fixed_cost",
        "step_cost",
        "tree_cost",
        "expert_ratio",
        "batch_growth_share",
        "draft_time_exponent",
        "kv_row_share",
    )
)


def round_cost(constants: Array, terms: RoundTerms) -> Array:
    r"""Time of a round in baseline steps, which is also the break-even accept length.

    .. math:: R = c_0 (1 + \psi (v-1) + \frac{\omega\Delta x}{1+\omega x} + \rho w) + (c_1 k + c_\text{tree} [\text{topk} > 1]) h^\eta

    Parameters
    ----------
    constants : numpy.ndarray, shape (..., NUM_CONSTANTS)
        In natural units, in the order of `specmodel.constants.NAMES`.
    terms : RoundTerms
        The configurations; their length must broadcast against the leading shape of `constants`.

    Returns
    -------
    numpy.ndarray
        :math:`R`, positive; at least 1 for sequential drafting and verification, [baseline steps].

    Notes
    -----
    theory.md B1 (M3), B3 and B10. Draft-step and verified-token cost are one constant while
    every chain has ``num_draft_tokens = num_steps + 1``.

    Examples
    --------
    >>> from specmodel.cost import round_terms
    >>> constants = np.array([1.14, 0.07, 0.16, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    >>> round_cost(constants, round_terms(num_steps=[3, 5])).tolist()
    [1.35, 1.49]
    """
    verify, draft, tree = round_cost_parts(constants, terms)
    return verify + draft + tree


def round_cost_parts(constants: Array, terms: RoundTerms) -> tuple[Array, Array, Array]:
    r"""Verification, drafting and tree part of the round cost.

    .. math:: c_0 (1 + \psi (v-1) + \frac{\omega\Delta x}{1+\omega x} + \rho w),\quad c_1 k h^\eta,\quad c_\text{tree} h^\eta

    Parameters
    ----------
    constants : numpy.ndarray, shape (..., NUM_CONSTANTS)
        In natural units.
    terms : RoundTerms
        The configurations.

    Returns
    -------
    tuple of numpy.ndarray
        Verification and host; draft steps with the tokens they add; tree, [baseline steps].

    Notes
    -----
    The breakdown of an answer; where chains all have ``n = k + 1`` the second part holds the
    verification of the added tokens too.

    Examples
    --------
    >>> from specmodel.cost import round_terms
    >>> constants = np.array([1.1, 0.05, 0.1, 0.3, 0.1, 0.6, 0.8, 0.7, 0.9])
    >>> [float(part[0].round(2)) for part in round_cost_parts(constants, round_terms(num_steps=4))]
    [1.1, 0.2, 0.0]
    """
    value = np.asarray(constants, dtype=np.float64)
    verified = (
        1.0
        + value[..., _GROWTH] * (terms.verify_growth - 1.0)
        + verify_growth_of_experts(value[..., _EXPERT], terms.loads, terms.loads_added)
        + value[..., _KV] * terms.kv_growth
    )
    scale = terms.draft_scale ** value[..., _EXPONENT]
    return (
        value[..., _FIXED] * verified,
        value[..., _STEP] * terms.num_steps * scale,
        value[..., _TREE] * terms.tree * scale,
    )


def round_cost_gradient(constants: Array, terms: RoundTerms) -> tuple[Array, Array]:
    r"""Round cost and its derivative with respect to each constant in natural units.

    .. math:: \frac{\partial R}{\partial c_0} = 1 + \psi (v-1) + \frac{\omega\Delta x}{1+\omega x} + \rho w,\quad
              \frac{\partial R}{\partial c_1} = k h^\eta,\ \ldots

    Parameters
    ----------
    constants : numpy.ndarray, shape (NUM_CONSTANTS,)
        In natural units.
    terms : RoundTerms
        The n configurations.

    Returns
    -------
    tuple of numpy.ndarray, shapes (n,) and (n, NUM_CONSTANTS)
        :math:`R` and its gradient.

    Notes
    -----
    Exact; checked against finite differences in the tests.

    Examples
    --------
    >>> from specmodel.cost import round_terms
    >>> constants = np.array([1.1, 0.05, 0.1, 0.3, 0.1, 0.6, 0.8, 0.7, 0.9])
    >>> cost, gradient = round_cost_gradient(constants, round_terms(num_steps=4))
    >>> float(gradient[0, 1])
    4.0
    """
    verify, draft, tree = round_cost_parts(constants, terms)
    gradient = np.zeros((len(terms), NUM_CONSTANTS))
    scale = terms.draft_scale ** constants[_EXPONENT]
    gradient[:, _FIXED] = verify / constants[_FIXED]
    gradient[:, _STEP] = terms.num_steps * scale
    gradient[:, _TREE] = terms.tree * scale
    gradient[:, _EXPERT] = (
        constants[_FIXED] * terms.loads_added / (1.0 + constants[_EXPERT] * terms.loads) ** 2
    )
    gradient[:, _GROWTH] = constants[_FIXED] * (terms.verify_growth - 1.0)
    gradient[:, _KV] = constants[_FIXED] * terms.kv_growth
    gradient[:, _EXPONENT] = (draft + tree) * np.log(terms.draft_scale)
    return verify + draft + tree, gradient
