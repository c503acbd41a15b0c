"""Bad input through the command line: one clear line, the right status, nothing written."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from calibration.cli import main
from specmodel.calibration import SCHEMA_VERSION

Run = Callable[..., Result]

GOOD = "accept_length,throughput,baseline\n2.1,82.3,90.0\n"


def one_line(result: Result) -> str:
    """The only line of an error, nothing else said."""
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Warning")]
    errors = [line for line in lines if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return errors[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("accept_length,throughput,baseline\n", "no row below it"),
        ("accept_length|throughput|baseline\n2.1|82.3|90\n", "separated by commas"),
        ("accept_length,throughput,baseline\nabout 2,82.3,90\n", "'about 2' is not a number"),
        ("accept_length,throughput,baseline\nnan,82.3,90\n", "'nan' is not a finite number"),
        ("accept_length,throughput,baseline\n2.1,inf,90\n", "'inf' is not a finite number"),
        ("accept_length,throughput,baseline\n2.1,-82.3,90\n", "must be above zero"),
        ("accept_length,throughput,baseline\n2.1,82.3,0\n", "must be above zero"),
        ("accept_length,throughput,baseline,depth\n4.2,82.3,90,3\n", "above num_steps + 1 = 4"),
        ("accept_length,throughput,baseline\n0.9,82.3,90\n", "below 1"),
        ("full_accuracy,throughput,baseline\n74.2;47,82.3,90\n", "a percentage?"),
        ("full_accuracy,throughput,baseline\n.4;.5,82.3,90\n", "cannot rise"),
        ("accept_length,throughput,baseline,gpu\n2,80,90,H200\n2,99,110,A100\n", "--system"),
        ("num_steps,throughput\n0,82.3\n", "every row is a baseline"),
        ("accept_length,throughput,baseline\n1.2,182.3,90\n", "cheaper than a baseline step"),
        ("\x00\x01\x02", "not text"),
    ],
)
def test_a_bad_benchmark_is_one_line_and_writes_nothing(
    specmodel: Run, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "bench.csv").write_text(text, encoding="utf-8")
    result = specmodel("fit", "bench.csv")
    assert result.exit_code == 1
    assert said in one_line(result)
    assert not (tmp_path / "calibration.json").exists()


def test_a_missing_benchmark_is_one_line(specmodel: Run) -> None:
    result = specmodel("fit", "missing.csv")
    assert result.exit_code == 1
    assert "missing.csv: no such file" in one_line(result)


@pytest.mark.parametrize("output", ["missing/calibration.json", "bench.csv/calibration.json", "."])
def test_an_output_that_cannot_be_written_is_one_line(
    specmodel: Run, tmp_path: Path, output: str
) -> None:
    (tmp_path / "bench.csv").write_text(GOOD, encoding="utf-8")
    result = specmodel("fit", "bench.csv", "-o", output)
    assert result.exit_code == 1
    assert "cannot be written" in one_line(result)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.csv"]


def newer(text: str) -> str:
    record = json.loads(text)
    return json.dumps({**record, "schema_version": SCHEMA_VERSION + 1})


def edited(text: str) -> str:
    return text.replace('"num_points": 1', '"num_points": 7')


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (newer, f"schema_version {SCHEMA_VERSION + 1} is newer"),
        (edited, "edited by hand"),
        (lambda text: text[: len(text) // 2], "truncated"),
        (lambda _: "", "truncated"),
        (lambda _: "[]", "not a calibration"),
        (lambda _: "{}", "not a calibration"),
        (lambda _: GOOD, "not valid JSON"),
    ],
    ids=["newer", "edited", "half", "empty", "list", "object", "benchmark"],
)
def test_a_damaged_calibration_is_one_line(
    specmodel: Run, here: Path, damage: Callable[[str], str], said: str
) -> None:
    before = here.read_text(encoding="utf-8")
    here.write_text(damage(before), encoding="utf-8")
    assert here.read_text(encoding="utf-8") != before
    result = specmodel("predict", "--accept", "2.75")
    assert result.exit_code == 1
    assert said in one_line(result)


def test_a_missing_calibration_is_one_line(specmodel: Run) -> None:
    result = specmodel("predict", "--accept", "2.75", "--calibration", "missing.json")
    assert result.exit_code == 1
    assert "missing.json: no such file" in one_line(result)
    folder = specmodel("predict", "--accept", "2.75", "--calibration", ".")
    assert folder.exit_code == 1
    assert "cannot be read" in one_line(folder)


# --- the group ---


def test_an_unknown_command_is_bad_usage(specmodel: Run) -> None:
    result = specmodel("frobnicate")
    assert result.exit_code == 2
    assert "No such command 'frobnicate'" in one_line(result)


def test_no_command_shows_the_help_and_is_bad_usage(specmodel: Run) -> None:
    result = specmodel()
    assert result.exit_code == 2
    assert "predict" in result.stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_an_answer(specmodel: Run, option: str) -> None:
    result = specmodel(option)
    assert result.exit_code == 0
    for name in main.commands:
        assert name in result.stdout
        assert specmodel(name, option).exit_code == 0


def test_the_version_is_an_answer(specmodel: Run) -> None:
    result = specmodel("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("specmodel, version ")


def test_an_unexpected_error_is_one_line_that_asks_for_a_report(
    specmodel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("calibration.points.packaged.packaged_tables", broken)
    result = specmodel("data")
    assert result.exit_code == 1
    line = one_line(result)
    assert "RuntimeError: first second" in line
    assert "report" in line
    monkeypatch.setenv("SPECMODEL_TRACEBACK", "1")
    assert isinstance(specmodel("data").exception, RuntimeError)


def test_an_interruption_is_one_line(specmodel: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("calibration.points.packaged.packaged_tables", interrupted)
    result = specmodel("data")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "Error: interrupted"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "calibration", *arguments]


def test_the_module_runs_as_the_command(tmp_path: Path) -> None:
    run = subprocess.run(
        command("predict", "--accept", "9", "--depth", "3"),
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert len(run.stderr.splitlines()) == 1


def loaded_by(*arguments: str, cwd: Path) -> set[str]:
    """Modules in a fresh interpreter after a command."""
    code = (
        "import sys\n"
        "from calibration.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "except SystemExit as error: assert error.code == 0, error.code\n"
        "print('\\n' + ' '.join(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=cwd
    )
    return set(run.stdout.splitlines()[-1].split())


HEAVY = ("pandas", "scipy", "matplotlib", "rich", "iminuit", "numpy.random", "importlib.metadata")


def test_a_cold_prediction_loads_numpy_and_click_and_nothing_heavy(here: Path) -> None:
    loaded = loaded_by("predict", "--accept", "2.75", cwd=here.parent)
    assert "numpy" in loaded
    assert {name for name in loaded if name.partition(".")[0] in HEAVY or name in HEAVY} == set()
    assert "specmodel.acceptance" not in loaded
    assert "calibration.points.reading" not in loaded


def test_help_loads_no_command(tmp_path: Path) -> None:
    loaded = loaded_by("--help", cwd=tmp_path)
    assert "numpy" not in loaded
    assert not any(name.startswith("calibration.commands.") for name in loaded)
