"""The answer to `specmodel predict --arrival-rate`: a server without and with speculation."""

from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.predict.relative_times import batch_curve, needs_batches, relative_server_times
from specmodel.accept_lengths import accept_lengths
from specmodel.answer import Model, relative_model
from specmodel.arrival import AskedArrival, BatchServer, ServerTimes, paying_rates_per_s
from specmodel.ask import (
    Ask,
    calibrated_depth,
    configurations,
    measured_accept_lengths,
    points_depth,
    workload_of,
)
from specmodel.calibration import Calibration
from specmodel.errors import Note, UsageError
from specmodel.notes import calibration_notes, depth_note
from specmodel.question import (
    AcceptLength,
    Configuration,
    Estimate,
    Question,
    longest_accept_length,
)

Array = NDArray[np.float64]

NUM_DRAWS: Final = 400
"""Draws from which intervals are made. [-]"""

_SEED = 1
_LEVELS = (0.05, 0.95)


class ServedWay(NamedTuple):
    """One way of serving the arrivals: without speculation, or with it.

    Times are in seconds, rates in requests/s. `decode_latency_s` is from the end of a request's own
    prefill to its last token, `waiting_s` the wait for a place among those that run, infinite where the
    server does not keep up. `probability_keeps_up` is over the draws.
    """

    running_requests: Estimate
    per_user_tokens_per_s: Estimate
    decode_latency_s: Estimate
    waiting_s: Estimate
    output_tokens_per_s: Estimate
    max_rate_per_s: Estimate
    share_of_max_rate: Estimate
    probability_keeps_up: float

    @property
    def keeps_up(self) -> bool:
        """Whether it serves what arrives, at the medians."""
        return self.share_of_max_rate.median < 1.0


class ArrivalAnswer(NamedTuple):
    """Everything to report of a server at an arrival rate.

    `speedup` is the time of a request, waiting and decoding, without speculation over that with it; None
    where neither keeps up. Speculation pays between `pays_from_per_s` and `pays_to_per_s`, the
    crossover: 0 and infinite where it pays at every rate, infinite and 0 where it pays at none.
    `configuration` is at no batch. `limit` says where `most_running` comes from, empty for the user.
    """

    source: str
    calibration: Calibration
    arrival: AskedArrival
    changes: tuple[tuple[str, str], ...]
    configuration: Configuration
    workload: str | None
    accept_length: AcceptLength
    form: str
    most_running: int
    limit: str
    non_decode_share: float
    without: ServedWay
    speculative: ServedWay
    speedup: Estimate | None
    probability_faster: float
    pays_from_per_s: Estimate
    pays_to_per_s: Estimate
    notes: tuple[Note, ...]


def arrival_answer(
    calibration: Calibration,
    arrival: AskedArrival,
    ask: Ask,
    *,
    changes: tuple[tuple[str, str], ...] = (),
    source: str,
) -> ArrivalAnswer:
    r"""Running requests, latency and largest rate of a server without and with speculation.

    .. math:: B = \lambda L(B)

    `specmodel.arrival.BatchServer`, at the medians and for draws of step, round and accept length, from
    which the intervals are; the noise of single measurements is not in them. The ask is of one depth; the
    times of steps are those of the calibration's baselines over batches, else those of its rig.
    """
    if "batch_size" in dict(changes):
        raise UsageError("one of them", "an arrival rate and --set batch_size both say the batch")
    model: Model = relative_model(calibration)
    times_of = partial(relative_server_times, calibration)
    if changes or batch_curve(calibration) is None:
        if not changes and calibration.physical is None:
            raise needs_batches(calibration)
        from calibration.predict.models import rig_model
        from calibration.rig.prediction import changed_rig, rig_server_times, with_load_changes

        rig = changed_rig(calibration, changes)
        model, times_of = rig_model(rig), partial(rig_server_times, rig)
        ask = with_load_changes(ask, rig.changes)
    alone = ask._replace(batch_size=1.0)
    one, *more = configurations(calibration, alone)
    if more:
        raise UsageError("one --depth", "a server at an arrival rate is answered for at one depth")
    found = accept_lengths(
        ask,
        [one],
        calibrated_depth=calibrated_depth(calibration),
        measured=measured_accept_lengths(calibration, ask, [one]),
    )
    configuration = replace(one, batch_size=None)
    workload = ask.workload and workload_of(calibration, one, ask)
    names = {entry.workload for entry in calibration.baselines.entries}
    question = Question(
        accept_length=found.values[0],
        configuration=configuration,
        workload=workload or (names.pop() if len(names) == 1 else None) or None,
        points_depth=points_depth(calibration, ask),
    )
    rng = np.random.default_rng(_SEED)
    accept = _accept_draws(question.accept_length, longest_accept_length(configuration), rng)
    times = times_of(question, arrival, accept, rng)
    prefill_s = arrival.prefill_s or 0.0
    tokens = arrival.output_tokens
    without = BatchServer(times.step_s, output_tokens=tokens, prefill_time_s=prefill_s)
    speculative = BatchServer(
        times.round_s, output_tokens=tokens, accept_length=accept, prefill_time_s=prefill_s
    )
    rate = arrival.arrival_rate_per_s
    with np.errstate(invalid="ignore"):  # NaN where neither keeps up
        gain = np.asarray(without.at(rate).latency_s / speculative.at(rate).latency_s)
    starts, stops = paying_rates_per_s(without, speculative)
    plain, drafted = (_served(server, arrival) for server in (without, speculative))
    return ArrivalAnswer(
        source=source,
        calibration=calibration,
        arrival=arrival,
        changes=changes,
        configuration=configuration,
        workload=question.workload,
        accept_length=question.accept_length,
        form=times.form,
        most_running=without.most_running,
        limit=times.limit,
        non_decode_share=times.non_decode_share,
        without=plain,
        speculative=drafted,
        speedup=None if np.isnan(gain[0]) else _estimate(gain),
        probability_faster=float(np.mean(gain[1:] > 1.0)),
        pays_from_per_s=_estimate(starts),
        pays_to_per_s=_estimate(stops),
        notes=(
            *calibration_notes(calibration),
            *(() if one.num_steps is None else depth_note(calibration, question.points_depth)),
            *found.notes,
            *model.notes,
            *_prefill_note(calibration, arrival, times),
            *_beyond_note(times, plain, drafted),
            *_notes_there(model, question, drafted),
        ),
    )


def _accept_draws(accept: AcceptLength, longest: float | None, rng: np.random.Generator) -> Array:
    """The accept length, then draws of it."""
    normal = np.concatenate([[0.0], rng.standard_normal(NUM_DRAWS)])
    drawn = accept.estimate.median * np.exp(accept.log_sd * normal)
    most = np.inf if longest is None else max(longest, accept.estimate.median)
    return np.clip(drawn, 1.0, most)


def _served(server: BatchServer, arrival: AskedArrival) -> ServedWay:
    """What a server does with the arrivals."""
    rate, tokens = arrival.arrival_rate_per_s, arrival.output_tokens
    load, largest = server.at(rate), server.max_rate_per_s
    share = rate / largest
    return ServedWay(
        running_requests=_estimate(load.running_requests),
        per_user_tokens_per_s=_estimate(tokens / load.decode_latency_s),
        decode_latency_s=_estimate(load.decode_latency_s),
        waiting_s=_estimate(load.waiting_s),
        output_tokens_per_s=_estimate(tokens * np.minimum(rate, largest)),
        max_rate_per_s=_estimate(largest),
        share_of_max_rate=_estimate(share),
        probability_keeps_up=float(np.mean(share[1:] < 1.0)),
    )


def _estimate(values: Array) -> Estimate:
    """The first value, with the central 90 % of the others."""
    median = float(values[0])
    drawn = values[1:][~np.isnan(values[1:])]
    if not drawn.size:
        return Estimate(median, median, median)
    low, high = np.quantile(drawn, _LEVELS, method="nearest").tolist()
    return Estimate(median, min(low, median), max(high, median))


def _prefill_note(
    calibration: Calibration, arrival: AskedArrival, times: ServerTimes
) -> tuple[Note, ...]:
    """What stands for prefill where nothing was said of it."""
    if arrival.prefill_s is not None:
        return ()
    text = "the points are of decoding alone, so prefill takes no time here; --prefill-ms adds it"
    if not calibration.decode_only and times.non_decode_share != 0.0:
        text = (
            f"prefill and what else is not decoding take the share that they take in the points "
            f"({100 * times.non_decode_share:.2g} % of the baseline's time); --prefill-ms states it"
        )
    return (Note("prefill_not_given", text),)


def _beyond_note(
    times: ServerTimes, without: ServedWay, speculative: ServedWay
) -> tuple[Note, ...]:
    """Remark on batches that no baseline has."""
    measured = times.largest_measured
    most = max(one.running_requests.median for one in (without, speculative))
    if measured is None or most <= measured:
        return ()
    what = f"{most:.3g} running requests are outside what was measured, up to {measured:g}"
    return (Note("extrapolation", what),)


def _notes_there(model: Model, question: Question, way: ServedWay) -> tuple[Note, ...]:
    """What is to know of a prediction at the running requests, but for the load itself."""
    batch = max(1.0, round(way.running_requests.median))
    there = replace(question, configuration=replace(question.configuration, batch_size=batch))
    (prediction,) = model.predict([there])
    return tuple(
        note
        for note in model.notes_on(prediction, accept_known=True)
        if note.code != "no_baseline" and not note.message.startswith("batch ")
    )
