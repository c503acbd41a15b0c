"""What a round consists of, as arrays: the known quantities that multiply the constants."""

from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.batch_curve import BatchCurve, StepTime
from specmodel.cost.coverage import expert_loads
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

UNKNOWN_DEPTH_NUM_STEPS = 4.0
"""Depth assumed where a point does not say: only the sum c0 + c1 * depth is used then. [tokens]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
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
    carried : numpy.ndarray
        Standard deviation of :math:`\ln R` from reading the batch curve away from its points, [-].
    """

    num_steps: Array
    tree: Array
    verify_growth: Array
    loads: Array
    loads_added: Array
    kv_growth: Array
    draft_scale: Array
    carried: Array

    def __len__(self) -> int:
        return int(self.num_steps.size)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "RoundTerms":
        """Terms of some of the rows."""
        return RoundTerms(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


REFERENCE_STEP_TIME_S = 0.010
"""Baseline step at which a draft step costs `step_cost`. Within a rig over batches, and across rigs,
the share of a draft step falls as the baseline step grows, because launches take fixed seconds. [s]"""

INSIDE_LOG_SD = 0.08
"""Log-sd of a step time per octave to the nearest measured batch, between measured ones: the error of
packaged curves with each batch left out in turn. [-]"""

BEYOND_LOG_SD = 0.13
"""Log-sd of a step time per octave beyond the measured batches: the error of packaged curves cut
short. [-]"""

WIDTH_LOG_SD = 0.05
"""Log-sd of the round cost per octave between verified tokens and a chain's, without a batch curve: all
packaged systems that taught the priors verify as many tokens as a chain. A judgement. [-]"""

MOVED_LOG_SD = 0.25
"""Log-sd of the part of a step time that was carried from another context. [-]"""


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
    tree = np.where(branches > 1, ones, zeros)
    covered = expert_loads(batch, experts, per_token)
    if curve is None or curve.num_batches < 2:
        return RoundTerms(
            num_steps=steps,
            tree=tree,
            verify_growth=ones,
            loads=covered,
            loads_added=expert_loads(batch * rows, experts, per_token) - covered,
            kv_growth=zeros,
            draft_scale=np.where(np.isfinite(step_s), REFERENCE_STEP_TIME_S / step_s, ones),
            carried=WIDTH_LOG_SD * np.abs(np.log2(rows / (steps + 1.0))),
        )
    step, verify = curve.at(batch, context), curve.at(batch * rows, context)
    # T(Bn, C) counts the KV of n times too many requests; w gives back what the engine really re-reads.
    kv_rows_s = verify.kv_time_s * (1.0 - 1.0 / rows)
    carried = np.hypot(
        octave_log_sd(step) + octave_log_sd(verify),
        MOVED_LOG_SD * np.hypot(verify.moved_share, step.moved_share),
    )
    return RoundTerms(
        num_steps=steps,
        tree=tree,
        verify_growth=(verify.step_time_s - kv_rows_s) / step.step_time_s,
        loads=zeros,
        loads_added=zeros,
        kv_growth=kv_rows_s / step.step_time_s,
        draft_scale=REFERENCE_STEP_TIME_S / step.step_time_s,
        carried=carried,
    )


def octave_log_sd(time: StepTime) -> Array:
    """Log-sd of a step time from the distance to measured batches."""
    inside = time.octaves_away - time.octaves_beyond
    return np.asarray(INSIDE_LOG_SD * inside + BEYOND_LOG_SD * time.octaves_beyond)
