"""The reference rig: Kimi-K2.5 on 8 RTX PRO 6000 (allreduce.md 1 and 12)."""

import sys

import numpy as np
import pytest

from specmodel.architecture import collectives, preset, weight_bytes
from specmodel.cost.allreduce import AllReduceCurve
from specmodel.errors import ParameterError
from specmodel.model_error import Loads
from specmodel.physical_fit import PhysicalFit
from specmodel.rig import Rig
from specmodel.rig.factors import FACTORS, factor_sd, multipliers_of, priced

MEASURED_STEP_S = 11.1e-3
LAYER_ALLREDUCES = 122
CARD = "RTX PRO 6000 Blackwell Workstation"
RIG = Rig(target="Kimi-K2.5", device=CARD, tp_size=8, interconnect="pcie5")


def say(text: str) -> None:
    """Show a measured number when output is not captured (pytest -s)."""
    sys.stdout.write(text + "\n")


def with_curve(time_s: float) -> Rig:
    """The rig with an all-reduce of that time at 14 KiB."""
    curve = AllReduceCurve.from_points([14336], [time_s])
    return Rig(target="Kimi-K2.5", device=CARD, tp_size=8, allreduce=curve)


def test_a_forward_makes_122_layer_allreduces_of_14336_bytes_a_token() -> None:
    found = collectives(preset("Kimi-K2.5"), 8)
    assert (found.layer_all_reduces, found.bytes_per_token) == (LAYER_ALLREDUCES, 14336)
    work = RIG.forward_work()
    assert work.allreduce_bytes_per_token == 14336
    assert LAYER_ALLREDUCES + 1 <= work.num_allreduces <= LAYER_ALLREDUCES + 2


def test_each_gpu_reads_six_gigabytes_for_a_token() -> None:
    work = RIG.forward_work()
    dense = work.replicated_bytes + (work.weight_bytes - work.replicated_bytes) / 8
    read = dense + work.experts_per_token * work.expert_bytes / 8
    assert read / 1e9 == pytest.approx(6.0, abs=0.05)
    assert read == pytest.approx(weight_bytes(RIG.shape, tp_size=8).active)


def test_the_step_of_11_milliseconds_is_inside_the_interval_and_within_a_quarter() -> None:
    median = float(RIG.step_time().total_s)
    fit = PhysicalFit.from_prior({}, FACTORS, factor_sd(RIG))
    mean, covariance = fit.predict(priced(RIG, Loads.of(num_steps=0), fit.centre()))
    half = 1.86 * np.sqrt(covariance[0, 0])
    low, high = np.exp(mean[0] - half), np.exp(mean[0] + half)
    say(f"step {median * 1e3:.1f} ms, {low * 1e3:.1f} to {high * 1e3:.1f}; measured 11.1")
    assert low < MEASURED_STEP_S < high
    assert median == pytest.approx(MEASURED_STEP_S, rel=0.25)


def test_the_allreduce_share_covers_well_tuned_and_untuned_nodes() -> None:
    normal = np.random.default_rng(0).normal(size=(4000, len(FACTORS)))
    draws = RIG.step_time(multipliers=multipliers_of(normal * factor_sd(RIG)))
    time = float(RIG.step_time().allreduce_s)
    low, high = np.quantile(draws.allreduce_s, [0.05, 0.95])
    say(
        f"all-reduces {time * 1e3:.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f}): "
        f"{time / MEASURED_STEP_S:.0%} ({low / MEASURED_STEP_S:.0%} to "
        f"{high / MEASURED_STEP_S:.0%}) of the step of 11.1 ms"
    )
    assert time / MEASURED_STEP_S == pytest.approx(0.30, abs=0.05)
    assert low / MEASURED_STEP_S < 0.30
    assert high / MEASURED_STEP_S > 0.60
    predicted = np.quantile(draws.allreduce_s / draws.total_s, [0.05, 0.5, 0.95])
    say("share of the predicted step " + ", ".join(f"{float(each):.0%}" for each in predicted))


@pytest.mark.parametrize(("time_s", "share"), [(27e-6, 0.30), (57e-6, 0.63)])
def test_a_measured_allreduce_gives_its_share_of_the_step(time_s: float, share: float) -> None:
    found = float(with_curve(time_s).step_time().allreduce_s) / MEASURED_STEP_S
    say(f"at {time_s * 1e6:.0f} us: {found:.0%} of the step of 11.1 ms")
    assert found == pytest.approx(share, abs=0.02)


def test_int4_weights_on_four_cards_of_96_gb_are_refused_with_what_to_do() -> None:
    with pytest.raises(ParameterError, match="num_gpus must be at least 8") as caught:
        Rig(target="Kimi-K2.5", device=CARD, tp_size=4, interconnect="pcie5", dtype="int4")
    message = str(caught.value)
    say(message)
    assert "\n" not in message
    assert "weights" in message
    assert "usable" in message
    assert "8 GPUs would do" in message
