"""Answers: from a calibration and a question to speed-up, throughput and their intervals."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from specmodel.calibrated import Calibration
from specmodel.configuration import Configuration, Run
from specmodel.constants import NUM_CONSTANTS, slope
from specmodel.cost import round_cost_gradient, round_cost_parts, round_terms
from specmodel.posterior import NEW, Rows
from specmodel.speedup import accept_length_for_speedup

Array = NDArray[np.float64]

CENTRAL = 0.90
"""Probability inside every interval. [-]"""

SAME_BASELINE = 0.01
"""Relative difference up to which baselines at one load count as the same. [-]"""

_LOW, _HIGH = (1 - CENTRAL) / 2, (1 + CENTRAL) / 2
_NORMAL_HIGH = 1.6448536269514722


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
        Where it was measured, by time to first token and output length; None: modelled, [-].
    """

    accept_length: AcceptLength
    configuration: Configuration
    workload: str | None = None
    baseline_tokens_per_s: float | None = None
    non_decode_share: float | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownTerm:
    """One part of the round.

    Parameters
    ----------
    term : str
        What it is.
    share : float
        Of the round time, [-].
    time_s : float or None
        Where the baseline's step time is known, [s].
    """

    term: str
    share: float
    time_s: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The answer to a question.

    Parameters
    ----------
    question : Question
        What was asked, completed.
    round_cost, speedup, break_even_accept_length : Estimate
        Round cost and break-even are of the mean round (no measurement noise); the speed-up is of a
        new measurement.
    output_tokens_per_s, per_user_tokens_per_s, tpot_s : Estimate or None
        Where a baseline is known.
    baseline_tokens_per_s : float or None
        Used for them.
    probability_faster : float
        That a new measurement is above the baseline, [0, 1].
    non_decode_share : float
        Used, [-].
    breakdown : tuple of BreakdownTerm
        Of the round.
    """

    question: Question
    round_cost: Estimate
    speedup: Estimate
    break_even_accept_length: Estimate
    output_tokens_per_s: Estimate | None
    per_user_tokens_per_s: Estimate | None
    tpot_s: Estimate | None
    baseline_tokens_per_s: float | None
    probability_faster: float
    non_decode_share: float
    breakdown: tuple[BreakdownTerm, ...]


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
    return Rows(
        terms=round_terms(
            num_steps=column("num_steps"),
            topk=column("topk"),
            num_draft_tokens=column("num_draft_tokens"),
            batch_size=batch,
            context_tokens=context,
            num_experts=calibration.num_experts,
            experts_per_token=calibration.experts_per_token,
            curve=calibration.curve,
            step_time_s=_step_time_s(calibration, batch, context, rates),
        ),
        accept_length=np.array([one.accept_length.estimate.median for one in questions]),
        baseline_deficit=deficit,
        measured_share=np.array(
            [
                np.nan if question.non_decode_share is None else question.non_decode_share
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
    """Baseline step time at each load: measured, else from the baseline of the question."""
    measured = calibration.baselines.step_time_s(batch, context)
    asked = np.where(np.isfinite(batch), batch / rates, np.nan)
    return np.where(np.isfinite(batch) & np.isfinite(measured), measured, asked)


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


def predict(calibration: Calibration, questions: list[Question]) -> tuple[Prediction, ...]:
    r"""Speed-up, throughput and round cost of each question, with central 90 % intervals.

    .. math:: \frac{1}{S} = f + (1-f)\frac{R}{\tau}

    Parameters
    ----------
    calibration : Calibration
        Of the system; `Calibration.from_prior()` where there is none.
    questions : list of Question
        What to predict.

    Returns
    -------
    tuple of Prediction
        In the order of the questions.

    Raises
    ------
    ParameterError
        If a quantity is outside what is possible.

    Notes
    -----
    An interval of the speed-up is for a new measurement: uncertain constants, effects of
    configuration and run, noise, and the spread of the accept length. theory.md part D.

    Examples
    --------
    >>> question = Question(
    ...     accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5)
    ... )
    >>> answer = predict(Calibration.from_prior(), [question])[0]
    >>> answer.speedup.low < answer.speedup.median < answer.speedup.high
    True
    """
    if not questions:
        return ()
    rows = question_rows(calibration, questions)
    accept_log_sd = np.array([question.accept_length.log_sd for question in questions])
    speedup = calibration.posterior.predict(rows, accept_log_sd=accept_log_sd)
    log_cost, cost_log_sd = log_round_cost(calibration, rows)
    low, median, high = (speedup.quantile(level) for level in (_LOW, 0.5, _HIGH))
    faster = speedup.probability_above(1.0)
    effect = calibration.posterior.run_effect(rows.run)
    answers = []
    for index, question in enumerate(questions):
        cost = Estimate(
            median=float(np.exp(log_cost[index])),
            low=float(np.exp(log_cost[index] - _NORMAL_HIGH * cost_log_sd[index])),
            high=float(np.exp(log_cost[index] + _NORMAL_HIGH * cost_log_sd[index])),
        )
        gain = Estimate(median=float(median[index]), low=float(low[index]), high=float(high[index]))
        share = float(speedup.non_decode_share[index])
        target = float(np.exp(-effect[index]))
        rate = baseline_of(calibration, question)
        output = gain.scaled(rate) if rate is not None else None
        requests = question.configuration.batch_size or 1.0
        per_user = output.scaled(1.0 / requests) if output else None
        answers.append(
            Prediction(
                question=question,
                round_cost=cost,
                speedup=gain,
                break_even_accept_length=_needed(target, cost, share),
                output_tokens_per_s=output,
                per_user_tokens_per_s=per_user,
                tpot_s=per_user
                and Estimate(
                    median=1.0 / per_user.median, low=1.0 / per_user.high, high=1.0 / per_user.low
                ),
                baseline_tokens_per_s=rate,
                probability_faster=float(faster[index]),
                non_decode_share=share,
                breakdown=_breakdown(
                    calibration, rows, index, share=share, rate=rate, requests=requests
                ),
            )
        )
    return tuple(answers)


def _needed(target_speedup: float, cost: Estimate, share: float) -> Estimate:
    """Accept length for a speed-up, over the interval of the round cost."""
    values = accept_length_for_speedup(
        target_speedup, np.array([cost.median, cost.low, cost.high]), share
    ).tolist()
    return Estimate(median=values[0], low=values[1], high=values[2])


def accept_length_needed(
    calibration: Calibration, question: Question, target_speedup: float
) -> Estimate:
    r"""Accept length that a question's configuration needs for a speed-up.

    .. math:: \tau = \frac{(1-f) R}{1/S - f}

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    question : Question
        Its accept length does not matter.
    target_speedup : float
        :math:`S`, positive, [-].

    Returns
    -------
    Estimate
        Infinite where no accept length reaches the speed-up, [tokens].

    Raises
    ------
    ParameterError
        If `target_speedup` is not positive.

    Notes
    -----
    Over the interval of the mean round cost; measurement noise is not in it.

    Examples
    --------
    >>> question = Question(
    ...     accept_length=AcceptLength.exact(2.0), configuration=Configuration(num_steps=5)
    ... )
    >>> prior = Calibration.from_prior()
    >>> one, two = (accept_length_needed(prior, question, gain).median for gain in (1.0, 1.5))
    >>> one < two
    True
    """
    rows = question_rows(calibration, [question])
    speedup = calibration.posterior.predict(rows)
    log_cost, cost_log_sd = log_round_cost(calibration, rows)
    width = _NORMAL_HIGH * cost_log_sd[0]
    cost = Estimate(
        median=float(np.exp(log_cost[0])),
        low=float(np.exp(log_cost[0] - width)),
        high=float(np.exp(log_cost[0] + width)),
    )
    effect = float(calibration.posterior.run_effect(rows.run)[0])
    return _needed(target_speedup * np.exp(-effect), cost, float(speedup.non_decode_share[0]))


def log_round_cost(calibration: Calibration, rows: Rows) -> tuple[Array, Array]:
    """Logarithm of the mean round cost of each row, and its standard deviation."""
    posterior = calibration.posterior
    constants = posterior.constants
    cost, gradient = round_cost_gradient(constants, rows.terms)
    internal = gradient * slope(constants) / cost[:, None]
    shared = posterior.covariance[:NUM_CONSTANTS, :NUM_CONSTANTS]
    variance = np.einsum("ij,jk,ik->i", internal, shared, internal)
    seen = rows.configuration != NEW
    at = NUM_CONSTANTS + np.where(seen, rows.configuration, 0)
    if posterior.num_configurations:
        cross = np.einsum("ij,ij->i", internal, posterior.covariance[at, :NUM_CONSTANTS])
        variance += np.where(seen, posterior.covariance[at, at] + 2 * cross, 0.0)
    drawn = (posterior.noise_scale * posterior.noise.configuration_log_sd) ** 2
    variance += np.where(seen, 0.0, drawn) + rows.terms.carried**2
    effect = posterior.configuration_effect(rows.configuration)
    return np.log(cost) + effect, np.sqrt(np.maximum(variance, 0.0))


def _breakdown(
    calibration: Calibration,
    rows: Rows,
    index: int,
    *,
    share: float,
    rate: float | None,
    requests: float,
) -> tuple[BreakdownTerm, ...]:
    """What the round of one row is made of, at the medians."""
    terms = rows.terms.take(np.array([index], dtype=np.intp))
    constants = calibration.posterior.constants
    verify, draft, tree = (float(part[0]) for part in round_cost_parts(constants, terms))
    lone_step = min(float(constants[0]), verify)
    effect = float(
        np.exp(calibration.posterior.configuration_effect(rows.configuration[[index]])[0])
    )
    parts = {
        "one target step and host": lone_step,
        "verifying the other tokens": verify - lone_step,
        "draft steps": draft,
        "tree": tree,
    }
    total = verify + draft + tree
    step_s = float("nan")
    if rate is not None:
        step_s = (1.0 - share) * requests / rate
    return tuple(
        BreakdownTerm(
            term=name,
            share=value / total,
            time_s=value * effect * step_s if np.isfinite(step_s) else None,
        )
        for name, value in parts.items()
        if value > 0
    )
