"""Files that a command writes: never one that it reads, and refused before anything is computed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from specmodel.calibration import Calibration

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


def test_a_dash_is_standard_output_and_the_report_goes_to_standard_error(
    specmodel: Run, bench: Path
) -> None:
    result = specmodel("fit", "bench.csv", "-o", "-")
    assert result.exit_code == 0, result.stderr
    assert "schema_version" in json.loads(result.stdout)
    assert "standard output; ask it with" in result.stderr
    drawn = specmodel("fit", "bench.csv", "-o", "c.json", "--plot", "-")
    assert drawn.stdout_bytes[1:4] == b"PNG"
    assert "written twice" in specmodel("fit", "bench.csv", "-o", "-", "--plot", "-").stderr
    assert sorted(one.name for one in bench.parent.iterdir()) == ["bench.csv", "c.json"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_calibration_goes_from_command_to_command(
    specmodel: Run, bench: Path, options: tuple[str, ...]
) -> None:
    written = specmodel("fit", "-", "-o", "-", stdin=bench.read_text()).stdout
    ask = ("predict", "--accept", "2.75", *options, "--calibration")
    piped = specmodel(*ask, "-", stdin=written)
    assert piped.exit_code == 0, piped.stderr
    (bench.parent / "c.json").write_text(written)
    named = specmodel(*ask, "c.json").stdout
    assert piped.stdout.replace("/dev/stdin", "c.json") == named


def test_every_command_reads_a_dash(specmodel: Run, tmp_path: Path) -> None:
    specmodel("examples", ".")
    for command, file, said in (
        ("ingest - -o -", "sglang_eagle3.log", "accept_length"),
        ("evaluate - --split row", "sweep.jsonl", "row not seen"),
        ("train - --bench bench.csv", "train.log", "verdict"),
        ("train train.log --bench -", "bench.csv", "verdict"),
        ("allreduce fit - -o -", "nccl.log", "schema_version"),
        ("fit sglang_eagle3.log sglang_baseline.log -o server.json", "bench.csv", "written"),
        ("predict --calibration server.json --points -", "planned.csv", "predicted_speedup"),
        ("predict --log - --depth 3", "train.log", "speed-up"),
    ):
        result = specmodel(*command.split(), stdin=(tmp_path / file).read_text())
        assert result.exit_code == 0, (command, result.stderr)
        assert said in result.stdout, command
    watched = specmodel("train", "-", "--watch", stdin="")
    assert watched.exit_code == 2
    assert "standard input is read to its end" in watched.stderr


def test_the_calibration_of_another_system_stays(specmodel: Run, bench: Path) -> None:
    specmodel("examples", ".")
    assert specmodel("fit", "bench.csv").exit_code == 0
    assert specmodel("fit", "bench.csv").exit_code == 0  # the same system
    before = (bench.parent / "calibration.json").read_bytes()
    other = ("fit", "sglang_eagle3.log", "sglang_baseline.log")
    refused(specmodel(*other), "write over it with --force")
    assert (bench.parent / "calibration.json").read_bytes() == before
    assert specmodel(*other, "--force").exit_code == 0
    assert (bench.parent / "calibration.json").read_bytes() != before


def test_examples_do_not_overwrite_other_files(specmodel: Run, tmp_path: Path) -> None:
    assert specmodel("examples", "demo").exit_code == 0
    assert specmodel("examples", "demo").exit_code == 0
    changed = tmp_path / "demo" / "bench.csv"
    changed.write_text("mine")
    refused(specmodel("examples", "demo"), "is there with other content")
    assert changed.read_text() == "mine"
    assert specmodel("examples", "demo", "--force").exit_code == 0
    assert changed.read_text() == BENCH
    refused(specmodel("examples", "demo/bench.csv/more"), "cannot be written")


def test_every_answer_names_its_calibration_and_how_old_it_is(
    specmodel: Run, tmp_path: Path
) -> None:
    specmodel("examples", ".")
    bench = tmp_path / "rig.csv"
    bench.write_text(
        "accept_length,throughput,baseline,num_steps,model,gpu\n2.1,82.3,90,3,Qwen3-8B,H100\n"
    )
    fitted = specmodel("fit", "rig.csv", "-o", "-").stdout
    saved = json.loads(fitted)
    then = datetime.fromisoformat(saved["fitted_at"])
    assert abs(datetime.now(UTC) - then) < timedelta(minutes=10)
    _aged(tmp_path, fitted)
    for command in (
        "predict --accept 2.75",
        "predict --accept 2.75 --depth 1:4",
        "predict --accept 2 --set gpu=B200",
        "predict --points planned.csv",
        "train train.log",
        "whatif",
    ):
        text = specmodel(*command.split(), "--calibration", "old.json")
        said = " ".join((text.stdout + text.stderr).split())
        assert "old.json: Qwen3-8B, H100, 1 point, fitted on 2020-01-02, " in said, command
        found = json.loads(
            specmodel(*command.split(), "--calibration", "old.json", "--json").stdout
        )
        assert found["calibration"] == "old.json"
        assert found["calibration_system"] == saved["label"]
        assert found["calibration_fitted_at"] == "2020-01-02T03:04:05+00:00"


def _aged(folder: Path, text: str) -> None:
    """A calibration as it was fitted years ago."""
    path = folder / "old.json"
    path.write_text(text)
    replace(Calibration.load(path), fitted_at="2020-01-02T03:04:05+00:00").save(path)


def test_the_model_runs_as_a_module(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "specmodel", "predict", "--accept", "2.75", "--depth", "3"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "packaged prior" in run.stdout


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
