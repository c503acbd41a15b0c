"""Answers: from a calibration and a question to speed-up, throughput and their intervals."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from specmodel.calibrated import Calibration
from specmodel.constants import NUM_CONSTANTS, slope
from specmodel.cost import round_cost_gradient, round_cost_parts
from specmodel.posterior import NEW, Rows
from specmodel.question import Estimate, Question, baseline_of, question_rows
from specmodel.speedup import accept_length_for_speedup

Array = NDArray[np.float64]

CENTRAL = 0.90
"""Probability inside every interval. [-]"""

_LOW, _HIGH = (1 - CENTRAL) / 2, (1 + CENTRAL) / 2
_NORMAL_HIGH = 1.6448536269514722


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
        Where a baseline is known; the first in the scope of the points, the others not for throughputs
        per GPU.
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
    >>> from specmodel import AcceptLength, Configuration
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
        cost = _round_cost(float(log_cost[index]), float(cost_log_sd[index]))
        gain = Estimate(median=float(median[index]), low=float(low[index]), high=float(high[index]))
        share = float(speedup.non_decode_share[index])
        target = float(np.exp(-effect[index]))
        rate = baseline_of(calibration, question)
        output = gain.scaled(rate) if rate is not None else None
        requests = question.configuration.batch_size or 1.0
        share_of_rate = 1.0 / requests if calibration.throughput_scope == "aggregate" else 1.0
        one_user = output is not None and calibration.throughput_scope != "per_gpu"
        per_user = output.scaled(share_of_rate) if output and one_user else None
        answers.append(
            Prediction(
                question=question,
                round_cost=cost,
                speedup=gain,
                break_even_accept_length=accept_length_over(cost, target, share),
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
                    calibration,
                    rows,
                    index,
                    share=share,
                    user_rate=rate * share_of_rate if rate and one_user else None,
                ),
            )
        )
    return tuple(answers)


def _round_cost(log_cost: float, log_sd: float) -> Estimate:
    """Round cost with its interval, which ends at 1: verifying takes a step at least."""
    median = float(np.exp(log_cost))
    return Estimate(
        median=median,
        low=max(float(np.exp(log_cost - _NORMAL_HIGH * log_sd)), min(1.0, median)),
        high=float(np.exp(log_cost + _NORMAL_HIGH * log_sd)),
    )


def accept_length_over(cost: Estimate, target_speedup: float, non_decode_share: float) -> Estimate:
    r"""Accept length for a speed-up, over the interval of a round cost.

    .. math:: \tau = \frac{(1-f) R}{1/S - f}

    Parameters
    ----------
    cost : Estimate
        :math:`R`, [baseline steps].
    target_speedup : float
        :math:`S`, positive, [-].
    non_decode_share : float
        :math:`f`, in [0, 1), [-].

    Returns
    -------
    Estimate
        Infinite where no accept length reaches the speed-up, [tokens].

    Raises
    ------
    ParameterError
        If a number is outside its range.

    Notes
    -----
    At a speed-up of 1 it is the break-even accept length.

    Examples
    --------
    >>> accept_length_over(Estimate(median=2.0, low=1.5, high=2.5), 1.0, 0.0)
    Estimate(median=2.0, low=1.5, high=2.5)
    """
    values = accept_length_for_speedup(
        target_speedup, np.array([cost.median, cost.low, cost.high]), non_decode_share
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
    >>> from specmodel import AcceptLength, Configuration
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
    cost = _round_cost(float(log_cost[0]), float(cost_log_sd[0]))
    effect = float(calibration.posterior.run_effect(rows.run)[0])
    target = float(target_speedup * np.exp(-effect))
    return accept_length_over(cost, target, float(speedup.non_decode_share[0]))


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
    drawn = (posterior.effect_scale * posterior.noise.configuration_log_sd) ** 2
    variance += np.where(seen, 0.0, drawn + rows.terms.carried**2)
    effect = posterior.configuration_effect(rows.configuration)
    return np.log(cost) + effect, np.sqrt(np.maximum(variance, 0.0))


def _breakdown(
    calibration: Calibration,
    rows: Rows,
    index: int,
    *,
    share: float,
    user_rate: float | None,
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
    if user_rate is not None:
        step_s = (1.0 - share) / user_rate
    return tuple(
        BreakdownTerm(
            term=name,
            share=value / total,
            time_s=value * effect * step_s if np.isfinite(step_s) else None,
        )
        for name, value in parts.items()
        if value > 0
    )
