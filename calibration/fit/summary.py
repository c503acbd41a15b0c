"""Everything to report of a fit: what was read, what was learned, what is open, what comes next."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from calibration.fit.diagnosis import Diagnosis, diagnose
from calibration.fit.fit import fit, with_expert_counts
from calibration.fit.identifiable import Untold, constants_in_play, untold_constants
from calibration.fit.next_measurement import next_measurements
from calibration.fit.residuals import Residuals, residuals
from calibration.points.arrays import SystemRows, system_rows
from calibration.points.notes import Note, held_to_a_step
from calibration.points.packaged import PackagedTable
from calibration.points.points import read_points
from calibration.points.systems import SystemPoints, select_system
from calibration.points.table import Points
from calibration.points.unsound import assess_soundness
from calibration.rig.explain import Explanation, doubt_of_rig, explain
from calibration.rig.from_points import AskedRig, with_named_rig
from calibration.rig.scenario import doubts_of_all_reduce
from specmodel.ask import workload_of
from specmodel.calibration import Calibration, Observation
from specmodel.errors import ImpossibleAnswerError
from specmodel.prediction import Prediction, predict_each
from specmodel.prior import Prior, load_prior
from specmodel.question import AcceptLength, Question

_SAID_OTHERWISE = ("two_systems",)  # a system was chosen
_OF_PACKAGED_TABLES = ("unknown_column",)  # locators, which no reader needs


class ConfigurationCost(NamedTuple):
    """What one configuration costs: by the plain identity, and by the posterior.

    `posterior` is None where it would be impossible: a round cheaper than a step.
    """

    observation: Observation
    posterior: Prediction | None


class FitSummary(NamedTuple):
    """A fit and what to say about it.

    `num_read` counts the rows of the files, `num_other` those of other systems.
    """

    calibration: Calibration
    points: Points
    rows: SystemRows
    num_read: int
    num_other: int
    costs: tuple[ConfigurationCost, ...]
    residuals: Residuals
    in_play: tuple[str, ...]
    untold: tuple[Untold, ...]
    next_measurements: tuple[str, ...]
    diagnosis: Diagnosis | None
    notes: tuple[Note, ...]
    explanation: Explanation | None


def fit_summary(
    paths: Sequence[Path],
    *,
    system: str | None = None,
    force: bool = False,
    table: PackagedTable | None = None,
    progress: Callable[[int], None] | None = None,
    rig: AskedRig | None = None,
) -> FitSummary:
    """Read files, fit one system, and put together what to report.

    Parameters
    ----------
    paths : sequence of path
        What was measured; not used where a packaged table is named.
    system : str, optional
        Part of the label of the system to fit.
    force : bool
        Fit although the baselines are unsound.
    table : PackagedTable, optional
        A packaged table to fit instead; the prior then leaves its target model out.
    progress : callable, optional
        Told how many bytes of the files have been read since it was told last.
    rig : AskedRig, optional
        What the user says of the machine.

    Returns
    -------
    FitSummary

    Raises
    ------
    FormatError, IncompatiblePointsError, UnknownKeyError, FitError
        As `calibration.fit`.
    """
    found = read_points(list(paths) if table is None else table.path, progress=progress)
    read = with_named_rig(found, rig)
    chosen = select_system(read, system)
    soundness = assess_soundness(chosen.points)
    kept = chosen.points if force else chosen.points.where(soundness.kept)
    usable = system_rows(with_expert_counts(kept.frame))
    prior = None if table is None else _prior_without(chosen, usable)
    calibration = fit(chosen.points, force=force, prior=prior, rig=rig)
    costs = _costs(calibration)
    try:
        explanation = explain(calibration)
    except ImpossibleAnswerError as error:
        explanation, calibration = None, replace(calibration, physical=None, rig_note=str(error))
    return FitSummary(
        calibration=calibration,
        points=read,
        rows=usable,
        num_read=len(read) + sum(row.count for row in read.dropped),
        num_other=len(read) - len(chosen.points),
        costs=costs,
        residuals=residuals(calibration, usable),
        in_play=constants_in_play(calibration),
        untold=untold_constants(calibration),
        next_measurements=next_measurements(calibration),
        diagnosis=diagnose(calibration, explanation),
        notes=(
            *_notes(read, calibration, explanation, packaged=table is not None),
            *_cost_notes(costs),
        ),
        explanation=explanation,
    )


def _prior_without(chosen: SystemPoints, usable: SystemRows) -> Prior:
    """The packaged prior for this system, without what it learned from it."""
    first = chosen.points.frame.iloc[0]
    return load_prior(
        experts_known=usable.experts_known,
        engine=str(first["engine"]),
        without_target=str(first["target_model"]),
    )


def _costs(calibration: Calibration) -> tuple[ConfigurationCost, ...]:
    """What each measured configuration costs, by batch, context, topk and depth."""
    observations = sorted(calibration.observations, key=_place)
    questions = [
        Question(
            accept_length=AcceptLength.exact(one.accept_length_at),
            configuration=one.configuration,
            workload=workload_of(calibration, one.configuration),
        )
        for one in observations
    ]
    return tuple(
        ConfigurationCost(one, found if isinstance(found, Prediction) else None)
        for one, found in zip(observations, predict_each(calibration, questions), strict=True)
    )


def _cost_notes(costs: tuple[ConfigurationCost, ...]) -> list[Note]:
    """Configurations whose round cost cannot be, or was held to a step."""
    found = []
    if count := sum(one.posterior is None for one in costs):
        said = f"{count} configuration{'s' if count > 1 else ''}: the points imply rounds cheaper than a step "
        found.append(Note("impossible", f"{said}without speculation, so there is no round cost"))
    held = [note for one in costs if one.posterior for note in held_to_a_step(one.posterior)]
    return found + held[:1]


def _place(one: Observation) -> tuple[float, ...]:
    """Where a configuration stands in a table; what is not stated comes first."""
    configuration = one.configuration
    names = ("batch_size", "context_tokens", "topk", "num_steps", "num_draft_tokens")
    values = [getattr(configuration, name) for name in names]
    return tuple(-1.0 if value is None else float(value) for value in values)


def _notes(
    read: Points, calibration: Calibration, explanation: Explanation | None, *, packaged: bool
) -> tuple[Note, ...]:
    """What reading and fitting warn of."""
    left_out = _SAID_OTHERWISE + (_OF_PACKAGED_TABLES if packaged else ())
    found = [
        Note(warning.code, str(warning))
        for warning in read.warnings
        if warning.code not in left_out
    ]
    found += [Note("fit", message) for message in calibration.notes]
    doubt = "" if explanation is None else doubt_of_rig(explanation)
    found += [Note("doubtful_rig", doubt)] if doubt else []
    doubts = () if explanation is None else doubts_of_all_reduce(explanation.loads)
    return (*found, *(Note("measured_allreduce", one) for one in doubts))
