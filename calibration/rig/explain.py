"""Why a round costs what it costs: the fitted physical form, term by term."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from calibration.rig.pricing import Pricing, ScenarioPrice, estimate, interval_sd
from calibration.rig.scenario import Scenario, scenario_from_record
from specmodel.architecture import Collectives, collectives
from specmodel.ask import Ask, workload_of
from specmodel.calibration import Calibration
from specmodel.physical_fit import PhysicalFit
from specmodel.prediction import predict
from specmodel.question import AcceptLength, Estimate, Observation, Question
from specmodel.rig.factors import FACTORS, multipliers_of
from specmodel.units import MILLI

FACTOR_WORDS: Final[Mapping[str, str]] = {
    "bandwidth": "memory bandwidth",
    "compute": "rate of matrix products",
    "allreduce": "time of an all-reduce",
    "kernels": "time of small kernels",
    "round_host": "host time between steps or rounds",
    "spec_host": "the same of a round besides",
    "draft_host": "host time of a draft pass",
    "routing": "how apart rows pick experts",
    "kv_row_share": "KV reads: 0 once, 1 per row",
}
"""Factors in plain words."""

FAR: Final = 2.0
"""Half-widths of the 90 % interval of a rig from names, beyond which a measured step is doubted. [-]"""

IN_PLAY: Final = 1e-3
"""Slope of a ln time by a factor below which the factor has no effect at the measured loads. [-]"""


class FactorEstimate(NamedTuple):
    """One factor of the form after the points; `learned` is 1 - posterior sd / prior sd."""

    name: str
    value: Estimate
    prior: Estimate
    learned: float


class Cause(NamedTuple):
    """One part of a round and of a base step, as the form prices it, [s]."""

    name: str
    round_s: float
    step_s: float

    @property
    def added_s(self) -> float:
        """What speculation adds."""
        return self.round_s - self.step_s


class Agreement(NamedTuple):
    """Round cost of one configuration: by the plain identity, the relative and the physical form."""

    observation: Observation
    relative: Estimate
    physical: Estimate


class Explanation(NamedTuple):
    """The physical form of one calibration; `causes` are those of the first configuration, by size.

    They sum to the base step, and to the round but for `unexplained_s`: what the round takes beyond what
    the form gives it, once the base step is met, [s].
    """

    scenario: Scenario
    measured_cost: float
    factors: tuple[FactorEstimate, ...]
    idle: tuple[str, ...]
    causes: tuple[Cause, ...]
    unexplained_s: float
    price: ScenarioPrice  # of the first configuration
    prior: ScenarioPrice  # the same, from names alone
    allreduce_share: Estimate
    collectives: Collectives
    agreement: tuple[Agreement, ...]
    assumed: tuple[str, ...]
    num_loads: int
    loads: tuple[Scenario, ...]


def explain(calibration: Calibration) -> Explanation | None:
    """Return the fitted physical form of a calibration, term by term."""
    physical = calibration.physical
    if physical is None:
        return None
    rig = scenario_from_record(physical.rig)
    pricing = Pricing(rig, physical)
    first, *_ = observations = sorted(calibration.observations, key=_place)
    at, *_ = loads = [_at(rig, each) for each in observations]
    price, prior = (each.price(at, served=True) for each in (pricing, Pricing(rig)))
    estimates = _factors(physical)
    rounds_s, step_s = (pricing.form_parts(at, depth) for depth in (at.depth, 0))
    missed = price.step_s.median / sum(step_s.values())
    causes = [
        Cause(name, missed * each_s, missed * step_s[name]) for name, each_s in rounds_s.items()
    ]
    return Explanation(
        scenario=rig,
        measured_cost=first.round_cost[1],
        factors=tuple(one for one, moves in estimates if moves),
        idle=tuple(one.name for one, moves in estimates if not moves),
        causes=tuple(sorted(causes, key=lambda one: -one.added_s)),
        unexplained_s=price.round_s.median - sum(one.round_s for one in causes),
        price=price,
        prior=prior,
        allreduce_share=_allreduce_share(pricing, at, step_s),
        collectives=collectives(rig.model, rig.tp_size),
        agreement=_agreement(calibration, observations, pricing.round_costs(loads)),
        assumed=physical.notes,
        num_loads=len(physical.measured.loads),
        loads=tuple(loads),
    )


def doubt_of_rig(found: Explanation) -> str:
    r"""Return why a rig may not be the one that was measured; empty where nothing speaks against it.

    .. math:: |\ln T_1 / T_1'| > 2\, t_{0.95} \sigma

    A judgement: half of the distance is the 90 % interval of rigs that were never measured.
    """
    step, prior = found.price.step_s, found.prior.step_s
    ratio, bound = step.median / prior.median, (prior.high / prior.median) ** FAR
    if 1.0 / bound <= ratio <= bound:
        return ""
    times, word = (ratio, "slower") if ratio > 1.0 else (1.0 / ratio, "faster")
    return (
        f"a base step of {step.median / MILLI:.3g} ms is {times:.3g} times {word} than this rig is "
        f"expected to be ({prior.median / MILLI:.3g} ms): check the model, the GPUs and the "
        "stored weights, and whether throughputs are those of one request or of the whole batch"
    )


def _place(one: Observation) -> tuple[float, ...]:
    """Small loads first, then shallow depths."""
    configuration = one.configuration
    names = ("batch_size", "context_tokens", "topk", "num_steps")
    return tuple(float(getattr(configuration, name) or 0.0) for name in names)


def _at(rig: Scenario, observation: Observation) -> Scenario:
    """The rig at a measured configuration."""
    at = rig.at(observation.configuration)
    return replace(at, accept_length=min(observation.accept_length_at, at.longest))


def _factors(fit: PhysicalFit) -> list[tuple[FactorEstimate, bool]]:
    """Every factor in its own unit, and whether the measured loads depend on it."""
    sd = np.sqrt(np.diag(fit.covariance))
    ends = interval_sd() * np.array([[0.0], [-1.0], [1.0]])
    units = multipliers_of(fit.mean + ends * sd), multipliers_of(ends * fit.prior_sd)
    learned = np.clip(1.0 - sd / fit.prior_sd, 0.0, 1.0)
    moves = np.abs(fit.measured.jacobian).max(axis=0, initial=0.0) > IN_PLAY
    found = []
    for index, name in enumerate(fit.factors):
        value, prior = (
            Estimate(median=median, low=low, high=high)
            for median, low, high in (getattr(each, name).tolist() for each in units)
        )
        found.append(
            (FactorEstimate(name, value, prior, float(learned[index])), bool(moves[index]))
        )
    return found


def _allreduce_share(pricing: Pricing, at: Scenario, step_s: Mapping[str, float]) -> Estimate:
    """Share of the all-reduces in the base step; where the step is known, other parts make room."""
    share = step_s["verify all-reduce"] / sum(step_s.values())
    if not share:
        return Estimate(median=0.0, low=0.0, high=0.0)
    slopes = -pricing.priced(at).jacobian[0]
    slopes[FACTORS.index("allreduce")] += 1.0
    log_sd = float(np.sqrt(slopes @ pricing.fit.covariance @ slopes))
    odds = estimate(float(np.log(share / (1.0 - share))), log_sd / (1.0 - share))
    low, median, high = (one / (1.0 + one) for one in (odds.low, odds.median, odds.high))
    return Estimate(median=median, low=low, high=high)


def _agreement(
    calibration: Calibration, observations: Sequence[Observation], physical: Sequence[Estimate]
) -> tuple[Agreement, ...]:
    """Both forms at measured configurations."""
    questions = [
        Question(
            accept_length=AcceptLength.exact(one.accept_length_at),
            configuration=one.configuration,
            workload=workload_of(calibration, one.configuration, Ask()),
        )
        for one in observations
    ]
    relative = (each.round_cost for each in predict(calibration, questions))
    return tuple(map(Agreement, observations, relative, physical))
