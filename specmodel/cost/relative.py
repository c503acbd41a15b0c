"""Round cost in baseline steps, from what is known of a round: the relative form, gradient and parts."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.constants import NAMES, NUM_CONSTANTS
from specmodel.cost.batch_curve import BatchCurve
from specmodel.cost.growth import context_octaves, expert_feature
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

UNKNOWN_DEPTH_NUM_STEPS = 4.0
"""Depth assumed where a point does not say: only the sum c0 + c1 * depth is used then. [tokens]"""

REFERENCE_STEP_TIME_S = 0.010
"""Baseline step at which a draft step costs `step_cost`. Within a rig over batches, and across rigs,
the share of a draft step falls as the baseline step grows, because launches take fixed seconds. [s]"""

_FIXED, _STEP, _TREE, _EXPERT, _GROWTH, _EXPONENT, _KV = (
    NAMES.index(name)
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


def expected_experts(
    num_tokens: ArrayLike, num_experts: ArrayLike, experts_per_token: ArrayLike
) -> NDArray[np.float64]:
    r"""Expected number of different experts that a step touches in one MoE layer.

    .. math:: N(t) = E\left(1-\left(\frac{E-K}{E}\right)^{t}\right)

    For :math:`t` independent tokens with :math:`K` of :math:`E` experts each [moesd2025]_: an upper bound,
    since tokens of one request share experts.
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
    """Experts that a step reads, in tokens' worth: expected ones over K; 0 for dense and unknown models."""
    tokens, experts, per_token = np.broadcast_arrays(
        *(
            np.asarray(value, dtype=np.float64)
            for value in (num_tokens, num_experts, experts_per_token)
        )
    )
    moe = np.isfinite(experts) & (experts > 0) & np.isfinite(per_token) & (per_token > 0)
    experts, per_token = np.where(moe, experts, 2.0), np.where(moe, per_token, 1.0)
    return np.where(moe, expected_experts(tokens, experts, per_token) / per_token, 0.0)


@dataclass(frozen=True, eq=False)
class RoundTerms:
    r"""Known quantities of a round, per configuration.

    .. math:: R = \Big(c_0 (1 + \psi (v-1) + \frac{\omega\Delta x}{1+\omega x} + \rho w) + (c_1 k + c_\text{tree} [\text{topk} > 1]) h^\eta\Big)

    Parameters
    ----------
    num_steps : numpy.ndarray
        :math:`k`, draft depth, [tokens].
    tree : numpy.ndarray
        1 for trees (topk > 1), 0 for chains, [-].
    verify_growth : numpy.ndarray
        :math:`v`, time of a step over the verified rows per baseline step, KV read once per
        request; 1 when nothing is known, [-].
    loads, loads_added : numpy.ndarray
        :math:`x, \Delta x`, experts that a baseline step reads, in tokens' worth, and what verification
        adds; 0 for dense models and where `verify_growth` already holds it, [-].
    kv_growth : numpy.ndarray
        :math:`w`, extra time per baseline step if the KV cache is read once per verified row, [-].
    draft_scale : numpy.ndarray
        :math:`h`, `REFERENCE_STEP_TIME_S` per baseline step time at this load; 1 when unknown, [-].
    log_batch, log_rows, context : numpy.ndarray
        Octaves of the batch, of the verified rows of all requests, and of the context, [-].
    expert_growth : numpy.ndarray
        What verification adds to the logarithm of a step by the experts it reads, where a curve stands on
        that, [-].
    """

    num_steps: Array
    tree: Array
    verify_growth: Array
    loads: Array
    loads_added: Array
    kv_growth: Array
    draft_scale: Array
    log_batch: Array
    log_rows: Array
    context: Array
    expert_growth: Array

    def __len__(self) -> int:
        return int(self.num_steps.size)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "RoundTerms":
        """Terms of some of the rows."""
        return RoundTerms(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def round_terms(
    *,
    num_steps: ArrayLike,
    topk: ArrayLike = 1,
    num_draft_tokens: ArrayLike = np.nan,
    batch_size: ArrayLike = np.nan,
    context_tokens: ArrayLike = np.nan,
    num_experts: ArrayLike = np.nan,
    experts_per_token: ArrayLike = np.nan,
    curve: BatchCurve | None = None,
    step_time_s: ArrayLike = np.nan,
) -> RoundTerms:
    r"""Terms of a round from its configuration, the load, and what is known of the system.

    .. math:: v = \frac{T(Bn, C) - K_n}{T(B, C)},\quad w = \frac{K_n}{T(B, C)},\quad
              K_n = s B (n-1) C

    Parameters
    ----------
    num_steps : array-like
        :math:`k \ge 0`; NaN where unknown, [tokens].
    topk : array-like
        Branching, 1 = chain; NaN counts as 1, [-].
    num_draft_tokens : array-like
        :math:`n`, root included; NaN counts as ``num_steps + 1``, [tokens].
    batch_size : array-like
        :math:`B`; NaN counts as 1, [-].
    context_tokens : array-like
        :math:`C`; NaN counts as the smallest measured context, [tokens].
    num_experts, experts_per_token : array-like
        Of the target model; NaN or 0 for dense and unknown models, [-].
    curve : BatchCurve, optional
        The baseline's batch curve; used when it holds two batches or more.
    step_time_s : array-like
        Baseline step time at this load, for configurations that the curve does not time; NaN where
        unknown, [s].

    Returns
    -------
    RoundTerms
        Arrays of the broadcast shape, flattened to one dimension.

    Raises
    ------
    ParameterError
        If a depth is negative or a count below 1.

    Notes
    -----
    With a batch curve, verification of n tokens for B requests is read off the baseline at B n
    requests (theory.md B10); without one, experts touched stand in (B3). Dense models without a
    curve verify at the price of one step, which holds while the step is bound by weight reads.

    Examples
    --------
    >>> terms = round_terms(num_steps=3, batch_size=8, num_experts=128, experts_per_token=8)
    >>> [float(x[0].round(3)) for x in (terms.verify_growth, terms.loads_added)]
    [1.0, 7.519]
    """
    steps, branches, rows, batch, context, experts, per_token, step_s = (
        np.ravel(values).astype(np.float64)
        for values in np.broadcast_arrays(
            num_steps,
            topk,
            num_draft_tokens,
            batch_size,
            context_tokens,
            num_experts,
            experts_per_token,
            step_time_s,
        )
    )
    steps = np.where(np.isnan(steps), UNKNOWN_DEPTH_NUM_STEPS, steps)
    branches = np.where(np.isnan(branches), 1.0, branches)
    rows = np.where(np.isnan(rows), steps + 1.0, rows)
    batch = np.where(np.isnan(batch), 1.0, batch)
    for name, values, least in (
        ("num_steps", steps, 0),
        ("topk", branches, 1),
        ("num_draft_tokens", rows, 1),
        ("batch_size", batch, 1),
    ):
        if np.any(values < least):
            raise ParameterError(name, f"{np.min(values):g}", f"at least {least}")
    ones, zeros = np.ones_like(steps), np.zeros_like(steps)
    many = curve is not None and curve.num_batches > 1
    if many and curve is not None:
        context = np.where(np.isnan(context), curve.context_tokens.min(), context)
    load = {
        "num_steps": steps,
        "tree": np.where(branches > 1, ones, zeros),
        "log_batch": np.log2(batch),
        "log_rows": np.log2(batch * rows),
        "context": context_octaves(context),
    }
    if curve is None or not many:
        # Dense and unknown models read no experts.
        moe = bool(np.any(experts > 0))
        covered = expert_loads(batch, experts, per_token) if moe else zeros
        verified = expert_loads(batch * rows, experts, per_token) if moe else zeros
        return RoundTerms(
            verify_growth=ones,
            loads=covered,
            loads_added=verified - covered,
            kv_growth=zeros,
            draft_scale=np.where(np.isfinite(step_s), REFERENCE_STEP_TIME_S / step_s, ones),
            expert_growth=zeros,
            **load,
        )
    step_s, verify_s = curve.smooth(batch, context), curve.smooth(batch * rows, context)
    kind = curve.num_experts, curve.experts_per_token
    # T(Bn, C) counts the KV of n times too many requests; w gives back what the engine really re-reads.
    kv_rows_s = curve.kv_s_per_token * batch * (rows - 1.0) * context
    kv_rows_s = np.minimum(kv_rows_s, 0.95 * (1.0 - 1.0 / rows) * verify_s)
    return RoundTerms(
        verify_growth=(verify_s - kv_rows_s) / step_s,
        loads=zeros,
        loads_added=zeros,
        kv_growth=kv_rows_s / step_s,
        draft_scale=REFERENCE_STEP_TIME_S / step_s,
        expert_growth=expert_feature(batch * rows, *kind) - expert_feature(batch, *kind),
        **load,
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

    :math:`\omega` is the time to read one token's experts per time of the rest of the step (theory.md B3).
    The share of experts in a step changes with the batch, this ratio does not; on SpecBundle it is nearly
    the same for models of 30 to 1000 billion parameters.
    """
    value = np.asarray(constants, dtype=np.float64)
    expert_ratio = value[..., _EXPERT]
    verified = (
        1.0
        + value[..., _GROWTH] * (terms.verify_growth - 1.0)
        + expert_ratio * terms.loads_added / (1.0 + expert_ratio * terms.loads)
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
    """
    verify, draft, tree = round_cost_parts(constants, terms)
    gradient = np.zeros((terms.num_steps.size, NUM_CONSTANTS))
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
