"""Answers as JSON for other programs: a view for each kind of answer, and one serialiser below them."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
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
    from calibration.rig.scenario import Scenario
    from calibration.rig.whatif import Row, WhatIf
    from calibration.training.assessment import Assessment, DepthCourse
    from calibration.training.decision import CheckpointOutlook
    from calibration.training.training_log import TrainingLogError
    from specmodel.architecture import MemoryFit

SCHEMA_VERSION = 1
"""Version of the JSON of answers. 1: first release."""

_MOST_LINES = 1000
_SPREAD = ("low", "median", "high")
_OF_A_WAY = (
    *("keeps_up", "probability_keeps_up", "running_requests", "per_user_tokens_per_s", "waiting_s"),
    *("decode_latency_s", "output_tokens_per_s", "max_rate_per_s", "share_of_max_rate"),
)


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


def _picked(record: object, *names: str, **paths: str) -> dict[str, Any]:
    """Some fields of a record; those with another name by their path."""
    found = {name: getattr(record, name) for name in names}
    return found | {name: attrgetter(path)(record) for name, path in paths.items()}


def _codes(notes: Sequence[Any]) -> list[dict[str, str]]:
    """Remarks."""
    return [_picked(note, "code", "message") for note in notes]


def _whole(value: float | None) -> int | float | None:
    """A count as a whole number where it is one."""
    return int(value) if value is not None and float(value).is_integer() else value


def _ms(time_s: Any) -> Any:
    """A time or its estimate in ms; None where there is none."""
    if time_s is None:
        return None
    return time_s.scaled(1 / MILLI) if hasattr(time_s, "scaled") else time_s / MILLI


def _memory(memory: "MemoryFit") -> dict[str, Any]:
    """What a rig needs and has."""
    needed, usable = memory.needed_bytes / GIGA, memory.usable_bytes / GIGA
    return {"fits": memory.fits, "needed_gb_per_gpu": needed, "usable_gb_per_gpu": usable}


def _rig(rig: "Scenario") -> dict[str, Any]:
    """Model and machine of a scenario."""
    return {
        **_picked(rig, "gpu", "tp_size", model="model.name"),
        "interconnect": rig.interconnect or None,
        "allreduce_measured": rig.curve is not None,
        "dtype": rig.dtype or None,
    }


# predict


def _arrival(answer: "ArrivalAnswer") -> dict[str, Any]:
    """A server at an arrival rate."""
    starts, stops = answer.pays_from_per_s, answer.pays_to_per_s
    pays = (
        "nowhere" if math.isinf(starts.median) else "above" if starts.median > 0 else "everywhere"
    )
    if math.isfinite(stops.median) and stops.median > 0:
        pays = "below" if starts.median == 0.0 else "between"
    counts = ("num_steps", "topk", "num_draft_tokens", "context_tokens")
    ways = {"without_speculation": answer.without, "with_speculation": answer.speculative}
    return {
        **{name: _whole(getattr(answer.configuration, name)) for name in counts},
        **_picked(answer, "workload", "form", "speedup", "probability_faster"),
        **_picked(answer, accept_length="accept_length.estimate"),
        **_picked(answer.arrival, "arrival_rate_per_s", "output_tokens"),
        "set": dict(answer.changes),
        "prefill_ms": _ms(answer.arrival.prefill_s),
        "max_running_requests": answer.most_running,
        **{name: _picked(way, *_OF_A_WAY) for name, way in ways.items()},
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
    rows = [
        {
            "line": line,
            "row": dict(zip(points.header, cells, strict=True)),
            **dict(zip(PREDICTED, predicted_numbers(prediction), strict=True)),
            "warnings": _codes(prediction.warnings),
        }
        for line, cells, prediction in zip(
            points.lines, points.cells, found.predictions, strict=True
        )
    ]
    return {"warnings": _codes(found.notes), "points": rows}


# fit


def _fit(summary: "FitSummary") -> dict[str, Any]:
    """A fit; what is written besides comes from the command."""
    from specmodel.constants import CONSTANTS

    calibration, diagnosis = summary.calibration, summary.diagnosis
    summed = {name for one in summary.untold if one.summed for name in one.constants}
    costs = ("round_cost", "break_even_accept_length")
    return {
        "files": summary.points.files,
        **_picked(summary, rows_read="num_read", rows_of_other_systems="num_other"),
        **_picked(calibration, "num_points", "baseline_known", "notes", "doubts", system="label"),
        "rig_note": calibration.rig_note or None,
        "dropped": [
            _picked(row, "path", "line", "code", "message") for row in summary.points.dropped
        ],
        "prior": _picked(calibration.prior, "name", "learned_from"),
        "constants": [
            {
                **_picked(constant, "name", "symbol", "meaning"),
                **_picked(estimate, "low", "high", "prior_dominated"),
                **_picked(estimate, median="value", share_learned="learned"),
                "prior": _picked(
                    estimate, median="prior_value", low="prior_low", high="prior_high"
                ),
                "in_play": constant.name in summary.in_play,
                "sum_only": constant.name in summed,
            }
            for constant, estimate in zip(CONSTANTS, calibration.constants, strict=True)
            if calibration.baseline_known  # else they are in units of time that nobody measured
        ],
        "observations": [
            {
                **plain(one.observation.configuration),
                **_picked(one.observation, "num_points", "accept_length"),
                "identity_round_cost": dict(zip(_SPREAD, one.observation.round_cost, strict=True))
                if calibration.baseline_known
                else None,
                **(_picked(one.posterior, *costs) if one.posterior else dict.fromkeys(costs)),
                **(_picked(one.posterior, "output_tokens_per_s") if one.posterior else {}),
            }
            for one in summary.costs
        ],
        "baselines": calibration.baselines.entries,
        "residuals": _picked(summary.residuals, "rms", "worst", worst_row="worst_place"),
        "not_told": [_picked(one, "constants", "needs") for one in summary.untold],
        "measure_next": summary.next_measurements,
        "diagnosis": diagnosis
        and {
            **_picked(diagnosis, "causes", public_round_cost="public"),
            "round_cost": diagnosis.observation.round_cost[1],
        },
        "remarks": summary.remarks,
        "physical": summary.explanation and _explanation(summary.explanation),
        "warnings": _codes(summary.notes),
    }


def _explanation(found: "Explanation") -> dict[str, Any]:
    """The physical form of a fit; times in ms, memory in GB."""
    from calibration.rig.explain import FACTOR_WORDS

    rig = found.scenario
    return {
        "rig": {
            **_rig(rig),
            "kv_bytes_per_value": rig.kv_bytes_per_value,
            "allreduce": rig.kernel or None,
            "draft_model": rig.draft.described(rig.model)[0],
        },
        **_picked(found, "assumed", num_times="num_loads", factors_without_effect="idle"),
        "factors": [
            {
                **plain(one.value),
                **_picked(one, "name", "prior", share_learned="learned"),
                "meaning": FACTOR_WORDS[one.name],
            }
            for one in found.factors
        ],
        "at": _picked(
            found.price.scenario, "topk", "batch_size", "context_tokens", num_steps="depth"
        ),
        "base_step_ms": _ms(found.price.step_s),
        "base_step_from_names_ms": _ms(found.prior.step_s),
        "round_ms": _ms(found.price.round_s),
        "unexplained_ms": _ms(found.unexplained_s),
        "round_cost_from_names": found.prior.round_cost,
        "allreduce_share_of_base_step": found.allreduce_share,
        "layer_all_reduces": found.collectives.layer_all_reduces,
        "allreduce_bytes_per_token": found.collectives.bytes_per_token,
        "causes": [
            {
                "term": one.name,
                "base_step_ms": _ms(one.step_s),
                "round_ms": _ms(one.round_s),
                "added_ms": _ms(one.added_s),
                "added_steps": one.added_s / found.price.step_s.median,
            }
            for one in found.causes
        ],
        "memory": _memory(found.price.memory),
        "agreement": [
            {
                **plain(one.observation.configuration),
                "identity_round_cost": one.observation.round_cost[1],
                **_picked(one, relative_round_cost="relative", physical_round_cost="physical"),
            }
            for one in found.agreement
        ],
    }


# whatif


def _what_if(found: "WhatIf") -> dict[str, Any]:
    """A base and its changes."""
    return {
        "kind": "physical_fit" if found.num_points else "physical_prior",
        "fitted_to_points": found.num_points > 0,
        **_picked(found, "warnings", num_times="num_points", draft_model="draft"),
        "accept_length_held_fixed": True,
        "base": _priced(found.base),
        "changes": [_change(row) for row in found.rows],
        "elasticities": [
            _picked(one, "speedup", what="label", output_tokens_per_s="output")
            for one in found.elasticities
        ],
        "all_together": found.together and _change(found.together),
    }


def _change(row: "Row") -> dict[str, Any]:
    """One change; ``priced`` is None, with a reason, where it cannot run."""
    return {
        **_picked(row, change="label", speedup_ratio="ratio"),
        "priced": row.priced and _priced(row.priced),
        "reason": row.reason or None,
    }


def _priced(priced: "ScenarioPrice") -> dict[str, Any]:
    """One scenario with its price."""
    rig, total = priced.scenario, priced.round_s.median
    return {
        **_rig(rig),
        **_picked(rig, "topk", "batch_size", "context_tokens", "accept_length"),
        **_picked(rig, num_steps="depth", num_draft_tokens="rows"),
        "base_step_ms": _ms(priced.step_s),
        "round_ms": _ms(priced.round_s),
        **_picked(priced, "round_cost", "speedup", "output_tokens_per_s"),
        "breakdown": [
            {"term": term, "share": part / total, "time_ms": _ms(part)}
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
    end, reached, gain = decision.end, decision.step_reaching_target, decision.gain
    return {
        **shared,
        **_picked(decision, "num_steps", "break_even_accept_length", "round_cost", "verdict"),
        "verdict_code": decision.code,
        "better_depth": found.better
        and _picked(found.better, "num_steps", "verdict", verdict_code="code"),
        "now": _checkpoint(decision.now),
        "projection": end
        and {
            **_checkpoint(end),
            "at_step": end.step,
            "probability_of_target": decision.probability_of_target,
            "step_reaching_target": reached
            and _picked(reached, "median", "low", "high", "probability"),
            "gain": gain
            and _picked(
                gain,
                *("speedup", "remaining_steps", "remaining_hours"),
                speedup_per_1000_steps="per_thousand_steps",
                speedup_per_hour="per_hour",
            ),
            "findings": _codes(found.findings),
        },
        "projection_refused": refused and _picked(refused, "code", message="reason"),
        "target": _picked(
            decision,
            speedup="target_speedup",
            accept_length="accept_length_for_target",
            accept_length_in_log="logged_accept_length_for_target",
        ),
        "warnings": _codes(decision.notes),
    }


def _refused_log(error: "TrainingLogError") -> dict[str, Any]:
    """A log that may not be used: its facts, and the code of the refusal."""
    from calibration.training.log_summary import refusal_summary

    unknown = {"now": None, "projection": None}
    verdict = {"verdict": str(error), "verdict_code": "refused"}
    return {"log": refusal_summary(error), **unknown, **verdict}


def _course(found: "Assessment", course: "DepthCourse") -> dict[str, Any]:
    """One depth."""
    at_end = course.at_end
    return {
        **_picked(course, "depth", "loss", full_accuracy="joint", chained_accuracy="chained"),
        "chained_kind": found.chained_kind,
        "trend_per_1000_steps": course.trend,
        "chained_accuracy_at_end": at_end
        and dict(zip(("median", "low", "high"), at_end, strict=True)),
    }


def _checkpoint(outlook: "CheckpointOutlook") -> dict[str, Any]:
    """A checkpoint, as logged and as expected in serving."""
    names = ("accept_length", "speedup", "output_tokens_per_s", "probability_faster")
    return {
        "step": outlook.step,
        **{
            name: _picked(outlook, as_logged=f"as_logged.{name}", expected=f"expected.{name}")
            for name in names
        },
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
            **_picked(one, "sound_reason", "dropped", "corrected", "notes", rows="num_rows"),
            **_picked(one, speculative_rows="num_speculative_rows"),
            **_picked(one, baseline_rows="num_baseline_rows"),
            "class": one.system_class,
            "varies": varying_columns(one),
        }
        for one in tables
    ]
    found: dict[str, Any] = plain({"schema_version": SCHEMA_VERSION, "systems": systems})
    return found


_VIEWS: dict[str, Any] = {
    "Answer": lambda answer: answer.to_dict(),
    "ArrivalAnswer": _arrival,
    "Comparison": lambda found: found._asdict(),
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
