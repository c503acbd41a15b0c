"""Standard streams of the command: closed pipes, full devices, encodings that lack characters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import sample

POINTS = (
    "accept_length,throughput,baseline,workload,k\n2.1,82.3,90.0,caf\u00e9 \u2013 \u5bf9\u8bdd,3\n"
)
POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes close differently elsewhere")
COMMANDS = (
    "fit bench.csv",
    "fit bench.csv --json",
    "predict --accept 2 --depth 3",
    "predict --full .7,.5 --depth 1:128 --json",
    "data",
    "predict --points many.csv",
    "data --json",
    "evaluate bench.csv many.csv --draws 1 --split few",
    "evaluate bench.csv many.csv --draws 1 --split few --json",
    "--help",
    "predict --help",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bench.csv").write_text(POINTS, encoding="utf-8")
    rows = "".join(f"{2 + 0.001 * row:.3f},90,80,chat,3\n" for row in range(900))
    (tmp_path / "many.csv").write_text(POINTS.splitlines()[0] + "\n" + rows, encoding="utf-8")
    return tmp_path


def shell(line: str, folder: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/bash", "-c", line.replace("specmodel ", f"{sys.executable} -m calibration ")],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        cwd=folder,
        env={**os.environ, **settings},
    )


@POSIX
@sample(2)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_is_no_error(folder: Path, command: str) -> None:
    run = shell(f"specmodel {command} 2> said | head -c 0; echo ${{PIPESTATUS[0]}}", folder)
    assert run.stdout == "0\n", (folder / "said").read_text()
    said = (folder / "said").read_text(encoding="utf-8")
    assert "Error" not in said
    assert "BrokenPipe" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
@sample(2)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_device_is_one_plain_line(folder: Path, command: str) -> None:
    run = shell(f"specmodel {command} > /dev/full", folder)
    assert run.returncode == 1
    errors = [line for line in run.stderr.splitlines() if "Error" in line or "xception" in line]
    assert errors == ["Error: the output cannot be written: No space left on device"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_full_device_for_errors_still_fails(folder: Path) -> None:
    assert shell("specmodel predict --accept 2 --depth 3 2> /dev/full", folder).returncode == 1
    assert shell("specmodel predict --accept 2 --depth 0 2> /dev/full", folder).returncode == 2


@POSIX
@sample(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii:strict"},
    ],
    ids=["C", "latin", "ascii"],
)
@pytest.mark.parametrize(
    "command",
    [
        "fit bench.csv",
        "predict --accept 2",
        "predict --points bench.csv",
        "evaluate bench.csv --split few --rows 1 --draws 1",
        "fit bench.csv -o \u5bf9/caf\u00e9.json",
    ],
)
def test_an_encoding_that_lacks_characters_is_no_error(
    folder: Path, settings: dict[str, str], command: str
) -> None:
    run = shell(f"specmodel {command}", folder, **settings)
    assert "defect" not in run.stderr, run.stderr
    assert "Traceback" not in run.stderr
    assert run.returncode == (1 if "-o" in command else 0), run.stderr
