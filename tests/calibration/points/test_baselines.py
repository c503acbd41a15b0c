"""Runs without speculation, matched and gathered."""

from pathlib import Path

import numpy as np
import pytest

from calibration.points.baselines import MATCH_COLUMNS, own_baseline
from calibration.points.reading import read_points
from calibration.points.table import DRAFT_COLUMNS, Points


@pytest.fixture
def read(tmp_path: Path) -> "Reader":
    return Reader(tmp_path / "bench.csv")


class Reader:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, text: str) -> Points:
        self.path.write_text(text)
        return read_points(self.path)


def codes(points: Points) -> list[str]:
    return [warning.code for warning in points.warnings]


def baselines(points: Points) -> list[float]:
    return [float(value) for value in points.frame["baseline_tokens_per_s"]]


def test_the_mean_of_several_runs_is_the_baseline(read: Reader) -> None:
    points = read("k,tau,tok/s\n0,,79.4\n3,2.1,90\n0,,79.0\n")
    assert baselines(points)[1] == pytest.approx(79.2)
    assert points.frame["baseline_origin"].tolist() == ["", "rows", ""]


def test_runs_at_one_load_that_are_far_apart_are_averaged_and_said(read: Reader) -> None:
    points = read("k,tau,tok/s,batch,workload\n0,,90,8,chat\n3,2.1,90,8,chat\n0,,45,8,chat\n")
    assert baselines(points)[1] == pytest.approx(67.5)
    (warning,) = points.warnings
    assert (warning.code, warning.lines) == ("baselines_differ", (2, 4))
    assert "workload chat, batch_size 8" in warning.message
    assert "100% apart: 90, 45 tok/s" in warning.message
    assert "67.5" in warning.message


@pytest.mark.parametrize("second", ["0,,94,8", "0,,45,1", "3,2.0,45,8"])
def test_repeats_within_noise_and_other_loads_are_not_said(read: Reader, second: str) -> None:
    points = read(f"k,tau,tok/s,batch\n0,,90,8\n3,2.1,90,8\n{second}\n")
    assert "baselines_differ" not in codes(points)


@pytest.mark.parametrize("column", [name for name in MATCH_COLUMNS if name != "variant"])
def test_a_run_at_another_load_or_system_is_no_baseline(read: Reader, column: str) -> None:
    there, here = ("per_user", "per_gpu") if column == "throughput_scope" else ("1", "2")
    points = read(f"k,tau,tok/s,{column}\n0,,80,{there}\n3,2.1,90,{here}\n")
    assert np.isnan(baselines(points)[1])
    (warning,) = (w for w in points.warnings if w.code == "no_baseline")
    assert warning.lines == (3,)
    assert f"differs in {column} ({there} against {here})" in warning.message


@pytest.mark.parametrize("column", [*DRAFT_COLUMNS, "source_url", "date", "notes", "spread"])
def test_what_is_drafted_does_not_keep_a_baseline_away(read: Reader, column: str) -> None:
    if column == "num_steps":
        points = read("k,tau,tok/s\n0,,80\n3,2.1,90\n")
    else:
        points = read(f"k,tau,tok/s,{column}\n0,,80,1\n3,2.1,90,4\n")
    assert baselines(points)[1] == 80


def test_a_run_that_does_not_state_a_value_may_have_the_same(read: Reader) -> None:
    points = read("k,tau,tok/s,gpu\n0,,80,\n3,2.1,90,H200\n")
    assert baselines(points)[1] == 80
    points = read("k,tau,tok/s,gpu\n0,,80,\n0,,70,H200\n3,2.1,90,H200\n")
    assert baselines(points)[2] == 70  # its own comes first


def test_a_baseline_of_its_own_is_kept_and_compared(read: Reader) -> None:
    points = read("k,tau,tok/s,baseline\n0,,80,\n3,2.1,90,82\n5,2.4,95,70\n")
    assert baselines(points)[1:] == [82, 70]
    (warning,) = points.warnings
    assert (warning.code, warning.lines) == ("baseline_mismatch", (4,))


def test_step_times_give_the_baseline_that_keeps_their_ratio(read: Reader) -> None:
    points = read("k,tau,tok/s,step_time_ms,baseline_step_time_ms\n3,2.4,90,24,10\n")
    assert 2.4 * baselines(points)[0] / 90 == pytest.approx(24 / 10)
    assert codes(points) == ["baseline_from_step_time"]
    assert points.frame["baseline_origin"].tolist() == ["step_time"]


def test_the_step_time_of_the_baseline_alone_needs_the_batch(read: Reader) -> None:
    text = "k,tau,tok/s,batch,baseline_step_time_ms\n3,2.4,900,8,10\n"
    assert baselines(read(text)) == pytest.approx([800.0])
    per_user = text.replace("tok/s,", "tok/s (tok/s/user),", 1)
    assert "no_baseline" in codes(read(per_user))


def test_a_run_known_by_its_step_time_serves(read: Reader) -> None:
    points = read("k,tau,tok/s,batch,step_time_ms\n0,,,8,10\n3,2.4,900,8,\n")
    assert baselines(points)[1] == pytest.approx(800.0)


def test_a_run_at_depth_zero_with_a_baseline_of_its_own_states_that(read: Reader) -> None:
    """Speculation loaded but not used is slower than no speculation; it is no baseline itself."""
    points = read("k,tau,tok/s,baseline\n0,,65.3,69.6\n3,2.4,90,69.6\n")
    assert own_baseline(points.frame) == pytest.approx([69.6, 69.6])
