"""What if: a rig priced from names alone, and what one change of it does to the speed-up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from calibration.assumed_rig import usual_draft
from calibration.scenario import Scenario, changed, default_changes
from specmodel.architecture import MemoryFit, require_fit
from specmodel.cost.step_multipliers import StepMultipliers
from specmodel.errors import ParameterError, SpecModelError
from specmodel.question import Estimate
from specmodel.rig import Rig, round_cost_interval
from specmodel.rig.round_cost_spread import FORM_LOG_SD

NUM_DRAWS: Final = 2000
"""Draws of the multipliers. [-]"""

OWN_FACTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu": ("allreduce", "bandwidth", "compute", "kernels"),
    "interconnect": ("allreduce",),
    "tp_size": (),
    "dtype": ("bandwidth", "compute"),
}
"""Multipliers that a changed rig does not share with its base (judgement)."""


CHANGE_LOG_SD: Final[Mapping[str, float]] = {
    "batch_size": 0.22,
    "context_tokens": 0.20,
    "depth": 0.15,
    **dict.fromkeys(OWN_FACTORS, FORM_LOG_SD),
}
"""Spread of a ratio of speed-ups that draws do not have, on the log scale. Of loads: root mean square
error of ratios of round costs inside the packaged tables whose systems the form is checked on, each
table counted once (7, 7 and 3). Of each difference of the rig that of a round cost (judgement). [-]"""

_TOGETHER = "all together"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """What a scenario costs, with central 90 % intervals; times [s], throughput [tokens/s].

    Parameters
    ----------
    scenario : Scenario
        What was priced.
    step_s, round_s, round_cost, speedup, output_tokens_per_s : Estimate
        Medians are those of the physical form with every multiplier at 1.
    parts_s : mapping of str to float
        The round by cause; sums to the median of `round_s`, [s].
    memory : MemoryFit
        Of the target with its requests.
    """

    scenario: Scenario
    step_s: Estimate
    round_s: Estimate
    round_cost: Estimate
    speedup: Estimate
    output_tokens_per_s: Estimate
    parts_s: Mapping[str, float]
    memory: MemoryFit


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One change: its price and the ratio of speed-ups, or the reason why it has none."""

    label: str
    priced: Priced | None = None
    ratio: Estimate | None = None
    reason: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The base, changes by their effect, and all changes together where several were asked for."""

    base: Priced
    draft: str
    rows: tuple[Row, ...]
    together: Row | None = None


def what_if(base: Scenario, changes: Sequence[tuple[str, str]] = ()) -> WhatIf:
    r"""Price a base and changes of it, one at a time and all together.

    .. math:: \frac{s'}{s} = \frac{T_r / T_1}{T'_r / T'_1}

    Parameters
    ----------
    base : Scenario
        What there is.
    changes : sequence of (key, text)
        Keys of `KEYS`; a default set without any.

    Returns
    -------
    WhatIf
        Rows by size of effect, those without a price last.

    Raises
    ------
    SpecModelError
        If the base cannot run, or a key, a name or a number is not possible.

    Notes
    -----
    A physical prior: no point of the user is in it. Under common draws of the multipliers, what both
    share cancels in the ratio; see `OWN_FACTORS`. What the form misses of a change is in its interval
    besides: `CHANGE_LOG_SD`. The accept length is held fixed.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> llama = Scenario(model=preset("Llama-3.1-8B"), gpu="H100", depth=3, accept_length=2.5)
    >>> found = what_if(llama, [("batch_size", "64")])
    >>> found.rows[0].ratio.median < 1
    True
    """
    first, costs = _priced(base)
    changes = [("tp_size" if key == "num_gpus" else key, text) for key, text in changes]
    pairs = changes or default_changes(base)
    rows = [_row(first, costs, f"{key}={text}", changed(base, key, text)) for key, text in pairs]
    together = None
    if len(changes) > 1 and len(dict(changes)) == len(changes):
        last = base
        for key, text in sorted(changes, key=lambda pair: pair[0] == "tp_size"):
            last = changed(last, key, text)
        together = _row(first, costs, _TOGETHER, last)
    return WhatIf(
        base=first,
        draft=usual_draft(base.model)[0],
        rows=tuple(sorted(rows, key=_order)),
        together=together,
    )


def _row(base: Priced, base_costs: NDArray[np.float64], label: str, scenario: Scenario) -> Row:
    """Price one change against the base and its draws of the round cost."""
    if scenario.interconnect != base.scenario.interconnect and "interconnect" not in label:
        label += f" over {scenario.interconnect}" if label != _TOGETHER else ""
    try:
        priced, costs = _priced(scenario)
    except SpecModelError as error:
        hint = error.hint if isinstance(error, ParameterError) else ""
        return Row(label=label, reason=hint if "does not fit" in hint else str(error))
    before, after = base.scenario.facts(), scenario.facts()
    differs = [key for key in CHANGE_LOG_SD if before[key] != after[key]]
    own = {name for key in differs for name in OWN_FACTORS.get(key, ())}
    if own:
        round_draws, step_draws = _round_and_step(scenario, _multipliers(scenario.rig(), own))
        costs = round_draws / step_draws
    nominal = priced.speedup.median / base.speedup.median
    return Row(
        label=label, priced=priced, ratio=_estimate(nominal, base_costs / costs, _spread(differs))
    )


def _spread(differs: Sequence[str]) -> float:
    """Spread of what the form misses; two rigs differ at most as if they shared nothing."""
    load = sum(CHANGE_LOG_SD[key] ** 2 for key in differs if key not in OWN_FACTORS)
    rig = sum(CHANGE_LOG_SD[key] ** 2 for key in differs if key in OWN_FACTORS)
    return float(np.sqrt(load + min(rig, 2 * FORM_LOG_SD**2)))


def _priced(scenario: Scenario) -> tuple[Priced, NDArray[np.float64]]:
    """Price a scenario that fits; with it the draws of its round cost."""
    rig = scenario.rig()
    memory = rig.fit(batch_size=scenario.batch_size, context_tokens=scenario.context_tokens)
    require_fit(memory)
    round_draws, step_draws = _round_and_step(scenario, _multipliers(rig, set()))
    round_one, step_one = (float(each) for each in _round_and_step(scenario, None))
    costs = round_draws / step_draws
    cost = _estimate(round_one / step_one, costs, FORM_LOG_SD)
    time = _estimate(round_one, round_draws, FORM_LOG_SD)
    parts = rig.round_parts(scenario.depth, **_load(scenario)).terms()
    priced = Priced(
        scenario=scenario,
        step_s=_estimate(step_one, step_draws, 0.0),
        round_s=time,
        round_cost=cost,
        speedup=_inverse(cost, scenario.accept_length),
        output_tokens_per_s=_inverse(time, scenario.batch_size * scenario.accept_length),
        parts_s={name: float(part) for name, part in parts.items()},
        memory=memory,
    )
    return priced, costs


def _load(scenario: Scenario) -> dict[str, Any]:
    """Arguments of a round."""
    rows = scenario.num_draft_tokens or scenario.depth + 1
    return {
        "topk": scenario.topk,
        "num_draft_tokens": rows,
        "batch_size": scenario.batch_size,
        "context_tokens": scenario.context_tokens,
    }


def _round_and_step(
    scenario: Scenario, multipliers: StepMultipliers | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times of a round and of a step, under draws or at the prior's median."""
    rig, load = scenario.rig(), _load(scenario)
    step = rig.step_time(load["batch_size"], load["context_tokens"], multipliers=multipliers)
    drawn = rig.round_parts(scenario.depth, **load, multipliers=multipliers)
    return np.asarray(drawn.total_s), np.asarray(step.total_s)


def _multipliers(rig: Rig, own: set[str]) -> StepMultipliers:
    """Draws that every rig shares, but for the factors that are its own."""
    shared, apart = (rig.prior_multipliers(NUM_DRAWS, seed=seed) for seed in (0, 1))
    return replace(shared, **{name: getattr(apart, name) for name in own})


def _estimate(nominal: float, draws: NDArray[np.float64], form_log_sd: float) -> Estimate:
    """The value at the prior's median, with the relative interval of draws."""
    low, middle, high = round_cost_interval(draws, form_log_sd)
    return Estimate(median=nominal, low=nominal * low / middle, high=nominal * high / middle)


def _inverse(estimate: Estimate, value: float) -> Estimate:
    """A value over an estimate."""
    return Estimate(
        median=value / estimate.median, low=value / estimate.high, high=value / estimate.low
    )


def _order(row: Row) -> float:
    """Largest effect first, either way; what has no price last."""
    return np.inf if row.ratio is None else -abs(float(np.log(row.ratio.median)))
