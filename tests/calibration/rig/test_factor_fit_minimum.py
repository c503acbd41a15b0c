"""A fit of the physical form ends where no small move of its factors would fit better."""

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.rig.fit import MeasuredTimes, fit_physical
from specmodel.architecture import preset
from specmodel.model_error import Loads, ModelError, error_covariance
from specmodel.physical_fit import PhysicalFit
from specmodel.rig import Rig, mtp_passes
from specmodel.rig.factors import FACTORS, factor_sd, log_times
from tests.extent import sample

Array = NDArray[np.float64]

NOISE = 0.03
SLACK = 0.02
"""What a move of a tenth of a prior standard deviation may gain: derivatives are differences. [-]"""


def rig_of(target: str) -> Rig:
    return Rig(
        target=target,
        device="H100",
        tp_size=8,
        interconnect="nvlink4",
        draft=mtp_passes(preset(target)),
    )


def strange_times(rig: Rig, seed: int) -> MeasuredTimes:
    """Times that no factors explain: growth with context and batch that the form does not have."""
    generator = np.random.default_rng(seed)
    batch, depth, context = (
        each.ravel() for each in np.meshgrid([1, 4, 16, 64], [0, 1, 3], [1000, 16_000])
    )
    loads = Loads.of(num_steps=depth, batch_size=batch, context_tokens=context)
    centre, _ = log_times(rig, loads, np.zeros((1, len(FACTORS))))
    odd = generator.uniform(-1, 1, 3)
    moved = odd[0] * np.log(batch) / 3 + odd[1] * np.log(context / 1000) / 2 + odd[2] * depth / 3
    return MeasuredTimes(
        loads=loads,
        depth_unknown=np.zeros(len(loads), dtype=bool),
        log_time=centre[0] + moved + NOISE * generator.standard_normal(len(loads)),
        counts=np.ones(len(loads)),
        spread_sd=np.zeros(len(loads)),
        shared_sd=np.zeros(len(loads)),
        non_decode_share=0.0,
    )


def misfit(rig: Rig, times: MeasuredTimes, found: PhysicalFit, internal: Array) -> float:
    """Twice the negative logarithm of the posterior, with the spreads of the end."""
    form = ModelError(noise=NOISE)
    share = found.measured.target_share
    covariance = error_covariance(times.loads, share, times.loads, share, form)
    covariance += NOISE**2 * np.eye(len(times.loads))
    residual = times.log_time - log_times(rig, times.loads, internal[None, :])[0][0]
    prior = float(np.sum((internal / factor_sd(rig)) ** 2))
    return float(residual @ np.linalg.inv(covariance) @ residual) + prior


@sample(4)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("target", ["Qwen3-235B-A22B", "Llama-3.1-8B"])
def test_no_small_move_of_a_factor_fits_better(target: str, seed: int) -> None:
    rig = rig_of(target)
    times = strange_times(rig, seed)
    found = fit_physical(rig, times, form=ModelError(noise=NOISE))
    least = misfit(rig, times, found, found.mean)
    for index, sd in enumerate(factor_sd(rig)):
        for move in (-0.1 * sd, 0.1 * sd):
            moved = found.mean.copy()
            moved[index] += move
            assert misfit(rig, times, found, moved) > least - SLACK, FACTORS[index]
