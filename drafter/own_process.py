"""Tasks in a process that interprets kernels: a process that was started otherwise cannot change over."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from specmodel.errors import SpecModelError

TASKS: Final = "drafter.interpreted_task"
"""Module that the process runs."""


class InterpretedTaskError(SpecModelError, RuntimeError):
    """A task in a process of its own did not end well."""


def run_interpreted(task: str, **options: object) -> dict[str, Any]:
    """Answer of a task that ran with Triton's interpreter on the CPU.

    ``TRITON_INTERPRET`` decides when Triton is imported, so it is set before the process starts.
    """
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    # the packages that run here also run there, whatever the folder
    paths = [str(Path(__file__).resolve().parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    run = subprocess.run(  # noqa: S603 - our own module, under the interpreter that runs this one
        [sys.executable, "-m", TASKS, task, json.dumps(options)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(run.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        answer = None
    if not isinstance(answer, dict):
        raise InterpretedTaskError(
            f"the process that interprets kernels ended with {run.returncode} and no answer"
        )
    if "error" in answer:
        raise InterpretedTaskError(str(answer["error"]))
    return answer
