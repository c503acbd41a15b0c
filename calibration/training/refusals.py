"""Which family a log is of, and why a log may not be used: the refusals of training_logs.md section 6.2."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from calibration.training.checks import checked, corrected, first_out_of_range
from calibration.training.family_facts import (
    MEAN_MARGINAL,
    Bonus,
    accept_length_bonus,
    bonus_by_numbers,
    family_facts,
)
from calibration.training.normalise import Normalised, normalised
from calibration.training.offline_acceptance import chained_accept_length
from calibration.training.position_blocks import name_open_family
from calibration.training.records import (
    PRINTED_NAN,
    Array,
    Kind,
    RawLog,
    RecordColumns,
    RecordTable,
    Split,
    merged,
)
from calibration.training.trackers import said_runs, separate_runs
from calibration.training.training_log import (
    ReportedLengths,
    SplitSeries,
    TrainingLog,
    TrainingLogError,
)
from specmodel.errors import Note

# ---
# The records of one family to one clean log: normalised, described, checked.
_MOST_LINES = 100  # that a warning keeps


def clean_log(
    raw: RawLog, family: str, *, paths: Sequence[Path] = (), first_lines: Sequence[int] = ()
) -> TrainingLog:
    """Return the log of one family; whether it may be used is decided elsewhere."""
    tables = raw.tables[family]
    with np.errstate(all="ignore"):  # impossible values are refused later
        found = normalised(tables)
        kinds = {str(kind) for columns in found.splits.values() for kind in _kinds(columns)}
        facts = family_facts(
            family,
            formats=found.formats,
            hints=frozenset[str]().union(*(table.hints for table in tables.values())),
            kinds=kinds,
        )
        said = _bonuses(found.splits.values())
        series = {
            split: _series(split, columns, tables[split].rounding, family, facts.versions, said)
            for split, columns in found.splits.items()
        }
        depths = max((one.depths for one in series.values()), default=0)
        first, last, number = _steps(found)
        first_position = next((one.first_position for one in tables.values() if len(one)), 0)
        log = TrainingLog(
            paths=tuple(paths),
            first_lines=tuple(first_lines),
            family=family,
            **facts._asdict(),
            formats=tuple(sorted(found.formats)),
            depths=depths,
            first_position=first_position if depths else None,
            unique_steps=number,
            first_step=first,
            last_step=last,
            step_source=found.step_source,
            epochs=_epochs(found),
            total_steps=_total_steps(tables),
            series=series,
            warnings=_warnings(raw.warnings | found.codes),
        )
        return checked(log)


def _series(
    split: Split,
    columns: RecordColumns,
    rounding: float,
    family: str,
    versions: str,
    said: Mapping[str, Bonus | None],
) -> SplitSeries:
    """Return the records of a split with nan in place of what is not finite."""
    finite = columns.finite()
    accuracies = {
        kind: _plain_stack(columns, kind) for kind in Kind if f"{kind}_0" in columns.values
    }
    marginal = accuracies.get(Kind.MARGINAL)
    reported = {}
    for name in columns.values:
        if name.startswith("reported:"):
            key = name.removeprefix("reported:")
            values = np.where(finite, _plain(columns.values[name]), np.nan)
            bonus = said[name] or _bonus(key, values, marginal, family, versions)
            reported[key] = ReportedLengths(values=values, bonus=bonus)
    return SplitSeries(
        split=split,
        line=columns.column("line"),
        step=columns.column("step"),
        epoch=_plain(columns.column("epoch")),
        learning_rate=_plain(columns.column("learning_rate")),
        total_loss=_plain(columns.column("total_loss")),
        mean_marginal=_plain(columns.column("mean_marginal")),
        losses=_plain_stack(columns, "loss"),
        accuracies=accuracies,
        reported=reported,
        finite=finite,
        rounding=rounding,
    )


def _bonuses(splits: Iterable[RecordColumns]) -> dict[str, Bonus | None]:
    """Return the convention of every printed accept length that its numbers tell, in all splits."""
    found: dict[str, list[tuple[Array, Array, Array]]] = {}
    for columns in splits:
        first, chain = columns.column("mean_marginal"), np.full(len(columns), np.nan)
        for kind in (Kind.MARGINAL, Kind.CONDITIONAL, Kind.JOINT):
            values = _plain_stack(columns, kind)
            if values.shape[1]:
                first, chain = values[:, 0], chained_accept_length(values, kind) - 1.0
                break
        for name in columns.values:
            if name.startswith("reported:"):
                found.setdefault(name, []).append((_plain(columns.values[name]), first, chain))
    return {
        name: bonus_by_numbers(*(np.concatenate(one) for one in zip(*parts, strict=True)))
        for name, parts in found.items()
    }


def _bonus(key: str, values: Array, marginal: Array | None, family: str, versions: str) -> Bonus:
    """Return the convention of printed accept lengths that the trainer or their last value shows."""
    rows = np.flatnonzero(np.isfinite(values))
    chain = None
    if marginal is not None and len(rows):
        products = np.cumprod(marginal[rows[-1]])
        if np.isfinite(products).any():
            chain = float(np.nansum(products))
    value = float(values[rows[-1]]) if len(rows) else 0.0
    return accept_length_bonus(family, key, versions=versions, value=value, chain=chain)


def _plain(values: Array) -> Array:
    """Return values with nan where nan or infinity was printed."""
    return np.where(values == PRINTED_NAN, np.nan, values)


def _plain_stack(columns: RecordColumns, kind: str) -> Array:
    """Return an accuracy (or ``loss``) by depth, as `_plain` does; it is large, so in its place."""
    values = columns.stacked(kind)
    for depth in values.T:
        depth[depth == PRINTED_NAN] = np.nan
    return values


def _kinds(columns: RecordColumns) -> list[str]:
    """Return what accuracies there are."""
    found = [str(kind) for kind in Kind if f"{kind}_0" in columns.values]
    if np.isfinite(columns.column("mean_marginal")).any():
        found.append(MEAN_MARGINAL)
    return found


def _steps(found: Normalised) -> tuple[int | None, int | None, int | None]:
    """Return first and last step that carries a train record, and how many do."""
    columns = [found.splits[s] for s in (Split.TRAIN, Split.UNKNOWN) if s in found.splits]
    steps = np.unique(np.concatenate([np.empty(0), *(one.column("step") for one in columns)]))
    steps = steps[np.isfinite(steps)]
    if not len(steps):
        return None, None, None
    if found.step_source == "counted":
        return None, None, len(steps)
    return int(steps[0]), int(steps[-1]), len(steps)


def _epochs(found: Normalised) -> tuple[float, ...]:
    """Return the distinct epochs as printed."""
    columns = [np.empty(0), *(one.column("epoch") for one in found.splits.values())]
    epochs = np.unique(np.concatenate(columns))
    return tuple(float(epoch) for epoch in epochs[np.isfinite(epochs)])


def _total_steps(tables: Mapping[Split, RecordTable]) -> int | None:
    """Return the trainer's own total of steps."""
    totals = [table.total_steps for table in tables.values() if table.total_steps]
    return max(totals, default=None)


def _warnings(codes: Mapping[str, Sequence[int]]) -> tuple[Note, ...]:
    """Return what was found as warnings."""
    return tuple(
        Note(code=code, lines=tuple(sorted(set(lines))[:_MOST_LINES]))
        for code, lines in sorted(codes.items())
    )


_KNOWN = (
    "speculators, SpecForge, EAGLE and HASS, TorchSpec, ModelOpt, NeMo Automodel, DeepSpec and "
    "dict lines of the HF Trainer, or tables with a step and an accuracy or an accept length"
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
