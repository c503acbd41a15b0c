"""Steps and rounds of a server at every batch, from a calibration's own baselines over batches."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.arrival import AskedArrival, ServerTimes, between_batches
from specmodel.baselines import Baseline
from specmodel.calibration import Calibration
from specmodel.cost import BatchCurve
from specmodel.cost.batch_curve import StepTime
from specmodel.errors import UsageError
from specmodel.optimum import draw_rounds
from specmodel.posterior import Rows
from specmodel.prediction import counted, question_rows
from specmodel.question import Configuration, Question

Array = NDArray[np.float64]

BEYOND_MEASURED: Final = 2.0
"""Largest batch that is answered for, over the largest measured one, where the user gives no limit: a
judgement. Beyond, the step would be carried further than an octave. [-]"""

INSIDE_LOG_SD: Final = 0.08
"""Log-sd of a step time per octave to the nearest measured batch, between measured ones: the error of
packaged curves with each batch left out in turn. [-]"""

BEYOND_LOG_SD: Final = 0.13
"""Log-sd of a step time per octave beyond the measured batches: the error of packaged curves cut
short. [-]"""

MOVED_LOG_SD: Final = 0.25
"""Log-sd of the part of a step time that was carried from another context. [-]"""

_NEAR = 1.1
_SAME_CONTEXT = 1.0  # octaves up to which a configuration speaks for another context
_SEED = 1
_MEASURED_STEP = 0.995  # of the wall time, below which the points time the step by itself


def batch_curve(calibration: Calibration) -> BatchCurve | None:
    """Wall time of a step over batches; None where fewer than two batches have a baseline.

    Parameters
    ----------
    calibration : Calibration
        Its baselines, of which the fastest at each load counts.

    Returns
    -------
    BatchCurve or None
        With what is not decoding in the points, [s].
    """
    known = [
        (entry, time_s)
        for entry in calibration.baselines.entries
        if (time_s := _wall_s(calibration, entry)) is not None
    ]
    if len({entry.batch_size for entry, _ in known}) < 2:
        return None
    return BatchCurve.from_points(
        [entry.batch_size for entry, _ in known],
        [entry.context_tokens for entry, _ in known],
        [time_s for _, time_s in known],
    )


def relative_server_times(
    calibration: Calibration,
    question: Question,
    asked: AskedArrival,
    accept_length: Array,
    rng: np.random.Generator,
) -> ServerTimes:
    r"""Steps and rounds at every batch, with draws of what is not known of them.

    .. math:: T_r = T \frac{\tau}{S},\quad\text{or without prefill}\ T (1-f) R\, e^{-v}

    Parameters
    ----------
    calibration : Calibration
        With baselines at several batches.
    question : Question
        Its batch does not matter.
    asked : AskedArrival
        With a prefill, times are those of decoding alone.
    accept_length : numpy.ndarray, shape (d + 1,)
        At the median, then draws, [tokens].
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ServerTimes

    Raises
    ------
    UsageError
        If fewer than two batches have a baseline.

    Notes
    -----
    Constants, effects of configuration and run, and the reading of the batch curve are drawn, without
    the noise of single rows; that of a baseline moves steps and rounds of a draw together. A workload
    whose baseline is slower than the fastest is slower at every batch by the median of what it is where
    it was measured.
    """
    curve = batch_curve(calibration)
    if curve is None:
        raise needs_batches(calibration)
    question = replace(question, configuration=counted(calibration, question), points_depth=None)
    largest = float(np.max(curve.batch_size))
    most = asked.max_running or max(1, math.ceil(BEYOND_MEASURED * largest))
    stated = question.configuration.context_tokens
    context = math.nan if stated is None else stated
    running = np.arange(1.0, most + 1.0)
    wall = curve.at(running, context)
    deficit = _deficit(calibration, curve, question.workload)
    num_draws = accept_length.size - 1
    measured = [one.batch_size or 1.0 for one in calibration.configurations]
    batches = _batches(curve, question.configuration, measured, most)
    at = [replace(question.configuration, batch_size=batch) for batch in batches.tolist()]
    rows = question_rows(calibration, [replace(question, configuration=one) for one in at])
    rows = replace(rows, baseline_deficit=np.full(len(at), deficit))
    log_cost, share, effect = (
        between_batches(batches, values, most)
        for values in _medians_and_draws(calibration, rows, num_draws)
    )
    moved = _moved(calibration, wall, num_draws, rng)
    step_s = wall.step_time_s / (1.0 - deficit) * moved
    cost = np.exp(log_cost - effect)
    if asked.prefill_s is None:
        idle = share * np.exp(-effect) * accept_length[:, None]
        round_s = step_s * (idle + (1.0 - share) * cost)
    else:
        part = _decoding_part(calibration, curve, running, context)
        step_s = step_s * np.where(part < 1.0, part, 1.0 - share)
        round_s = step_s * cost
    return ServerTimes(
        step_s=step_s,
        round_s=round_s,
        form="relative",
        limit="" if asked.max_running else f"twice the largest batch measured, {largest:g}",
        largest_measured=largest,
        non_decode_share=float(share[0, 0]),
    )


def needs_batches(calibration: Calibration) -> UsageError:
    """What to add to a calibration that knows the step at one batch only."""
    needs = "an arrival rate needs the time of a step at every batch, and the"
    if not calibration.num_points:
        hint = "--calibration of points with baselines at several batches"
        return UsageError(hint, f"{needs} packaged prior has none")
    entries = calibration.baselines.entries
    measured = [one.batch_size for one in entries if _wall_s(calibration, one) is not None]
    if measured:
        what = f"holds baselines at one batch, {min(measured):g}"
    elif calibration.throughput_scope in {"per_gpu", "relative"}:
        what = "holds throughputs per GPU, which give no time of a step"
    else:
        what = "does not state the batch of its baselines"
    return UsageError(
        "`specmodel fit` baselines at two or more batches (rows with num_steps 0), or --model and --gpu "
        "for the physical form",
        f"{needs} calibration {what}",
    )


def _wall_s(calibration: Calibration, entry: Baseline) -> float | None:
    """Wall time of a step of one baseline; None where its batch or its whole is not known."""
    if not np.isfinite(entry.batch_size) or calibration.throughput_scope in {"per_gpu", "relative"}:
        return None
    requests = 1.0 if calibration.throughput_scope == "per_user" else max(entry.batch_size, 1.0)
    return requests / entry.tokens_per_s


def _deficit(calibration: Calibration, curve: BatchCurve, workload: str | None) -> float:
    """How much slower the baseline of a workload is than the fastest at its loads: the median."""
    found = []
    for entry in calibration.baselines.entries:
        wall_s = _wall_s(calibration, entry)
        if wall_s is not None and workload is not None and entry.workload == workload:
            fastest_s = curve.at(entry.batch_size, entry.context_tokens).step_time_s
            found.append(1.0 - float(fastest_s) / wall_s)
    return min(max(float(np.median(found)), 0.0), 0.99) if found else 0.0


def _batches(
    curve: BatchCurve, asked: Configuration, measured: Iterable[float], most: int
) -> Array:
    """Batches at which rounds are priced: measured ones, where the curve bends, and every octave."""
    bends = np.unique(curve.batch_size)
    verified = asked.num_draft_tokens or 1.0
    octaves = 2.0 ** np.arange(math.log2(most) + 1)
    others = np.concatenate([octaves, bends, bends / verified, [float(most)]])
    kept = sorted({1.0, *(batch for batch in measured if 1.0 <= batch <= most)})
    for batch in sorted(set(others.tolist())):
        apart = all(max(batch / known, known / batch) > _NEAR for known in kept)
        if 1.0 <= batch <= most and apart:
            kept.append(batch)
    return np.array(sorted(kept))


def _medians_and_draws(
    calibration: Calibration, rows: Rows, num_draws: int
) -> tuple[Array, Array, Array]:
    """Logarithm of the round cost, non-decode share and effect of the run: medians, then draws."""
    posterior = calibration.posterior
    drawn = draw_rounds(posterior, rows, num_draws=num_draws, rng=np.random.default_rng(_SEED))
    median = posterior.predict(rows)
    log_cost = np.vstack([median.log_round_cost, np.log(drawn.round_cost)])
    return (
        np.maximum(log_cost, 0.0),
        np.vstack([median.non_decode_share, drawn.non_decode_share]),
        np.vstack([median.run_effect, drawn.run_effect]),
    )


def _moved(
    calibration: Calibration, wall: StepTime, num_draws: int, rng: np.random.Generator
) -> Array:
    """Factors on the step: 1, then draws of the noise of baselines and of reading between them."""
    posterior = calibration.posterior
    noise_sd = posterior.noise_scale * posterior.noise.row_log_sd / math.sqrt(2.0)
    inside = wall.octaves_away - wall.octaves_beyond
    away_sd = INSIDE_LOG_SD * inside + BEYOND_LOG_SD * wall.octaves_beyond
    reading_sd = np.hypot(away_sd, MOVED_LOG_SD * wall.moved_share)
    normal = np.vstack([np.zeros(2), rng.standard_normal((num_draws, 2))])
    return np.asarray(np.exp(noise_sd * normal[:, :1] + reading_sd * normal[:, 1:]))


def _decoding_part(
    calibration: Calibration, curve: BatchCurve, running: Array, context: float
) -> Array:
    """Part of the wall time of a step that is decoding, as measured; 1 where no step was timed."""
    timed = calibration.baselines.curve()
    if timed is None:
        return np.ones(running.shape)
    part = timed.at(running, context).step_time_s / curve.at(running, context).step_time_s
    return part if np.median(part) < _MEASURED_STEP else np.ones(running.shape)
