"""Systems, told apart and chosen."""

from pathlib import Path

import pytest

from calibration.points.reading import read_points
from calibration.points.systems import select_system, system_label, systems
from calibration.points.table import SYSTEM_COLUMNS, Points
from specmodel.errors import IncompatiblePointsError, UnknownKeyError

CSV = Path(__file__).parents[2] / "fixtures" / "engines" / "csv"


@pytest.fixture
def two() -> Points:
    return read_points(CSV / "two_systems.csv")


@pytest.mark.parametrize("column", SYSTEM_COLUMNS)
def test_rows_that_differ_in_one_system_column_are_two_systems(tmp_path: Path, column: str) -> None:
    (tmp_path / "a.csv").write_text(
        f"tau,tok/s,baseline,{column}\n2,90,80,1\n2,90,80,2\n2,91,80,\n"
    )
    found = systems(read_points(tmp_path / "a.csv"))
    assert [len(system.points) for system in found] == [1, 1, 1]


@pytest.mark.parametrize("column", ["workload", "batch_size", "num_steps", "draft_model", "date"])
def test_other_columns_make_no_system(tmp_path: Path, column: str) -> None:
    (tmp_path / "a.csv").write_text(f"tau,tok/s,baseline,{column}\n2,90,80,1\n2,90,80,2\n")
    (system,) = systems(read_points(tmp_path / "a.csv"))
    assert system.label == "unnamed system"
    assert system.key == {}


def test_systems_share_out_all_rows(two: Points) -> None:
    found = systems(two)
    assert sum(len(system.points) for system in found) == len(two)
    assert [system.key for system in found] == [{"gpu": "H200"}, {"gpu": "RTX 4090"}]
    assert found[1].points.frame.index.tolist() == [0, 1]


def test_label_says_what_is_known() -> None:
    key = ("Otter-32B", "sglang", "0.5.4", "H200", 8.0, 4.0, "nvlink", "bf16", "fa3", "lab")
    assert system_label(key) == ("Otter-32B, sglang 0.5.4, 8 x H200, TP 4, nvlink, bf16, fa3, lab")
    assert system_label((*("",) * 4, 2.0, None, *("",) * 4)) == "2 x GPU"


def test_a_single_system_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tau,tok/s,gpu\n2,90,H200\n")
    assert select_system(read_points(tmp_path / "a.csv")).label == "H200"


def test_several_systems_need_a_name(two: Points) -> None:
    with pytest.raises(IncompatiblePointsError) as error:
        select_system(two)
    assert error.value.field == "gpu"
    assert error.value.values == ["H200", "RTX 4090"]
    assert "--system TEXT" in str(error.value)


@pytest.mark.parametrize("text", ["4090", "rtx", "  RTX 4090 "])
def test_a_part_of_the_label_in_any_case_is_enough(two: Points, text: str) -> None:
    assert select_system(two, text).label == "RTX 4090"


def test_text_that_fits_no_system_is_refused_with_those_there_are(two: Points) -> None:
    with pytest.raises(UnknownKeyError, match="H200, RTX 4090"):
        select_system(two, "B200")


def test_text_that_fits_several_systems_is_refused(two: Points) -> None:
    with pytest.raises(IncompatiblePointsError, match="fits 2 systems"):
        select_system(two, "0")


def test_a_whole_label_is_chosen_before_longer_ones(tmp_path: Path) -> None:
    text = "tau,tok/s,gpu,variant\n2,90,H200,\n2,91,H200,fa3\n"
    (tmp_path / "a.csv").write_text(text)
    assert len(select_system(read_points(tmp_path / "a.csv"), "h200").points) == 1
    with pytest.raises(IncompatiblePointsError, match="points differ in variant: empty; fa3"):
        select_system(read_points(tmp_path / "a.csv"), "h20")


def test_many_systems_are_listed_in_part(tmp_path: Path) -> None:
    rows = "".join(f"2,90,gpu{number:03}\n" for number in range(40))
    (tmp_path / "a.csv").write_text("tau,tok/s,gpu\n" + rows)
    with pytest.raises(IncompatiblePointsError) as error:
        select_system(read_points(tmp_path / "a.csv"))
    assert "28 more" in str(error.value)
    assert "gpu030" not in str(error.value)
