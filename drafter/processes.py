"""Tasks in a process that interprets kernels: a process that was started otherwise cannot change over.

`python -m drafter.processes TASK OPTIONS` writes one line of JSON to standard output: the answer, or
``{"error": …}``; progress goes to standard error.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from specmodel.errors import SpecModelError

TASKS: Final = "drafter.processes"
"""Module that the process runs."""


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
        answer = {
            "error": f"the process that interprets kernels ended with {run.returncode} and no answer"
        }
    if "error" in answer:
        raise SpecModelError(str(answer["error"]))
    return dict(answer)


def check(*, model: str | None = None, dtype: str = "bfloat16") -> dict[str, Any]:
    """Check kernels against the reference."""
    from drafter.checks import checks
    from drafter.torch_extra import torch

    rows = []
    for result in checks(model, dtype=dtype, device=torch.device("cpu")):
        tell(f"{result.name}, {result.dtype}")
        rows.append(dataclasses.asdict(result))
    return {"rows": rows}


def time(*, output: str) -> dict[str, Any]:
    """Rehearse a measurement on a tiny model, and write its record, which says that it is dry."""
    from drafter.checkpoint import ModelToRun, random_weights
    from drafter.public_models import example_spec
    from drafter.timing.measuring import measured_record
    from drafter.timing.stopwatch import DryStopwatch
    from drafter.timing.works import DRY_GRID
    from drafter.torch_extra import torch
    from specmodel.measurement import save_record

    spec = example_spec()
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    model = ModelToRun(
        name="a tiny example",
        layout="none: an example",
        spec=spec,
        weights=weights,
        substituted=("every tensor: random",),
    )
    record = measured_record(model, DRY_GRID, DryStopwatch(), device=torch.device("cpu"), tell=tell)
    save_record(record, output)
    return {}


def tell(line: str) -> None:
    """Write a line of progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - this module is a program


_TASKS: Final[dict[str, Callable[..., dict[str, Any]]]] = {"check": check, "time": time}


def main(arguments: list[str]) -> None:
    """Run a task and write its answer."""
    task, options = arguments
    try:
        answer = _TASKS[task](**json.loads(options))
    except Exception as error:  # noqa: BLE001 - whatever went wrong becomes a line of the parent
        answer = {"error": _told(error)}
    print(json.dumps(answer))  # noqa: T201 - this module is a program


def _told(error: Exception) -> str:
    """An error on one line; the kind of one that this project does not know."""
    text = " ".join(str(error).split())
    return text if isinstance(error, SpecModelError) else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main(sys.argv[1:])
