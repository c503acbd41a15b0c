"""What if: a rig priced by the physical form, and what one change of it does to the speed-up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from calibration.physical.priced_scenarios import Pricing, ScenarioPrice
from calibration.physical.scenario import Scenario, doubts_of_all_reduce
from calibration.physical.scenario_changes import SYNONYMS, all_changed, changed, default_changes
from specmodel.errors import ParameterError, SpecModelError
from specmodel.physical_fit import PhysicalFit
from specmodel.question import Estimate
from specmodel.rig.factors import FACTORS

_TOGETHER = "all together"

FASTER: Final[Mapping[str, tuple[str, int]]] = {
    "memory bandwidth": ("bandwidth", 1),
    "rate of matrix products": ("compute", 1),
    "all-reduce": ("allreduce", -1),
    "kernels and launches": ("kernels", -1),
    "host between rounds": ("round_host", -1),
    "host of draft passes": ("draft_host", -1),
}
"""What can be made faster, its factor, and the sign of faster."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One change: its price and the ratio of speed-ups, or the reason why it has none."""

    label: str
    priced: ScenarioPrice | None = None
    ratio: Estimate | None = None
    reason: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """What 1 % faster does, in %: to the speed-up and to the output, at the base."""

    label: str
    speedup: float
    output: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The base, changes by their effect, and all changes together where several were asked for.

    `num_points` counts the measured loads behind it; 0 for a prior.
    """

    base: ScenarioPrice
    draft: str
    rows: tuple[Row, ...]
    together: Row | None = None
    elasticities: tuple[Elasticity, ...] = ()
    num_points: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against the measured all-reduces that are used, at the loads that are priced."""
        rows = (*self.rows, *([self.together] if self.together else ()))
        priced = (self.base, *(row.priced for row in rows if row.priced is not None))
        by_ranks: dict[int, list[Scenario]] = {}
        for one in priced:
            by_ranks.setdefault(one.scenario.tp_size, []).append(one.scenario)
        return tuple(doubt for alike in by_ranks.values() for doubt in doubts_of_all_reduce(alike))


def what_if(
    base: Scenario, changes: Sequence[tuple[str, str]] = (), *, fit: PhysicalFit | None = None
) -> WhatIf:
    r"""Price a base and changes of it, one at a time and all together.

    .. math:: \frac{s'}{s} = \frac{T_r / T_1}{T'_r / T'_1}

    Parameters
    ----------
    base : Scenario
        What there is.
    changes : sequence of (key, text)
        Of `calibration.physical.scenario_changes.KEYS`; a default set without any.
    fit : PhysicalFit, optional
        Of the base's rig; its prior without it.

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
    What both share cancels in the ratio: factors of the form (but for `OWN_FACTORS`), and what it
    misses as far as loads and rigs are near each other. The accept length is held fixed.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> llama = Scenario(model=preset("Llama-3.1-8B"), gpu="H100", depth=3, accept_length=2.5)
    >>> found = what_if(llama, [("batch_size", "64")])
    >>> found.rows[0].ratio.median < 1
    True
    """
    pricing = Pricing(base, fit)
    first = pricing.price(base)
    changes = [(SYNONYMS.get(key, key), text) for key, text in changes]
    together = None
    if len(changes) > 1 and len(dict(changes)) == len(changes):
        together = _row(pricing, _TOGETHER, all_changed(base, list(changes)))
    pairs = changes or default_changes(base)
    rows = [_alone(pricing, key, text, possible=together is not None) for key, text in pairs]
    return WhatIf(
        base=first,
        draft=base.draft.described(base.model)[0],
        rows=tuple(sorted(rows, key=_order)),
        together=together,
        elasticities=_elasticities(pricing, base),
        num_points=len(pricing.fit.measured.loads),
    )


def _alone(pricing: Pricing, key: str, text: str, *, possible: bool) -> Row:
    """Price one change; one that is `possible` with the others may need them."""
    label = f"{key}={text}"
    try:
        scenario = changed(pricing.base, key, text)
    except ParameterError as error:
        if not possible:
            raise
        return Row(label=label, reason=f"not without the other changes: {error}")
    return _row(pricing, label, scenario)


def _row(pricing: Pricing, label: str, scenario: Scenario) -> Row:
    """Price one change against the base."""
    base = pricing.base
    if scenario.interconnect != base.interconnect and "interconnect" not in label:
        label += f" over {scenario.interconnect}" if label != _TOGETHER else ""
    try:
        priced = pricing.price(scenario)
        ratio = pricing.ratio(base, scenario)
    except SpecModelError as error:
        hint = error.hint if isinstance(error, ParameterError) else ""
        return Row(label=label, reason=hint if "does not fit" in hint else str(error))
    return Row(label=label, priced=priced, ratio=ratio)


def _elasticities(pricing: Pricing, base: Scenario) -> tuple[Elasticity, ...]:
    """Elasticities of speed-up and output by what can be made faster, largest first."""
    at = pricing.priced(base)
    step, whole = at.jacobian
    _, logs = pricing.logs(base)
    found = []
    for label, (factor, sign) in FASTER.items():
        moves = sign * np.array([step[FACTORS.index(factor)], whole[FACTORS.index(factor)]])
        one = Elasticity(
            label=label,
            speedup=float(moves @ np.array(logs.speedup_slopes[:2])),
            output=float(moves @ np.array(logs.output_slopes[:2])),
        )
        if abs(one.speedup) + abs(one.output) > 1e-4:
            found.append(one)
    return tuple(sorted(found, key=lambda one: -abs(one.output)))


def _order(row: Row) -> float:
    """Largest effect first, either way; what has no price last."""
    return np.inf if row.ratio is None else -abs(float(np.log(row.ratio.median)))
