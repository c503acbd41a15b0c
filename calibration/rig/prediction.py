"""Predictions of the physical form: a calibrated rig with some of it changed, its draws, its server."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.rig.pricing import Pricing, interval_sd
from calibration.rig.scenario import (
    Scenario,
    doubts_of_all_reduce,
    round_shape,
    scenario_from_record,
)
from calibration.rig.whatif import LOAD_KEYS, SYNONYMS, all_changed
from specmodel.arrival import AskedArrival, ServerTimes, between_batches
from specmodel.ask import Ask, configurations
from specmodel.calibration import Calibration
from specmodel.errors import FitError, ParameterError, UnknownKeyError, UsageError
from specmodel.hardware import gpu
from specmodel.model_error import DEGREES_OF_FREEDOM, Loads
from specmodel.physical_fit import PhysicalFit
from specmodel.prediction import (
    BreakdownTerm,
    Prediction,
    accept_length_over,
    possible_speedup,
)
from specmodel.question import AcceptLength, Configuration, Estimate, Question
from specmodel.rig.factors import FACTORS
from specmodel.statistics import student_t_cdf

Array = NDArray[np.float64]


class ChangedRig(NamedTuple):
    """A calibrated rig with changes; `base` is the rig as it was fitted.

    `scope` is what the calibration's throughputs are: ``aggregate``, ``per_user`` or ``per_gpu``.
    """

    pricing: Pricing
    base: Scenario
    changes: tuple[tuple[str, str], ...]
    scope: str = "aggregate"

    @property
    def rig(self) -> Scenario:
        """The rig with its changes, at no particular load."""
        rig_changes = [pair for pair in self.changes if pair[0] not in LOAD_KEYS]
        return all_changed(self.base, rig_changes)

    @property
    def unchanged(self) -> "ChangedRig":
        """The rig as it was fitted."""
        return self._replace(changes=())


def changed_rig(calibration: Calibration, changes: Sequence[tuple[str, str]]) -> ChangedRig:
    """Return the calibrated rig with changes."""
    physical = calibration.physical
    if physical is None and not calibration.num_points:
        raise UsageError(
            "--calibration of points, or use `specmodel whatif --model ... --gpu ...`",
            "--set changes a calibrated rig, and the packaged prior is of no rig",
        )
    if physical is None:
        why = calibration.rig_note.partition("; give")[0]
        raise UsageError(
            "--calibration of a `specmodel fit` with --model and --gpu",
            "--set changes the rig of the points, which is not known: "
            + (why or "they were fitted before there was a physical form"),
        )
    if physical.factors != FACTORS:
        raise FitError(
            "the physical form of this calibration is that of another release; run `specmodel fit` "
            "again, then ask again"
        )
    base = scenario_from_record(physical.rig)
    pairs = tuple((SYNONYMS.get(key, key), text) for key, text in changes)
    found = ChangedRig(
        pricing=Pricing(base, physical),
        base=base,
        changes=pairs,
        scope=calibration.throughput_scope,
    )
    all_changed(replace(base, num_draft_tokens=base.depth + 1), list(pairs))
    return found


def calibrated_scenario(
    calibration: Calibration, asked: Ask, *, accept_length: float | None = None
) -> tuple[Scenario, PhysicalFit]:
    """Return the calibrated rig at a configuration, and the fit of its physical form."""
    rig = changed_rig(calibration, ())
    (configuration,) = configurations(calibration, asked)
    if accept_length is None:
        accept_length = _measured_accept_length(calibration, configuration)
    question = Question(
        accept_length=AcceptLength.exact(accept_length), configuration=configuration
    )
    scenario = scenario_at(rig.base, question)
    return replace(scenario, accept_length=accept_length), rig.pricing.fit


def _measured_accept_length(calibration: Calibration, configuration: Configuration) -> float:
    """Accept length of a configuration, or of the only one that was measured, [tokens]."""
    known = calibration.observations
    same = [one for one in known if one.configuration == configuration]
    found = same or (known if len(known) == 1 else ())
    if not found:
        raise UsageError("--accept", "no point has this configuration")
    return found[0].accept_length_at


def with_load_changes(asked: Ask, changes: Sequence[tuple[str, str]]) -> Ask:
    """Return what was asked with the loads among the changes filled in."""
    for key, text in changes:
        name = "num_steps" if key == "depth" else key
        if key not in LOAD_KEYS:
            continue
        if getattr(asked, name) is not None:
            raise UsageError("one of them", f"--set {key} and an option say the same thing twice")
        if name == "num_steps":
            asked = asked._replace(num_steps=(int(float(text)),))
        else:
            changed: dict[str, Any] = {name: float(text)}
            asked = asked._replace(**changed)
    return asked


def rig_predictions(rig: ChangedRig, questions: Sequence[Question]) -> tuple[Prediction, ...]:
    r"""Predict questions on a changed rig.

    .. math:: \frac{1}{S} = f + (1-f)\frac{T_r}{T_1 \tau}

    Without a baseline of the changed rig its throughput is that of the form.
    """
    return tuple(_prediction(rig, question) for question in questions)


def draft_remarks(rig: ChangedRig, question: Question) -> tuple[str, ...]:
    """Return what to know of measured draft passes at the load of a question."""
    scenario = scenario_at(rig.rig, question)
    times = scenario.draft.times
    if times is None:
        return ()
    remarks = [
        f"the draft passes were not measured at {each}; their time is carried there"
        for each in times.outside(
            topk=scenario.topk,
            num_draft_tokens=scenario.rows,
            batch_size=scenario.batch_size,
            context_tokens=scenario.context_tokens,
        )
    ]
    if not _same_card(times.device, scenario.gpu):
        remarks.append(f"the draft passes were measured on {times.device}, not on {scenario.gpu}")
    return tuple(remarks)


def allreduce_remarks(rig: ChangedRig, question: Question) -> tuple[str, ...]:
    """Return what speaks against the measured all-reduce at the load of a question."""
    return doubts_of_all_reduce([scenario_at(rig.rig, question)])


def _same_card(device: str, card: str) -> bool:
    """Whether two names mean one GPU, as far as the catalogue knows them."""
    try:
        return gpu(device).name == gpu(card).name
    except UnknownKeyError:
        return gpu(card).name.lower() in device.lower()


def speedup_ratio(rig: ChangedRig, base: Question, changed: Question) -> Estimate:
    """Return the speed-up of a question on the changed rig over that of one on the calibrated rig."""
    return rig.pricing.ratio(scenario_at(rig.base, base), scenario_at(rig.rig, changed))


def scenario_at(rig: Scenario, question: Question) -> Scenario:
    """Return a rig at the load of a question."""
    one = question.configuration
    shape = round_shape(one.num_steps, one.topk, one.num_draft_tokens)
    if shape.depth_unknown or shape.num_steps < 1:
        raise UsageError(
            "--depth", "the physical form prices rounds, and the calibrated depth is not stated"
        )
    chain = shape.topk == 1 and shape.num_draft_tokens == shape.num_steps + 1
    return replace(
        rig,
        depth=int(shape.num_steps),
        topk=int(shape.topk),
        num_draft_tokens=None if chain else int(shape.num_draft_tokens),
        batch_size=one.batch_size or 1.0,
        context_tokens=one.context_tokens or 0.0,
        accept_length=question.accept_length.estimate.median,
    )


def _prediction(rig: ChangedRig, question: Question) -> Prediction:
    """One prediction."""
    scenario = scenario_at(rig.rig, question)
    price = rig.pricing.price(scenario)
    covariance, logs = price.covariance, price.logs
    form, share = rig.pricing.fit.form, logs.non_decode_share
    noise = 2.0 * form.noise**2 + (logs.speedup_slopes[0] * question.accept_length.log_sd) ** 2
    of_gain, of_output = np.array(logs.speedup_slopes), np.array(logs.output_slopes)
    gain_sd = float(np.sqrt(of_gain @ covariance @ of_gain + noise))
    output_sd = float(np.sqrt(of_output @ covariance @ of_output + noise / 2.0))
    drawn = _new(logs.speedup, gain_sd)
    gain = possible_speedup(drawn, question.accept_length.estimate)
    rate = question.baseline_tokens_per_s
    if rate is None:
        part = {"per_user": 1.0 / scenario.batch_size, "per_gpu": 1.0 / scenario.tp_size}
        scale = part.get(rig.scope, 1.0)
        output = _new(logs.output, output_sd).scaled(scale * gain.median / drawn.median)
        rate = float(np.exp(logs.output - logs.speedup)) * scale
    else:
        output = gain.scaled(rate)
    requests = {"aggregate": scenario.batch_size, "per_user": 1.0}.get(rig.scope)
    per_user = output.scaled(1.0 / requests) if requests else None
    total = price.round_s.median
    return Prediction(
        question=question,
        round_cost=price.round_cost,
        speedup=gain,
        break_even_accept_length=accept_length_over(price.round_cost, 1.0, share),
        output_tokens_per_s=output,
        per_user_tokens_per_s=per_user,
        tpot_s=per_user
        and Estimate(
            median=1.0 / per_user.median, low=1.0 / per_user.high, high=1.0 / per_user.low
        ),
        baseline_tokens_per_s=rate,
        probability_faster=float(student_t_cdf(logs.speedup / gain_sd, DEGREES_OF_FREEDOM)),
        non_decode_share=share,
        implied_round_cost=price.implied_round_cost,
        breakdown=tuple(
            BreakdownTerm(term=name, share=part / total, time_s=part)
            for name, part in price.parts_s.items()
            if part > 0
        ),
    )


def _new(log_value: float, sd: float) -> Estimate:
    """Estimate of a new measurement."""
    half = interval_sd() * sd
    low, median, high = (float(np.exp(log_value + move)) for move in (-half, 0.0, half))
    return Estimate(median=median, low=low, high=high)


def speedup_draws(
    rig: ChangedRig,
    questions: Sequence[Question],
    accept_length: Array,
    rng: np.random.Generator,
) -> Array:
    r"""Equally likely speed-ups of questions on a changed rig, jointly.

    .. math:: \ln T \sim t_\nu(m, C)

    What depths have in common does not move the choice among them.
    """
    scenarios = [scenario_at(rig.rig, question) for question in questions]
    fit = rig.pricing.fit
    mean, covariance = fit.predict_with_share(*(rig.pricing.priced(each) for each in scenarios))
    drawn = _drawn(mean, covariance, accept_length.shape[0], rng)
    logs = drawn[:, :-1]
    cost = np.exp(logs[:, 1::2] - logs[:, 0::2])
    share = _share(rig, drawn)
    return np.asarray(1.0 / (share + (1.0 - share) * cost / accept_length))


def time_draws(
    rig: ChangedRig, scenario: Scenario, loads: Loads, num_draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    r"""Logarithms of the times of loads of a changed rig: the medians, then equally likely ones.

    .. math:: (\ln T, f) \sim t_\nu(m, C)

    Without the noise of a new measurement.
    """
    mean, covariance = rig.pricing.fit.predict_with_share(rig.pricing.priced(scenario, loads))
    drawn = np.vstack([mean, _drawn(mean, covariance, num_draws, rng)])
    return drawn[:, :-1], _share(rig, drawn)


def _share(rig: ChangedRig, drawn: Array) -> Array:
    """Non-decode share of draws whose last column is its error in standard deviations."""
    fit = rig.pricing.fit
    found = fit.non_decode_share + fit.non_decode_sd * drawn[:, -1:]
    return np.asarray(np.clip(found, 0.0, 0.99))


def _drawn(mean: Array, covariance: Array, num_draws: int, rng: np.random.Generator) -> Array:
    """Draws of a multivariate Student's t."""
    values, vectors = np.linalg.eigh(covariance)
    normal = rng.standard_normal((num_draws, mean.size)) * np.sqrt(np.maximum(values, 0.0))
    chi = rng.chisquare(DEGREES_OF_FREEDOM, (num_draws, 1)) / DEGREES_OF_FREEDOM
    return np.asarray(mean + (normal @ vectors.T) / np.sqrt(chi))


MOST_RUNNING: Final = 1024
"""Most requests that run at once where memory would hold more (judgement). [requests]"""

_NEAR = 1.2


def rig_server_times(
    rig: ChangedRig,
    question: Question,
    asked: AskedArrival,
    accept_length: Array,
    rng: np.random.Generator,
) -> ServerTimes:
    r"""Steps and rounds at every batch that the memory holds, with draws of what is not known of them.

    .. math:: T_1(b),\quad T_r(b)

    Factors of the form, what it misses and the non-decode share are drawn jointly for all batches.
    """
    scenario = scenario_at(
        rig.rig, replace(question, configuration=replace(question.configuration, batch_size=1.0))
    )
    most, limit = _most_running(rig, scenario, asked.max_running)
    batches = _batches(most)
    loads = scenario.loads(batches)
    logs, share = time_draws(rig, scenario, loads, accept_length.size - 1, rng)
    step_s, round_s = (
        np.exp(between_batches(batches, each, most)) for each in np.split(logs, 2, axis=1)
    )
    if asked.prefill_s is None:
        step_s = step_s / (1.0 - share)
        round_s = round_s + share * accept_length[:, None] * step_s
    measured = rig.pricing.fit.measured.loads.batch_size
    return ServerTimes(
        step_s=step_s,
        round_s=round_s,
        form="physical",
        limit=limit,
        largest_measured=float(np.max(measured)) if measured.size else None,
        non_decode_share=float(share[0, 0]),
    )


def _most_running(rig: ChangedRig, scenario: Scenario, asked: int | None) -> tuple[int, str]:
    """Most requests that run at once: the user's limit, or what memory holds."""
    rig.pricing.memory(scenario)
    low, high = 1, (asked or MOST_RUNNING) + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            rig.pricing.memory(replace(scenario, batch_size=float(middle)))
        except ParameterError:
            high = middle
        else:
            low = middle
    if asked is None:
        held = low < MOST_RUNNING
        return low, "what memory holds" if held else "as many as engines run; memory holds more"
    if low < asked:
        raise ParameterError(
            "max_running",
            asked,
            f"at most {low}, which memory holds at context {scenario.context_tokens:g}",
            "more GPUs or a smaller kv_dtype hold more",
        )
    return asked, ""


def _batches(most: int) -> Array:
    """Batches at which steps and rounds are priced; between them they are smooth."""
    found = [1.0]
    while found[-1] < most:
        found.append(min(max(found[-1] + 1.0, round(_NEAR * found[-1])), float(most)))
    return np.array(found)
