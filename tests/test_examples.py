"""Every example runs, anywhere, without a warning, and says something."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOT_RUN = {"README.md"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_example_runs(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capfd.readouterr().out.strip()


def test_no_example_is_left_out() -> None:
    """A file that is not run here has to be read by a script that is."""
    texts = [script.read_text(encoding="utf-8") for script in SCRIPTS]
    left_out = [
        path
        for path in EXAMPLES.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and path not in SCRIPTS
        and path.name not in NOT_RUN
        and not any(path.name in text for text in texts)
    ]
    assert left_out == []
