"""Snapshots of the text that people read, from a calibration whose constants are fixed here.

They are no truth, and only the words are compared: numbers are tested where they come from. When a
layout changes on purpose, run with ``SPECMODEL_WRITE_SNAPSHOTS=1`` and look at the difference.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from specmodel.baselines import Baseline, Baselines
from specmodel.calibration import Calibration
from specmodel.constants import NUM_CONSTANTS, to_internal
from specmodel.posterior import Posterior
from specmodel.prior import Noise, Prior
from specmodel.question import Configuration, Observation, Run

Command = Callable[..., Result]

SNAPSHOTS = Path(__file__).resolve().parents[1] / "golden" / "snapshots"
FULL = ".742,.47,.29,.15,.097"
COMMANDS = {
    "predict_one_depth": ("--accept", "2.75"),
    "predict_target": ("--accept", "2.75", "--target-speedup", "1.3"),
    "predict_range": ("--full", FULL, "--depth", "1:8"),
    "predict_training": ("--full", FULL, "--accuracy-from", "training"),
    "predict_carried": ("--full", FULL, "--depth", "10", "--claim", "3.1"),
}


def fixed_calibration() -> Calibration:
    """A chain of depth 5 on one request, with round numbers for constants."""
    mean = to_internal(np.array([1.3, 0.2, 0.1, 0.05, 0.05, 0.5, 0.75, 0.5, 0.75]))
    noise = Noise(
        row_log_sd=0.02, configuration_log_sd=0.02, run_log_sd=0.02, degrees_of_freedom=8.0
    )
    prior = Prior(
        mean=mean,
        covariance=0.04 * np.eye(NUM_CONSTANTS),
        noise=noise,
        name="fixed for snapshots",
        learned_from=("a", "b"),
    )
    configuration = Configuration(num_steps=5, batch_size=1)
    return Calibration(
        label="Lynx-8B, sglang 0.5.4, H200",
        system={"target_model": "Lynx-8B", "engine": "sglang", "gpu": "H200"},
        prior=prior,
        posterior=replace(
            Posterior.from_prior(prior),
            mean=np.concatenate([mean, [0.0, 0.0]]),
            covariance=np.diag([*[0.003] * NUM_CONSTANTS, 0.0002, 0.0002]),
            num_configurations=1,
        ),
        intervals={},
        configurations=(configuration,),
        runs=(Run(workload="chat", tree=False, batch_size=1),),
        observations=(
            Observation(
                configuration=configuration,
                num_points=1,
                accept_length=(2.1, 2.1),
                round_cost=(2.1 * 90 / 82.3,) * 3,
                accept_length_at=2.1,
                output_tokens_per_s=82.3,
                baseline_tokens_per_s=90.0,
                decode_round_cost=2.1 * 90 / 82.3,
            ),
        ),
        baselines=Baselines(
            entries=(
                Baseline(
                    workload="chat",
                    batch_size=1,
                    context_tokens=np.nan,
                    tokens_per_s=90.0,
                    step_time_s=1 / 90,
                ),
            )
        ),
        curve=None,
        num_experts=np.nan,
        experts_per_token=np.nan,
        throughput_scope="aggregate",
        hull={"accept_length": (2.1, 2.1), "num_steps": (5, 5), "batch_size": (1, 1)},
        num_points=1,
        residual_log_sd=0.0,
        points_sha256="",
        package_version="0",
        notes=(),
    )


def words(text: str) -> list[str]:
    """Words of a text, numbers masked: where lines wrap may depend on numbers."""
    return re.sub(r"\d+(\.\d+)?", "#", text.replace("> #", "#").replace("< #", "#")).split()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_text_is_the_one_that_was_looked_at(specmodel: Command, name: str) -> None:
    fixed_calibration().save("calibration.json")
    result = specmodel("predict", *COMMANDS[name])
    assert result.exit_code == 0, result.stderr
    shown = f"$ specmodel predict {' '.join(COMMANDS[name])}\n{result.stdout}{result.stderr}"
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("SPECMODEL_WRITE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert words(shown) == words(path.read_text(encoding="utf-8"))
