"""Files to points and points to files."""

import contextlib
import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.points.reading import read_points
from calibration.points.table import PROVENANCE_COLUMNS, Points, format_points, write_points
from calibration.readers import CANONICAL_NAMES, NUMBER_NAMES, TEXT_NAMES
from specmodel.errors import FormatError, ParameterError, SpecModelError
from specmodel.files import OutputError, write_text_atomically

FIXTURES = Path(__file__).parents[2] / "fixtures"
CSV = FIXTURES / "engines" / "csv"
TABLES = sorted(
    CSV / path.name.removesuffix(".expected.json")
    for path in CSV.glob("*.expected.json")
    if '"error"' not in path.read_text()
)


def table(folder: Path, text: str, name: str = "bench.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def content(points: Points) -> pd.DataFrame:
    return points.frame.drop(columns=list(PROVENANCE_COLUMNS))


def codes(points: Points) -> list[str]:
    return [warning.code for warning in points.warnings]


def test_the_reference_case_reads(tmp_path: Path) -> None:
    points = read_points(table(tmp_path, "accept_length,throughput,baseline\n2.1,82.3,90.0\n"))
    row = points.frame.iloc[0]
    assert (row["accept_length"], row["output_tokens_per_s"]) == (2.1, 82.3)
    assert row["baseline_tokens_per_s"] == 90.0
    assert (points.dropped, points.warnings) == ((), ())


def test_frame_has_the_canonical_columns_and_types(tmp_path: Path) -> None:
    frame = read_points(table(tmp_path, "tau,tok/s,operator\n2.1,90,x\n")).frame
    assert tuple(frame.columns) == (*CANONICAL_NAMES, "operator", *PROVENANCE_COLUMNS)
    for name in NUMBER_NAMES:
        assert frame[name].dtype == np.float64
    for name in TEXT_NAMES:
        assert frame[name].tolist() == [""]
    assert frame["full_accuracy"].tolist() == [None]


def test_files_are_pooled_and_every_row_knows_its_place(tmp_path: Path) -> None:
    first = table(tmp_path, "# note\ntau,tok/s,baseline,operator\n2.1,90,80,x\n", "a.csv")
    second = table(tmp_path, "k,tau,tok/s,baseline\n3,2.2,95,80\n", "b.csv")
    points = read_points([first, str(second)])
    assert points.files == (first, second)
    assert points.frame["file"].tolist() == [str(first), str(second)]
    assert points.frame["line"].tolist() == [3, 2]
    assert points.frame["operator"].tolist() == ["x", ""]


def test_a_baseline_in_another_file_is_found(tmp_path: Path) -> None:
    runs = table(tmp_path, "k,batch,tok/s\n0,1,80\n0,8,500\n", "base.csv")
    spec = table(tmp_path, "k,batch,tau,tok/s\n3,8,2.2,700\n", "spec.csv")
    points = read_points([spec, runs])
    assert points.frame["baseline_tokens_per_s"].tolist()[0] == 500
    assert codes(points) == []


def test_the_same_measurement_in_two_files_counts_once(tmp_path: Path) -> None:
    text = "tau,tok/s,baseline\n2.1,90,80\n2.2,95,80\n"
    points = read_points([table(tmp_path, text, "a.csv"), table(tmp_path, text, "b.csv")])
    assert len(points) == 2
    assert {(row.path.name, row.code) for row in points.dropped} == {("b.csv", "duplicate_row")}
    assert "a.csv, line 2" in points.dropped[0].message


def test_no_file_is_refused() -> None:
    with pytest.raises(ParameterError):
        read_points([])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_file"),
        ("# x\n", "empty_file"),
        ("tau,tok/s\n", "no_points"),
        ("a\n", "unknown_format"),
    ],
)
def test_files_without_points_are_refused(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(FormatError) as error:
        read_points(table(tmp_path, text))
    assert error.value.code == code


def test_throughput_per_user_or_gpu_is_said(tmp_path: Path) -> None:
    text = "tau,tok/s,baseline,throughput_scope\n2.1,90,80,aggregate\n2.2,90,80,Per User\n"
    points = read_points(table(tmp_path, text))
    (warning,) = points.warnings
    assert (warning.code, warning.lines) == ("throughput_scope", (3,))
    assert points.frame["throughput_scope"].tolist() == ["aggregate", "per_user"]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_what_is_written_reads_back_the_same(path: Path, tmp_path: Path) -> None:
    points = read_points(path)
    write_points(points, tmp_path / "copy.csv")
    again = read_points(tmp_path / "copy.csv")
    pd.testing.assert_frame_equal(content(again), content(points), check_exact=True)
    assert again.dropped == ()


CELLS = st.text(
    st.characters(exclude_categories=["Cc", "Cs"])
    | st.sampled_from(['"', ",", ";", "\n", "#", "%"]),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "accept_length": st.floats(1, 4),
                "output_tokens_per_s": st.floats(1e-30, 1e30),
                "baseline_tokens_per_s": st.floats(1e-30, 1e30),
                "num_steps": st.integers(3, 9).map(float),
                "full_accuracy": st.lists(st.floats(0, 1), min_size=1, max_size=5).map(
                    lambda values: ";".join(map(repr, sorted(values, reverse=True)))
                ),
                "workload": CELLS,
                "notes": CELLS,
                "my, column": CELLS,
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_table_survives_reading_and_writing(
    tmp_path: Path, rows: list[dict[str, object]]
) -> None:
    pd.DataFrame(rows).to_csv(tmp_path / "first.csv", index=False)
    points = read_points(tmp_path / "first.csv")
    write_points(points, tmp_path / "second.csv")
    again = read_points(tmp_path / "second.csv")
    pd.testing.assert_frame_equal(content(again), content(points), check_exact=True)


def test_an_unknown_column_is_not_taken_for_a_known_one_after_writing(tmp_path: Path) -> None:
    points = read_points(table(tmp_path, "tau,tok/s,num_steps,k\n2.1,90,,5\n"))
    write_points(points, tmp_path / "copy.csv")
    again = read_points(tmp_path / "copy.csv")
    assert again.frame["num_steps"].isna().all()
    assert again.frame["k"].tolist() == ["5"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=120)
    | st.text(alphabet='tauok/s,;\t"\n\r#=%.-0123456789 e', max_size=120).map(
        lambda text: ("tau,tok/s\n" + text).encode()
    )
)
def test_any_bytes_are_points_or_a_plain_refusal(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(data)
    with contextlib.suppress(SpecModelError):
        points = read_points(path)
        assert len(points) > 0
        assert (points.frame["output_tokens_per_s"] > 0).all()


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path, "old\n")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text_atomically(path, "new\n")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "no" / "folder.csv", "/proc/bench.csv", "a\0b"):
        with pytest.raises(OutputError) as error:
            write_text_atomically(target, "x")
        assert isinstance(error.value, OSError)
        assert "cannot be written" in str(error.value)
        assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_writing_keeps_links_and_rights(tmp_path: Path) -> None:
    path = table(tmp_path, "old\n")
    path.chmod(0o640)
    (tmp_path / "link.csv").symlink_to(path)
    write_text_atomically(tmp_path / "link.csv", "new\n")
    assert (tmp_path / "link.csv").is_symlink()
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_text_atomically("/dev/null", "x")
    assert Path("/dev/null").is_char_device()


def test_an_unwritten_column_is_left_out(tmp_path: Path) -> None:
    points = read_points(table(tmp_path, "tau,tok/s,baseline,gpu\n2.1,90,80,-\n"))
    assert format_points(points).splitlines() == [
        "accept_length,output_tokens_per_s,baseline_tokens_per_s",
        "2.1,90,80",
    ]
