"""Fit one system's points: from points to a calibration, once."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.fit.agreement import doubts
from calibration.fit.posterior_mode import MapFit, fit_rows, with_measured_shares
from calibration.points.arrays import (
    UNITS_A_ROUND,
    SystemRows,
    system_rows,
    with_expert_counts,
    with_unit_baselines,
)
from calibration.points.reading import read_points
from calibration.points.systems import SystemPoints, select_system
from calibration.points.table import Points, format_points, numbers, texts, with_num_steps
from calibration.points.unsound import (
    BASELINE_SET_ASIDE,
    Soundness,
    assess_soundness,
    implied_round_cost,
    replicate_groups,
)
from calibration.rig.fit import fit_physical, measured_times
from calibration.rig.from_points import AskedRig, rig_of_points, with_named_rig
from calibration.rig.scenario import scenario_to_record
from specmodel.baselines import Baselines
from specmodel.calibration import Calibration
from specmodel.constants import NAMES, PRIOR_DOMINATED
from specmodel.errors import FitError, SpecModelError
from specmodel.prior import Prior, load_prior
from specmodel.question import Observation
from specmodel.speedup import round_cost_from_throughput
from specmodel.version import __version__

Array = NDArray[np.float64]

OUTLIER_SD = 4.0
"""Residual, in standard deviations of the fitted noise, from which a row is named."""

MAD_TO_SD = 1.4826
"""Standard deviation of a normal variable per median absolute deviation. [-]"""

_ANY_SCALE_LOG_SD = 2.0  # of a step, where no baseline tells it
_ANY_LOAD_LOG_SD = 0.5  # of rounds over batches, where no baseline takes up how a step grows
_HULL = ("accept_length", "num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")

_DECODE_ONLY = (
    "every throughput of these points is that of decoding alone, without prefill and idle time, and so "
    "is every prediction from them"
)


class Fit(NamedTuple):
    """A fit with everything that it was made of."""

    points: Points  # everything that was read, with the rig that was named
    system: SystemPoints
    soundness: Soundness
    rows: SystemRows  # that were fitted
    calibration: Calibration


def fit(
    points: Points | str | Path | Sequence[str | Path],
    *,
    system: str | None = None,
    force: bool = False,
    prior: Prior | None = None,
    profile: bool = True,
    rig: AskedRig | None = None,
    num_steps: int | None = None,
) -> Calibration:
    r"""Constants of one system from its benchmark points, with honest intervals.

    .. math:: \max_x \; p(y \mid x)\, p(x)

    Parameters
    ----------
    points : Points, path or sequence of paths
        What was measured; paths are read with `read_points`.
    system : str, optional
        Part of the label of the system to fit, where the points hold several.
    force : bool
        Fit although the system's baselines are unsound.
    prior : Prior, optional
        By default the packaged one for the engine, and for what is known of the experts.
    profile : bool
        Compute profile intervals of the constants that the points inform.
    rig : AskedRig, optional
        What is known of the machine besides the points' own columns. Where model and GPU are known, the
        physical form is fitted to the same points.
    num_steps : int, optional
        Draft depth of the rows that do not state theirs, [tokens].

    Returns
    -------
    Calibration

    Raises
    ------
    FormatError
        If a file cannot be read.
    IncompatiblePointsError
        If the points hold several systems and none is named.
    FitError
        If no row has accept length, throughput and baseline, or the baselines are unsound.

    Notes
    -----
    Rows whose baseline is broken (a round cheaper than a step) are set aside and named. Expert
    counts that the points do not state are looked up by the name of the target model. theory.md
    part D.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench = Path(folder) / "bench.csv"
    ...     _ = bench.write_text("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    ...     calibration = fit(bench)
    >>> round(calibration.observations[0].round_cost[1], 2)
    2.3
    """
    read = points if isinstance(points, Points) else read_points(points)
    return fit_points(
        with_num_steps(read, num_steps),
        system=system,
        force=force,
        prior=prior,
        profile=profile,
        rig=rig,
    ).calibration


def fit_points(
    points: Points,
    *,
    system: str | None = None,
    force: bool = False,
    prior: Prior | None = None,
    unlearned: bool = False,
    profile: bool = True,
    rig: AskedRig | None = None,
) -> Fit:
    """Fit as `fit`, with everything on the way; `unlearned` leaves the system out of its own prior."""
    read = with_named_rig(points, rig)
    chosen = select_system(read, system)
    soundness = assess_soundness(chosen.points, force=force)
    if not soundness.sound and not force:
        raise FitError(
            f"the baselines of this system are unsound: rounds cheaper than a baseline step in "
            f"{', '.join(soundness.broken)}. Measure the baselines again with the flags of the "
            "speculative runs, or fit anyway with --force"
        )
    kept = chosen.points if force else chosen.points.where(soundness.kept)
    frame = with_expert_counts(kept.frame)
    rows, baseline_known = system_rows(frame), True
    if not len(rows.rows):
        rows, baseline_known = system_rows(with_unit_baselines(frame), baseline_known=False), False
        if not len(rows.rows) or len(frame) < len(chosen.points):  # or set aside, as broken
            raise FitError(f"nothing to fit: {_lacking(chosen.points.frame, frame)}")
    belief = prior or load_prior(
        experts_known=rows.experts_known,
        engine=texts(frame, "engine")[0],
        without_target=texts(chosen.points.frame, "target_model")[0] if unlearned else "",
    )
    if not baseline_known:
        belief = _of_any_scale(belief)
    fitted = fit_rows(
        rows.rows, rows.log_speedup, belief, spread_log_sd=rows.spread_log_sd, curve=rows.curve
    )
    fitted = replace(fitted, posterior=with_measured_shares(fitted.posterior, rows.baselines))
    calibration = _calibration(chosen, rows, belief, fitted, soundness, forced=force)
    if not baseline_known:
        why = "without a baseline the machine is not priced"
        said = doubts(calibration, rows)  # in the units of the rows
        calibration = replace(calibration, baseline_known=False, rig_note=why, doubts=said)
        return Fit(read, chosen, soundness, rows, calibration)
    if profile:
        calibration = replace(calibration, intervals=_profiled(calibration, rows, belief, fitted))
    calibration = replace(calibration, doubts=doubts(calibration, rows))
    return Fit(read, chosen, soundness, rows, _with_rig(calibration, frame, rows, rig))


def _of_any_scale(belief: Prior) -> Prior:
    """A prior of rounds in a unit of time: it knows how they grow with depth, not how long a step is."""
    costs = [NAMES.index(name) for name in ("fixed_cost", "step_cost", "tree_cost")]
    mean, covariance = belief.mean.copy(), belief.covariance.copy()
    mean[costs] += np.log(UNITS_A_ROUND)
    covariance[np.ix_(costs, costs)] += _ANY_SCALE_LOG_SD**2
    noise = replace(belief.noise, load_log_sd=_ANY_LOAD_LOG_SD)
    return replace(belief, mean=mean, covariance=covariance, noise=noise)


def _with_rig(
    calibration: Calibration, frame: pd.DataFrame, rows: SystemRows, rig: AskedRig | None
) -> Calibration:
    """The calibration with the physical form of its rig, or with the reason why it has none."""
    found = rig_of_points(frame, rig)
    if found.scenario is None:
        return replace(calibration, rig_note=found.reason)
    try:
        times = measured_times(rows, calibration.posterior)
        record = scenario_to_record(found.scenario)
        physical = fit_physical(found.scenario.rig(), times, record=record)
    except SpecModelError as error:
        if rig is not None and rig.given:
            raise
        return replace(calibration, rig_note=str(error))
    return replace(calibration, physical=replace(physical, notes=found.assumed))


def _lacking(stated: pd.DataFrame, kept: pd.DataFrame) -> str:
    """What points lack from which no round cost can be read."""
    runs = stated.loc[numbers(stated, "num_steps") != 0]
    if runs.empty:
        return "every row is a baseline (num_steps 0): add a run with speculation"
    if not np.isfinite(numbers(runs, "output_tokens_per_s")).any():
        return (
            "no run with speculation has a throughput: its acceptance alone tells nothing about "
            "time; add a benchmark result of the same server"
        )
    if len(kept) < len(stated) and np.isfinite(implied_round_cost(stated)).any():
        return "every row with a baseline was set aside, because its baseline is broken"
    return "no row has accept length, throughput and baseline together"


def _observations(usable: SystemRows) -> tuple[Observation, ...]:
    """What the plain identity says of each configuration."""
    frame = usable.frame
    accept = numbers(frame, "accept_length")
    output = numbers(frame, "output_tokens_per_s")
    baseline = numbers(frame, "baseline_tokens_per_s")
    cost = round_cost_from_throughput(accept, output, baseline)
    share = np.nan_to_num(usable.rows.measured_share)
    workloads = frame["workload"].fillna("").astype(str).to_numpy()
    decode_cost = round_cost_from_throughput(accept, output, baseline, share)
    found = []
    for index, configuration in enumerate(usable.configurations):
        rows = np.flatnonzero(usable.rows.configuration == index)
        first = rows[0]
        found.append(
            Observation(
                configuration=configuration,
                num_points=int(rows.size),
                accept_length=(float(accept[rows].min()), float(accept[rows].max())),
                round_cost=(
                    float(cost[rows].min()),
                    float(np.median(cost[rows])),
                    float(cost[rows].max()),
                ),
                accept_length_at=float(accept[first]),
                output_tokens_per_s=float(output[first]),
                baseline_tokens_per_s=float(baseline[first]),
                decode_round_cost=float(np.median(decode_cost[rows])),
                accept_lengths={
                    name: float(accept[rows[workloads[rows] == name]].mean())
                    for name in dict.fromkeys(workloads[rows].tolist())
                },
            )
        )
    return tuple(found)


def _hull(rows: SystemRows) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each quantity, as measured and as the loads they stand for."""
    both = {
        name: np.concatenate([numbers(rows.as_measured, name), numbers(rows.frame, name)])
        for name in _HULL
    }
    return {
        name: (float(np.nanmin(values)), float(np.nanmax(values)))
        for name, values in both.items()
        if np.isfinite(values).any()
    }


def _outliers(usable: SystemRows, fitted: MapFit) -> list[str]:
    """Rows far from the fit, named and not averaged away."""
    noise = fitted.posterior.noise
    expected = np.hypot(noise.row_log_sd, np.hypot(noise.configuration_log_sd, noise.run_log_sd))
    # The median is not moved by the very row that is looked for.
    sd = max(float(expected), MAD_TO_SD * float(np.median(np.abs(fitted.marginal_residual))))
    notes = []
    for index in np.flatnonzero(np.abs(fitted.marginal_residual) > OUTLIER_SD * sd).tolist():
        row = usable.frame.iloc[index]
        away = np.expm1(fitted.marginal_residual[index])
        notes.append(
            f"{Path(str(row['file'])).name}, line {int(row['line'])}: measured speed-up is "
            f"{away:+.0%} from what the constants alone give, "
            f"{abs(fitted.marginal_residual[index]) / sd:.1f} standard deviations; check this row"
        )
    return notes


def _replicates(frame: pd.DataFrame) -> list[str]:
    """What configurations that were measured several times say of the noise."""
    groups = [group.round_cost_relative_sd for group in replicate_groups(frame)]
    spreads = [spread for spread in groups if spread is not None]
    if not spreads:
        return []
    return [
        (
            f"{len(spreads)} configuration(s) were measured several times: their round costs spread by "
            f"{np.sqrt(np.mean(np.square(spreads))):.1%} (root mean square)"
        )
    ]


def _calibration(
    chosen: SystemPoints,
    usable: SystemRows,
    belief: Prior,
    fitted: MapFit,
    soundness: Soundness,
    *,
    forced: bool,
) -> Calibration:
    """Put together the record."""
    frame = usable.frame
    notes = [warning.message for warning in soundness.warnings]
    decode_only = bool(np.all(usable.rows.measured_share == 0.0))
    if decode_only and np.isfinite(numbers(chosen.points.frame, "baseline_tokens_per_s")).any():
        notes.append(_DECODE_ONLY)
    if (count := usable.num_contradicted) and decode_only:
        notes.append(
            f"{count} row{'s' if count > 1 else ''}: end to end, ttft_ms and output_tokens would leave a "
            "round less than the time of a step, so the throughputs are taken as those of decoding alone"
        )
    elif count:
        notes.append(
            f"{count} row{'s' if count > 1 else ''}: ttft_ms and output_tokens leave a round less than the "
            "time of a step, so they are not used; is the throughput that of decoding alone?"
        )
    return Calibration(
        label=chosen.label,
        system={name: str(value) for name, value in chosen.key.items() if str(value) != ""},
        prior=belief,
        posterior=fitted.posterior,
        intervals={},
        configurations=usable.configurations,
        runs=usable.runs,
        observations=_observations(usable),
        baselines=Baselines(entries=usable.baselines.entries),
        curve=usable.curve,
        num_experts=float(numbers(frame, "num_experts")[0]),
        experts_per_token=float(numbers(frame, "experts_per_token")[0]),
        throughput_scope=texts(frame, "throughput_scope")[0] or "aggregate",
        hull=_hull(usable),
        num_points=len(usable.rows),
        residual_log_sd=float(np.sqrt(np.mean(fitted.residual**2))),
        points_sha256=hashlib.sha256(format_points(chosen.points).encode()).hexdigest(),
        package_version=__version__,
        notes=(*notes, *_replicates(frame), *_outliers(usable, fitted)),
        broken_baselines=tuple(
            warning.message for warning in soundness.warnings if warning.code == BASELINE_SET_ASIDE
        ),
        forced=forced,
        decode_only=decode_only,
        fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _profiled(
    calibration: Calibration, rows: SystemRows, belief: Prior, fitted: MapFit
) -> dict[str, tuple[float, float]]:
    """Profile intervals of the constants that the rows inform."""
    told = np.any(rows.baselines.column("non_decode_share") > 0.0)  # beside the rows
    informed = [
        one.name
        for one in calibration.constants
        if one.learned >= PRIOR_DOMINATED
        and not (told and one.name in {"non_decode_share", "baseline_share"})
    ]
    if not informed:
        return {}
    from calibration.fit.profile_likelihood import profile_intervals

    intervals = profile_intervals(rows.rows, rows.log_speedup, belief, fitted, informed)
    return {name: intervals[name] for name in NAMES if name in intervals}
