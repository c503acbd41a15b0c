"""Runs without speculation, matched to the runs with it."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.points.table import (
    LOAD_COLUMNS,
    SYSTEM_COLUMNS,
    Key,
    numbers,
    row_groups,
    row_key,
    speculative_rows,
    warn_rows,
)
from specmodel.errors import Note
from specmodel.units import MILLI

MATCH_COLUMNS = (*SYSTEM_COLUMNS, *LOAD_COLUMNS)
"""What a run without speculation must share with a run with it."""

CONTEXT_REACH = 4.0
"""Largest factor between the contexts of a run and its baseline, where they were measured. [-]"""

SAME_CONTEXT = 2.0
"""Largest factor between the contexts of baselines that are repeats of one another. [-]"""

_MISMATCH = 0.05
_MOST_SHOWN = 6


def match_baselines(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Note, ...]]:
    r"""Return a copy of the table with empty baselines of speculative rows filled, and notes on them.

    In this order: the mean of the rows at ``num_steps`` 0 whose load was asked for alike (in formats
    that know it; their step times too), the mean of those that agree in `MATCH_COLUMNS`, then what
    the step times give. ``baseline_origin`` says which. With both step times the baseline is the one that
    makes accept length x baseline / throughput equal their ratio. With the baseline's alone it is batch
    size / step time; a step time has no prefill and no idle time in it.

    Codes of the notes: ``no_baseline``, ``baseline_mismatch`` (the row's own baseline is more than 5 % away
    from the matching rows), ``baselines_differ`` (runs without speculation at one load that are more than
    5 % apart) and ``baseline_from_step_time``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from calibration.readers import recognise_file
    >>> from calibration.points.table import frame_of
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench = pathlib.Path(folder) / "bench.csv"
    ...     _ = bench.write_text("k,tau,tok/s\n0,,79.4\n0,,79.0\n3,2.1,90\n")
    ...     frame = frame_of(recognise_file(bench).read())
    >>> match_baselines(frame)[0]["baseline_tokens_per_s"].tolist()
    [nan, nan, 79.2]
    """
    frame = _with_asked_baselines(frame)
    speculative = speculative_rows(frame)
    keys = row_groups(frame, MATCH_COLUMNS).tolist()
    loads = frame["_load"].tolist()
    measured: dict[int, list[int]] = defaultdict(list)
    timed: dict[int, list[int]] = defaultdict(list)  # known by their step time
    derived = (frame["throughput_origin"] != "").to_numpy()
    own = own_baseline(frame)
    for row in np.flatnonzero(~speculative & np.isfinite(own)).tolist():
        (timed if derived[row] else measured)[keys[row]].append(row)
    _add_other_variants(frame, keys, measured, timed)
    runs = {**timed, **measured}
    asked_for = list(zip(keys, loads, strict=True))
    means = {at: _mean_alike(runs.get(at[0], ()), own, loads, at[1]) for at in set(asked_for)}
    matched = np.array([means[at] for at in asked_for], dtype=np.float64)
    is_timed = np.array([key in timed and key not in measured for key in keys], dtype=np.bool_)
    given = numbers(frame, "baseline_tokens_per_s")
    origin = frame["baseline_origin"].to_numpy(dtype=object, copy=True)
    origin[(origin == "asked") & speculative] = "rows"
    by_steps = _from_step_times(frame)
    from_rows = speculative & np.isnan(given) & np.isfinite(matched)
    from_steps = speculative & np.isnan(given) & ~from_rows & np.isfinite(by_steps)
    mismatched = speculative & (origin == "") & (np.abs(matched / given - 1) > _MISMATCH)
    filled = np.select([from_rows, from_steps], [matched, by_steps], given)
    origin[from_rows], origin[from_steps | (from_rows & is_timed)] = "rows", "step_time"
    # acceptance alone needs no baseline
    without = speculative & np.isnan(filled) & np.isfinite(numbers(frame, "output_tokens_per_s"))
    notes = (
        *warn_rows(frame, without, "no_baseline", _no_baseline(frame, without)),
        *warn_rows(
            frame,
            mismatched,
            "baseline_mismatch",
            "the row's baseline is more than 5 % away from the run without speculation at the same "
            "load; was the load the same?",
        ),
        *warn_rows(
            frame,
            from_steps,
            "baseline_from_step_time",
            "no baseline throughput; taken from the step times, which leave out prefill and idle "
            "time",
        ),
        *(note for rows in runs.values() for note in _warn_different(frame, rows, own)),
    )
    return frame.assign(
        baseline_tokens_per_s=filled, baseline_origin=pd.Series(origin, dtype="str")
    ), notes


def serves(baseline: Key, run: Key, columns: Sequence[str] = SYSTEM_COLUMNS) -> bool:
    """Whether runs without speculation of one system are baselines of another one.

    Nothing drafts in them, so they may be of another variant; what one side does not state may be equal.
    """
    return all(
        one == other or name == "variant" or one in {None, ""} or other in {None, ""}
        for name, one, other in zip(columns, baseline, run, strict=True)
    )


def _add_other_variants(
    frame: pd.DataFrame,
    keys: Sequence[int],
    measured: dict[int, list[int]],
    timed: dict[int, list[int]],
) -> None:
    """Add runs without speculation that serve loads which have none of their own."""
    speculative, system = speculative_rows(frame), row_groups(frame, SYSTEM_COLUMNS)
    # Those of a system that drafts are baselines of it alone.
    drafting = set(system[speculative].tolist())
    spare = [
        (runs, {key: rows for key, rows in runs.items() if system[rows[0]] not in drafting})
        for runs in (measured, timed)
    ]
    if not any(found for _, found in spare):
        return
    load = row_groups(frame, LOAD_COLUMNS)
    lacking: dict[int, int] = {}
    for row, key in enumerate(keys):
        if speculative[row] and key not in measured and key not in timed:
            lacking.setdefault(key, row)
    for key, row in lacking.items():
        wanted = row_key(frame, row, SYSTEM_COLUMNS)
        for runs, found in spare:
            for rows in found.values():
                same = load[rows[0]] == load[row]
                if same and serves(row_key(frame, rows[0], SYSTEM_COLUMNS), wanted):
                    runs[key] = [*runs.get(key, []), *rows]


def _with_asked_baselines(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the baselines of rows whose load was asked for alike.

    What was measured about a load (its mean concurrency, its context) need not agree. Where a load was
    run at several contexts, the nearest one counts, unless it is further than `CONTEXT_REACH`.
    """
    loads = frame["_load"].tolist()
    speculative = speculative_rows(frame)
    runs: dict[object, list[int]] = defaultdict(list)
    for row, load in enumerate(loads):
        if load is not None and not speculative[row]:
            runs[load].append(row)
    rate, step_ms = numbers(frame, "output_tokens_per_s"), numbers(frame, "step_time_ms")
    timed = (frame["throughput_origin"] == "step_time").to_numpy()
    filled = numbers(frame, "baseline_tokens_per_s").copy()
    filled_ms = numbers(frame, "baseline_step_time_ms").copy()
    origin = frame["baseline_origin"].to_numpy(dtype=object, copy=True)
    context = numbers(frame, "context_tokens")
    for row, load in enumerate(loads):
        if not speculative[row] or not np.isnan(filled[row]):
            continue
        alike = _at_context(np.array(runs.get(load, []), dtype=np.intp), context, context[row])
        if not alike.size:
            continue
        filled[row], origin[row] = float(np.mean(rate[alike])), "asked"
        if np.isnan(filled_ms[row]):  # where step times give the throughputs, that of the mean one
            times_ms = step_ms[alike]
            decode_only = bool(timed[alike].all())
            filled_ms[row] = 1 / np.mean(1 / times_ms) if decode_only else np.mean(times_ms)
    return frame.assign(
        baseline_tokens_per_s=filled,
        baseline_step_time_ms=filled_ms,
        baseline_origin=pd.Series(origin, dtype="str"),
    )


def _mean_alike(
    runs: Sequence[int], own: NDArray[np.float64], loads: Sequence[Key | None], load: Key | None
) -> float:
    """Return the mean of the runs, without those known to have been asked for another load.

    Loads of one format can be compared; there, what was measured alike (a mean concurrency) does not
    make one load of two.
    """
    others = [loads[run] for run in runs]
    alike = [
        run
        for run, other in zip(runs, others, strict=True)
        if load is None or other is None or other[0] != load[0] or other == load
    ]
    return float(np.mean(own[alike])) if alike else np.nan


def _at_context(
    runs: NDArray[np.intp], context: NDArray[np.float64], wanted: float
) -> NDArray[np.intp]:
    """Return the runs whose context is the one that is wanted, as near as there is one."""
    away = np.abs(np.log(np.maximum(context[runs], 1.0) / max(wanted, 1.0)))
    if not np.isfinite(away).all():  # some do not say their context
        return runs
    if not runs.size or away.min() > np.log(CONTEXT_REACH):
        return runs[:0]
    nearest = context[runs[np.argmin(away)]]
    same = np.abs(np.log(np.maximum(context[runs], 1.0) / max(nearest, 1.0)))
    return np.asarray(runs[same <= np.log(SAME_CONTEXT)], dtype=np.intp)


def own_baseline(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Return the baseline that each row states, [tokens/s]; a run without speculation is one itself.

    Examples
    --------
    >>> frame = pd.DataFrame({"num_steps": [0.0, 3.0, 3.0], "output_tokens_per_s": [80.0, 120.0, 99.0],
    ...     "baseline_tokens_per_s": [np.nan, 82.0, np.nan]})
    >>> own_baseline(frame).tolist()
    [80.0, 82.0, nan]
    """
    stated = numbers(frame, "baseline_tokens_per_s")
    itself = np.isnan(stated) & ~speculative_rows(frame)
    return np.where(itself, numbers(frame, "output_tokens_per_s"), stated)


def _from_step_times(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Return the baseline that the step times of each row give, nan where they do not."""
    step_ms = numbers(frame, "baseline_step_time_ms")
    round_cost = numbers(frame, "step_time_ms") / step_ms
    by_ratio = numbers(frame, "output_tokens_per_s") * round_cost / numbers(frame, "accept_length")
    aggregate = frame["throughput_scope"].isin(["", "aggregate"]).to_numpy()
    by_batch = np.where(aggregate, numbers(frame, "batch_size") / (step_ms * MILLI), np.nan)
    return np.where(np.isfinite(by_ratio), by_ratio, by_batch)


def _no_baseline(frame: pd.DataFrame, without: NDArray[np.bool_]) -> str:
    """Return what is said of rows without baseline; names what keeps the nearest run away."""
    said = "no baseline: neither a baseline column nor a run at num_steps 0 with the same load"
    runs = np.flatnonzero(~speculative_rows(frame)).tolist()
    if not runs or not without.any():
        return said
    row = int(np.flatnonzero(without)[0])
    same = {name: row_groups(frame, (name,)) for name in MATCH_COLUMNS}
    differing = {
        run: [name for name, group in same.items() if group[run] != group[row]] for run in runs
    }
    nearest = min(runs, key=lambda run: len(differing[run]))
    shown = ", ".join(
        f"{name} ({_shown(frame[name][nearest])} against {_shown(frame[name][row])})"
        for name in differing[nearest][:3]
    )
    return f"{said}; the nearest run, line {frame['line'][nearest]}, differs in {shown}"


def _warn_different(
    frame: pd.DataFrame, rows: list[int], own: NDArray[np.float64]
) -> tuple[Note, ...]:
    """Return a warning where runs without speculation at one load are too far apart."""
    least, most = float(np.min(own[rows])), float(np.max(own[rows]))
    if most / least - 1 <= _MISMATCH:
        return ()
    load = [(name, frame[name][rows[0]]) for name in LOAD_COLUMNS]
    named = ", ".join(f"{name} {_shown(cell)}" for name, cell in load if _shown(cell) != "empty")
    values = ", ".join(f"{own[row]:g}" for row in rows[:_MOST_SHOWN])
    more = f" and {len(rows) - _MOST_SHOWN} more" if len(rows) > _MOST_SHOWN else ""
    return warn_rows(
        frame,
        np.isin(np.arange(len(frame)), rows),
        "baselines_differ",
        f"{len(rows)} runs without speculation at one load ({named or 'none is stated'}) are "
        f"{most / least - 1:.0%} apart: {values}{more} tok/s; their mean, "
        f"{np.mean(own[rows]):g}, is the baseline; if their loads differ, state batch_size, "
        "context_tokens or workload, otherwise remove the wrong one",
    )


def _shown(cell: object) -> str:
    """Return a cell for a message."""
    if isinstance(cell, float):
        return "empty" if np.isnan(cell) else f"{cell:g}"
    return str(cell) or "empty"
