"""What a user sees while large files are read: nothing for two seconds, then how long it takes."""

import time
from pathlib import Path

import pytest

from calibration.commands.options import progress_of
from calibration.report import progress as reading_progress
from specmodel.units import MEBI


@pytest.fixture(name="large")
def _large(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        file.truncate(40 * MEBI)
    return path


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time that the module sees, to be moved by hand, [s]."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_small_files_show_nothing_and_load_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bench.csv"
    path.write_text("accept_length,throughput\n")
    with progress_of([path, tmp_path / "missing"]) as tell:
        assert tell is None


def test_two_seconds_pass_before_anything_is_said(
    large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = clock(monkeypatch)
    with progress_of([large]) as tell:
        assert tell is not None
        now[0] += 1.9
        tell(10 * MEBI)
        assert capsys.readouterr().err == ""
        now[0] += 0.2
        tell(MEBI)
    assert capsys.readouterr().err == "reading: 28 % of 42 MB, 5 MB/s, 6 s left\n"


def test_lines_come_ten_seconds_apart(
    large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = clock(monkeypatch)
    with reading_progress.reading_progress([large]) as tell:
        for _ in range(30):
            now[0] += 1.0
            tell(MEBI)
    assert capsys.readouterr().err.count("\n") == 3


def test_a_terminal_gets_a_bar_with_the_time_left(
    large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(reading_progress, "QUIET_S", 0.0)
    with reading_progress.reading_progress([large]) as tell:
        time.sleep(0.01)
        tell(20 * MEBI)
        time.sleep(0.3)
    said = capsys.readouterr().err
    assert "reading" in said
    assert "41.9 MB" in said
