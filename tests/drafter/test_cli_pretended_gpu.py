"""`specmodel drafter check`, `time` and `tune` on a pretended GPU: what is left of a run that it ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from click.testing import Result
from triton.runtime.errors import OutOfResources

from drafter import checks as checking
from drafter import tuning
from drafter.kernels.launch_plan import Tiles, read_table, shipped_table
from drafter.public_models import public_shape
from drafter.timing import measuring, stopwatch
from drafter.timing.stopwatch import MeasurementError
from drafter.tuning import Found, by_row, products

Run = Callable[..., Result]
TILES = Tiles(block_n=4, block_k=1024, num_warps=4, num_stages=1)
NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
FAILURES = [
    (NO_MEMORY, "Error: the device has too little memory: CUDA out of memory; "),
    (
        OutOfResources(300_000, 232_448, "shared memory"),
        "Error: the device failed, or triton cannot compile for it: out of resource: shared memory",
    ),
    (
        torch.AcceleratorError("CUDA error: an illegal access\nmore of it"),
        "Error: the device failed, or triton cannot compile for it: CUDA error: an illegal access",
    ),
]


class PretendedStopwatch:
    """Of a device that is not there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

        self.name, self.sm, self.facts = "a pretended GPU", 90, self

    def driver(self) -> str:
        return "1.0"

    def host_s(self) -> float:
        return 0.0

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a pretended GPU")
    monkeypatch.setattr(stopwatch, "CudaStopwatch", PretendedStopwatch)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Answers of the sweep for one row of the table after the other."""

    def answer(*answers: float | Exception) -> None:
        rows = by_row(products(public_shape("gpt-oss").spec))

        def swept(_: object, tokens: int, *__: object) -> Iterator[Found]:
            for row, found in zip(rows, answers, strict=False):
                if isinstance(found, Exception):
                    raise found
                yield Found(
                    row=row, tokens=tokens, tiles=TILES, time_s=found, default_s=1e-3, spread=0.0
                )

        monkeypatch.setattr(tuning, "swept", swept)
        monkeypatch.setattr("drafter.checkpoint.model_to_run", Mock())
        monkeypatch.setattr("drafter.engine.draft_engine.SharedState", Mock())

    return answer


@pytest.mark.parametrize(("error", "said"), FAILURES, ids=["memory", "triton", "device"])
def test_a_sweep_that_an_error_ends_writes_what_it_found(
    error: Exception, said: str, specmodel: Run, sweep: Callable[..., None]
) -> None:
    sweep(1e-5, 2e-5, error)
    result = specmodel("drafter", "tune", "gpt-oss", "--tokens", "1", "-o", "table.toml")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(said)
    assert "2 of 2 rows are faster than by the rule; wrote table.toml" in result.stdout
    new = set(read_table(Path("table.toml"))) - set(read_table(shipped_table()))
    assert len(new) == 2
    assert {(row.sm, row.tokens, row.how) for row in new} == {(90, 1, "measured")}
    assert all("a pretended GPU, driver 1.0, triton " in row.record for row in new)


def test_a_sweep_that_found_nothing_before_an_error_writes_nothing(
    specmodel: Run, sweep: Callable[..., None]
) -> None:
    sweep(NO_MEMORY)
    result = specmodel("drafter", "tune", "gpt-oss", "-o", "table.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert list(Path().iterdir()) == []


def test_a_pass_that_is_refused_is_said_and_the_sweep_goes_on(
    specmodel: Run, sweep: Callable[..., None]
) -> None:
    sweep(1e-5, MeasurementError("a row: refused: it does not repeat"))
    tokens = ("--tokens", "1", "--tokens", "2")
    result = specmodel("drafter", "tune", "gpt-oss", *tokens, "-o", "table.toml")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[1] == "a row: refused: it does not repeat"
    assert "2 of 2 rows are faster than by the rule; wrote table.toml" in result.stdout


@pytest.mark.parametrize(("error", "said"), FAILURES, ids=["memory", "triton", "device"])
@pytest.mark.parametrize("name", ["check", "time"])
def test_what_the_device_raises_is_one_line(
    name: str, error: Exception, said: str, specmodel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = raising(error)
    monkeypatch.setattr(checking, "checks", fail)
    monkeypatch.setattr(measuring, "measured_record", fail)
    monkeypatch.setattr("drafter.checkpoint.model_to_run", lambda *_, **__: None)
    result = specmodel("drafter", name, "gpt-oss")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(said)
