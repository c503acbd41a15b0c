"""A task in a process of its own answers, or says in one line why not."""

import json
from pathlib import Path

import pytest

from drafter import processes
from drafter.processes import _told, main, run_interpreted
from specmodel.errors import ParameterError, SpecModelError


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(SpecModelError, match="KeyError: 'dance'"):
        run_interpreted("dance")


def test_a_model_that_is_not_there_is_said_as_it_is_elsewhere() -> None:
    with pytest.raises(SpecModelError, match=r"^nowhere/at/all: no such folder"):
        run_interpreted("check", model="nowhere/at/all", dtype="float32")


def test_a_process_that_dies_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TASKS", "drafter.no_such_module")
    with pytest.raises(SpecModelError, match="ended with 1 and no answer"):
        run_interpreted("check")


def test_the_process_interprets_and_sees_no_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "report_environment.py").write_text(
        "import json, os\n"
        "names = ('TRITON_INTERPRET', 'CUDA_VISIBLE_DEVICES')\n"
        "print('a line before the answer')\n"
        "print(json.dumps({name: os.environ[name] for name in names}))\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(processes, "TASKS", "report_environment")
    answer = run_interpreted("anything")
    assert answer == {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}


def test_whatever_goes_wrong_becomes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(ParameterError("topk", 0, "at least 1")) == "topk must be at least 1, got 0"
    assert _told(RuntimeError("two\nlines")) == "RuntimeError: two lines"
    main(["check", '{"colour": "red"}'])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["error"].startswith("TypeError: ")
