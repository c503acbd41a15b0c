"""Two regimes under one name, totals among rows, baselines of another variant."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calibration import Points, fit, read_points
from calibration.points.regimes import regime_columns, total_rows
from calibration.points.systems import systems
from specmodel.errors import IncompatiblePointsError

Read = Callable[[str], Points]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def of(text: str) -> Points:
        bench = tmp_path / "bench.csv"
        bench.write_text(text, encoding="utf-8")
        return read_points(bench)

    return of


TWO = """mode,workload,num_steps,accept_length,throughput,baseline
slow,a,2,2.0,80,50
slow,b,2,2.2,88,50
fast,a,2,2.0,180,300
fast,b,2,2.2,198,300
"""


def test_a_column_that_splits_rounds_of_1_25_and_3_33_steps_is_part_of_the_system(
    read: Read, tmp_path: Path
) -> None:
    points = read(TWO)
    assert regime_columns(points.frame) == ("mode",)
    with pytest.raises(IncompatiblePointsError, match=r"differ in mode: slow; fast.*--system"):
        fit(points)
    for mode, cost in (("slow", 1.25), ("fast", 10 / 3)):
        one = fit(points, system=mode)
        assert one.observations[0].round_cost[1] == pytest.approx(cost)
        low, high = (one.predict(2.0).round_cost.low, one.predict(2.0).round_cost.high)
        assert low <= cost <= high
        one.save(tmp_path / f"{mode}.json")
        assert one.system == {"mode": mode}


@pytest.mark.parametrize("seed", range(20))
def test_a_column_that_says_nothing_of_the_rounds_splits_nothing(read: Read, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = ["build,workload,num_steps,accept_length,throughput,baseline"]
    for workload in "abcd":
        own = np.exp(0.1 * rng.standard_normal())  # workloads differ
        for depth in (2, 4):
            accept, cost = 1 + 0.5 * depth, (1.1 + 0.08 * depth) * own
            rate = 100 * accept / cost * np.exp(0.02 * rng.standard_normal())
            lines.append(f"{rng.choice(['x', 'y'])},{workload},{depth},{accept},{rate:.3f},100")
    points = read("\n".join(lines) + "\n")
    assert regime_columns(points.frame) == ()
    assert len(systems(points)) == 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ratio", [1.5, 2.5])
def test_regimes_of_any_name_are_told_apart(read: Read, seed: int, ratio: float) -> None:
    rng = np.random.default_rng(seed)
    lines = ["engine build,note,workload,num_steps,batch,accept_length,throughput,baseline"]
    for mode, factor in (("eager", ratio), ("graph", 1.0)):
        for depth in (2, 4):
            for batch in (1, 8):
                for run in range(2):
                    accept, cost = 1 + 0.5 * depth, (1.1 + 0.08 * depth) * factor
                    rate = 100 * batch * accept / cost * np.exp(0.02 * rng.standard_normal())
                    lines.append(
                        f"{mode},{run} {rng.integers(99)},w,{depth},{batch},{accept},{rate:.2f},{100 * batch}"
                    )
    assert regime_columns(read("\n".join(lines) + "\n").frame) == ("engine build",)


def test_a_total_of_the_other_rows_is_left_out_and_named(read: Read) -> None:
    rates = {"chat": (2.0, 60.0), "code": (3.4, 100.0), "math": (2.7, 75.0)}
    mean = 3 / sum(1 / rate for _, rate in rates.values())
    accept = sum(length for length, _ in rates.values()) / 3
    head = "workload,num_steps,accept_length,throughput,baseline\n"
    rows = "".join(f"{name},3,{length},{rate},50\n" for name, (length, rate) in rates.items())
    for name in ("overall", "Average", "everything", "平均"):
        points = read(f"{head}{rows}{name},3,{accept:.4f},{mean:.4f},50\n")
        assert len(points) == 3, name
        assert [one.code for one in points.dropped] == ["total_row"]
        assert points.dropped[0].line == 5
    other = read(f"{head}{rows}other,3,2.2,90,50\n")
    assert not total_rows(other.frame).any()
    alone = read(f"{head}overall,3,2.2,90,50\n")
    assert len(alone) == 1


def test_a_baseline_of_another_variant_serves_where_nothing_else_differs(read: Read) -> None:
    plain = (
        "variant,workload,throughput,accept_length,num_steps\nplain,a,100,,0\nblock,a,150,3.0,7\n"
    )
    calibration = fit(read(plain))
    assert calibration.observations[0].round_cost[1] == pytest.approx(2.0)
    assert calibration.system == {"variant": "block"}
    two = read(plain + "tree,a,120,2.4,3\n")
    assert [one.label for one in systems(two)] == ["block", "tree"]
    assert fit(two, system="tree").observations[0].round_cost[1] == pytest.approx(2.0)
    own = read(plain + "block,a,90,,0\n")
    assert fit(own).observations[0].round_cost[1] == pytest.approx(1.8)  # its own comes first
    elsewhere = read(
        "variant,workload,throughput,accept_length,num_steps\nplain,b,100,,0\nblock,a,150,3.0,7\n"
    )
    assert "no_baseline" in {note.code for note in elsewhere.warnings}
