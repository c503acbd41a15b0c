"""Scenarios priced by the physical form: times, speed-ups and ratios with their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.rig.scenario import Scenario
from specmodel.architecture import MemoryFit, require_fit
from specmodel.model_error import DEGREES_OF_FREEDOM, Loads
from specmodel.physical_fit import PhysicalFit, Priced
from specmodel.prediction import possible_round_cost, possible_speedup
from specmodel.question import AcceptLength, Estimate
from specmodel.rig.factors import FACTORS, factor_sd, multipliers_of, priced
from specmodel.statistics import student_t_quantile

Array = NDArray[np.float64]

OWN_FACTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("bandwidth", "compute", "kernels", "routing"),
    "gpu": ("allreduce", "bandwidth", "compute", "kernels"),
    "interconnect": ("allreduce",),
    "dtype": ("bandwidth", "compute"),
}
"""Factors that a changed rig does not share with its base (judgement). Another all-reduce on the same link
keeps the factor: a node that is slow at one is slow at the other, and above its threshold it is the same."""

_UNSOUND_RIG: Final = (
    "a measured time of the rig is wrong (an all-reduce curve with an outlier or falling times, draft "
    "passes, a baseline): measure it again, or leave it out"
)

CENTRAL: Final = 0.90
"""Probability inside every interval. [-]"""


@dataclass(frozen=True, kw_only=True)
class ScenarioPrice:
    """What a scenario costs, with central 90 % intervals; times [s], throughput [tokens/s]."""

    scenario: Scenario
    step_s: Estimate
    round_s: Estimate
    round_cost: Estimate
    speedup: Estimate
    output_tokens_per_s: Estimate
    parts_s: Mapping[str, float]
    memory: MemoryFit
    logs: "Logs"
    covariance: Array

    @property
    def implied_round_cost(self) -> float:
        """Median round cost before it was held to at least a step, [baseline steps]."""
        return float(np.exp(self.logs.round - self.logs.step))


def differences(base: Scenario, scenario: Scenario) -> frozenset[str]:
    """What differs between two rigs, by name; loads and draft models do not count."""
    before, after = base.facts(), scenario.facts()
    return frozenset(key for key in before if before[key] != after[key])


class Pricing:
    """Prices scenarios from a fit of the physical form, or from its prior."""

    def __init__(self, base: Scenario, fit: PhysicalFit | None = None) -> None:
        self.base = base
        self.fit = fit or PhysicalFit.from_prior({}, FACTORS, factor_sd(base.rig()))

    def priced(self, scenario: Scenario, loads: Loads | None = None) -> Priced:
        """The base step and the round of a scenario, or loads of its rig, at the fitted factors."""
        changes = differences(self.base, scenario)
        own = _own(changes)
        found = priced(scenario.rig(), loads or scenario.loads(), self.fit.centre(own))
        return replace(found, changes=changes, own=own)

    def price(self, scenario: Scenario, *, served: bool = False) -> ScenarioPrice:
        """Times, speed-up and throughput of a scenario that fits its GPUs, or that was `served`."""
        memory = self.memory(scenario, served=served)
        covariance, logs = self.logs(scenario)
        gain = _estimate(logs.speedup, logs.speedup_slopes, covariance)
        held = possible_speedup(gain, AcceptLength.exact(scenario.accept_length).estimate)
        output = _estimate(logs.output, logs.output_slopes, covariance)
        return ScenarioPrice(
            scenario=scenario,
            step_s=_estimate(logs.step, (1.0, 0.0, 0.0), covariance),
            round_s=_estimate(logs.round, (0.0, 1.0, 0.0), covariance),
            round_cost=_round_cost(logs.round - logs.step, covariance[:2, :2]),
            speedup=held,
            output_tokens_per_s=output.scaled(held.median / gain.median),
            parts_s=_scaled(self.form_parts(scenario, scenario.depth), float(np.exp(logs.round))),
            memory=memory,
            logs=logs,
            covariance=covariance,
        )

    def memory(self, scenario: Scenario, *, served: bool = False) -> MemoryFit:
        """Memory that a scenario needs; refused where it has too little and was never served."""
        found = scenario.memory()
        if not (served or self._was_served(scenario)):
            require_fit(found)
        return found

    def fits(self, scenario: Scenario) -> bool:
        """Whether a scenario has the memory, by what is computed or because it was served."""
        return scenario.memory().fits or self._was_served(scenario)

    def _was_served(self, scenario: Scenario) -> bool:
        """Whether a load at least as large was measured with the same memory, so that it fits."""
        known, base = self.fit.measured.loads, self.base
        larger = known.batch_size >= scenario.batch_size
        return (
            bool(np.any(larger & (known.context_tokens >= scenario.context_tokens)))
            and scenario.kv_bytes_per_value == base.kv_bytes_per_value
            and scenario.context_parallel == base.context_parallel
            and not differences(base, scenario) & {"model", "gpu", "tp_size", "dtype"}
        )

    def logs(self, scenario: Scenario) -> "tuple[Array, Logs]":
        """Covariance of ln step, ln round and the non-decode share, and what follows from their means."""
        mean, covariance = self.fit.predict_with_share(self.priced(scenario))
        return covariance, Logs.of(mean, scenario, self.fit)

    def ratio(self, base: Scenario, scenario: Scenario) -> Estimate:
        """Speed-up of a scenario over that of another; what both share cancels."""
        mean, covariance = self.fit.predict_with_share(self.priced(base), self.priced(scenario))
        change, slopes = 0.0, np.zeros(mean.size)
        for one, sign, places in ((base, -1.0, [0, 1, 4]), (scenario, 1.0, [2, 3, 4])):
            logs = Logs.of(mean[places], one, self.fit)
            change += sign * logs.speedup
            slopes[places] += sign * np.array(logs.speedup_slopes)
        return _estimate(change, slopes, covariance)

    def round_costs(self, scenarios: Sequence[Scenario]) -> list[Estimate]:
        """Round costs of loads of the rig that was fitted, all in one pricing, whatever they need."""
        loads = Loads.concatenated(*(each.loads() for each in scenarios))
        mean, covariance = self.fit.predict(priced(self.base.rig(), loads, self.fit.centre()))
        pairs = [slice(first, first + 2) for first in range(0, len(loads), 2)]
        return [_round_cost(float(np.diff(mean[at])[0]), covariance[at, at]) for at in pairs]

    def form_parts(self, scenario: Scenario, depth: int) -> Mapping[str, float]:
        """A round of the scenario by cause, or at depth 0 its base step, as the form alone gives it, [s]."""
        own = _own(differences(self.base, scenario))
        parts = scenario.rig().round_parts(
            depth,
            topk=scenario.topk if depth else 1,
            num_draft_tokens=scenario.rows if depth else 1,
            batch_size=scenario.batch_size,
            context_tokens=scenario.context_tokens,
            multipliers=multipliers_of(self.fit.centre(own)[None, :]),
        )
        return {name: float(np.ravel(part)[0]) for name, part in parts.terms().items()}


class Logs(NamedTuple):
    """Logarithms of what follows from a step and a round, and their slopes.

    Slopes are by ln step, by ln round and by the error of the non-decode share in standard deviations.
    """

    step: float
    round: float
    speedup: float
    output: float
    speedup_slopes: tuple[float, float, float]
    output_slopes: tuple[float, float, float]
    non_decode_share: float

    @classmethod
    def of(cls, mean: Array, scenario: Scenario, fit: PhysicalFit) -> "Logs":
        """What follows from ln step, ln round and the error of the share.

        1/S = f + (1 - f) R / tau; the output is S (1 - f) B / T1.
        """
        step, whole, _ = mean.tolist()
        sd, share = fit.non_decode_sd, float(fit.share_at(mean[2]))
        decode = 1.0 - share
        rounds = decode * float(np.exp(whole - step)) / scenario.accept_length
        weight = rounds / (share + rounds)
        speedup = -float(np.log(share + rounds))
        by_share = -sd * (1.0 - rounds / decode) / (share + rounds)
        return cls(
            step=step,
            round=whole,
            speedup=speedup,
            output=speedup + float(np.log(decode * scenario.batch_size)) - step,
            speedup_slopes=(weight, -weight, by_share),
            output_slopes=(weight - 1.0, -weight, by_share - sd / decode),
            non_decode_share=share,
        )


def _own(changes: frozenset[str]) -> frozenset[int]:
    """Positions of the factors that a rig with these changes does not share with its base."""
    return frozenset(FACTORS.index(name) for each in changes for name in OWN_FACTORS.get(each, ()))


@cache
def interval_sd() -> float:
    r"""Half of a central 90 % interval over a standard deviation.

    .. math:: t_{0.95}(\nu)

    The spreads of the form are themselves estimates.
    """
    return float(student_t_quantile((1.0 + CENTRAL) / 2.0, DEGREES_OF_FREEDOM))


def estimate(log_value: float, sd: float) -> Estimate:
    """Estimate of what has a Student's t on the log scale."""
    half = interval_sd() * sd
    low, median, high = np.exp([log_value - half, log_value, log_value + half]).tolist()
    return Estimate(median=median, low=low, high=high)


def _estimate(log_value: float, slopes: Array | tuple[float, ...], covariance: Array) -> Estimate:
    """Estimate of what is linear in ln times."""
    weights = np.asarray(slopes, dtype=np.float64)
    return estimate(log_value, max(float(weights @ covariance @ weights), 0.0) ** 0.5)


def _round_cost(log_cost: float, covariance: Array) -> Estimate:
    """Round cost from the covariance of ln step and ln round; no round takes less than a step."""
    return possible_round_cost(_estimate(log_cost, (-1.0, 1.0), covariance), _UNSOUND_RIG)


def _scaled(parts_s: Mapping[str, float], total_s: float) -> Mapping[str, float]:
    """Parts that keep their shares of another total."""
    whole_s = sum(parts_s.values())
    return {name: part_s * total_s / whole_s for name, part_s in parts_s.items()}
