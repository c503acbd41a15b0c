"""Answers: from a calibrated system and a question to speed-up, throughput and their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmodel.constants import NAMES, NUM_CONSTANTS
from specmodel.cost import (
    REFERENCE_STEP_TIME_S,
    UNKNOWN_DEPTH_NUM_STEPS,
    round_cost_parts,
    round_terms,
)
from specmodel.effects import NEW, workload_numbers
from specmodel.errors import ImpossibleAnswerError
from specmodel.posterior import Rows
from specmodel.question import Configuration, Estimate, Question, Run, estimate_json
from specmodel.speedup import accept_length_for_speedup
from specmodel.statistics import NORMAL_95, student_t_cdf, student_t_quantile
from specmodel.units import MILLI

if TYPE_CHECKING:
    from specmodel.calibration import Calibration

Array = NDArray[np.float64]

CENTRAL = 0.90
"""Probability inside every interval. [-]"""

_EXPONENT = NAMES.index("draft_time_exponent")
_LOW, _HIGH = (1 - CENTRAL) / 2, (1 + CENTRAL) / 2
_UNSOUND_POINTS = (
    "a baseline or an accept length of the points is wrong: measure them again at the same load"
)

UNLIKE_PUBLIC = 0.1
"""Probability that a rig without points is unlike the public systems of the prior, which then says nothing
of who is faster: a judgement, that nobody measured. [-]"""

SAME_BASELINE = 0.01
"""Relative difference up to which baselines at one load count as the same. [-]"""


class BreakdownTerm(NamedTuple):
    """One part of the round."""

    term: str  # what it is
    share: float  # of the round time, [-]
    time_s: float | None  # where the baseline's step time is known, [s]


@dataclass(frozen=True, kw_only=True)
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
    implied_round_cost : float
        Median round cost before it was held to at least a step, [baseline steps].
    breakdown : tuple of BreakdownTerm
        Of the round.
    run_effect : float
        What the baseline of the run misses, on the logarithm of the speed-up, [-].
    configuration_measured : bool
        Whether the points hold this configuration.
    from_constants : tuple of float
        Log-sd of the speed-up from each constant, draft ones as at the fastest measured load, [-].
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
    implied_round_cost: float
    breakdown: tuple[BreakdownTerm, ...]
    run_effect: float = 0.0
    configuration_measured: bool = False
    from_constants: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, as `specmodel predict --json` names them; unknown and infinite ones are None."""
        one, tpot_s = self.question.configuration, self.tpot_s
        return {
            "accept_length": estimate_json(self.question.accept_length.estimate),
            "num_steps": _whole(one.num_steps),
            "topk": _whole(one.topk),
            "num_draft_tokens": _whole(one.num_draft_tokens),
            "batch_size": _whole(one.batch_size),
            "round_cost": estimate_json(self.round_cost),
            "speedup": estimate_json(self.speedup),
            "output_tokens_per_s": estimate_json(self.output_tokens_per_s),
            "tpot_ms": estimate_json(tpot_s and tpot_s.scaled(1 / MILLI)),
            "per_user_tokens_per_s": estimate_json(self.per_user_tokens_per_s),
            "break_even_accept_length": estimate_json(self.break_even_accept_length),
            "probability_faster": None
            if np.isnan(self.probability_faster)
            else self.probability_faster,
            "breakdown": [
                {
                    "term": part.term,
                    "share": part.share,
                    "time_ms": None if part.time_s is None else part.time_s / MILLI,
                }
                for part in self.breakdown
            ],
        }


def _whole(value: float | None) -> int | float | None:
    """A count as a whole number where it is one."""
    return int(value) if value is not None and float(value).is_integer() else value


def predict(system: "Calibration", questions: Sequence[Question]) -> tuple[Prediction, ...]:
    r"""Speed-up, throughput and round cost of each question, with central 90 % intervals.

    .. math:: \frac{1}{S} = f + (1-f)\frac{R}{\tau}

    Parameters
    ----------
    system : Calibration
        Of the system; `Calibration.from_prior()` where there is none.
    questions : sequence of Question
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
    >>> from specmodel import AcceptLength, Calibration, Configuration
    >>> question = Question(
    ...     accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5)
    ... )
    >>> answer = predict(Calibration.from_prior(), [question])[0]
    >>> answer.speedup.low < answer.speedup.median < answer.speedup.high
    True
    """
    if not questions:
        return ()
    if not system.baseline_known:
        return _by_round_times(system, questions)
    rows = question_rows(system, questions)
    accept_log_sd = np.array([question.accept_length.log_sd for question in questions])
    posterior = system.posterior
    found = posterior.predict(rows, accept_log_sd=accept_log_sd)
    gains = np.stack([found.quantile(level) for level in (0.5, _LOW, _HIGH)], axis=1).tolist()
    spread = found.round_cost_log_sd[:, None] * np.array([0.0, -NORMAL_95, NORMAL_95])
    costs = np.exp(found.log_round_cost[:, None] + spread).tolist()
    level = np.exp(-found.run_effect)[:, None]  # the speed-up at which a round pays
    break_even = accept_length_for_speedup(
        level, np.maximum(costs, 1.0), found.non_decode_share[:, None]
    )
    break_even = np.maximum(break_even, 1.0).tolist()
    faster = found.probability_above(1.0)
    if not system.num_points:
        faster = (1.0 - UNLIKE_PUBLIC) * faster + 0.5 * UNLIKE_PUBLIC
    # What a round is made of at the medians, in baseline steps.
    constants = posterior.constants
    verify, draft, tree = round_cost_parts(constants, rows.terms)
    lone_step = np.minimum(constants[0], verify)
    parts = {
        "one target step and host": lone_step.tolist(),
        "verifying the other tokens": (verify - lone_step).tolist(),
        "draft steps": draft.tolist(),
        "tree": tree.tolist(),
    }
    # The exponent only carries the cost of a draft step from the measured load to another one.
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = 1.0 - np.log(system.draft_scale) / np.log(rows.terms.draft_scale)
    by_constant = found.by_constant * np.sqrt(np.diag(posterior.covariance)[:NUM_CONSTANTS])
    by_constant[:, _EXPONENT] *= np.where(rows.terms.draft_scale == 1.0, 1.0, moved)
    answers = []
    for index, question in enumerate(questions):
        implied = Estimate(*costs[index])
        cost = possible_round_cost(implied)
        gain = possible_speedup(Estimate(*gains[index]), question.accept_length.estimate)
        share, effect = float(found.non_decode_share[index]), float(found.run_effect[index])
        rate, _ = baseline_of(system, question)
        if system.throughput_scope == "relative" and question.baseline_tokens_per_s is None:
            rate = None
        aggregate, per_gpu = (system.throughput_scope == one for one in ("aggregate", "per_gpu"))
        part = 1.0 / (question.configuration.batch_size or 1.0) if aggregate else 1.0  # of one user
        output = None if rate is None else gain.scaled(rate)
        per_user = None if output is None or per_gpu else output.scaled(part)
        step_s = None if rate is None or per_gpu else (1.0 - share) / (rate * part)
        whole = sum(one[index] for one in parts.values())
        round_s = None if step_s is None else costs[index][0] * step_s
        answers.append(
            Prediction(
                question=question,
                round_cost=cost,
                speedup=gain,
                break_even_accept_length=Estimate(*break_even[index]),
                output_tokens_per_s=output,
                per_user_tokens_per_s=per_user,
                tpot_s=per_user
                and Estimate(1 / per_user.median, 1 / per_user.high, 1 / per_user.low),
                baseline_tokens_per_s=rate,
                probability_faster=float(faster[index]),
                non_decode_share=share,
                implied_round_cost=implied.median,
                breakdown=tuple(
                    BreakdownTerm(
                        term=name,
                        share=one[index] / whole,
                        time_s=None if round_s is None else round_s * one[index] / whole,
                    )
                    for name, one in parts.items()
                    if one[index] > 0
                ),
                run_effect=effect,
                configuration_measured=bool(rows.configuration[index] != NEW),
                from_constants=tuple(np.abs(by_constant[index]).tolist()),
            )
        )
    return tuple(answers)


def _by_round_times(system: "Calibration", questions: Sequence[Question]) -> tuple[Prediction, ...]:
    """Predictions of a system without baselines: rates by the times of rounds, the rest by a given one.

    The rounds of each load count in a unit of time. What compares with no speculation is NaN, unless the
    question brings its baseline.
    """
    in_units = replace(system, baseline_known=True)
    asked = [replace(one, baseline_tokens_per_s=None) for one in questions]
    # Of the Student-t that its interval is of, a speed-up has the probability above 1.
    freedom = system.posterior.degrees_of_freedom
    half = float(student_t_quantile(_HIGH, freedom))
    answers = []
    for question, one in zip(questions, predict(in_units, asked), strict=True):
        given, rate = question.baseline_tokens_per_s, one.baseline_tokens_per_s
        factor = np.nan if given is None or rate is None else given / rate
        gain = one.speedup.scaled(1.0 / factor)
        cost = one.round_cost.scaled(factor)
        log_sd = np.log(gain.high / gain.low) / (2.0 * half)
        answers.append(
            replace(
                one,
                question=question,
                round_cost=cost if np.isnan(factor) else possible_round_cost(cost),
                speedup=gain,
                break_even_accept_length=one.break_even_accept_length.scaled(factor),
                baseline_tokens_per_s=given,
                probability_faster=float(student_t_cdf(np.log(gain.median) / log_sd, freedom)),
                implied_round_cost=one.implied_round_cost * factor,
            )
        )
    return tuple(answers)


def predict_each(
    system: "Calibration", questions: Sequence[Question]
) -> list[Prediction | ImpossibleAnswerError]:
    """Prediction of each question, or why it has none."""
    try:
        return [*predict(system, questions)]
    except ImpossibleAnswerError as error:
        if len(questions) == 1:
            return [error]
    return [found for one in questions for found in predict_each(system, [one])]


def possible_round_cost(cost: Estimate, cause: str = _UNSOUND_POINTS) -> Estimate:
    """Round cost held to at least a step; refused where not even its upper end reaches one."""
    if cost.high < 1.0:
        raise ImpossibleAnswerError(cost.median, cause)
    return Estimate(max(cost.median, 1.0), max(cost.low, 1.0), max(cost.high, 1.0))


def possible_speedup(gain: Estimate, accept_length: Estimate) -> Estimate:
    """Speed-up held to at most the accept length, which it reaches where a round takes a step."""
    most = accept_length.median
    return Estimate(min(gain.median, most), min(gain.low, most), min(gain.high, accept_length.high))


def accept_length_over(cost: Estimate, target_speedup: float, non_decode_share: float) -> Estimate:
    r"""Accept length for a speed-up, over the interval of a round cost.

    .. math:: \tau = \frac{(1-f) R}{1/S - f}
    """
    costs = np.array([cost.median, cost.low, cost.high])
    needed = accept_length_for_speedup(target_speedup, costs, non_decode_share)
    return Estimate(*needed.tolist())


def accept_length_needed(
    system: "Calibration", question: Question, target_speedup: float
) -> Estimate:
    r"""Accept length that a question's configuration needs for a speed-up.

    .. math:: \tau = \frac{(1-f) R}{1/S - f}

    Parameters
    ----------
    system : Calibration
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
    >>> from specmodel import AcceptLength, Calibration, Configuration
    >>> question = Question(
    ...     accept_length=AcceptLength.exact(2.0), configuration=Configuration(num_steps=5)
    ... )
    >>> prior = Calibration.from_prior()
    >>> one, two = (accept_length_needed(prior, question, gain).median for gain in (1.0, 1.5))
    >>> one < two
    True
    """
    (found,) = predict(system, [question])
    return accept_length_for(found, target_speedup)


def accept_length_for(prediction: Prediction, target_speedup: float) -> Estimate:
    """The same, of what has been predicted already."""
    target = float(target_speedup * np.exp(-prediction.run_effect))
    return accept_length_over(prediction.round_cost, target, prediction.non_decode_share)


def sensitivities(system: "Calibration", question: Question) -> dict[str, float]:
    r"""Relative change of the speed-up per relative change of each quantity, largest first.

    .. math:: \varepsilon_x = \frac{\partial \ln S}{\partial \ln x}

    Parameters
    ----------
    system : Calibration
        Of the system.
    question : Question
        Where to look.

    Returns
    -------
    dict of str to float
        ``accept_length``, ``round_cost`` and every constant by name; quantities that do not matter
        here are 0, [-].

    Raises
    ------
    ParameterError
        If a quantity is outside what is possible.

    Notes
    -----
    Exact derivatives at the median constants: 1 % more accept length changes the speed-up by
    ``accept_length`` per cent.

    Examples
    --------
    >>> from specmodel import AcceptLength, Calibration, Configuration
    >>> question = Question(
    ...     accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5)
    ... )
    >>> found = sensitivities(Calibration.from_prior(), question)
    >>> 0.8 < found["accept_length"] <= 1.0 and found["step_cost"] < 0
    True
    """
    constants = system.posterior.constants
    linear = question_rows(system, [question]).linearised(constants)
    decode = float(linear.by_accept_length[0])
    found = {"accept_length": decode, "round_cost": -decode}
    found |= dict(zip(NAMES, (linear.gradient[0] * constants).tolist(), strict=True))
    return dict(sorted(found.items(), key=lambda pair: -np.abs(pair[1])))


def question_rows(system: "Calibration", questions: Sequence[Question]) -> Rows:
    """Arrays of questions, with the effects of the calibration they touch."""
    configurations = [counted(system, question) for question in questions]
    known = [baseline_of(system, question) for question in questions]
    rates, shares = np.array(known, dtype=np.float64).T  # None is NaN
    stated = {
        field.name: np.array([getattr(one, field.name) for one in configurations], dtype=np.float64)
        for field in fields(Configuration)
    }
    batch, context = stated["batch_size"], stated["context_tokens"]
    # Without a batch curve nothing says how another load shifts the share of a draft step.
    other = REFERENCE_STEP_TIME_S / system.draft_scale if system.num_points else batch / rates
    step_s = system.baselines.best("step_time_s", min, batch, context)
    step_s = np.where(np.isfinite(step_s), step_s, other)
    terms = round_terms(
        **stated,
        num_experts=system.num_experts,
        experts_per_token=system.experts_per_token,
        curve=system.curve,
        step_time_s=np.where(np.isfinite(batch), step_s, np.nan),
    )
    seen = {one: index for index, one in enumerate(system.configurations)}
    ran = {one: index for index, one in enumerate(system.runs)}
    runs = [
        # A workload that is not named may be any other one, so its run is new.
        Run(
            workload=question.workload or "",
            tree=(question.configuration.topk or 1) > 1,
            batch_size=question.configuration.batch_size,
            context_tokens=question.configuration.context_tokens,
        )
        if question.workload is not None
        else None
        for question in questions
    ]
    workloads = workload_numbers(system.runs)
    named = [NEW if one is None else workloads.get(one.workload, NEW) for one in runs]
    return Rows(
        terms=terms,
        accept_length=np.array([one.accept_length.estimate.median for one in questions]),
        baseline_deficit=system.baselines.deficit(rates, batch, context),
        measured_share=shares,
        configuration=np.array([seen.get(one, NEW) for one in configurations], dtype=np.intp),
        run=np.array([NEW if one is None else ran.get(one, NEW) for one in runs], dtype=np.intp),
        workload=np.array(named, dtype=np.intp),
    )


def counted(system: "Calibration", question: Question) -> Configuration:
    r"""The configuration of a question as the fit counts depths that the points do not state.

    .. math:: k \mapsto k_0 \frac{k}{N}

    With :math:`k_0` the depth that an unstated one counts as in a fit, and :math:`N` what it is taken to
    be. At N it is the measured configuration, and what drafting cost there is shared by N steps.
    """
    one, taken = question.configuration, question.points_depth
    if taken is None or one.num_steps is None:
        return one
    chain = one.num_draft_tokens == one.num_steps + 1
    if one.num_steps == taken:
        measured = replace(one, num_steps=None)
        if chain and measured not in system.configurations:
            return replace(measured, num_draft_tokens=None)
        return measured
    return replace(
        one,
        num_steps=UNKNOWN_DEPTH_NUM_STEPS * one.num_steps / taken,
        num_draft_tokens=None if chain else one.num_draft_tokens,
    )


def baseline_of(system: "Calibration", question: Question) -> tuple[float | None, float]:
    """Baseline throughput of a question, and the share of its time that is not decoding.

    The throughput is the given one, that of its workload, or the only one known; the share that of the
    question, else that measured with this baseline, NaN where none was.
    """
    named, found = question.workload, system.baselines.at(question.configuration)
    found = [one for one in found if named in {None, one.workload}]
    rate, rates = question.baseline_tokens_per_s, [one.tokens_per_s for one in found]
    # One baseline, told several times or rounded differently; workloads differ by more.
    differ = named is None and rates and max(rates) > (1.0 + SAME_BASELINE) * min(rates)
    if rate is None and rates and not differ:
        rate = float(np.mean(rates))
    if question.non_decode_share is not None:
        return rate, question.non_decode_share
    if system.decode_only:
        return rate, 0.0
    shares = [
        one.non_decode_share
        for one in found
        if rate is not None
        and abs(one.tokens_per_s / rate - 1.0) <= SAME_BASELINE
        and not np.isnan(one.non_decode_share)
    ]
    return rate, float(np.mean(shares)) if shares else np.nan
