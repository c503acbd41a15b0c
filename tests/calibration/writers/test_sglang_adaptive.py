"""The adaptive-steps file, read back as SGLang's two loaders read it."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.writers.depth_schedule import depth_schedule
from calibration.writers.schedule import DepthSchedule
from calibration.writers.sglang_adaptive import (
    sglang_adaptive_config,
    sglang_adaptive_text,
    write_sglang_adaptive,
)
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError


@pytest.fixture
def schedule(flat_then_linear: Calibration) -> DepthSchedule:
    """Depth 3 to batch 2, 2 at 3, 1 to 7, 0 to 16."""
    return depth_schedule(flat_then_linear, {1: 1.70, 2: 2.15, 3: 2.40, 4: 2.50})


def candidates_by_batch(config: dict[str, Any], batch_size: int) -> list[int]:
    """The later loader: keys that are numbers are lower bounds, others are skipped."""
    entries = {int(key): entry["candidate_steps"] for key, entry in config.items() if key.isdigit()}
    assert entries
    assert all(isinstance(one, int) and one >= 0 for steps in entries.values() for one in steps)
    return list(entries[max([key for key in entries if key <= batch_size], default=min(entries))])


def candidates_of_all(config: dict[str, Any]) -> list[int]:
    """The first loader: one list, whose ends are its limits."""
    steps = list(config["candidate_steps"])
    assert steps == sorted(set(steps))
    assert steps[0] >= 1
    return steps


def test_each_batch_has_the_depths_that_pay_there(schedule: DepthSchedule) -> None:
    config = json.loads(
        sglang_adaptive_text(sglang_adaptive_config(schedule, engine_version="0.5.23"))
    )
    assert config == {
        "1": {"candidate_steps": [1, 2, 3]},
        "3": {"candidate_steps": [1, 2]},
        "4": {"candidate_steps": [1]},
        "8": {"candidate_steps": [0]},
    }
    for batch_size in range(1, 17):
        steps = candidates_by_batch(config, batch_size)
        assert max(steps) == schedule.num_steps_at(batch_size)


def test_a_shallow_depth_that_loses_to_depth_0_is_left_out(flat_then_linear: Calibration) -> None:
    # batch 1, without overhead: depth 1 gives 1.05/1.1 = 0.95, depth 2 2.05/1.2 = 1.71
    schedule = depth_schedule(
        flat_then_linear, {1: 1.05, 2: 2.05}, max_batch_size=1, loaded_overhead=0.0
    )
    config = sglang_adaptive_config(schedule, engine_version="0.5.23")
    assert config == {"1": {"candidate_steps": [2]}}


def test_earlier_releases_read_either_shape(schedule: DepthSchedule) -> None:
    config = sglang_adaptive_config(schedule, engine_version="0.5.16", batch_size=3)
    assert candidates_of_all(config) == [1, 2]
    assert candidates_by_batch(config, 1) == [1, 2, 3]
    assert candidates_by_batch(config, 16) == [1]  # no 0 there


def test_one_list_needs_a_batch_at_which_something_pays(schedule: DepthSchedule) -> None:
    with pytest.raises(ParameterError, match="one list for all batches"):
        sglang_adaptive_config(schedule, engine_version="0.5.16")
    with pytest.raises(ParameterError, match="start it without speculation"):
        sglang_adaptive_config(schedule, engine_version="0.5.16", batch_size=16)
    with pytest.raises(ParameterError, match="as in the points"):
        sglang_adaptive_config(schedule, engine_version="0.5.16", batch_size=17)
    with pytest.raises(ParameterError, match="engine_version"):
        sglang_adaptive_config(schedule, engine_version="latest")


def test_the_file_is_the_text(schedule: DepthSchedule, tmp_path: Path) -> None:
    config = sglang_adaptive_config(schedule, engine_version="0.5.23")
    write_sglang_adaptive(tmp_path / "adaptive.json", config)
    assert (tmp_path / "adaptive.json").read_text(encoding="utf-8") == sglang_adaptive_text(config)
