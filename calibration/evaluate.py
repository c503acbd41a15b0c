"""How wrong the model is on points it has not seen, beside simple baselines."""

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.evaluate_splits import (
    CENTRAL,
    Overall,
    Predictions,
    Score,
    Split,
    each_configuration,
    each_row,
    each_workload,
    every_row,
    few_rows,
    overall_of,
    score_of,
    small_loads,
)
from calibration.fit.posterior_mode import fit_rows
from calibration.points.arrays import SystemRows, system_rows, with_expert_counts
from calibration.points.packaged import packaged_table, packaged_tables
from calibration.points.reading import read_points
from calibration.points.systems import systems
from calibration.points.table import Points, numbers, texts
from calibration.points.unsound import assess_soundness
from calibration.predict.points import predict_rows
from specmodel.calibration import Calibration
from specmodel.cost import UNKNOWN_DEPTH_NUM_STEPS
from specmodel.effects import NEW
from specmodel.errors import FitError, ParameterError
from specmodel.posterior import Posterior, Rows
from specmodel.prior import Prior, load_prior
from specmodel.speedup import textbook_speedup
from specmodel.statistics import student_t_quantile

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_ROWS_ONLY_PARTS = 8  # of a split that are also predicted as a user would

FEW_ROWS = (0, 1, 2, 5)
SPLITS = ("workload", "config", "row", "few", "load", "fitted")

TEXTBOOK_DRAFT_COST = 0.05
"""Draft cost ratio that the textbook formula assumes where nothing was measured: an overhead of 15 %
at depth 3, the slip of theory.md E4. [-]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedSystem:
    """A system to evaluate on."""

    name: str
    target_model: str
    rows: SystemRows
    prior: Prior


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything that `evaluate` found."""

    scores: tuple[Score, ...]
    overall: tuple[Overall, ...]
    not_applicable: tuple[str, ...]
    set_aside: tuple[str, ...]


def evaluate(
    points: Points | Sequence[EvaluatedSystem],
    *,
    splits: Iterable[str] = SPLITS,
    num_rows: int | None = None,
    draws: int = 25,
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    r"""Errors of predictions for rows that the fit has not seen.

    .. math:: e = \left|\frac{\hat S}{S} - 1\right|

    Parameters
    ----------
    points : Points, or sequence of EvaluatedSystem
        What was measured; points are separated into systems, the unsound ones set aside.
    splits : iterable of str
        Of ``workload, config, row, few, load, fitted``; ``all`` for every one.
    num_rows : int, optional
        Calibration rows of ``few``; by default 0, 1, 2 and 5.
    draws : int
        Random choices of those rows.
    seed : int
        Of the choices and of the bootstrap.
    progress : callable
        Called with the system's name before each is evaluated.

    Returns
    -------
    Evaluation

    Raises
    ------
    ParameterError
        If a split is unknown.
    FitError
        If no system has rows to evaluate.

    Notes
    -----
    The prior leaves out every system of the same target model. Baselines of the workloads are known,
    as they are to a user. theory.md part D.

    Examples
    --------
    >>> from calibration import read_points
    >>> from calibration.points.packaged import packaged_table
    >>> found = evaluate(read_points(packaged_table("vllm-20780-eagle3").path), splits=["row"])
    >>> found.scores[0].mape < 0.03
    True
    """
    if isinstance(points, Points):
        found, set_aside = evaluated_systems(points)
    else:
        found, set_aside = list(points), ()
    if not found:
        raise FitError(nothing_to_evaluate(set_aside))
    chosen = _splits(splits, num_rows, draws, seed)
    results: dict[str, list[tuple[str, str, Predictions]]] = {split.name: [] for split in chosen}
    for system in found:
        progress(system.name)
        for split in chosen:
            predictions = _predict_split(system, split)
            if predictions is not None:
                results[split.name].append(
                    (system.name, system.target_model or system.name, predictions)
                )
    generator = np.random.default_rng(seed)
    return Evaluation(
        scores=tuple(
            score_of(system, name, predictions)
            for name, pairs in results.items()
            for system, _, predictions in pairs
        ),
        overall=tuple(
            overall_of(name, pairs, generator) for name, pairs in results.items() if pairs
        ),
        not_applicable=tuple(name for name, pairs in results.items() if not pairs),
        set_aside=tuple(set_aside),
    )


def nothing_to_evaluate(set_aside: Sequence[str]) -> str:
    """Why there is no system to evaluate, in one line."""
    if set_aside:
        return "no system to evaluate: " + "; ".join(set_aside)
    return "no system to evaluate: each needs rows with accept length, throughput and baseline"


def evaluated_systems(points: Points) -> tuple[list[EvaluatedSystem], tuple[str, ...]]:
    """Sound systems of some points with their priors, and what was set aside."""
    found, set_aside = [], []
    for system in systems(points):
        soundness = assess_soundness(system.points)
        said = [warning for warning in soundness.warnings if warning.code == "unsound_system"]
        set_aside += [
            f"{system.label}: {warning.message}" for warning in said or soundness.warnings
        ]
        if not soundness.sound:
            continue
        frame = with_expert_counts(system.points.where(soundness.kept).frame)
        rows = system_rows(frame)
        if len(rows.rows):
            target = texts(frame, "target_model")[0]
            known, engine = rows.experts_known, texts(frame, "engine")[0]
            everyone = load_prior(experts_known=known, engine=engine)
            prior = load_prior(experts_known=known, engine=engine, without_target=target)
            if prior.name == everyone.name:
                set_aside.append(
                    f"nothing of the prior for {system.label}: no system of "
                    f"{target or 'a target model without a name'} taught it"
                )
            found.append(
                EvaluatedSystem(name=system.label, target_model=target, rows=rows, prior=prior)
            )
    return found, tuple(set_aside)


def systems_to_evaluate(
    paths: Sequence[Path], names: Sequence[str], *, progress: Callable[[int], None] | None = None
) -> tuple[list[EvaluatedSystem], tuple[str, ...]]:
    """Systems of files and packaged tables with their priors, and what was set aside."""
    found: list[EvaluatedSystem] = []
    set_aside: list[str] = []
    if paths:
        systems, aside = evaluated_systems(read_points(list(paths), progress=progress))
        found += systems
        set_aside += aside
    if names or not paths:
        for table in packaged_tables():
            if names and not any(fnmatch.fnmatch(table.name, name) for name in names):
                continue
            systems, aside = evaluated_systems(read_points(table.path))
            set_aside += aside
            for number, system in enumerate(systems, start=1):
                suffix = "" if len(systems) == 1 else f"#{number}"
                found.append(replace(system, name=table.name + suffix))
        for name in names:
            if not any(fnmatch.fnmatch(table.name, name) for table in packaged_tables()):
                packaged_table(name)  # raises, naming the closest ones
    return found, tuple(set_aside)


def _splits(names: Iterable[str], num_rows: int | None, draws: int, seed: int) -> list[Split]:
    """Split objects by name."""
    wanted = list(names)
    if "all" in wanted:
        wanted = list(SPLITS)
    counts = FEW_ROWS if num_rows is None else (num_rows,)
    table: dict[str, list[Split]] = {
        "workload": [Split("workload", each_workload)],
        "config": [Split("config", each_configuration)],
        "row": [Split("row", each_row)],
        "few": [few_rows(count, draws, seed) for count in counts],
        "load": [small_loads(measured=True), small_loads(measured=False)],
        "fitted": [Split("fitted", every_row)],
    }
    for name in wanted:
        if name not in table:
            raise ParameterError("split", name, f"one of {', '.join((*SPLITS, 'all'))}")
    return [split for name in wanted for split in table[name]]


def seen_only(rows: Rows, seen: Mask) -> Rows:
    """Rows with effects renumbered to those that the seen rows hold; the others are new."""

    def renumbered(index: NDArray[np.intp]) -> NDArray[np.intp]:
        levels = np.unique(index[seen])
        place = np.full(int(index.max(initial=0)) + 1, NEW, dtype=np.intp)
        place[levels] = np.arange(levels.size)
        return place[index]

    return replace(rows, configuration=renumbered(rows.configuration), run=renumbered(rows.run))


def _predict_split(system: EvaluatedSystem, split: Split) -> Predictions | None:
    """Predict every test row of a split; None where the split does not apply."""
    rows, truth = system.rows.rows, system.rows.log_speedup
    parts: list[tuple[Array, Mask, Array, Array, Array]] = []
    as_a_user: list[tuple[Array, Mask]] = []
    predicted = np.full(len(rows), np.nan)
    regrets = []
    for seen, tested in split.parts(system.rows):
        known = seen_only(rows, seen)
        posterior = Posterior.from_prior(system.prior)
        if seen.any():
            posterior = fit_rows(
                known.take(seen),
                truth[seen],
                system.prior,
                spread_log_sd=system.rows.spread_log_sd[seen],
                curve=system.rows.curve,
            ).posterior
        answer = posterior.predict(known.take(tested))
        width = student_t_quantile((1 + CENTRAL) / 2, answer.degrees_of_freedom) * answer.log_sd
        away = answer.location - truth[tested]
        parts.append(
            (
                np.expm1(away),
                np.abs(away) <= width,
                np.expm1(width),
                _constant_error(system.rows, seen, tested),
                _textbook_error(system.rows, seen, tested),
            )
        )
        if len(as_a_user) < _ROWS_ONLY_PARTS:
            as_a_user.append(_rows_only(system, seen, tested))
        predicted[tested] = answer.location
        if split.drawn:
            regrets.append(_regret(system.rows, np.where(tested, predicted, truth)))
    if not parts:
        return None
    error, covered, half_width, constant, textbook = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    if not regrets:
        regrets.append(_regret(system.rows, predicted))
    return Predictions(
        error=error,
        covered=covered.astype(np.bool_),
        half_width=half_width,
        constant_error=constant,
        textbook_error=textbook,
        regret=float(np.mean(regrets)),
        rows_only_error=np.concatenate([error for error, _ in as_a_user]),
        rows_only_covered=np.concatenate([covered for _, covered in as_a_user]),
    )


def _rows_only(system: EvaluatedSystem, seen: Mask, tested: Mask) -> tuple[Array, Mask]:
    """Errors, and which are covered, of what a user gets: the seen rows fitted, the others asked for.

    No baseline is known but those of the seen rows and each row's own, and the answers are those of
    `specmodel predict --points`.
    """
    frame = system.rows.as_measured
    known = system_rows(frame.loc[seen])
    posterior = Posterior.from_prior(system.prior)
    if seen.any():
        posterior = fit_rows(
            known.rows,
            known.log_speedup,
            system.prior,
            spread_log_sd=known.spread_log_sd,
            curve=known.curve,
        ).posterior
    experts = [numbers(frame, name)[0] for name in ("num_experts", "experts_per_token")]
    calibration = Calibration(
        prior=system.prior,
        posterior=posterior,
        configurations=known.configurations,
        runs=known.runs,
        baselines=known.baselines,
        curve=known.curve,
        num_experts=float(experts[0]),
        experts_per_token=float(experts[1]),
        num_points=int(seen.sum()),
    )
    asked = frame.loc[tested]
    measured = numbers(asked, "output_tokens_per_s")
    found = [one.output_tokens_per_s for one in predict_rows(calibration, asked)]
    median, low, high = np.array(
        [(np.nan,) * 3 if one is None else (one.median, one.low, one.high) for one in found]
    ).T
    return median / measured - 1.0, (low <= measured) & (measured <= high)


def _constant_error(rows: SystemRows, seen: Mask, tested: Mask) -> Array:
    """Error of one round cost for all: the geometric mean of what the seen rows imply."""
    if not seen.any():
        return np.full(int(tested.sum()), np.nan)
    log_cost = np.log(rows.rows.accept_length) - rows.log_speedup
    guess = np.log(rows.rows.accept_length[tested]) - log_cost[seen].mean()
    return np.asarray(np.expm1(guess - rows.log_speedup[tested]))


def _textbook_error(rows: SystemRows, seen: Mask, tested: Mask) -> Array:
    """Error of the textbook formula, its draft cost the median that the seen rows imply."""
    steps = np.nan_to_num(numbers(rows.frame, "num_steps"), nan=UNKNOWN_DEPTH_NUM_STEPS)
    ratio = TEXTBOOK_DRAFT_COST
    if seen.any():
        cost = rows.rows.accept_length[seen] / np.exp(rows.log_speedup[seen])
        ratio = max(float(np.median((cost - 1.0) / np.maximum(steps[seen], 1.0))), 0.0)
    guess = textbook_speedup(rows.rows.accept_length[tested], steps[tested], ratio)
    return np.asarray(guess / np.exp(rows.log_speedup[tested]) - 1.0)


def _regret(rows: SystemRows, predicted: Array) -> float:
    """Mean relative loss of choosing the configuration that the predictions call best.

    Configurations compete within a workload, draft model and load; accept lengths are the points'.
    """
    columns = ("workload", "draft_model", "batch_size", "context_tokens")
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, key in enumerate(zip(*(texts(rows.frame, name) for name in columns), strict=True)):
        if np.isfinite(predicted[index]):
            groups.setdefault(key, []).append(index)
    losses = []
    for members in groups.values():
        if len(set(rows.rows.configuration[members].tolist())) > 1:
            best = members[int(np.argmax(predicted[members]))]
            losses.append(-np.expm1(rows.log_speedup[best] - rows.log_speedup[members].max()))
    return float(np.mean(losses)) if losses else np.nan
