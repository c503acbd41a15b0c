"""Files that a command writes: never one that it reads, and refused before anything is computed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

BENCH = "accept_length,throughput,baseline\n2.1,82.3,90.0\n"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    path = tmp_path / "bench.csv"
    path.write_text(BENCH, encoding="utf-8")
    return path


def refused(result: Result, said: str) -> None:
    """One line, no answer."""
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert line.count(said) == 1


@pytest.mark.parametrize("spelling", ["bench.csv", "./bench.csv", "link.csv", "hard.csv"])
def test_the_benchmark_is_not_overwritten(specmodel: Run, bench: Path, spelling: str) -> None:
    bench.with_name("link.csv").symlink_to(bench)
    bench.with_name("hard.csv").hardlink_to(bench)
    refused(specmodel("fit", "bench.csv", "-o", spelling), "is read by this command")
    assert bench.read_text(encoding="utf-8") == BENCH


def test_a_picture_does_not_overwrite_what_was_read(specmodel: Run, bench: Path) -> None:
    drawing = bench.rename(bench.with_name("bench.png"))
    refused(specmodel("fit", "bench.png", "--plot", "bench.png"), "is read by this command")
    assert drawing.read_text(encoding="utf-8") == BENCH
    assert list(bench.parent.iterdir()) == [drawing]


def test_a_picture_does_not_overwrite_its_calibration(specmodel: Run, here: Path) -> None:
    calibration = here.rename(here.with_name("calibration.svg"))
    before = calibration.read_bytes()
    arguments = ("--accept", "2", "--calibration", calibration, "--plot", "calibration.svg")
    refused(specmodel("predict", *arguments), "is read by this command")
    assert calibration.read_bytes() == before


def test_one_file_is_not_written_twice(specmodel: Run, bench: Path) -> None:
    refused(specmodel("fit", "bench.csv", "-o", "x.png", "--plot", "x.png"), "written twice")
    assert list(bench.parent.iterdir()) == [bench]


@pytest.mark.parametrize(
    "place", ["missing/fit.png", "bench.csv/fit.png", "folder.png", 300 * "x" + ".png", "\0.png"]
)
def test_a_picture_that_cannot_be_written_leaves_no_calibration(
    specmodel: Run, bench: Path, place: str
) -> None:
    (bench.parent / "folder.png").mkdir()
    refused(specmodel("fit", "bench.csv", "--plot", place), "cannot be written")
    assert not (bench.parent / "calibration.json").exists()


@pytest.mark.usefixtures("here")
def test_a_picture_that_cannot_be_written_prints_no_prediction(specmodel: Run) -> None:
    result = specmodel("predict", "--accept", "2", "--plot", "missing/one.png")
    refused(result, "cannot be written")


def test_a_picture_of_another_type_leaves_no_calibration(specmodel: Run, bench: Path) -> None:
    result = specmodel("fit", "bench.csv", "--plot", "fit.jpg")
    assert result.exit_code == 2
    assert list(bench.parent.iterdir()) == [bench]


def test_standard_output_has_the_report_and_no_calibration(specmodel: Run, bench: Path) -> None:
    result = specmodel("fit", "bench.csv", "-o", "-")
    assert result.exit_code == 2
    assert "standard output has the report" in result.stderr
    assert list(bench.parent.iterdir()) == [bench]


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no such device")
@pytest.mark.parametrize("to_a_file", [False, True])
def test_the_device_of_standard_output_is_refused(bench: Path, to_a_file: bool) -> None:
    printed = bench.with_name("printed.txt")
    with printed.open("w") as file:
        run = subprocess.run(
            [sys.executable, "-m", "calibration", "fit", "bench.csv", "-o", "/dev/stdout"],
            check=False,
            stdout=file if to_a_file else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=bench.parent,
        )
    assert run.returncode == 1
    assert run.stderr == (
        "Error: /dev/stdout: is standard output, where the report goes; name a file\n"
    )
    assert not run.stdout
    assert printed.read_text() == ""


@pytest.mark.usefixtures("bench")
def test_nowhere_is_a_place_for_a_calibration(specmodel: Run) -> None:
    result = specmodel("fit", "bench.csv", "-o", os.devnull, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["path"] == os.devnull
