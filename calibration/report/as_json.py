"""Answers as JSON for other programs: a view for each kind of answer, and one serialiser below them."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answer import used
from specmodel.units import GIGA, MILLI

if TYPE_CHECKING:  # a prediction loads none of the others
    from calibration.evaluate import Evaluation
    from calibration.fit.summary import FitSummary
    from calibration.points.packaged import PackagedTable
    from calibration.points.reading import Ingested, IngestedGroup
    from calibration.predict.arrival import ArrivalAnswer
    from calibration.predict.points import PointPredictions
    from calibration.readers import Cell
    from calibration.rig.explain import Explanation
    from calibration.rig.pricing import ScenarioPrice
    from calibration.rig.whatif import Row, WhatIf
    from calibration.training.assessment import Assessment, DepthCourse
    from calibration.training.decision import CheckpointOutlook, Gain
    from calibration.training.training_log import TrainingLogError
    from specmodel.prediction import Prediction

SCHEMA_VERSION = 1
"""Version of the JSON of answers. 1: first release."""

_MOST_LINES = 1000
_SPREAD = ("low", "median", "high")
_RATES = ("speedup", "output_tokens_per_s", "tpot_ms", "per_user_tokens_per_s")


def answer_json(answer: object, **more: object) -> dict[str, Any]:
    """Return an answer of any command as plain dicts, lists and numbers, with what it does not know.

    Unknown and infinite numbers are None; an estimate is ``median``, ``low`` and ``high``.
    """
    view = _VIEWS[type(answer).__name__]
    found: dict[str, Any] = plain({"schema_version": SCHEMA_VERSION, **view(answer), **more})
    return found


def plain(value: Any) -> Any:
    """Return records, sequences, arrays and paths as JSON has them.

    Examples
    --------
    >>> from specmodel.question import Estimate
    >>> plain((Estimate(median=2.0, low=1.5, high=float("inf")), Path("a.log")))
    [{'median': 2.0, 'low': 1.5, 'high': None}, 'a.log']
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    return [plain(item) for item in value]


def _picked(record: object, *names: str) -> dict[str, Any]:
    """Some fields of a record."""
    return {name: getattr(record, name) for name in names}


def _codes(notes: Sequence[Any]) -> list[dict[str, str]]:
    """Remarks."""
    return [_picked(note, "code", "message") for note in notes]


def _whole(value: float | None) -> int | float | None:
    """A count as a whole number where it is one."""
    return int(value) if value is not None and float(value).is_integer() else value


def _memory(memory: Any) -> dict[str, Any]:
    """What a rig needs and has."""
    return {
        "fits": memory.fits,
        "needed_gb_per_gpu": memory.needed_bytes / GIGA,
        "usable_gb_per_gpu": memory.usable_bytes / GIGA,
    }


# predict


def _arrival(answer: "ArrivalAnswer") -> dict[str, Any]:
    """A server at an arrival rate."""
    arrival, one = answer.arrival, answer.configuration
    starts, stops = answer.pays_from_per_s, answer.pays_to_per_s
    pays = (
        "nowhere" if math.isinf(starts.median) else "above" if starts.median > 0 else "everywhere"
    )
    if math.isfinite(stops.median) and stops.median > 0:
        pays = "below" if starts.median == 0.0 else "between"
    ways = {"without_speculation": answer.without, "with_speculation": answer.speculative}
    return {
        "accept_length": answer.accept_length.estimate,
        "num_steps": _whole(one.num_steps),
        "topk": _whole(one.topk),
        "num_draft_tokens": _whole(one.num_draft_tokens),
        "context_tokens": _whole(one.context_tokens),
        "set": dict(answer.changes),
        **_picked(arrival, "arrival_rate_per_s", "output_tokens"),
        "prefill_ms": None if arrival.prefill_s is None else arrival.prefill_s / MILLI,
        "max_running_requests": answer.most_running,
        **{
            name: _picked(
                way,
                *("keeps_up", "probability_keeps_up", "running_requests", "per_user_tokens_per_s"),
                *("decode_latency_s", "waiting_s", "output_tokens_per_s", "max_rate_per_s"),
                "share_of_max_rate",
            )
            for name, way in ways.items()
        },
        **_picked(answer, "workload", "form", "speedup", "probability_faster"),
        "speculation_pays": pays,
        "pays_from_rate_per_s": starts,
        "crossover_rate_per_s": stops,
        "warnings": _codes(answer.notes),
        **used(answer.calibration, answer.source),
    }


def _points(found: "PointPredictions") -> dict[str, Any]:
    """Each row of a file: its line, its cells by name, and what is predicted."""
    from calibration.report.prediction_text import PREDICTED, predicted_numbers

    points = found.points
    rows = zip(points.lines, points.cells, found.predictions, strict=True)
    return {
        "warnings": _codes(found.notes),
        "points": [
            {
                "line": line,
                "row": dict(zip(points.header, cells, strict=True)),
                **dict(zip(PREDICTED, predicted_numbers(prediction), strict=True)),
                "warnings": _codes(prediction.warnings),
            }
            for line, cells, prediction in rows
        ],
    }


# fit


def _fit(summary: "FitSummary") -> dict[str, Any]:
    """A fit; what is written besides comes from the command."""
    calibration, diagnosis = summary.calibration, summary.diagnosis
    return {
        "system": calibration.label,
        "files": summary.points.files,
        "rows_read": summary.num_read,
        "rows_of_other_systems": summary.num_other,
        "num_points": calibration.num_points,
        "dropped": [
            _picked(row, "path", "line", "code", "message") for row in summary.points.dropped
        ],
        "prior": _picked(calibration.prior, "name", "learned_from"),
        "constants": _constants(summary),
        "observations": [
            {
                **plain(one.observation.configuration),
                **_picked(one.observation, "num_points", "accept_length"),
                "identity_round_cost": dict(zip(_SPREAD, one.observation.round_cost, strict=True)),
                **_posterior(one.posterior),
            }
            for one in summary.costs
        ],
        "baselines": calibration.baselines.entries,
        "residuals": {
            **_picked(summary.residuals, "rms", "worst"),
            "worst_row": summary.residuals.worst_place,
        },
        "not_told": [_picked(one, "constants", "needs") for one in summary.untold],
        "measure_next": summary.next_measurements,
        "diagnosis": None
        if diagnosis is None
        else {
            "round_cost": diagnosis.observation.round_cost[1],
            "public_round_cost": diagnosis.public,
            "causes": diagnosis.causes,
        },
        "physical": None if summary.explanation is None else _explanation(summary.explanation),
        "rig_note": calibration.rig_note or None,
        "notes": calibration.notes,
        "warnings": _codes(summary.notes),
    }


def _posterior(prediction: "Prediction | None") -> dict[str, Any]:
    """What a round costs by the posterior; None where no round can cost that."""
    names = ("round_cost", "break_even_accept_length")
    return dict.fromkeys(names) if prediction is None else _picked(prediction, *names)


def _constants(summary: "FitSummary") -> list[dict[str, Any]]:
    """Every constant with its interval, its prior, and whether the points told it."""
    from specmodel.constants import CONSTANTS

    summed = {name for one in summary.untold if one.summed for name in one.constants}
    return [
        {
            **_picked(constant, "name", "symbol", "meaning"),
            "median": estimate.value,
            **_picked(estimate, "low", "high", "prior_dominated"),
            "prior": {
                "median": estimate.prior_value,
                "low": estimate.prior_low,
                "high": estimate.prior_high,
            },
            "share_learned": estimate.learned,
            "in_play": constant.name in summary.in_play,
            "sum_only": constant.name in summed,
        }
        for constant, estimate in zip(CONSTANTS, summary.calibration.constants, strict=True)
    ]


def _explanation(found: "Explanation") -> dict[str, Any]:
    """The physical form of a fit; times in ms, memory in GB."""
    from calibration.rig.explain import FACTOR_WORDS

    rig, at = found.scenario, found.at
    return {
        "rig": {
            "model": rig.model.name,
            **_picked(rig, "gpu", "tp_size", "kv_bytes_per_value"),
            "interconnect": rig.interconnect or None,
            "allreduce": rig.kernel or None,
            "allreduce_measured": rig.curve is not None,
            "dtype": rig.dtype or None,
            "draft_model": rig.draft.described(rig.model)[0],
        },
        "assumed": found.assumed,
        "num_times": found.num_loads,
        "factors": [
            {
                "name": one.name,
                "meaning": FACTOR_WORDS[one.name],
                **plain(one.value),
                "prior": one.prior,
                "share_learned": one.learned,
            }
            for one in found.factors
        ],
        "factors_without_effect": found.idle,
        "at": {"num_steps": at.depth, **_picked(at, "topk", "batch_size", "context_tokens")},
        "base_step_ms": found.step.scaled(1 / MILLI),
        "base_step_from_names_ms": found.prior_step.scaled(1 / MILLI),
        "round_ms": found.round.scaled(1 / MILLI),
        "round_cost_from_names": found.prior_cost,
        "allreduce_share_of_base_step": found.allreduce_share,
        "layer_all_reduces": found.collectives.layer_all_reduces,
        "allreduce_bytes_per_token": found.collectives.bytes_per_token,
        "causes": [
            {
                "term": one.name,
                "base_step_ms": one.step_s / MILLI,
                "round_ms": one.round_s / MILLI,
                "added_ms": one.added_s / MILLI,
                "added_steps": one.added_s / found.step.median,
            }
            for one in found.causes
        ],
        "unexplained_ms": found.unexplained_s / MILLI,
        "memory": _memory(found.memory),
        "agreement": [
            {
                **plain(one.observation.configuration),
                "identity_round_cost": one.observation.round_cost[1],
                "relative_round_cost": one.relative,
                "physical_round_cost": one.physical,
            }
            for one in found.agreement
        ],
    }


# whatif


def _what_if(found: "WhatIf") -> dict[str, Any]:
    """A base and its changes; ``priced`` is None with a ``reason`` where a change cannot run."""
    return {
        "kind": "physical_fit" if found.num_points else "physical_prior",
        "fitted_to_points": found.num_points > 0,
        "num_times": found.num_points,
        "accept_length_held_fixed": True,
        "draft_model": found.draft,
        "base": _priced(found.base),
        "changes": [_change(row) for row in found.rows],
        "elasticities": [
            {"what": one.label, "speedup": one.speedup, "output_tokens_per_s": one.output}
            for one in found.elasticities
        ],
        "all_together": None if found.together is None else _change(found.together),
        "warnings": found.warnings,
    }


def _change(row: "Row") -> dict[str, Any]:
    """One change."""
    return {
        "change": row.label,
        "speedup_ratio": row.ratio,
        "priced": None if row.priced is None else _priced(row.priced),
        "reason": row.reason or None,
    }


def _priced(priced: "ScenarioPrice") -> dict[str, Any]:
    """One scenario with its price."""
    rig, total = priced.scenario, priced.round_s.median
    return {
        "model": rig.model.name,
        **_picked(rig, "gpu", "tp_size", "topk", "batch_size", "context_tokens", "accept_length"),
        "interconnect": rig.interconnect or None,
        "allreduce_measured": rig.curve is not None,
        "dtype": rig.dtype or None,
        "num_steps": rig.depth,
        "num_draft_tokens": rig.rows,
        "base_step_ms": priced.step_s.scaled(1 / MILLI),
        "round_ms": priced.round_s.scaled(1 / MILLI),
        **_picked(priced, "round_cost", "speedup", "output_tokens_per_s"),
        "breakdown": [
            {"term": term, "share": part / total, "time_ms": part / MILLI}
            for term, part in priced.parts_s.items()
        ],
        "memory": {**_memory(priced.memory), "note": priced.memory.sentence},
    }


# train


def _train(found: "Assessment") -> dict[str, Any]:
    """A log and what it is worth: now, and at the end where that can be projected."""
    from calibration.training.log_summary import log_summary

    decision, refused = found.decision, found.refused
    shared = {
        "log": log_summary(found.log),
        "depths": [_course(found, course) for course in found.courses],
        "routes": found.acceptance.acceptance.routes,
    }
    if decision is None:
        unknown = {"now": None, "projection": None, "verdict": found.undecided}
        return {**shared, **unknown, "verdict_code": "unknown"}
    end, reached = decision.end, decision.step_reaching_target
    return {
        **shared,
        "num_steps": decision.num_steps,
        "now": _checkpoint(decision.now),
        "projection": None
        if end is None
        else {
            **_checkpoint(end),
            "at_step": end.step,
            "probability_of_target": decision.probability_of_target,
            "step_reaching_target": None
            if reached is None
            else _picked(reached, "median", "low", "high", "probability"),
            "gain": None if decision.gain is None else _gain(decision.gain),
            "findings": _codes(found.findings),
        },
        "projection_refused": None
        if refused is None
        else {"code": refused.code, "message": refused.reason},
        "target": {
            "speedup": decision.target_speedup,
            "accept_length": decision.accept_length_for_target,
            "accept_length_in_log": decision.logged_accept_length_for_target,
        },
        **_picked(decision, "break_even_accept_length", "round_cost", "verdict"),
        "verdict_code": decision.code,
        "warnings": _codes(decision.notes),
    }


def _refused_log(error: "TrainingLogError") -> dict[str, Any]:
    """A log that may not be used: its facts, and the code of the refusal."""
    from calibration.training.log_summary import refusal_summary

    return {
        "log": refusal_summary(error),
        "now": None,
        "projection": None,
        "verdict": str(error),
        "verdict_code": "refused",
    }


def _course(found: "Assessment", course: "DepthCourse") -> dict[str, Any]:
    """One depth."""
    at_end = course.at_end
    return {
        "depth": course.depth,
        "loss": course.loss,
        "full_accuracy": course.joint,
        "chained_kind": found.chained_kind,
        "chained_accuracy": course.chained,
        "trend_per_1000_steps": course.trend,
        "chained_accuracy_at_end": None
        if at_end is None
        else dict(zip(("median", "low", "high"), at_end, strict=True)),
    }


def _checkpoint(outlook: "CheckpointOutlook") -> dict[str, Any]:
    """A checkpoint, as logged and as expected in serving."""
    both = {"as_logged": outlook.as_logged, "expected": outlook.expected}
    names = ("accept_length", "speedup", "output_tokens_per_s", "probability_faster")
    return {
        "step": outlook.step,
        **{name: {label: getattr(one, name) for label, one in both.items()} for name in names},
    }


def _gain(gain: "Gain") -> dict[str, Any]:
    """What the rest of the run adds."""
    return {
        **_picked(gain, "speedup", "remaining_steps", "remaining_hours"),
        "speedup_per_1000_steps": gain.per_thousand_steps,
        "speedup_per_hour": gain.per_hour,
    }


# ingest, evaluate, data


def file_names(files: Sequence[Path]) -> Mapping[Path, str]:
    """Return the names of some files without folders, with them where two are called the same.

    Examples
    --------
    >>> list(file_names([Path("a/x.log"), Path("b/x.log"), Path("b/y.log")]).values())
    ['a/x.log', 'b/x.log', 'y.log']
    """
    counts = Counter(file.name for file in set(files))
    return {file: file.name if counts[file.name] == 1 else str(file) for file in files}


def _ingested(found: "Ingested") -> dict[str, Any]:
    """Groups of files that belong together; names that begin with ``_`` are no columns."""
    names = file_names([file for one in found.groups for file in one.group.files])
    return {"groups": [_group(one, names) for one in found.groups]}


def _group(one: "IngestedGroup", names: Mapping[Path, str]) -> dict[str, Any]:
    """One group: its rows, pairs, drops and warnings, or an error."""
    error = one.group.error
    record: dict[str, Any] = {
        "files": [names[file] for file in one.group.files],
        "format": one.group.format or None,
    }
    if error is not None:
        messages = [{"code": error.code, "message": str(error)}]
        return {**record, "error": error.code or "unreadable", "messages": messages}
    if one.era:
        record["era"] = one.era[0] if len(one.era) == 1 else one.era
    record["rows"] = [_row(row) for row in one.rows]
    record["dropped"] = one.dropped
    record["warnings"] = sorted({warning.code for warning in one.warnings})
    record["messages"] = [
        {**_picked(warning, "code", "message"), "lines": warning.lines[:_MOST_LINES]}
        for warning in one.warnings
    ]
    record |= {"pairs": one.pairs} if one.pairs else {}
    return record | ({"cost_table": one.cost_table} if one.cost_table else {})


def _row(row: "Mapping[str, Cell]") -> dict[str, Any]:
    """A row, with 90 % intervals of its accuracies where their rounds were counted."""
    from calibration.readers.acceptance_intervals import conditional_intervals, full_intervals

    accuracy, rounds = row.get("full_accuracy"), row.get("verify_rounds")
    if not isinstance(accuracy, tuple) or not isinstance(rounds, float):
        return dict(row)
    conditional = conditional_intervals(accuracy, rounds)
    return {
        **row,
        "_full_accuracy_90": full_intervals(accuracy, rounds),
        "_conditional_accuracy": [value for value, _ in conditional],
        "_conditional_accuracy_90": [bounds for _, bounds in conditional],
    }


def _evaluation(result: "Evaluation") -> dict[str, Any]:
    """Scores by split, over all systems and of each."""
    return {"overall": result.overall, "systems": result.scores, "set_aside": result.set_aside}


def packaged_json(tables: "Sequence[PackagedTable]") -> dict[str, Any]:
    """Return the packaged systems."""
    from calibration.points.packaged import varying_columns

    systems = [
        {
            **_picked(one, "name", "title", "source_keys", "url", "locator", "includes", "sound"),
            **_picked(one, "sound_reason", "dropped", "corrected", "notes"),
            "class": one.system_class,
            "rows": one.num_rows,
            "speculative_rows": one.num_speculative_rows,
            "baseline_rows": one.num_baseline_rows,
            "varies": varying_columns(one),
        }
        for one in tables
    ]
    found: dict[str, Any] = plain({"schema_version": SCHEMA_VERSION, "systems": systems})
    return found


_VIEWS: dict[str, Any] = {
    "Answer": lambda answer: answer.to_dict(),
    "ArrivalAnswer": _arrival,
    "Assessment": _train,
    "Evaluation": _evaluation,
    "Explanation": _explanation,
    "FitSummary": _fit,
    "Ingested": _ingested,
    "PointPredictions": _points,
    "TrainingLogError": _refused_log,
    "WhatIf": _what_if,
}
"""By the name of the answer's type, which is not loaded for that."""
