"""Points of one system as arrays for the fit: configurations, runs, baselines, measured speed-up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.points.baselines import own_baseline
from calibration.points.loads import with_common_loads
from calibration.points.table import decode_only_rows
from calibration.readers.acceptance_intervals import accept_length_log_sd
from specmodel.architecture import has_preset, preset
from specmodel.baselines import Baseline, Baselines
from specmodel.cost import BatchCurve, round_terms
from specmodel.posterior import NEW, Rows
from specmodel.question import Configuration, Run
from specmodel.speedup import ROUND_COST_NOISE, non_decode_share_from_ttft
from specmodel.units import MILLI

Array = NDArray[np.float64]

LEAST_DECODE_SHARE = 0.05
"""Share of a request below which decoding cannot be: the time to first token is wrong. [-]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRows:
    """What a fit needs of one system."""

    rows: Rows  # speculative rows with accept length, throughput and baseline
    log_speedup: Array  # logarithm of measured throughput over baseline, [-]
    # replicate spread where stated and that of a counted accept length, else 0, [-]
    spread_log_sd: Array
    # what the effects belong to, in the order of their indices
    configurations: tuple[Configuration, ...]
    runs: tuple[Run, ...]  # what the effects belong to, in the order of their indices
    # the rows used, in the same order, with common loads (`calibration.points.loads`)
    frame: pd.DataFrame
    as_measured: pd.DataFrame  # the same rows with batches and contexts as they were measured
    baselines: Baselines  # every baseline of the system, those without a speculative row included
    curve: BatchCurve | None  # the baseline's batch curve, where the points have one
    # whether the points say that the target is dense or how many experts it has
    experts_known: bool


def numbers(frame: pd.DataFrame, name: str) -> Array:
    """One numeric column as an array; NaN where empty."""
    return np.asarray(frame[name].to_numpy(), dtype=np.float64)


def texts(frame: pd.DataFrame, name: str) -> list[str]:
    """One text column as strings."""
    return [str(value) for value in frame[name].tolist()]


def baselines_of(frame: pd.DataFrame, share: Array | None = None) -> Baselines:
    """Every baseline in the points of one system: from baseline rows and from baseline cells.

    `share` is the measured non-decode share of each row; a baseline gets the mean of its rows.
    """
    is_baseline = numbers(frame, "num_steps") == 0
    rate = own_baseline(frame)
    step_ms = np.where(
        is_baseline, numbers(frame, "step_time_ms"), numbers(frame, "baseline_step_time_ms")
    )
    batch = numbers(frame, "batch_size")
    scope = np.array(texts(frame, "throughput_scope"), dtype=object)
    # A throughput per user is one request's; one per GPU is a part of a batch that is not stated.
    requests = np.where(scope == "per_user", 1.0, np.nan_to_num(batch, nan=1.0))
    from_rate_s = np.where(scope == "per_gpu", np.nan, requests / rate)
    step_s = np.where(np.isfinite(step_ms), step_ms * MILLI, from_rate_s)
    shares: dict[str, list[float]] = {}
    entries = {}
    for workload, load_batch, context, tokens_per_s, time_s, row_share in zip(
        texts(frame, "workload"),
        batch.tolist(),
        numbers(frame, "context_tokens").tolist(),
        rate.tolist(),
        step_s.tolist(),
        np.full(len(frame), np.nan) if share is None else share,
        strict=True,
    ):
        if np.isfinite(tokens_per_s):
            entry = Baseline(
                workload=workload,
                batch_size=load_batch,
                context_tokens=context,
                tokens_per_s=tokens_per_s,
                step_time_s=time_s,
            )
            entries[repr(entry)] = entry
            if np.isfinite(row_share):
                shares.setdefault(repr(entry), []).append(float(row_share))
    return Baselines(
        entries=tuple(
            replace(entry, non_decode_share=float(np.mean(shares[key]))) if key in shares else entry
            for key, entry in entries.items()
        )
    )


def _stated(values: Array) -> list[float | None]:
    """Numbers, with None where not stated, so that keys compare equal."""
    return [None if np.isnan(value) else float(value) for value in values]


def configurations_of(frame: pd.DataFrame) -> list[Configuration]:
    """Configuration of each row."""
    names = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
    columns = [_stated(numbers(frame, name)) for name in names]
    return [
        Configuration(**dict(zip(names, values, strict=True)))
        for values in zip(*columns, strict=True)
    ]


def runs_of(frame: pd.DataFrame) -> list[Run]:
    """Run of each row: workload and load, chains and trees apart.

    Measured on SpecBundle, what the baseline of a workload misses is shared by its chains and by its
    trees, but not between the two.
    """
    return [
        Run(workload=workload, tree=tree, batch_size=batch, context_tokens=context)
        for workload, tree, batch, context in zip(
            texts(frame, "workload"),
            (numbers(frame, "topk") > 1).tolist(),
            _stated(numbers(frame, "batch_size")),
            _stated(numbers(frame, "context_tokens")),
            strict=True,
        )
    ]


def measured_share(frame: pd.DataFrame) -> Array:
    """Non-decode share of each row's baseline from TTFT and output length; NaN where not stated.

    It is 0 where the throughput leaves out prefill and idle time: a time to the first token is no part
    of it. One that leaves rounds less than the time of a step contradicts the throughput: it is not
    believed.
    """
    return np.where(contradicted_share(frame), np.nan, _stated_share(frame))


def _stated_share(frame: pd.DataFrame) -> Array:
    """Non-decode share of each row's baseline as TTFT and output length give it."""
    rate = numbers(frame, "baseline_tokens_per_s")
    scope = np.array(texts(frame, "throughput_scope"), dtype=object)
    requests = np.where(
        scope == "per_user", 1.0, np.nan_to_num(numbers(frame, "batch_size"), nan=1.0)
    )
    tokens, first_s = numbers(frame, "output_tokens"), numbers(frame, "ttft_ms") * MILLI
    share = np.full(len(frame), np.nan)
    decode_only = decode_only_rows(frame)
    share[decode_only] = 0.0
    known = np.isfinite(tokens) & np.isfinite(first_s) & (tokens > 1) & np.isfinite(rate)
    known &= ~decode_only
    request_s = requests[known] * tokens[known] / rate[known]
    decode_s = request_s - first_s[known]
    # A first token that takes the whole request contradicts the throughput: neither is believed.
    sound = decode_s > LEAST_DECODE_SHARE * request_s
    found = np.full(request_s.size, np.nan)
    found[sound] = non_decode_share_from_ttft(
        first_s[known][sound],
        tokens[known][sound],
        decode_s[sound] / (tokens[known][sound] - 1.0),
    )
    share[known] = found
    return share


def contradicted_share(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether the stated non-decode share leaves rounds less than a step, which they had without it."""
    accept, output = numbers(frame, "accept_length"), numbers(frame, "output_tokens_per_s")
    rate, share = numbers(frame, "baseline_tokens_per_s"), _stated_share(frame)
    least = 1.0 - ROUND_COST_NOISE
    with np.errstate(invalid="ignore"):
        decoding = accept * (rate / output - share) / (1.0 - share)
        return np.asarray((decoding < least) & (accept * rate / output >= least))


def rows_of(
    frame: pd.DataFrame,
    baselines: Baselines,
    curve: BatchCurve | None,
    *,
    configurations: Sequence[Configuration],
    runs: Sequence[Run],
    share: Array,
) -> Rows:
    """Arrays of the rows of a frame, with indices into known configurations and runs."""
    at_configuration = {key: index for index, key in enumerate(configurations)}
    at_run = {key: index for index, key in enumerate(runs)}
    batch, context = numbers(frame, "batch_size"), numbers(frame, "context_tokens")
    return Rows(
        terms=round_terms(
            num_steps=numbers(frame, "num_steps"),
            topk=numbers(frame, "topk"),
            num_draft_tokens=numbers(frame, "num_draft_tokens"),
            batch_size=batch,
            context_tokens=context,
            num_experts=numbers(frame, "num_experts"),
            experts_per_token=numbers(frame, "experts_per_token"),
            curve=curve,
            step_time_s=np.where(np.isfinite(batch), baselines.step_time_s(batch, context), np.nan),
        ),
        accept_length=numbers(frame, "accept_length"),
        baseline_deficit=baselines.deficit(numbers(frame, "baseline_tokens_per_s"), batch, context),
        measured_share=share,
        configuration=np.array(
            [at_configuration.get(key, NEW) for key in configurations_of(frame)], dtype=np.intp
        ),
        run=np.array([at_run.get(key, NEW) for key in runs_of(frame)], dtype=np.intp),
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


def counted_log_sd(frame: pd.DataFrame) -> Array:
    """Relative standard deviation of each accept length that comes from counted rounds; else 0."""
    counted = zip(frame["full_accuracy"], numbers(frame, "verify_rounds").tolist(), strict=True)
    return np.array(
        [
            accept_length_log_sd(accuracy, rounds) if isinstance(accuracy, tuple) else 0.0
            for accuracy, rounds in counted
        ],
        dtype=np.float64,
    )


def speculative(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that a round cost can be read from."""
    usable = (
        (numbers(frame, "num_steps") != 0)
        & np.isfinite(numbers(frame, "accept_length"))
        & np.isfinite(numbers(frame, "output_tokens_per_s"))
        & np.isfinite(numbers(frame, "baseline_tokens_per_s"))
    )
    used: pd.DataFrame = frame.loc[usable]
    return used


def system_rows(frame: pd.DataFrame, *, experts_known: bool | None = None) -> SystemRows:
    """Arrays of one system's points; `frame` has the canonical columns."""
    as_measured = frame
    frame = with_common_loads(frame)
    share = measured_share(as_measured)
    baselines = baselines_of(frame, share)
    curve = baselines.curve()
    used = speculative(frame)
    configurations = list(dict.fromkeys(configurations_of(used)))
    runs = list(dict.fromkeys(runs_of(used)))
    if experts_known is None:
        experts_known = bool(np.isfinite(numbers(used, "num_experts")).any())
    return SystemRows(
        rows=rows_of(
            used,
            baselines,
            curve,
            configurations=configurations,
            runs=runs,
            share=share[np.asarray(frame.index.isin(used.index))],
        ),
        log_speedup=np.log(
            numbers(used, "output_tokens_per_s") / numbers(used, "baseline_tokens_per_s")
        ),
        spread_log_sd=np.hypot(np.nan_to_num(numbers(used, "spread")), counted_log_sd(used)),
        configurations=tuple(configurations),
        runs=tuple(runs),
        frame=used,
        as_measured=as_measured.loc[used.index],
        baselines=baselines,
        curve=curve,
        experts_known=experts_known,
    )
