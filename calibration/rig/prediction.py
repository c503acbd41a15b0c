"""Predictions of the physical form: a calibrated rig with some of it changed, its draws, its server."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.rig.pricing import Pricing, estimate
from calibration.rig.scenario import (
    LOAD_KEYS,
    Scenario,
    doubts_of_all_reduce,
    round_shape,
    scenario_from_record,
)
from calibration.rig.whatif import SYNONYMS, changed
from specmodel.arrival import AskedArrival, ServerTimes, between_batches
from specmodel.ask import Ask, configurations
from specmodel.calibration import Calibration
from specmodel.errors import FitError, Note, ParameterError, UnknownKeyError, UsageError
from specmodel.hardware import gpu
from specmodel.model_error import DEGREES_OF_FREEDOM
from specmodel.physical_fit import PhysicalFit
from specmodel.prediction import BreakdownTerm, Prediction, accept_length_over, possible_speedup
from specmodel.question import AcceptLength, Estimate, Question
from specmodel.rig.factors import FACTORS
from specmodel.statistics import student_t_cdf

Array = NDArray[np.float64]


class ChangedRig(NamedTuple):
    """A calibrated rig with changes; `pricing` knows it as it was fitted.

    `scope` is what the calibration's throughputs are: ``aggregate``, ``per_user`` or ``per_gpu``.
    """

    pricing: Pricing
    rig: Scenario  # with its changes, at no particular load
    changes: tuple[tuple[str, str], ...]
    scope: str

    @property
    def unchanged(self) -> "ChangedRig":
        """The rig as it was fitted."""
        return self._replace(rig=self.pricing.base, changes=())


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
    changed(replace(base, num_draft_tokens=base.depth + 1), *pairs)  # loads are checked, too
    rig = changed(base, *(pair for pair in pairs if pair[0] not in LOAD_KEYS))
    return ChangedRig(Pricing(base, physical), rig, pairs, calibration.throughput_scope)


def calibrated_scenario(
    calibration: Calibration, asked: Ask, *, accept_length: float | None = None
) -> tuple[Scenario, PhysicalFit]:
    """Return the calibrated rig at a configuration, and the fit of its physical form."""
    pricing = changed_rig(calibration, ()).pricing
    (configuration,) = configurations(calibration, asked)
    if accept_length is None:
        known = calibration.observations
        same = [one for one in known if one.configuration == configuration]
        found = same or (known if len(known) == 1 else ())
        if not found:
            raise UsageError("--accept", "no point has this configuration")
        accept_length = found[0].accept_length_at
    question = Question(
        accept_length=AcceptLength.exact(accept_length), configuration=configuration
    )
    return scenario_at(pricing.base, question), pricing.fit


def with_load_changes(asked: Ask, changes: Sequence[tuple[str, str]]) -> Ask:
    """Return what was asked with the loads among the changes filled in."""
    for key, text in changes:
        name = "num_steps" if key == "depth" else key
        if key not in LOAD_KEYS:
            continue
        if getattr(asked, name) is not None:
            raise UsageError("one of them", f"--set {key} and an option say the same thing twice")
        value: Any = (int(float(text)),) if name == "num_steps" else float(text)
        asked = asked._replace(**{name: value})
    return asked


def rig_notes(rig: ChangedRig, question: Question) -> tuple[Note, ...]:
    """What to know of measured draft passes and all-reduces at the load of a question."""
    scenario = scenario_at(rig.rig, question)
    doubts = doubts_of_all_reduce([scenario])
    return (
        *(Note("drafter_record", one) for one in _draft_remarks(scenario)),
        *(Note("measured_allreduce", one) for one in doubts),
    )


def _draft_remarks(scenario: Scenario) -> Iterator[str]:
    """What to know of measured draft passes at a load."""
    times = scenario.draft.times
    if times is None:
        return
    load = scenario.topk, scenario.rows, scenario.batch_size, scenario.context_tokens
    for each in times.outside(*load):
        yield f"the draft passes were not measured at {each}; their time is carried there"
    if not _same_card(times.device, scenario.gpu):
        yield f"the draft passes were measured on {times.device}, not on {scenario.gpu}"


def _same_card(device: str, card: str) -> bool:
    """Whether two names mean one GPU, as far as the catalogue knows them."""
    try:
        return gpu(device).name == gpu(card).name
    except UnknownKeyError:
        return gpu(card).name.lower() in device.lower()


def speedup_ratio(rig: ChangedRig, base: Question, changed: Question) -> Estimate:
    """Return the speed-up of a question on the changed rig over that of one on the calibrated rig."""
    return rig.pricing.ratio(scenario_at(rig.pricing.base, base), scenario_at(rig.rig, changed))


def scenario_at(rig: Scenario, question: Question) -> Scenario:
    """Return a rig at the load of a question, whose depth must be known."""
    load = question.configuration
    shape = round_shape(load.num_steps, load.topk, load.num_draft_tokens)
    if shape.depth_unknown or shape.num_steps < 1:
        raise UsageError(
            "--depth", "the physical form prices rounds, and the calibrated depth is not stated"
        )
    return rig.at(load, question.accept_length.estimate.median)


def rig_prediction(rig: ChangedRig, question: Question) -> Prediction:
    r"""Predict a question on a changed rig.

    .. math:: \frac{1}{S} = f + (1-f)\frac{T_r}{T_1 \tau}

    Without a baseline of the changed rig its throughput is that of the form.
    """
    scenario = scenario_at(rig.rig, question)
    price = rig.pricing.price(scenario)
    logs, share = price.logs, price.logs.non_decode_share
    of_gain, of_output = np.array(logs.speedup_slopes), np.array(logs.output_slopes)
    noise = 2.0 * rig.pricing.fit.form.noise**2
    noise += (logs.speedup_slopes[0] * question.accept_length.log_sd) ** 2
    gain_sd = float(np.sqrt(of_gain @ price.covariance @ of_gain + noise))
    output_sd = float(np.sqrt(of_output @ price.covariance @ of_output + noise / 2.0))
    drawn = estimate(logs.speedup, gain_sd)
    gain = possible_speedup(drawn, question.accept_length.estimate)
    rate = question.baseline_tokens_per_s
    if rate is None:
        part = {"per_user": 1.0 / scenario.batch_size, "per_gpu": 1.0 / scenario.tp_size}
        scale = part.get(rig.scope, 1.0)
        output = estimate(logs.output, output_sd).scaled(scale * gain.median / drawn.median)
        rate = float(np.exp(logs.output - logs.speedup)) * scale
    else:
        output = gain.scaled(rate)
    requests = {"aggregate": scenario.batch_size, "per_user": 1.0}.get(rig.scope)
    per_user = output.scaled(1.0 / requests) if requests else None
    return Prediction(
        question=question,
        round_cost=price.round_cost,
        speedup=gain,
        break_even_accept_length=accept_length_over(price.round_cost, 1.0, share),
        output_tokens_per_s=output,
        per_user_tokens_per_s=per_user,
        tpot_s=per_user and Estimate(1 / per_user.median, 1 / per_user.high, 1 / per_user.low),
        baseline_tokens_per_s=rate,
        probability_faster=float(student_t_cdf(logs.speedup / gain_sd, DEGREES_OF_FREEDOM)),
        non_decode_share=share,
        implied_round_cost=price.implied_round_cost,
        breakdown=tuple(
            BreakdownTerm(term=name, share=part_s / price.round_s.median, time_s=part_s)
            for name, part_s in price.parts_s.items()
            if part_s > 0
        ),
    )


def speedup_draws(
    rig: ChangedRig, questions: Sequence[Question], accept_length: Array, rng: np.random.Generator
) -> Array:
    r"""Equally likely speed-ups of questions on a changed rig, jointly.

    .. math:: \ln T \sim t_\nu(m, C)

    What depths have in common does not move the choice among them.
    """
    fit = rig.pricing.fit
    asked = [rig.pricing.priced(scenario_at(rig.rig, question)) for question in questions]
    drawn = _drawn(*fit.predict_with_share(*asked), accept_length.shape[0], rng)
    logs, share = drawn[:, :-1], fit.share_at(drawn[:, -1:])
    cost = np.exp(logs[:, 1::2] - logs[:, 0::2])
    return np.asarray(1.0 / (share + (1.0 - share) * cost / accept_length))


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

    The first is of the medians. Factors of the form, what it misses and the non-decode share are drawn
    jointly for all batches, without the noise of a new measurement.
    """
    fit = rig.pricing.fit
    scenario = replace(scenario_at(rig.rig, question), batch_size=1.0)
    most, limit = _most_running(rig.pricing, scenario, asked.max_running)
    batches = _batches(most)
    priced = rig.pricing.priced(scenario, scenario.loads(batches))
    mean, covariance = fit.predict_with_share(priced)
    drawn = np.vstack([mean, _drawn(mean, covariance, accept_length.size - 1, rng)])
    logs, share = drawn[:, :-1], fit.share_at(drawn[:, -1:])
    step_s, round_s = (
        np.exp(between_batches(batches, each, most)) for each in np.split(logs, 2, axis=1)
    )
    if asked.prefill_s is None:
        step_s = step_s / (1.0 - share)
        round_s = round_s + share * accept_length[:, None] * step_s
    measured = fit.measured.loads.batch_size
    return ServerTimes(
        step_s=step_s,
        round_s=round_s,
        form="physical",
        limit=limit,
        largest_measured=float(np.max(measured)) if measured.size else None,
        non_decode_share=float(share[0, 0]),
    )


def _most_running(pricing: Pricing, scenario: Scenario, asked: int | None) -> tuple[int, str]:
    """Most requests that run at once: the user's limit, or what memory holds."""
    pricing.memory(scenario)  # of one request
    most = asked or MOST_RUNNING

    def too_many(batch_size: int) -> bool:
        return not pricing.fits(replace(scenario, batch_size=float(batch_size)))

    held = bisect_left(range(1, most + 1), 1, lo=1, key=too_many)
    if asked is None:
        memory = "what memory holds"
        return held, memory if held < most else "as many as engines run; memory holds more"
    if held < asked:
        raise ParameterError(
            "max_running",
            asked,
            f"at most {held}, which memory holds at context {scenario.context_tokens:g}",
            "more GPUs or a smaller kv_dtype hold more",
        )
    return asked, ""


def _batches(most: int) -> Array:
    """Batches at which steps and rounds are priced; between them they are smooth."""
    found = [1.0]
    while found[-1] < most:
        found.append(min(max(found[-1] + 1.0, round(_NEAR * found[-1])), float(most)))
    return np.array(found)
