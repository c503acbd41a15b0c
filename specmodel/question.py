"""Questions: what to predict, completed from the calibration and turned into arrays."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from specmodel.calibrated import Calibration
from specmodel.configuration import Configuration, Run
from specmodel.cost import REFERENCE_STEP_TIME_S, round_terms
from specmodel.posterior import NEW, Rows

Array = NDArray[np.float64]

SAME_BASELINE = 0.01
"""Relative difference up to which baselines at one load count as the same. [-]"""

BATCH_LOG_SD = 0.15
"""Log-sd of the round cost one octave of batch away, growing as the square root of the octaves: the rms
change between batches of one configuration in the packaged systems. [-]"""

PRIOR_BATCHES = (1.0, 8.0)
"""Batches of most systems that taught the priors. [requests]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Median and central 90 % interval.

    Parameters
    ----------
    median, low, high : float
        In the unit of the quantity.
    """

    median: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit; the factor is positive."""
        return Estimate(median=self.median * factor, low=self.low * factor, high=self.high * factor)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLength:
    """An accept length with what is known of its spread.

    Parameters
    ----------
    estimate : Estimate
        Median and interval at the depth of the question, [tokens].
    log_sd : float
        Standard deviation of its logarithm; 0 where it was given as a number, [-].
    """

    estimate: Estimate
    log_sd: float = 0.0

    @classmethod
    def exact(cls, value: float) -> "AcceptLength":
        """An accept length that was measured at the depth of the question."""
        return cls(estimate=Estimate(median=value, low=value, high=value))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to predict.

    Parameters
    ----------
    accept_length : AcceptLength
        At the depth of the configuration.
    configuration : Configuration
        Depth, branching, load; a depth of None is that of the calibration.
    workload : str or None
        Workload of the calibration whose baseline and run to use; None for another one.
    baseline_tokens_per_s : float or None
        Throughput without speculation; None: that of the calibration, where it is known, [tokens/s].
    non_decode_share : float or None
        Where it was measured, by time to first token and output length; None: modelled, and 0 where
        the throughputs of the calibration are those of decoding alone, [-].
    """

    accept_length: AcceptLength
    configuration: Configuration
    workload: str | None = None
    baseline_tokens_per_s: float | None = None
    non_decode_share: float | None = None


def question_rows(calibration: Calibration, questions: list[Question]) -> Rows:
    """Arrays of questions, with the effects of the calibration they touch."""
    configurations = [question.configuration for question in questions]
    baselines = [baseline_of(calibration, question) for question in questions]

    def column(name: str) -> Array:
        values = [getattr(one, name) for one in configurations]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    batch, context = column("batch_size"), column("context_tokens")
    rates = np.array([np.nan if rate is None else rate for rate in baselines], dtype=np.float64)
    deficit = calibration.baselines.deficit(rates, batch, context)
    terms = round_terms(
        num_steps=column("num_steps"),
        topk=column("topk"),
        num_draft_tokens=column("num_draft_tokens"),
        batch_size=batch,
        context_tokens=context,
        num_experts=calibration.num_experts,
        experts_per_token=calibration.experts_per_token,
        curve=calibration.curve,
        step_time_s=_step_time_s(calibration, batch, context, rates),
    )
    unmeasured = 0.0 if calibration.decode_only else np.nan
    carried = np.hypot(terms.carried, _carried_over_batches(calibration, batch))
    return Rows(
        terms=replace(terms, carried=carried),
        accept_length=np.array([one.accept_length.estimate.median for one in questions]),
        baseline_deficit=deficit,
        measured_share=np.array(
            [
                unmeasured if question.non_decode_share is None else question.non_decode_share
                for question in questions
            ]
        ),
        configuration=np.array(
            [calibration.configuration_index(one) for one in configurations], dtype=np.intp
        ),
        run=np.array([_run_index(calibration, question) for question in questions], dtype=np.intp),
    )


def _run_index(calibration: Calibration, question: Question) -> int:
    """Run of a question; a workload that is not named may be any other one, so it is new."""
    if question.workload is None:
        return NEW
    configuration = question.configuration
    return calibration.run_index(
        Run(
            workload=question.workload,
            tree=(configuration.topk or 1) > 1,
            batch_size=configuration.batch_size,
            context_tokens=configuration.context_tokens,
        )
    )


def _step_time_s(calibration: Calibration, batch: Array, context: Array, rates: Array) -> Array:
    """Baseline step time at each load: measured, else that of the points, else of the question."""
    measured = calibration.baselines.step_time_s(batch, context)
    if calibration.num_points:
        # Without a batch curve nothing says how another load shifts the share of a draft step.
        other = np.full(batch.shape, REFERENCE_STEP_TIME_S / calibration.draft_scale)
    else:
        other = batch / rates
    return np.where(np.isfinite(batch), np.where(np.isfinite(measured), measured, other), np.nan)


def _carried_over_batches(calibration: Calibration, batch: Array) -> Array:
    """Log-sd of the round cost at batches that no point has, where there is no batch curve."""
    curve = calibration.curve
    if curve is not None and curve.num_batches > 1:
        return np.zeros(batch.shape)
    stated = {one.batch_size for one in calibration.configurations} - {None}
    known = np.array(sorted(value for value in stated if value) or PRIOR_BATCHES)
    if calibration.num_points and not stated:
        return np.zeros(batch.shape)  # the points do not say their batch, so none is another one
    octaves = np.abs(np.log2(np.nan_to_num(batch, nan=known[0])) - np.log2(known)[:, None])
    return np.asarray(BATCH_LOG_SD * np.sqrt(octaves.min(axis=0)))


def baseline_of(calibration: Calibration, question: Question) -> float | None:
    """Baseline throughput of a question: given, that of its workload, or the only one known."""
    if question.baseline_tokens_per_s is not None:
        return question.baseline_tokens_per_s
    configuration = question.configuration
    load = [
        np.nan if value is None else value
        for value in (configuration.batch_size, configuration.context_tokens)
    ]
    if question.workload is not None:
        found = calibration.baselines.find(question.workload, *load)
        return found.tokens_per_s if found else None
    rates = [
        entry.tokens_per_s
        for entry in calibration.baselines.entries
        if np.array_equal([entry.batch_size, entry.context_tokens], load, equal_nan=True)
    ]
    # One baseline, told several times or rounded differently; workloads differ by more.
    one = bool(rates) and max(rates) <= (1.0 + SAME_BASELINE) * min(rates)
    return float(np.mean(rates)) if one else None
