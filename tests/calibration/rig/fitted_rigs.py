"""Points typed in a test, fitted as `specmodel fit` does, and what changes of their rig do."""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from calibration import fit
from calibration.rig.from_points import AskedRig
from calibration.rig.prediction import calibrated_scenario
from calibration.rig.pricing import Pricing, interval_sd
from calibration.rig.scenario import Scenario
from calibration.rig.whatif import changed, what_if
from specmodel.ask import Ask
from specmodel.calibration import Calibration
from specmodel.physical_fit import PhysicalFit
from specmodel.question import Estimate

Point = Mapping[str, object]


def say(text: str) -> None:
    """Show a measured number when output is not captured (pytest -s)."""
    sys.stdout.write(text + "\n")


def fitted(rows: Sequence[Point], asked: AskedRig | None = None) -> Calibration:
    """Calibration of a points file with these rows."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "bench.csv"
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.DictWriter(opened, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        calibration = fit(file, rig=asked, profile=False)
    assert calibration.physical is not None, calibration.rig_note
    return calibration


class Change(NamedTuple):
    """What a change does: ratios of speed-up, base step and round over those of the base."""

    base_speedup: float
    speedup: Estimate
    step: Estimate
    round: Estimate


def change_of(
    calibration: Calibration,
    *changes: tuple[str, str],
    depth: int,
    rows: int,
    accept_length: float,
    topk: int = 1,
    batch_size: float = 1,
    context_tokens: float | None = None,
) -> Change:
    """Changes of a calibrated rig together, as `specmodel whatif --calibration` prices them."""
    asked = Ask(
        num_steps=(depth,),
        topk=topk,
        num_draft_tokens=rows,
        batch_size=batch_size,
        context_tokens=context_tokens,
    )
    base, physical = calibrated_scenario(calibration, asked, accept_length=accept_length)
    found = what_if(base, changes, fit=physical)
    row = found.together or found.rows[0]
    assert row.ratio is not None, row.reason
    after = changed(base, *changes)
    step, whole = (_ratio(base, after, physical, at) for at in (0, 1))
    return Change(found.base.speedup.median, row.ratio, step, whole)


def _ratio(base: Scenario, after: Scenario, physical: PhysicalFit, at: int) -> Estimate:
    """Ratio of base steps (0) or rounds (1)."""
    pricing = Pricing(base, physical)
    mean, covariance = physical.predict(pricing.priced(base), pricing.priced(after))
    weights = np.zeros(4)
    weights[at], weights[at + 2] = -1.0, 1.0
    half = interval_sd() * float(np.sqrt(weights @ covariance @ weights))
    low, median, high = np.exp(weights @ mean + np.array([-half, 0.0, half])).tolist()
    return Estimate(median=median, low=low, high=high)


def inside(measured: float, interval: Estimate) -> bool:
    return interval.low <= measured <= interval.high


def words(measured: float, found: Estimate) -> str:
    return (
        f"x {found.median:.3f} ({found.low:.2f} to {found.high:.2f}), measured x {measured:.3f}"
        f"{'' if inside(measured, found) else ' OUTSIDE'}"
    )
