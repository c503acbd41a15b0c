"""One answer from a training log: what the drafter serves now, what it will, whether to go on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from calibration.training.accept_length_path import AcceptLengthPath, projected_path
from calibration.training.curves import AccuracyCurves
from calibration.training.decision import (
    LITTLE_GAIN,
    NUM_DRAWS,
    TARGET_SPEEDUP,
    TrainingDecision,
    decide,
)
from calibration.training.family_facts import Bonus
from calibration.training.log_acceptance import LogAcceptance, log_acceptance
from calibration.training.projection import Projection, ProjectionRefused, curves_of, project
from calibration.training.records import Kind, Split
from calibration.training.serving import ServedAs, served_as
from calibration.training.training_log import TrainingLog
from specmodel.acceptance import TRANSFER_PRIOR, TransferFactor
from specmodel.ask import Ask
from specmodel.calibration import Calibration
from specmodel.errors import Note, ParameterError, UsageError
from specmodel.units import KILO

Array = NDArray[np.float64]

_SEED = 5
_TREND_SHARE = 1 / 3  # of the points, the last ones
_CHAINED = (Kind.CONDITIONAL, Kind.MARGINAL, Kind.OVERLAP)
_OF_THE_END = ("end-inferred", "total-steps-unknown", "flat", "far-ahead")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingQuestion:
    """What is asked about a run."""

    configuration: Ask  # how it will be served, as far as that was given
    workload: str | None = None  # of the calibration
    baseline_tokens_per_s: float | None = None  # throughput without speculation, [tokens/s]
    target_speedup: float = TARGET_SPEEDUP  # to be reached
    # last step of the run; by default the trainer's own total, or where its learning rate ends
    until: float | None = None
    # mean response length of the training data, for the bias at its edges, [tokens]
    response_tokens: float | None = None
    seconds_per_step: float | None = None  # time of a training step, [s]
    transfer: TransferFactor = TRANSFER_PRIOR  # from log to server


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DepthCourse:
    """One draft depth over the run."""

    depth: int  # counted from 1
    # as the log last shows them; `chained` is of the kind `Assessment.chained_kind`
    loss: float | None
    joint: float | None
    chained: float | None
    # change of the chained accuracy in 1,000 steps, over the last third of the points
    trend: float | None
    # median, low and high of the chained accuracy at the end
    at_end: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assessment:
    """Everything to report on a run."""

    log: TrainingLog  # what was read
    acceptance: LogAcceptance  # the accept length it implies now
    curves: AccuracyCurves | None  # accuracy by depth over the run; None where the log has none
    projection: Projection | None  # none where it was refused
    refused: ProjectionRefused | None  # why
    courses: tuple[DepthCourse, ...]  # by depth
    # accept lengths of the log at the served depth, of which the decision was made
    path: AcceptLengthPath | None
    decision: TrainingDecision | None  # what it is worth in serving
    # the same at the depth that would be fastest, where nobody asked for another and it is faster
    better: TrainingDecision | None = None
    undecided: str = ""  # why that cannot be said; empty where it can

    @property
    def chained_kind(self) -> Kind | None:
        """Kind of the accuracies that are multiplied; None where the log has joint ones alone."""
        return _chained_kind(self.acceptance)

    @property
    def findings(self) -> tuple[Note, ...]:
        """What to know of the projection that was answered with; none where there is none."""
        end = None if self.decision is None or self.decision.end is None else self.decision.end.step
        if self.projection is None or end is None:
            return ()
        inferred = self.projection.end_step
        if inferred is not None and round(inferred) == end:
            return self.projection.findings
        kept = [one for one in self.projection.findings if one.code not in _OF_THE_END]
        if inferred is not None and end > inferred:
            message = f"step {end} is beyond the end that the log implies, {inferred:.0f}"
            kept.append(Note(code="beyond-the-end", message=message))
        return tuple(kept)

    @property
    def why_not_projected(self) -> str:
        """Why the end is not known, in words; empty where it is."""
        return _why_not(self.projection, self.refused)


def assess(log: TrainingLog, calibration: Calibration, question: TrainingQuestion) -> Assessment:
    """Return what a run is worth in serving, now and at its end."""
    found = log_acceptance(log)
    curves = curves_of(log, response_length=question.response_tokens)
    projection, refused = _projected(log, curves, question.until)
    path, decision, best, undecided = None, None, None, _undecided(log, question)
    if not undecided:
        try:
            served = _served(log, calibration, question)
        except UsageError as error:
            if log.depths or question.configuration.num_steps is not None:
                raise
            undecided = str(error)
        else:
            found = log_acceptance(log, served.num_steps)
            ends = projection is not None and bool(projection.end_step or question.until)
            known = partial(_path, log, projection=projection, until=question.until)
            decided = partial(
                decide,
                calibration,
                target_speedup=question.target_speedup,
                transfer=None if _is_served(found) else question.transfer,
                seconds_per_step=question.seconds_per_step,
                why_not_projected=_why_not(projection, refused),
            )
            path = known(found, served.num_steps)
            if path is None:
                undecided = (
                    "an accept length cannot be computed from what the log prints "
                    f"({', '.join(sorted(log.codes)) or 'no accuracy by depth'})"
                )
            else:
                finished = _finished(log, path, end_known=ends)
                decision = decided(path, served, finished=finished)
                best, given = decision, question.configuration
                for depth in range(1, log.depths + 1) if given.num_steps is None else ():
                    at_depth = replace(question, configuration=given._replace(num_steps=(depth,)))
                    other = known(log_acceptance(log, depth), depth)
                    if other is not None and depth != served.num_steps:
                        there = _served(log, calibration, at_depth)
                        best = _faster(best, decided(other, there, finished=finished))
    end = None if decision is None or decision.end is None else decision.end.step
    return Assessment(
        log=log,
        acceptance=found,
        curves=curves,
        projection=projection,
        refused=refused,
        courses=_courses(log, found, curves, projection if end is not None else None, end),
        path=path,
        decision=decision,
        better=None if best is decision else best,
        undecided=undecided,
    )


def _undecided(log: TrainingLog, question: TrainingQuestion) -> str:
    """Return why nothing can be said about serving, empty where something can."""
    depth = question.configuration.num_steps
    if "depth0-only" in log.codes and depth != (1,):
        return (
            "the log prints the first depth alone, which gives no accept length; --depth 1 says what "
            "one drafted token would be worth"
        )
    return ""


def _served(log: TrainingLog, calibration: Calibration, question: TrainingQuestion) -> ServedAs:
    """Return how the drafter will be served."""
    ask = question.configuration._replace(
        workload=question.workload, baseline_tokens_per_s=question.baseline_tokens_per_s
    )
    return served_as(calibration, ask, trained_depth=log.depths or None)


def _path(
    log: TrainingLog,
    found: LogAcceptance,
    num_steps: int,
    projection: Projection | None,
    until: float | None,
) -> AcceptLengthPath | None:
    """Return the accept lengths to decide on; None where the log implies none."""
    if found.acceptance.accept_length is None:
        return None
    if projection is not None and (projection.end_step or until):
        log_sd = _disagreement(found.acceptance.routes)
        path = projected_path(projection, num_steps, until=until, log_sd=log_sd)
        return path.through(found.acceptance.accept_length, projection.noise(num_steps))
    draws = found.acceptance.draws(NUM_DRAWS, np.random.default_rng(_SEED))
    return AcceptLengthPath.of_now(draws, log.last_step)


def _speedup_at_last(decision: TrainingDecision) -> float:
    """Return the median speed-up in serving of the finished run, or of now where that is all."""
    return (decision.end or decision.now).expected.speedup.median


def _faster(one: TrainingDecision, other: TrainingDecision) -> TrainingDecision:
    """Return the other of two depths where it is faster by more than equal runs differ."""
    gain = _speedup_at_last(other) / _speedup_at_last(one)
    return other if gain > 1.0 + LITTLE_GAIN else one


def _is_served(found: LogAcceptance) -> bool:
    """Return whether the accept length was measured while a server drafted."""
    return (
        found.source is None and found.printed is not None and found.printed.bonus is Bonus.MEASURED
    )


def _disagreement(routes: Mapping[str, float]) -> float:
    r"""Return by what joint and conditional accuracies disagree, as a spread of :math:`\ln(\tau - 1)`.

    Scatter of the points and the tail beyond the trained depth are in a projection already.
    """
    joint, conditional = routes.get("joint", 1.0), routes.get("conditional", 1.0)
    if joint <= 1.0 or conditional <= 1.0:
        return 0.0
    return abs(math.log((joint - 1.0) / (conditional - 1.0))) / math.sqrt(2.0)


def _finished(log: TrainingLog, path: AcceptLengthPath, *, end_known: bool) -> bool:
    """Return whether the present is the end: by the trainer's total, or with nothing ahead."""
    last, total = log.last_step, log.total_steps
    at_total = total is not None and last is not None and last >= total
    return at_total or (end_known and not path.projected)


def _projected(
    log: TrainingLog, curves: AccuracyCurves | None, until: float | None
) -> tuple[Projection | None, ProjectionRefused | None]:
    """Return the projection, or why there is none."""
    if curves is None:
        missing = "no accuracy by depth" if not log.depths else "no steps beside its accuracies"
        reason = f"the log has {missing}, so there is no curve"
        return None, ProjectionRefused("no-curve", reason)
    if until is not None and until < curves.last_step:
        raise ParameterError(
            "--until", f"{until:g}", f"a step from {curves.last_step:g} on, the last of the log"
        )
    try:
        return project(curves, until), None
    except ProjectionRefused as refused:
        return None, refused


def _why_not(projection: Projection | None, refused: ProjectionRefused | None) -> str:
    """Return why the end is not known, in words; empty where it is."""
    if refused is not None:
        return refused.reason
    if projection is not None and projection.end_step is None:
        return "the log does not say how many steps the run has; give the last one with --until"
    return ""


def _courses(
    log: TrainingLog,
    found: LogAcceptance,
    curves: AccuracyCurves | None,
    projection: Projection | None,
    end: int | None,
) -> tuple[DepthCourse, ...]:
    """Return every depth with what is known of it."""
    source = found.source
    if source is None:
        return ()
    kind = _chained_kind(found)
    joint = source.accuracies.get(Kind.JOINT, ())
    chained = () if kind is None else source.accuracies[kind]
    losses = _last_losses(log, source.split)
    trends = _trends(curves)
    ahead = None
    if projection is not None and end is not None:
        ahead = np.quantile(projection.at(end).conditional, [0.5, 0.05, 0.95], axis=0)
    courses = []
    for index in range(max(len(joint), len(chained))):
        at_end = None
        if ahead is not None and index < ahead.shape[1]:
            at_end = (float(ahead[0, index]), float(ahead[1, index]), float(ahead[2, index]))
        courses.append(
            DepthCourse(
                depth=index + 1,
                loss=_at(losses, index),
                joint=_at(joint, index),
                chained=_at(chained, index),
                trend=_at(trends, index),
                at_end=at_end,
            )
        )
    return tuple(courses)


def _chained_kind(found: LogAcceptance) -> Kind | None:
    """Return the kind of the accuracies that are multiplied."""
    known = {} if found.source is None else found.source.accuracies
    return next((kind for kind in _CHAINED if known.get(kind)), None)


def _last_losses(log: TrainingLog, split: Split) -> tuple[float, ...]:
    """Return the losses by depth of the last record of a split that has them."""
    for series in log.series.values():
        if series.split == split and series.losses.size:
            rows = np.flatnonzero(series.finite & np.isfinite(series.losses).all(axis=1))
            return tuple(series.losses[rows[-1]].tolist()) if rows.size else ()
    return ()


def _trends(curves: AccuracyCurves | None) -> tuple[float, ...]:
    """Return the slope of each depth over the last points, in 1,000 steps."""
    if curves is None or curves.num_points < 4:
        return ()
    last = max(int(curves.num_points * _TREND_SHARE), 3)
    steps = curves.steps[-last:]
    away = steps - steps.mean()
    if not np.any(away):
        return ()
    return tuple(((away @ curves.conditional[-last:] / float(away @ away)) * KILO).tolist())


def _at(values: tuple[float, ...], index: int) -> float | None:
    """Return an element, None where there is none."""
    return None if index >= len(values) or not math.isfinite(values[index]) else values[index]
