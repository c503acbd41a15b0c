"""Everything to report of a fit: what was read, what was learned, what is open, what comes next."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.fit.diagnosis import Diagnosis, diagnose, remarks
from calibration.fit.fit import Fit, fit_points
from calibration.fit.identifiable import Untold, constants_in_play, untold_constants
from calibration.fit.next_measurements import next_measurements
from calibration.points.arrays import SystemRows
from calibration.points.packaged import PackagedTable
from calibration.points.reading import read_points
from calibration.points.table import Points, with_num_steps
from calibration.rig.explain import Explanation, doubt_of_rig, explain
from calibration.rig.from_points import AskedRig
from calibration.rig.scenario import doubts_of_all_reduce
from specmodel.ask import Ask, workload_of
from specmodel.calibration import Calibration
from specmodel.errors import ImpossibleAnswerError, Note
from specmodel.notes import held_to_a_step
from specmodel.prediction import Prediction, predict_each
from specmodel.question import AcceptLength, Observation, Question

_SAID_OTHERWISE = ("two_systems",)  # a system was chosen
_OF_ROUNDS_ALONE = ("no_baseline",)  # the report begins with it
_OF_PACKAGED_TABLES = ("unknown_column",)  # locators, which no reader needs


class ConfigurationCost(NamedTuple):
    """What one configuration costs: by the plain identity, and by the posterior.

    `posterior` is None where it would be impossible: a round cheaper than a step.
    """

    observation: Observation
    posterior: Prediction | None


class Residuals(NamedTuple):
    """Measured over fitted speed-up of the rows that were fitted, less 1.

    `rms` is their root mean square; `worst` is the largest, at `worst_place` (file and line).
    """

    relative: NDArray[np.float64]
    rms: float
    worst: float
    worst_place: str


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
    remarks: tuple[str, ...]
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
    num_steps: int | None = None,
) -> FitSummary:
    """Read files, fit one system, and put together what to report."""
    read = read_points(list(paths) if table is None else table.path, progress=progress)
    read = with_num_steps(read, num_steps)
    made = fit_points(read, system=system, force=force, unlearned=table is not None, rig=rig)
    return summary(made, packaged=table is not None)


def summary(made: Fit, *, packaged: bool = False) -> FitSummary:
    """What to report of a fit; `packaged` where its points are a packaged table."""
    read, calibration = made.points, made.calibration
    costs = _costs(calibration)
    try:
        explanation = explain(calibration)
    except ImpossibleAnswerError as error:
        explanation, calibration = None, replace(calibration, physical=None, rig_note=str(error))
    return FitSummary(
        calibration=calibration,
        points=read,
        rows=made.rows,
        num_read=len(read) + sum(row.count for row in read.dropped),
        num_other=len(read) - len(made.system.points),
        costs=costs,
        residuals=residuals(calibration, made.rows),
        in_play=constants_in_play(calibration),
        untold=untold_constants(calibration),
        next_measurements=next_measurements(calibration, made.rows, calibration.prior),
        diagnosis=diagnose(calibration, explanation) if calibration.baseline_known else None,
        remarks=remarks(calibration),
        notes=(*_notes(read, calibration, explanation, packaged=packaged), *_cost_notes(costs)),
        explanation=explanation,
    )


def residuals(calibration: Calibration, usable: SystemRows) -> Residuals:
    """Relative difference of each fitted row from its fit, in their order.

    Effects of configuration and run are part of the fit, so these are smaller than errors on points
    that were not seen; `specmodel evaluate` measures those.
    """
    fitted = calibration.posterior.predict(usable.rows).location
    relative = np.expm1(usable.log_speedup - fitted)
    worst = int(np.argmax(np.abs(relative)))
    row = usable.frame.iloc[worst]
    return Residuals(
        relative=relative,
        rms=float(np.sqrt(np.mean(relative**2))),
        worst=float(relative[worst]),
        worst_place=f"{Path(str(row['file'])).name}, line {int(row['line'])}",
    )


def _costs(calibration: Calibration) -> tuple[ConfigurationCost, ...]:
    """What each measured configuration costs, by batch, context, topk and depth."""
    observations = sorted(calibration.observations, key=_place)
    questions = [
        Question(
            accept_length=AcceptLength.exact(one.accept_length_at),
            configuration=one.configuration,
            workload=workload_of(calibration, one.configuration, Ask()),
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
    left_out += () if calibration.baseline_known else _OF_ROUNDS_ALONE
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
