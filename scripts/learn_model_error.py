"""Learn the spreads of the physical form's error from the packaged tables whose rig is known.

Run as ``python scripts/learn_model_error.py``; it prints and writes nothing (three minutes on one core).
It maximises the marginal likelihood of the tables of `specmodel.model_error.ModelError` with every
factor of the form free under its prior, linear around the fit, one vote per family of tables. Then again
without each family, and for families with a batch sweep: calibrated on batches up to 4 at the shortest
context, how far are the round costs of all other cells, and how many lie inside the 90 % interval, with
the packaged spreads and with those learned without the family.
"""

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from calibration.rig.fit import MeasuredTimes, fit_physical
from calibration.rig.pricing import interval_sd
from specmodel.model_error import Loads, ModelError
from specmodel.physical_fit import PhysicalFit, Priced, measured_covariance
from specmodel.rig import Rig
from specmodel.rig.factors import factor_sd, priced
from tests.specmodel.cost.test_zero_point_steps import NATIVE, STATED, System, number

Array = NDArray[np.float64]

NAMES = tuple(field.name for field in dataclasses.fields(ModelError))
LEAST, MOST = 0.01, 12.0
"""Bounds of every spread and of the distance, [-], [octaves]."""

PRIOR_LOG_SD = 1.0
"""Of every logarithm around the packaged values: weak. [-]"""

ROUNDS = 3
"""Times that the form is made linear again. [-]"""

SMALL_BATCH, FEWEST_CELLS = 4, 5

WHOLE_RUNS = ("angelslim-163-qwen3-30b-a3b", "eagle-pr330-glm47-flash", "rtx6kpro-minimax-m27")
"""Tables whose throughput of several requests contains prefill, as their TOML files say: that is no
error of the form, so only their single requests are taken."""


class Table(NamedTuple):
    """Times of one system by load, as measured."""

    family: str
    rig: Rig
    times: MeasuredTimes


class Linear(NamedTuple):
    """A table with the form made linear around its fit: y - h + J z, with z ~ N(0, sd^2)."""

    family: str
    target: Array
    at: Priced
    prior_sd: Array
    counts: Array


def family_of(system: System) -> str:
    """Tables of one rig and model line count once."""
    name = re.sub(r"-dcp\d+$", "", system.table)
    return re.sub(r"-(dense|30b-a3b|31b|26b-a4b)$", "", name)


def table_of(system: System) -> Table:
    """Steps and, where the draft model is described, rounds; replicates are averaged."""
    found: dict[tuple[float, ...], list[float]] = {}
    for row in system.rows():
        batch, context = number(row, "batch_size", 1), number(row, "context_tokens", 0)
        if batch > 1 and system.table in WHOLE_RUNS:
            continue
        depth = number(row, "num_steps", 0)
        requests = 1.0 if row["throughput_scope"] == "per_user" else batch
        step_s = requests / float(row["baseline_tokens_per_s"])
        found.setdefault((0, 1, 1, batch, context), []).append(step_s)
        if system.draft and depth and row["accept_length"] and row["output_tokens_per_s"]:
            load = (
                depth,
                number(row, "topk", 1),
                number(row, "num_draft_tokens", depth + 1),
                batch,
                context,
            )
            round_s = requests * float(row["accept_length"]) / float(row["output_tokens_per_s"])
            found.setdefault(load, []).append(round_s)
    loads = Loads(*np.array(sorted(found), dtype=np.float64).T)
    none = np.zeros(len(loads))
    times = MeasuredTimes(
        loads=loads,
        depth_unknown=none > 0,
        log_time=np.array([np.mean(np.log(found[load])) for load in sorted(found)]),
        spread_sd=none,
        counts=np.array([len(found[load]) for load in sorted(found)], dtype=np.float64),
        shared_sd=none,
        non_decode_share=0.0,
    )
    return Table(family_of(system), system.rig, times)


def linear(table: Table, form: ModelError) -> Linear:
    """The form around its fit under these spreads."""
    fit = fit_physical(table.rig, table.times, form=form)
    target = fit.residual + fit.measured.jacobian @ fit.mean
    return Linear(
        table.family, target, fit.measured, factor_sd(table.rig), np.asarray(table.times.counts)
    )


def form_of(logs: Array) -> ModelError:
    """Spreads from their logarithms."""
    return ModelError(**dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))


def logs_of(form: ModelError) -> Array:
    """Logarithms of the spreads."""
    return np.log([getattr(form, name) for name in NAMES])


def surprise(one: Linear, form: ModelError) -> float:
    """Minus the logarithm of the marginal likelihood of a table, but for a constant."""
    noise_sd = form.noise / np.sqrt(one.counts)
    covariance = measured_covariance(one.at, noise_sd, np.zeros(noise_sd.size), form)
    spread = one.at.jacobian * one.prior_sd
    covariance += spread @ spread.T
    _, log_determinant = np.linalg.slogdet(covariance)
    return float(0.5 * (one.target @ np.linalg.solve(covariance, one.target) + log_determinant))


def votes(data: Sequence[Linear], form: ModelError) -> float:
    """Sum over families of the mean surprise of their tables."""
    found: dict[str, list[float]] = {}
    for one in data:
        found.setdefault(one.family, []).append(surprise(one, form))
    return float(sum(np.mean(vote) for vote in found.values()))


def learn(tables: Sequence[Table], start: ModelError) -> ModelError:
    """Spreads of the largest posterior density; families count once."""
    centre = logs_of(start)
    logs = centre

    def total(at: Array, data: Sequence[Linear]) -> float:
        away = (at - centre) / PRIOR_LOG_SD
        return votes(data, form_of(at)) + float(0.5 * away @ away)

    bounds = [(np.log(LEAST), np.log(MOST))] * len(NAMES)
    for _ in range(ROUNDS):
        data = [linear(table, form_of(logs)) for table in tables]
        logs = minimize(total, logs, args=(data,), method="L-BFGS-B", bounds=bounds).x
    return form_of(logs)


def part(times: MeasuredTimes, chosen: NDArray[np.bool_]) -> MeasuredTimes:
    """Some of the loads."""
    return dataclasses.replace(
        times,
        loads=times.loads.take(chosen),
        **{
            name: getattr(times, name)[chosen]
            for name in ("depth_unknown", "log_time", "spread_sd", "counts", "shared_sd")
        },
    )


def held_out(table: Table, form: ModelError) -> tuple[Array, Array]:
    """Errors of ln round cost away from small batches, and the half-widths of their intervals."""
    times, loads = table.times, table.times.loads
    known = (loads.batch_size <= SMALL_BATCH) & (loads.context_tokens == loads.context_tokens.min())
    asked = ~known & loads.rounds
    fit = fit_physical(table.rig, part(times, known), form=form)
    rounds = loads.take(asked)
    steps = rounds.base_steps()
    mean, covariance = _predicted(fit, table.rig, Loads.concatenated(rounds, steps))
    count = len(rounds)
    ratio = np.hstack([np.eye(count), -np.eye(count)])
    at = dict(zip(_keys(loads), times.log_time.tolist(), strict=True))
    measured = np.array([at[one] for one in _keys(rounds)]) - [at[one] for one in _keys(steps)]
    variance = np.diag(ratio @ covariance @ ratio.T) + 2.0 * form.noise**2
    return ratio @ mean - measured, interval_sd() * np.sqrt(variance)


def _predicted(fit: PhysicalFit, rig: Rig, loads: Loads) -> tuple[Array, Array]:
    """Joint prediction of ln times."""
    return fit.predict(priced(rig, loads, fit.centre()))


def _keys(loads: Loads) -> list[tuple[float, ...]]:
    """Loads as keys."""
    columns = (getattr(loads, field.name).tolist() for field in dataclasses.fields(Loads))
    return list(zip(*columns, strict=True))


def sweeps(table: Table) -> bool:
    """Whether a table has rounds enough away from small batches, and some there."""
    loads = table.times.loads
    small = (loads.batch_size <= SMALL_BATCH) & (loads.context_tokens == loads.context_tokens.min())
    inside, outside = loads.rounds & small, loads.rounds & ~small
    return bool(inside.sum() > 0 and outside.sum() >= FEWEST_CELLS)


def said(form: ModelError) -> str:
    """Spreads in one line."""
    return "  ".join(f"{name} {getattr(form, name):.3f}" for name in NAMES)


def main() -> None:
    """Print what the tables say."""
    tables = [table_of(system) for system in (*STATED, *NATIVE)]
    families = list(dict.fromkeys(table.family for table in tables))
    packaged = ModelError()
    print(f"{len(tables)} systems in {len(families)} families")
    print(f"{'packaged':34s}{said(packaged)}")
    learned = learn(tables, packaged)
    data = [linear(table, learned) for table in tables]
    gain = votes(data, packaged) - votes(data, learned)
    print(f"{'learned from all':34s}{said(learned)}")
    print(f"{'':34s}ln likelihood over that of the packaged: {gain:+.1f}", flush=True)
    without = {}
    for family in families:
        without[family] = learn([one for one in tables if one.family != family], packaged)
        print(f"{'without ' + family:34s}{said(without[family])}", flush=True)
    print(f"\ncalibrated on batches up to {SMALL_BATCH} at the shortest context; round costs:")
    for label, forms in (
        ("packaged", dict.fromkeys(families, packaged)),
        ("learned without the family", without),
    ):
        shares = []
        for family in families:
            members = [one for one in tables if one.family == family and sweeps(one)]
            if not members:
                continue
            errors, halves = (
                np.concatenate(each)
                for each in zip(*(held_out(one, forms[family]) for one in members), strict=True)
            )
            inside = np.abs(errors) <= halves
            shares.append(float(np.mean(inside)))
            print(
                f"  {label:28s}{family:28s}{errors.size:4d} cells  median error "
                f"{np.median(np.abs(np.expm1(errors))):5.1%}  inside {shares[-1]:4.0%}  "
                f"half-width {np.expm1(np.median(halves)):4.0%}"
            )
        print(f"  {label:28s}mean of {len(shares)} families: inside {np.mean(shares):.1%}")


if __name__ == "__main__":
    main()
