"""From a server log with known constants to a calibration whose intervals hold them."""

from dataclasses import asdict
from pathlib import Path

import pytest

from calibration.fit.fit import fit
from specmodel.calibration import Calibration
from tests.calibration.readers.sglang_log_generator import LogPlan, LogTruth, generate_log
from tests.extent import extent

FIXED_COST, STEP_COST = 1.31, 0.085  # in steps of 11 ms
STEP_MS = 11.0
NUM_LOGS = extent(test=12, prove=24)


def linear_plan(seed: int) -> LogPlan:
    """Return a rig at batch 4 whose round is 1.31 + 0.085 k steps, whatever it verifies.

    The baseline is the one depth that has no draft: its own fixed part lies in a plan of its own.
    """
    return LogPlan(
        batches=(4,),
        depths=(1, 3, 5),
        baseline=False,
        visits=4,
        lines_per_visit=30,
        dp_size=2,
        tp_ranks=2,
        host_ms=0.0,
        draft_ms=STEP_COST * STEP_MS,
        weights_ms=FIXED_COST * STEP_MS,
        row_ms=0.0,
        row_squared_ms=0.0,
        seed=seed,
    )


def baseline_plan(seed: int) -> LogPlan:
    """Return the same rig without speculation."""
    return LogPlan(
        batches=(4,),
        depths=(),
        visits=4,
        lines_per_visit=30,
        dp_size=2,
        tp_ranks=2,
        host_ms=0.0,
        weights_ms=STEP_MS,
        row_ms=0.0,
        row_squared_ms=0.0,
        seed=1000 + seed,
    )


def fitted(folder: Path, *plans: LogPlan) -> tuple[Calibration, list[LogTruth]]:
    """Return the calibration of the logs of some plans, and what they were made from."""
    truths, files = [], []
    for number, plan in enumerate(plans):
        text, truth = generate_log(plan)
        files.append(folder / f"{number}.log")
        files[-1].write_text(text, encoding="utf-8")
        truths.append(truth)
    return fit(files), truths


def test_the_constants_are_within_their_intervals_as_often_as_stated(tmp_path: Path) -> None:
    inside = {"fixed_cost": 0, "step_cost": 0}
    for seed in range(NUM_LOGS):
        calibration, _ = fitted(tmp_path, linear_plan(seed), baseline_plan(seed))
        known = {constant.name: constant for constant in calibration.constants}
        for name, truth in (("fixed_cost", FIXED_COST), ("step_cost", STEP_COST)):
            inside[name] += known[name].low <= truth <= known[name].high
    # of 12 trials of 90 % fewer than 8, of 24 fewer than 18 have a chance below 1 in 100
    for count in inside.values():
        assert count >= extent(test=8, prove=18)


@pytest.mark.parametrize("seed", range(4))
def test_round_costs_over_batches_and_depths_are_within_their_intervals(
    tmp_path: Path, seed: int
) -> None:
    calibration, (truth,) = fitted(tmp_path, LogPlan(seed=seed, dp_size=2, tp_ranks=2))
    inside = 0
    for configuration in calibration.configurations:
        depth, batch = int(configuration.num_steps or 0), int(configuration.batch_size or 0)
        answer = calibration.predict(truth.accept_length[depth], **asdict(configuration))
        needed = answer.break_even_accept_length
        inside += needed.low <= truth.round_cost(depth, batch) <= needed.high
    assert inside >= 0.8 * len(calibration.configurations)
