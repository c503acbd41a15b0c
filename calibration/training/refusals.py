"""Which family a log is of, and why a log may not be used: the refusals of training_logs.md section 6.2."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.training.checks import corrected, first_out_of_range
from calibration.training.clean_log import clean_log
from calibration.training.epoch_blocks import name_open_family
from calibration.training.raw_merging import merged
from calibration.training.records import RawLog
from calibration.training.tracker_runs import said_runs, separate_runs
from calibration.training.training_log import TrainingLog, TrainingLogError

_KNOWN = (
    "speculators, SpecForge, EAGLE and HASS, TorchSpec, ModelOpt, NeMo Automodel, DeepSpec and "
    "dict lines of the HF Trainer"
)


def usable_log(
    raw: RawLog,
    *,
    paths: Sequence[Path],
    first_lines: Sequence[int] = (),
    family: str | None = None,
    correct_alias: bool = False,
) -> TrainingLog:
    """Return the log that some records are, if it may be used."""
    if family == "specforge" and not raw.num_records.get(family):
        raw = merged([raw, RawLog()], [1, 1])  # a copy: who follows a log goes on filling the first
        name_open_family(raw)
    chosen = _chosen_family(raw, paths, first_lines, family, correct_alias=correct_alias)
    runs = separate_runs(raw.tables[chosen], raw.runs)
    if runs:
        reason = f"several runs in one export: {said_runs(runs)}; export one of them alone"
        raise TrainingLogError(paths[0], reason, code="several-runs")
    log = clean_log(raw, chosen, paths=paths, first_lines=first_lines)
    if correct_alias and log.alias:
        log = corrected(log)
    error = _refusal(log)
    if error is not None:
        raise error
    return log


def _chosen_family(
    raw: RawLog,
    paths: Sequence[Path],
    first_lines: Sequence[int],
    family: str | None,
    *,
    correct_alias: bool,
) -> str:
    """Return the one family that has records, or the named one."""
    counts = {name: count for name, count in sorted(raw.num_records.items()) if count}
    if family is not None:
        if family not in counts:
            found = ", ".join(counts) or "none"
            reason = f"no record of {family}; found: {found}"
            raise TrainingLogError(paths[0], reason, code="unrecognised")
        return family
    if len(counts) > 1:
        said = ", ".join(f"{count} of {name}" for name, count in counts.items())
        by_family: dict[str, TrainingLog | TrainingLogError] = {}
        for name in counts:
            try:
                by_family[name] = usable_log(
                    raw,
                    paths=paths,
                    first_lines=first_lines,
                    family=name,
                    correct_alias=correct_alias,
                )
            except TrainingLogError as error:
                by_family[name] = error
        raise TrainingLogError(
            paths[0],
            f"records of several trainers: {said}; name the one to read with `specmodel train --format NAME`, or separate the logs",
            code="mixed-formats",
            num_records=counts,
            by_family=by_family,
        )
    if not counts:
        raise _nothing_found(raw, paths)
    return next(iter(counts))


def _nothing_found(raw: RawLog, paths: Sequence[Path]) -> TrainingLogError:
    """Return why there is no record."""
    if raw.loss_only or (raw.num_without_metrics and not raw.companion):
        return TrainingLogError(paths[0], _LOSS_ONLY, code="loss-only")
    if raw.companion:
        reason = "this says steps, but no accuracy; name the log or the val_metrics.json that belongs to it"
        return TrainingLogError(paths[0], reason, code="no-metrics", companion=raw.companion)
    what = "these hold" if len(paths) > 1 else "this holds"
    reason = f"{what} no record of a trainer that is known ({_KNOWN})"
    return TrainingLogError(paths[0], reason, code="unrecognised")


_LOSS_ONLY = (
    "losses, but no accuracy, and a loss says nothing about the accept length; log accuracies by "
    "depth, or give the tracker export that has them"
)


def _refusal(log: TrainingLog) -> TrainingLogError | None:
    """Return why a log may not be used; None where it may."""
    path = log.paths[0] if log.paths else Path()
    if not log.depths and not _says_means(log):
        return TrainingLogError(path, _LOSS_ONLY, code="loss-only", log=log)
    if not any(series.num_finite for series in log.series.values()):
        reason = "every record has nan or inf in an accuracy or a loss: the run broke down"
        return TrainingLogError(path, reason, code="no-finite-records", log=log)
    pending = {split: defect for split, defect in log.alias.items() if not defect.corrected}
    if pending:
        said = ", ".join(
            f"{split} by {defect.divisor:.4g} ({defect.num_processes} processes)"
            for split, defect in pending.items()
        )
        reason = (
            "accuracies were reduced twice, a defect of speculators 0.6.0 to 0.6.0.2: they are too "
            f"large, {said}; divide them with `specmodel train --correct-alias`, or log with another version"
        )
        return TrainingLogError(path, reason, code="alias-defect", log=log)
    outside = first_out_of_range(log)
    if outside is not None:
        line, value = outside
        reason = (
            f"an accuracy is {value:.4g}, must be from 0 to 1 ({log.where(line)}); "
            "this is not what the trainer should print"
        )
        return TrainingLogError(path, reason, code="accuracy-out-of-range", log=log, line=None)
    return None


def _says_means(log: TrainingLog) -> bool:
    """Return whether there is a mean accuracy or a printed accept length."""
    for series in log.series.values():
        if np.isfinite(series.mean_marginal).any() or not series.finite.all():
            return True
        if any(lengths.last is not None for lengths in series.reported.values()):
            return True
    return False
