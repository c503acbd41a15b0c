"""The sweep passes as a draft does, on a fake clock: the fastest tiles win, wrong ones are left out."""

from typing import Any

import pytest
import torch
from triton.runtime.errors import OutOfResources

from drafter import tuning
from drafter.checkpoint import random_weights
from drafter.engine.draft_engine import SharedState
from drafter.kernels import launch_plan
from drafter.kernels.launch_plan import Tiles, tiles_for
from drafter.public_models import example_spec
from drafter.timing.stopwatch import MeasurementError
from drafter.tuning import Found, by_row, is_close, products, swept

TRIES = [Tiles(block_n=n, block_k=32, num_warps=4, num_stages=1) for n in (16, 32, 64)]


@pytest.fixture(scope="module")
def state() -> SharedState:
    spec = example_spec()
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    return SharedState(
        spec,
        weights,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
        capacity=tuning.CONTEXT + 2,
        most_requests=2,
    )


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that the interpreter reads at once, and one row of the table."""
    monkeypatch.setattr(tuning, "CONTEXT", 4)
    row = by_row(products(example_spec()))[2:3]
    monkeypatch.setattr(tuning, "by_row", lambda _: row)


def sweep(state: SharedState, watch: Any) -> Found:
    (found,) = swept(state, 2, watch, tries=TRIES)
    return found


def seconds(**passes: float) -> Any:
    times = dict(zip(map(str, TRIES), passes.values(), strict=True)) | {"flush": 1e-4, "rule": 5e-4}
    return lambda work, _: times[work.name]


def test_the_fastest_tiles_win_and_stand_beside_those_of_the_rule(
    state: SharedState, fake: Any
) -> None:
    found = sweep(state, fake(time_s=seconds(one=4e-4, two=2e-4, three=3e-4), sm=0))
    assert found.tiles == TRIES[1]
    assert found.time_s == pytest.approx(1e-4)
    assert found.default_s == pytest.approx(4e-4)


def test_the_spread_of_a_choice_is_that_of_the_winner_or_of_the_rule(
    state: SharedState, fake: Any
) -> None:
    steady = seconds(one=4e-4, two=2e-4, three=3e-4)

    def time_s(work: Any, number: int) -> float:
        return float(steady(work, number)) * (1.04 if work.name == "rule" and number > 3 else 1.0)

    assert sweep(state, fake(time_s=time_s, sm=0)).spread == pytest.approx(0.04, rel=0.05)


def test_tiles_that_give_something_else_or_do_not_compile_are_left_out(
    state: SharedState, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = tuning._pass

    def wrong(*arguments: Any) -> Any:
        steps, given = passed(*arguments)
        if arguments[-1] == TRIES[1]:
            given[3][0, 5] += 1.0  # one element of the gated activations
        if arguments[-1] == TRIES[0]:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return steps, given

    monkeypatch.setattr(tuning, "_pass", wrong)
    found = sweep(state, fake(time_s=seconds(one=1e-4, two=2e-4, three=3e-4), sm=0))
    assert found.tiles == TRIES[2]


def test_only_the_row_that_is_tried_is_cut_otherwise(
    state: SharedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    planned = launch_plan.tiles_for

    def plan(sm: int, tokens: int, rows: int, width: int, **more: Any) -> Tiles:
        cut = planned(sm, tokens, rows, width, **more)
        if cut == TRIES[2]:
            asked.append((rows, width))
        return cut

    monkeypatch.setattr("drafter.kernels.launch_plan.tiles_for", plan)
    monkeypatch.setattr("drafter.kernels.head.tiles_for", plan)
    tuning._pass(state, 2, 0, (0, 2, 64, 32), TRIES[2])
    assert asked == [(40, 24)], "gate and up"
    assert tiles_for(0, 2, 40, 24) != TRIES[2]


def test_one_wrong_row_among_thousands_is_seen() -> None:
    truth = torch.randn(4000, generator=torch.Generator().manual_seed(1))
    near, wrong = truth * 1.004, truth.clone()
    wrong[17] += 0.3
    assert is_close(near, truth)
    assert not is_close(wrong, truth)
    assert not is_close(torch.full_like(truth, float("nan")), truth)


def test_a_device_whose_cache_is_unknown_is_refused(state: SharedState, fake: Any) -> None:
    with pytest.raises(MeasurementError, match="cache is not known"):
        sweep(state, fake(cache_bytes=None))
