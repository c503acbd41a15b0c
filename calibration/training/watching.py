"""A log that is watched while it grows: looked at from time to time until its run has ended."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from calibration.training.following import TrainingLogFollower
from calibration.training.training_log import TrainingLog


def watched_logs(
    paths: Sequence[Path],
    *,
    family: str | None = None,
    correct_alias: bool = False,
    every_s: float = 30.0,
    most_looks: int | None = None,
) -> Iterator[TrainingLog]:
    """Yield the log of a run each time that it has grown."""
    follower = TrainingLogFollower(paths, family=family, correct_alias=correct_alias)
    looks = 0
    while True:
        log = follower.poll()
        looks += 1
        if log is not None:
            yield log
            if log.total_steps and log.last_step and log.last_step >= log.total_steps:
                return
        if most_looks is not None and looks >= most_looks:
            return
        time.sleep(every_s)
