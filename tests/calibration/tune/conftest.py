"""A small system with round numbers, whose costs can be worked by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest

from specmodel.baselines import Baseline, Baselines
from specmodel.calibration import Calibration
from specmodel.constants import NAMES, NUM_CONSTANTS, to_internal
from specmodel.question import Configuration

MakeSystem: TypeAlias = Callable[..., Calibration]

ALL = 40.0  # on the logit scale: a share of 1


def baselines(step_times_s: dict[float, float], context_tokens: float = np.nan) -> Baselines:
    return Baselines(
        entries=tuple(
            Baseline(
                workload="",
                batch_size=batch,
                context_tokens=context_tokens,
                tokens_per_s=batch / step_s,
                step_time_s=step_s,
            )
            for batch, step_s in step_times_s.items()
        )
    )


def made_system(
    step_times_s: dict[float, float] | None = None,
    *,
    fixed_cost: float = 1.0,
    step_cost: float = 0.1,
    growth_share: float = 1.0,
    draft_exponent: float = 0.0,
    depths: tuple[float, ...] = (1.0, 4.0),
    batches: tuple[float, ...] = (1.0, 16.0),
    context_tokens: float | None = None,
    **hull: tuple[float, float],
) -> Calibration:
    """Known without uncertainty, all time decoding.

    R(B, k) = fixed_cost (1 + growth_share (T(B (k + 1)) / T(B) - 1)) + step_cost k (10 ms / T(B))^e
    """
    prior = Calibration.from_prior()
    natural = dict.fromkeys(NAMES, 1e-12) | {"fixed_cost": fixed_cost, "step_cost": step_cost}
    internal = to_internal(np.array([natural[name] for name in NAMES]))
    for name, share in (
        ("batch_growth_share", growth_share),
        ("draft_time_exponent", draft_exponent),
    ):
        with np.errstate(divide="ignore"):
            internal[NAMES.index(name)] = np.clip(np.log(share) - np.log1p(-share), -ALL, ALL)
    configurations = tuple(
        Configuration(num_steps=depth, batch_size=batch, context_tokens=context_tokens)
        for depth in depths
        for batch in batches
    )
    size = NUM_CONSTANTS + len(configurations)
    measured = baselines(
        step_times_s or {}, np.nan if context_tokens is None else float(context_tokens)
    )
    reach = {
        "num_steps": (min(depths), max(depths)),
        "topk": (1.0, 1.0),
        "batch_size": (min(batches), max(batches)),
    }
    if context_tokens is not None:
        reach["context_tokens"] = (context_tokens, context_tokens)
    return replace(
        prior,
        label="made",
        posterior=replace(
            prior.posterior,
            mean=np.concatenate([internal, np.zeros(len(configurations))]),
            covariance=np.zeros((size, size)),
            num_configurations=len(configurations),
        ),
        configurations=configurations,
        baselines=measured,
        curve=measured.curve(),
        num_experts=0.0,
        experts_per_token=0.0,
        hull=reach | hull,
        num_points=len(configurations),
    )


@pytest.fixture
def make_system() -> MakeSystem:
    """Maker of systems with known constants."""
    return made_system


@pytest.fixture
def flat_then_linear() -> Calibration:
    """T(B) = 10 ms up to 8 rows, then proportional to them: R = max(1, n B / 8) / max(1, B / 8) + k / 10."""
    return made_system({1.0: 0.010, 8.0: 0.010, 128.0: 0.160})
