"""Loads that a log or a client measured are compared as the loads that they stand for."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.fit.fit import fit
from calibration.points.arrays import system_rows
from calibration.points.baselines import match_baselines
from calibration.points.loads import with_common_loads
from calibration.points.reading import read_points
from calibration.points.table import Points, frame_of, write_points
from calibration.readers import Reading, Row
from calibration.readers.reading import Cell
from specmodel.calibration import Calibration


def frame(rows: list[tuple[float, float, float]]) -> pd.DataFrame:
    """Return rows of depth, batch and context."""
    return pd.DataFrame(rows, columns=["num_steps", "batch_size", "context_tokens"])


def test_a_grid_of_contexts_stays_as_it_was_asked_for() -> None:
    grid = frame([(steps, 4, context) for steps in (0, 3) for context in (1000, 4000, 8000)])
    assert with_common_loads(grid).equals(grid.astype(float).assign(num_steps=grid["num_steps"]))


def test_measured_contexts_of_one_band_become_their_median() -> None:
    common = with_common_loads(frame([(0, 1, 960), (0, 2, 1040), (3, 1, 1181.5), (3, 2, 1259)]))
    assert common["context_tokens"].tolist() == [(1040 + 1181.5) / 2] * 4


def test_measured_contexts_far_apart_stay_apart() -> None:
    common = with_common_loads(frame([(0, 1, 1000), (0, 1, 9000), (3, 1, 1100), (3, 1, 9500)]))
    assert common["context_tokens"].tolist() == [1050, 9250, 1050, 9250]


def test_a_mean_number_in_flight_meets_its_baseline() -> None:
    common = with_common_loads(frame([(0, 3.72, 500), (3, 3.608, 500), (0, 15.1, 500)]))
    assert common["batch_size"].tolist() == [3.664, 3.664, 15.1]


def test_a_context_of_846_is_not_another_load_than_one_of_845() -> None:
    rows = frame([(3, 1, 844), (3, 1, 845), (5, 1, 846), (5, 1, 8192)])
    assert with_common_loads(rows)["context_tokens"].tolist() == [845, 845, 845, 8192]


STEP_MS = {1: 10.0, 4: 11.0, 16: 14.5, 64: 26.0}
ROUND_COST = {1: 1.42, 4: 1.5, 16: 1.71}


def decode_only_points(
    accept_length: float = 2.6, *, extra: dict[str, Cell] | None = None
) -> Points:
    """Return runs whose throughputs follow from step times, at contexts that were measured."""
    rows: list[Row] = []
    for number, (batch, step_ms) in enumerate(STEP_MS.items()):
        cells: dict[str, Cell] = {
            "num_steps": 0.0,
            "accept_length": 1.0,
            "batch_size": float(batch),
            "output_tokens_per_s": 1000 * batch / step_ms,
            "step_time_ms": step_ms,
            "context_tokens": 900.0 + 7 * number,
        }
        rows.append(Row(line=len(rows) + 1, cells=cells, load=(batch,)))
    for number, (batch, cost) in enumerate(ROUND_COST.items()):
        round_ms = cost * STEP_MS[batch]
        cells = {
            "num_steps": 3.0,
            "topk": 1.0,
            "num_draft_tokens": 4.0,
            "batch_size": float(batch),
            "accept_length": accept_length,
            "step_time_ms": round_ms,
            "output_tokens_per_s": 1000 * batch * accept_length / round_ms,
            "context_tokens": 1200.0 + 11 * number,
            **(extra or {}),
        }
        rows.append(Row(line=len(rows) + 1, cells=cells, load=(batch,)))
    return points_of_rows(rows)


def points_of_rows(rows: list[Row]) -> Points:
    """Return rows as points, with baselines matched."""
    reading = Reading(path=Path("server.log"), format="log", rows=tuple(rows))
    return Points(frame=match_baselines(frame_of([reading]))[0])


def test_a_round_cost_of_step_times_is_what_the_fit_says() -> None:
    calibration = fit(decode_only_points())
    assert calibration.decode_only
    for batch, cost in ROUND_COST.items():
        answer = calibration.predict(2.6, num_steps=3, topk=1, num_draft_tokens=4,
                                     batch_size=batch, context_tokens=1200.0)  # fmt: skip
        needed = answer.break_even_accept_length
        assert needed.low < cost < needed.high
        assert needed.median == pytest.approx(cost, rel=0.03)
        assert answer.non_decode_share == 0.0


def test_one_curve_comes_of_contexts_that_differ_in_every_row() -> None:
    curve = system_rows(decode_only_points().frame).curve
    assert curve is not None
    assert np.unique(curve.context_tokens).size == 1
    assert curve.num_batches == 4
    assert curve.at(64, 1000).step_time_s == pytest.approx(STEP_MS[64] / 1000)


def test_what_a_fit_leaves_out_is_kept_in_its_file(tmp_path: Path) -> None:
    calibration = fit(decode_only_points())
    path = tmp_path / "calibration.json"
    calibration.save(path)
    assert Calibration.load(path).decode_only


def test_a_table_written_and_read_back_is_still_decode_only(tmp_path: Path) -> None:
    path = tmp_path / "bench.csv"
    write_points(decode_only_points(), path)
    assert fit(read_points(path)).decode_only


def test_whole_runs_are_not_decode_only() -> None:
    points = decode_only_points()
    slower = points.frame.assign(output_tokens_per_s=points.frame["output_tokens_per_s"] * 0.93)
    assert not fit(Points(frame=slower)).decode_only


def test_few_rounds_make_an_accept_length_and_its_fit_less_certain() -> None:
    accuracy = (0.75, 0.5, 0.35)
    widths = []
    for rounds in (1e6, 60.0):
        extra: dict[str, Cell] = {"full_accuracy": accuracy, "verify_rounds": rounds}
        points = decode_only_points(accept_length=1 + sum(accuracy), extra=extra)
        spread = system_rows(points.frame).spread_log_sd
        widths.append(float(spread[0]))
        second = sum((2 * i - 1) * share for i, share in enumerate(accuracy, start=1))
        variance = (second - sum(accuracy) ** 2) / rounds
        assert spread == pytest.approx(np.sqrt(variance) / (1 + sum(accuracy)))
    assert widths[1] > 50 * widths[0]


def test_a_baseline_of_another_load_that_was_asked_for_is_not_borrowed() -> None:
    """Two runs of a sweep are not mixed, even where all that was measured is equal."""
    common: dict[str, Cell] = {
        "batch_size": 8.0,
        "accept_length": 2.0,
        "output_tokens_per_s": 900.0,
    }
    baseline: dict[str, Cell] = {**common, "num_steps": 0.0, "accept_length": 1.0}
    drafted: dict[str, Cell] = {**common, "num_steps": 3.0}
    rows = [
        Row(line=1, cells=baseline, load=("run", 1, 8)),
        Row(line=2, cells=drafted, load=("run", 2, 8)),
        Row(line=3, cells=drafted, load=("run", 1, 8)),
    ]
    assert points_of_rows(rows).frame["baseline_tokens_per_s"].notna().tolist() == [
        False,
        False,
        True,
    ]


def test_a_baseline_at_the_nearest_context_counts_and_none_that_is_far_away() -> None:
    cells: dict[str, Cell] = {"batch_size": 1.0, "num_steps": 0.0, "accept_length": 1.0}
    drafted: dict[str, Cell] = {"batch_size": 1.0, "num_steps": 3.0, "accept_length": 2.0}
    rows = [
        Row(
            line=n,
            cells={**cells, "context_tokens": context, "output_tokens_per_s": rate},
            load=(1,),
        )
        for n, (context, rate) in enumerate([(1000.0, 100.0), (1100.0, 98.0), (9000.0, 60.0)])
    ] + [
        Row(line=9, cells={**drafted, "context_tokens": c, "output_tokens_per_s": 150.0}, load=(1,))
        for c in (1400.0, 8000.0, 90000.0)
    ]
    found = points_of_rows(rows).frame["baseline_tokens_per_s"].tolist()[3:]
    assert found[:2] == [99.0, 60.0]
    assert np.isnan(found[2])
