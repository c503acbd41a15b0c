"""The command line inside the process, and the reference case fitted once."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from calibration.cli import main
from calibration.fit.fit import fit

RunCommand: TypeAlias = Callable[..., Result]

REFERENCE_BENCH = "accept_length,throughput,baseline\n2.1,82.3,90.0\n"
REFERENCE_BENCH_AT_DEPTH_3 = "accept_length,throughput,baseline,num_steps\n2.1,82.3,90.0,3\n"


@pytest.fixture
def specmodel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """The command line, run in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)

    return run


def _fitted(folder: Path, text: str) -> Path:
    """Calibration file of a benchmark."""
    bench = folder / "bench.csv"
    bench.write_text(text, encoding="utf-8")
    calibration = folder / "calibration.json"
    fit(bench).save(calibration)
    return calibration


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibration of the reference case: one point that does not state its depth."""
    return _fitted(tmp_path_factory.mktemp("reference"), REFERENCE_BENCH)


@pytest.fixture(scope="session")
def reference_at_depth_3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibration of the same point at a stated depth."""
    return _fitted(tmp_path_factory.mktemp("reference3"), REFERENCE_BENCH_AT_DEPTH_3)


@pytest.fixture
def here(reference: Path, tmp_path: Path) -> Path:
    """The reference calibration as ./calibration.json of the folder where commands run."""
    copy = tmp_path / "calibration.json"
    copy.write_bytes(reference.read_bytes())
    return copy
