"""Fit one system's points: from points to a calibration."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.fit.posterior_mode import MapFit, fit_rows
from calibration.points.arrays import (
    SystemRows,
    contradicted_share,
    numbers,
    speculative,
    system_rows,
    texts,
)
from calibration.points.points import format_points, read_points
from calibration.points.systems import SystemPoints, select_system
from calibration.points.table import Points
from calibration.points.unsound import (
    BASELINE_SET_ASIDE,
    Soundness,
    assess_soundness,
    replicate_groups,
)
from calibration.rig.fit import fit_physical, measured_times
from calibration.rig.from_points import AskedRig, rig_of_points, with_named_rig
from calibration.rig.scenario import scenario_to_record
from specmodel.architecture import has_preset, preset
from specmodel.baselines import Baselines
from specmodel.calibration import PRIOR_DOMINATED, Calibration, Observation
from specmodel.constants import NAMES, NUM_CONSTANTS, slope, to_natural
from specmodel.errors import FitError, SpecModelError
from specmodel.posterior import Posterior
from specmodel.prior import Prior, load_prior
from specmodel.speedup import non_decode_share_from_baselines, round_cost_from_throughput
from specmodel.version import __version__

Array = NDArray[np.float64]

OUTLIER_SD = 4.0
"""Residual, in standard deviations of the fitted noise, from which a row is named."""

MAD_TO_SD = 1.4826
"""Standard deviation of a normal variable per median absolute deviation. [-]"""

SHARE_LOGIT_SD = 0.3
"""How far the non-decode share of one load may be from another's, on the logit scale (judgement). [-]"""

_SHARE_ITERATIONS = 8
_SHARE, _BASELINE = NAMES.index("non_decode_share"), NAMES.index("baseline_share")

_HULL = ("accept_length", "num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")


def fit(
    points: Points | str | Path | Sequence[str | Path],
    *,
    system: str | None = None,
    force: bool = False,
    prior: Prior | None = None,
    profile: bool = True,
    rig: AskedRig | None = None,
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
    read = with_named_rig(points if isinstance(points, Points) else read_points(points), rig)
    chosen = select_system(read, system)
    soundness = _soundness(chosen, force=force)
    kept = chosen.points if force else chosen.points.where(soundness.kept)
    frame = with_expert_counts(kept.frame)
    usable = system_rows(frame)
    _check_usable(chosen, usable)
    belief = prior or load_prior(
        experts_known=usable.experts_known, engine=str(frame["engine"].iloc[0])
    )
    fitted = fit_rows(usable.rows, usable.log_speedup, belief, spread_log_sd=usable.spread_log_sd)
    fitted = replace(fitted, posterior=with_measured_shares(fitted.posterior, usable.baselines))
    relative = _calibration(
        chosen, usable, belief, fitted, soundness, forced=force, profile=profile
    )
    return with_physical_fit(relative, frame, usable, rig)


def with_physical_fit(
    calibration: Calibration, frame: pd.DataFrame, rows: SystemRows, rig: AskedRig | None = None
) -> Calibration:
    """Return a calibration with the physical form of its rig, or with the reason why it has none.

    Parameters
    ----------
    calibration : Calibration
        The relative fit of the same points.
    frame : pandas.DataFrame
        The points.
    rows : SystemRows
        Of the points.
    rig : AskedRig, optional
        What the user says of the machine.

    Returns
    -------
    Calibration

    Raises
    ------
    SpecModelError
        If what the user said of the machine cannot be.
    """
    found = rig_of_points(frame, rig)
    if found.scenario is None:
        return replace(calibration, rig_note=found.reason)
    try:
        times = measured_times(rows, calibration.posterior)
        physical = fit_physical(
            found.scenario.rig(), times, record=scenario_to_record(found.scenario)
        )
    except SpecModelError as error:
        if rig is not None and rig.given:
            raise
        return replace(calibration, rig_note=str(error))
    return replace(calibration, physical=replace(physical, notes=found.assumed))


def with_measured_shares(posterior: Posterior, baselines: Baselines) -> Posterior:
    r"""Posterior told of the non-decode shares that were measured, for loads where none was.

    .. math:: \operatorname{logit} f_j \sim \mathcal N(\operatorname{logit} f_{w_j}(x), \sigma_f^2)
    """
    measured = baselines.column("non_decode_share")
    known = measured > 0.0  # those of decoding alone, 0, say nothing of a request
    if not known.any():
        return posterior
    deficit = baselines.deficit(
        baselines.column("tokens_per_s"),
        baselines.column("batch_size"),
        baselines.column("context_tokens"),
    )[known]
    told = np.log(measured[known]) - np.log1p(-measured[known])
    precision = np.linalg.inv(posterior.covariance)
    mean = posterior.mean
    for _ in range(_SHARE_ITERATIONS):
        constants = to_natural(mean[:NUM_CONSTANTS])
        moved = slope(constants)
        base, extra = constants[_SHARE], constants[_BASELINE] * deficit
        share = non_decode_share_from_baselines(base, constants[_BASELINE], deficit)
        jacobian = np.zeros((told.size, mean.size))
        by_logit = 1.0 / (share * (1.0 - share))
        jacobian[:, _SHARE] = by_logit * (1.0 - extra) * moved[_SHARE]
        jacobian[:, _BASELINE] = by_logit * (1.0 - base) * deficit * moved[_BASELINE]
        away = told - np.log(share) + np.log1p(-share) + jacobian @ (mean - posterior.mean)
        weighted = jacobian / SHARE_LOGIT_SD**2
        covariance = np.asarray(np.linalg.inv(precision + weighted.T @ jacobian), dtype=np.float64)
        mean = posterior.mean + covariance @ (weighted.T @ away)
    return replace(posterior, mean=mean, covariance=covariance)


_DECODE_ONLY = (
    "every throughput of these points is that of decoding alone, without prefill and idle time, and so "
    "is every prediction from them"
)


def with_expert_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Points with expert counts filled in by target model where they are not stated."""
    experts, per_token = numbers(frame, "num_experts"), numbers(frame, "experts_per_token")
    missing = np.isnan(experts)
    if not missing.any():
        return frame
    experts, per_token = experts.copy(), per_token.copy()
    for index in np.flatnonzero(missing).tolist():
        name = str(frame["target_model"].iloc[index])
        if has_preset(name):
            model = preset(name)
            experts[index], per_token[index] = model.num_experts, model.experts_per_token
    return frame.assign(num_experts=experts, experts_per_token=per_token)


def _soundness(chosen: SystemPoints, *, force: bool) -> Soundness:
    """Which rows have sound baselines; refuses a system that has too few, unless forced."""
    soundness = assess_soundness(chosen.points, force=force)
    if not soundness.sound and not force:
        broken = ", ".join(soundness.broken)
        raise FitError(
            f"the baselines of this system are unsound: rounds cheaper than a baseline step in "
            f"{broken}. Measure the baselines again with the flags of the speculative runs, or fit "
            "anyway with --force"
        )
    return soundness


def _check_usable(chosen: SystemPoints, usable: SystemRows) -> None:
    """Refuse points from which no round cost can be read, and say what they lack."""
    if len(usable.rows):
        return
    frame = chosen.points.frame
    runs = frame.loc[numbers(frame, "num_steps") != 0]
    if runs.empty:
        reason = "every row is a baseline (num_steps 0): add a run with speculation"
    elif not np.isfinite(numbers(runs, "output_tokens_per_s")).any():
        reason = (
            "no run with speculation has a throughput: its acceptance alone tells nothing about "
            "time; add a benchmark result of the same server"
        )
    elif not np.isfinite(numbers(runs, "baseline_tokens_per_s")).any():
        reason = (
            "no row has a baseline: fill baseline_tokens_per_s, or add rows with num_steps 0 and "
            "the same workload, batch and context"
        )
    elif not speculative(frame).empty:
        reason = "every row with a baseline was set aside, because its baseline is broken"
    else:
        reason = "no row has accept length, throughput and baseline together"
    raise FitError(f"nothing to fit: {reason}")


def _observations(usable: SystemRows) -> tuple[Observation, ...]:
    """What the plain identity says of each configuration."""
    frame = usable.frame
    accept = numbers(frame, "accept_length")
    output = numbers(frame, "output_tokens_per_s")
    baseline = numbers(frame, "baseline_tokens_per_s")
    cost = round_cost_from_throughput(accept, output, baseline)
    share = np.nan_to_num(usable.rows.measured_share)
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
            )
        )
    return tuple(found)


def _hull(usable: SystemRows) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each quantity, as measured and as the loads they stand for."""
    hull = {}
    for name in _HULL:
        values = np.concatenate([numbers(usable.as_measured, name), numbers(usable.frame, name)])
        if np.isfinite(values).any():
            hull[name] = (float(np.nanmin(values)), float(np.nanmax(values)))
    return hull


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
    profile: bool,
) -> Calibration:
    """Put together the record."""
    frame = usable.frame
    notes = [warning.message for warning in soundness.warnings]
    decode_only = bool(np.all(usable.rows.measured_share == 0.0))
    if decode_only:
        notes.append(_DECODE_ONLY)
    if count := int(contradicted_share(usable.as_measured).sum()):
        notes.append(
            f"{count} row{'s' if count > 1 else ''}: ttft_ms and output_tokens leave a round less than the "
            "time of a step, so they are not used; is the throughput that of decoding alone?"
        )
    calibration = Calibration(
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
    told = np.any(usable.baselines.column("non_decode_share") > 0.0)  # beside the rows
    informed = [
        one.name
        for one in calibration.constants
        if one.learned >= PRIOR_DOMINATED
        and not (told and one.name in {"non_decode_share", "baseline_share"})
    ]
    if not profile or not informed:
        return calibration
    from calibration.fit.profile_likelihood import profile_intervals

    intervals = profile_intervals(usable.rows, usable.log_speedup, belief, fitted, informed)
    return replace(
        calibration, intervals={name: intervals[name] for name in NAMES if name in intervals}
    )
