"""Learn the packaged priors from the packaged systems; writes specmodel/data/priors.json.

Run as ``python scripts/learn_prior.py`` after a table or the model has changed. For each kind of
knowledge (expert counts known or not) and each family of engines, one prior from every system, and
one without each target model, which is what ``specmodel evaluate`` uses for that target.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.fit.prior_learning import (
    LearningSystem,
    PublicSystem,
    for_other_rigs,
    learn_prior,
    learning_targets,
    public_systems,
)
from calibration.points.arrays import system_rows
from specmodel.constants import NAMES
from specmodel.files import write_text_atomically
from specmodel.prior import ANY_ENGINE, EXPERTS_KNOWN, EXPERTS_UNKNOWN, Prior, family_of, target_key
from specmodel.records import to_record

TARGET = Path(__file__).parents[1] / "specmodel" / "data" / "priors.json"
ROUNDS = 40


def as_learned(system: PublicSystem, *, experts_known: bool) -> LearningSystem:
    """Rows of a system, with its expert counts or as if they were not known."""
    rows = system.rows
    if not experts_known:
        frame = system.points.frame.assign(num_experts=np.nan, experts_per_token=np.nan)
        kept = frame.loc[rows.frame.index]
        rows = system_rows(kept)
    return LearningSystem(
        name=system.name,
        target_model=system.target_model,
        rows=rows.rows,
        log_speedup=rows.log_speedup,
        curve=rows.curve,
    )


def learn(systems: list[LearningSystem], start: Prior | None = None) -> Prior:
    """One prior."""
    return learn_prior(systems, name="learned", start=start, rounds=ROUNDS)


def as_written(prior: Prior) -> Any:
    """Record of a prior, with eight significant digits and the name that its place gives it."""
    text = json.dumps(to_record(replace(prior, name="")))
    return json.loads(text, parse_float=lambda digits: float(f"{float(digits):.8g}"))


def main() -> None:
    """Learn all of them and write the file."""
    found = [system for system in public_systems() if system.teaches]
    targets = learning_targets(found)
    priors: dict[str, Any] = {}
    for kind in (EXPERTS_KNOWN, EXPERTS_UNKNOWN):
        priors[kind] = {}
        for family in (ANY_ENGINE, "sglang"):
            members = [
                as_learned(system, experts_known=kind == EXPERTS_KNOWN)
                for system in found
                if family in (ANY_ENGINE, family_of(system.engine))
            ]
            everyone = learn(members)
            without = {}
            for target in targets:
                others = [one for one in members if target_key(one.target_model) != target]
                if len(others) < len(members):
                    without[target] = as_written(for_other_rigs(learn(others), family))
            priors[kind][family] = {
                "all": as_written(for_other_rigs(everyone, family)),
                "without": without,
            }
            print(f"{kind}, {family}: {len(members)} systems, {len(without)} targets left out")
            for name, value in everyone.median.items():
                print(f"  {name:22s} {value:.3f}")
    record = {"schema_version": 3, "constants": list(NAMES), "priors": priors}
    write_text_atomically(TARGET, json.dumps(record, indent=1) + "\n")
    print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
