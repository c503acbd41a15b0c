"""What a training log says, as plain data: fields, codes and values by split.

The shape of the ``expected.json`` files beside the fixtures, and of ``log`` in the JSON of the command.
"""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from calibration.training.checks import corrected
from calibration.training.pooling import accept_lengths, identity, mean_of_known, pooled, tail_rows
from calibration.training.records import Array, Kind, Rows, Split
from calibration.training.training_log import (
    ReportedLengths,
    SplitSeries,
    TrainingLog,
    TrainingLogError,
)

Summary: TypeAlias = dict[str, Any]

_LOSS_ONLY_FIELDS = (
    *("framework", "family", "formats", "unique_steps", "first_step", "last_step", "epochs"),
)


@np.errstate(all="ignore")  # of a refused log, values may be impossible
def log_summary(log: TrainingLog) -> Summary:
    """Return what a log says."""
    return {"error": None} | _facts(log) | {"series": _series(log), "warnings": sorted(log.codes)}


@np.errstate(all="ignore")  # of a refused log, values may be impossible
def refusal_summary(error: TrainingLogError) -> Summary:
    """Return why a log may not be used, and what it says nevertheless."""
    summary: Summary = {"error": error.code}
    if error.code == "mixed-formats":
        summary["families"] = error.num_records
        summary["when_format_given"] = {
            family: refusal_summary(found)
            if isinstance(found, TrainingLogError)
            else log_summary(found)
            for family, found in error.by_family.items()
        }
    if error.code == "no-metrics" and error.companion:
        summary |= {"framework": "speculators", "format": "S5"}
        summary["companion"] = {name: _number(value) for name, value in error.companion.items()}
    if error.log is None:
        return summary
    if error.code == "loss-only":
        return summary | _of_losses(error.log)
    summary |= _facts(error.log)
    lengths = error.code not in ("alias-defect", "accuracy-out-of-range")
    summary["series"] = _series(error.log, lengths=lengths)
    summary["warnings"] = sorted(error.log.codes)
    if error.log.alias:
        summary["alias"] = _alias(error.log)
        summary["when_corrected"] = _when_corrected(error.log)
    return summary


def _facts(log: TrainingLog) -> Summary:
    """Return what a log says of the run as a whole."""
    facts: Summary = {
        "framework": log.framework,
        "family": log.family,
        "formats": list(log.formats),
        "versions": log.versions,
        "feeding": str(log.feeding),
        "oov": str(log.oov),
        "aggregation": str(log.aggregation),
        "kinds": {key: str(kind) for key, kind in log.kinds.items()},
        "depths": log.depths,
        "first_position": log.first_position,
        "unique_steps": log.unique_steps,
        "step_source": log.step_source,
        "total_steps": log.total_steps,
        "epochs": [_number(epoch) for epoch in log.epochs],
        "records": {str(split): len(series) for split, series in log.series.items() if len(series)},
    }
    if log.first_step is not None:
        facts |= {"first_step": log.first_step, "last_step": log.last_step}
    if log.alias:
        facts["alias"] = _alias(log)
    return facts


def _series(log: TrainingLog, *, lengths: bool = True) -> Summary:
    """Return what each split says; accept lengths only of values that may be used."""
    return {
        str(split): _split(log, series, lengths=lengths)
        for split, series in log.series.items()
        if len(series)
    }


def _split(log: TrainingLog, series: SplitSeries, *, lengths: bool) -> Summary:
    """Return what one split says."""
    rows = series.usable_rows()
    finite = np.flatnonzero(series.finite)
    summary: Summary = {"n": len(finite)}
    if len(finite) < len(series):
        summary["non_finite"] = len(series) - len(finite)
    if not len(finite):
        return summary
    summary["last"] = _last(log, series, int(rows[-1]))
    summary["pooled"] = {"n": len(finite)} | _values(series, rows)
    lengths &= log.depths > 1 or not {Kind.JOINT, Kind.CONDITIONAL}.isdisjoint(series.accuracies)
    tail = tail_rows(rows)
    if len(tail):
        summary["tail"] = {"n": len(tail)} | _values(series, tail)
        if lengths and (found := accept_lengths(pooled(series, tail))):
            summary["tail"]["accept_length"] = dict(found)
    if lengths and series.accuracies:
        last = {kind: values[rows[-1]] for kind, values in series.accuracies.items()}
        of_last, of_pooled = accept_lengths(last), accept_lengths(pooled(series, rows))
        if of_last or of_pooled:
            summary["accept_length"] = {"last": of_last, "pooled": of_pooled}
    ratios = identity(series, rows)
    if len(ratios):
        summary["identity"] = [float(ratio) if np.isfinite(ratio) else None for ratio in ratios]
    reported = {
        key: _reported(values) for key, values in series.reported.items() if values.last is not None
    }
    if reported:
        summary["reported"] = reported
    return summary


def _last(log: TrainingLog, series: SplitSeries, row: int) -> Summary:
    """Return one record."""
    found: Summary = {}
    places = (("step", series.step), ("epoch", series.epoch))
    for name, column in places:
        if np.isfinite(column[row]) and not (name == "step" and log.step_source == "counted"):
            found[name] = _number(column[row])
    for kind, values in series.accuracies.items():
        if np.isfinite(values[row]).any():
            found[str(kind)] = _numbers(values[row])
    if np.isfinite(series.losses[row]).any():
        found["loss"] = _numbers(series.losses[row])
    for name, column in (
        ("total_loss", series.total_loss),
        ("mean_marginal", series.mean_marginal),
    ):
        if np.isfinite(column[row]):
            found[name] = float(column[row])
    return found


def _values(series: SplitSeries, rows: Rows) -> Summary:
    """Return the accuracies of some records pooled."""
    found: Summary = {str(kind): _numbers(v) for kind, v in pooled(series, rows).items()}
    mean = float(mean_of_known(series.mean_marginal[rows]))
    if np.isfinite(mean):
        found["mean_marginal"] = mean
    return found


def _reported(lengths: ReportedLengths) -> Summary:
    """Return the last accept length that the trainer printed."""
    return {
        "value": lengths.last,
        "bonus": str(lengths.bonus),
        "accept_length": lengths.last_accept_length,
    }


def _alias(log: TrainingLog) -> Summary:
    """Return by what the accuracies of each split were multiplied."""
    return {
        str(split): {
            "W": defect.num_processes,
            "divisor": defect.divisor,
            "corrected": defect.corrected,
        }
        for split, defect in log.alias.items()
    }


def _when_corrected(log: TrainingLog) -> Summary:
    """Return what the accuracies are once the defect is divided out."""
    found = corrected(log)
    only = {split: found.series[split] for split in log.alias}
    series = _series(replace(found, series=only))
    for split in series.values():
        for name in ("loss", "total_loss"):
            split.get("last", {}).pop(name, None)
    return series


def _of_losses(log: TrainingLog) -> Summary:
    """Return what a log without accuracies says."""
    facts = _facts(log)
    found = {name: facts[name] for name in _LOSS_ONLY_FIELDS if name in facts}
    series = log.training or log.series.get(Split.VAL)
    losses = np.empty(0) if series is None else series.total_loss[np.isfinite(series.total_loss)]
    if len(losses):
        found["last_total_loss"] = float(losses[-1])
    return found


def _number(value: float) -> float | int:
    """Return a number as an integer where it is one."""
    value = float(value)
    return int(value) if value.is_integer() else value


def _numbers(values: Array) -> list[float | None]:
    """Return numbers by depth; None where one is not known, none at the end."""
    known = [float(value) if np.isfinite(value) else None for value in values]
    while known and known[-1] is None:
        known.pop()
    return known
