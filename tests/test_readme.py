"""The output in the README is what the commands print."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.extent import PROVES

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "refresh_readme.py"


def test_the_readme_shows_what_the_commands_print(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation that it shows is compared where it is made, in `test_evaluation.py`."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--check", *([] if PROVES else ["--quick"])])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == 0
