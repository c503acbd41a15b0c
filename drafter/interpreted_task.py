"""What runs in a process that interprets kernels: `python -m drafter.interpreted_task TASK OPTIONS`.

It writes one line of JSON to standard output: the answer, or ``{"error": …}``; progress goes to standard
error. `drafter.own_process` starts it.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any, Final

from specmodel.errors import ParameterError


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
    from drafter.reference.example import example_spec
    from drafter.timing.measuring import measured_record
    from drafter.timing.stopwatch import DryStopwatch
    from drafter.timing.works import DRY_GRID
    from drafter.torch_extra import torch
    from specmodel.measurement import save_record

    spec = example_spec()
    model = ModelToRun(
        name="a tiny example",
        layout="none: an example",
        spec=spec,
        weights=random_weights(spec, seed=0, dtype=torch.float32),
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
        if task not in _TASKS:
            raise ParameterError("task", task, " or ".join(_TASKS))  # noqa: TRY301 - as any refusal
        answer = _TASKS[task](**json.loads(options))
    except Exception as error:  # noqa: BLE001 - whatever went wrong becomes a line of the parent
        answer = {"error": _told(error)}
    print(json.dumps(answer))  # noqa: T201 - this module is a program


def _told(error: Exception) -> str:
    """An error on one line; the kind of one that this project does not know."""
    text = " ".join(str(error).split())
    known = type(error).__module__.startswith(("drafter.", "specmodel."))
    return text if known else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main(sys.argv[1:])
