"""Whether rounds cost more than on public systems, and what to look at when they do."""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from calibration.rig.explain import Explanation
from calibration.rig.scenario import Scenario
from specmodel.calibration import Calibration
from specmodel.prediction import predict
from specmodel.question import AcceptLength, Estimate, Observation, Question
from specmodel.text_layout import number

FEW_REQUESTS = 4.0
"""Batch up to which a step is bound by reading weights, so that these causes apply. [-]"""

FAR_ABOVE = 1.1
"""Round cost over the upper end of public systems from which it is worth a diagnosis. [-]"""

NOTHING_ACCEPTED = 1.02
"""Accept length up to which drafts are not taken at all. [tokens]"""

JUMP = 1.35
"""Factor of the round cost between neighbouring batches from which a threshold lies between them. [-]"""

MOST_APART = 4.0
"""Factor up to which batches are neighbours. [-]"""

_LONG_CONTEXT = 4096.0


class Diagnosis(NamedTuple):
    """A round cost beyond what public systems show, and what to test, in this order."""

    observation: Observation
    public: Estimate
    causes: tuple[str, ...]


def diagnose(calibration: Calibration, explanation: Explanation | None = None) -> Diagnosis | None:
    """What is wrong where rounds are far more expensive than on public systems; None where not.

    The order of the causes is that of theory.md part E; where the physical form knows the rig, that of
    what each adds to a round. Batches above `FEW_REQUESTS` are left out: there a high cost may be the
    verification itself.
    """
    public = replace(
        Calibration.from_prior(calibration.prior),
        num_experts=calibration.num_experts,
        experts_per_token=calibration.experts_per_token,
    )
    few = [
        one
        for one in calibration.observations
        if (one.configuration.batch_size or 1.0) <= FEW_REQUESTS
    ]
    asked = [
        Question(accept_length=AcceptLength.exact(1.0), configuration=one.configuration)
        for one in few
    ]
    costs = [one.round_cost for one in predict(public, asked)]
    found = [
        (one.decode_round_cost / expected.high, one, expected)
        for one, expected in zip(few, costs, strict=True)
        if one.decode_round_cost > FAR_ABOVE * expected.high
    ]
    if not found:
        return None
    _, observation, expected = max(found, key=lambda one: one[0])
    return Diagnosis(
        observation=observation,
        public=expected,
        causes=_causes(calibration, observation, explanation),
    )


def remarks(calibration: Calibration) -> tuple[str, ...]:
    """What the numbers of the rows show by themselves: drafts that nobody takes, and thresholds."""
    found = []
    for one in calibration.observations:
        depth = one.configuration.num_steps
        if max(one.accept_length) <= NOTHING_ACCEPTED and depth:
            found.append(
                f"{one.configuration}: accept length {one.accept_length_at:g}, so nothing that is drafted is "
                f"accepted, and {number(one.decode_round_cost)} steps are the price of speculation that is "
                "switched on: does the log show the draft model loaded, and the target's own vocabulary?"
            )
    by_depth: dict[tuple[float | None, ...], list[Observation]] = {}
    for one in calibration.observations:
        at = one.configuration
        key = (at.num_steps, at.topk, at.num_draft_tokens, at.context_tokens)
        by_depth.setdefault(key, []).append(one)
    for alike in by_depth.values():
        batches = sorted(
            (one for one in alike if one.configuration.batch_size),
            key=lambda one: one.configuration.batch_size or 0.0,
        )
        for low, high in pairwise(batches):
            jump = high.decode_round_cost / low.decode_round_cost
            few, many = (one.configuration.batch_size or 1.0 for one in (low, high))
            if jump < JUMP or many > MOST_APART * few:
                continue
            width = high.configuration.num_draft_tokens or 1.0
            found.append(
                f"depth {high.configuration.num_steps or 0:g}: from batch {few:g} to {many:g} a round grows from "
                f"{number(low.decode_round_cost)} to {number(high.decode_round_cost)} steps, where it verifies "
                f"{few * width:g} and {many * width:g} tokens: a threshold lies between (sizes of captured "
                "graphs, the protocol of an all-reduce); runs between them would show where"
            )
    return tuple(found)


def _causes(
    calibration: Calibration, observation: Observation, explanation: Explanation | None
) -> tuple[str, ...]:
    """What to test for a configuration, the likeliest first, or the largest.

    Two depths at its load tell the line of the round over depth, and with it where the excess is. Engines
    and devices that the points name get no advice for others.
    """
    configuration, system = observation.configuration, calibration.system
    on_gpu = not any(
        word in str(system.get("gpu", "")).casefold() for word in ("cpu", "epyc", "xeon")
    )
    graphs = on_gpu and "llama" not in str(system.get("engine", "")).casefold()
    alone = {system.get(name, "") for name in ("tp_size", "num_gpus")} & {"1", "1.0"}
    several = on_gpu and not alone
    steps, fixed = _excess(calibration, observation)
    draft = (
        "the draft does not run in a CUDA graph" if graphs else "the draft model is slow by itself"
    )
    host = "verification runs outside a captured graph, or a fixed cost of the host in every round"
    causes = [(f"{draft}{steps}", "draft host")]
    if fixed:
        causes.insert(
            0, (f"{host if graphs else 'a fixed cost of the host in every round'}{fixed}", "")
        )
    if several:
        causes.append(
            ("a draft sharded over GPUs: an all-reduce at every draft step", "draft all-reduce")
        )
    if several and (explanation is None or _library_over_pcie(explanation.scenario)):
        library = "NCCL all-reduce on more than two PCIe GPUs (no peer-to-peer)"
        causes.append((library, "verify all-reduce"))
    if calibration.num_experts != 0:
        experts = "MoE: verifying k + 1 tokens reads several times the experts"
        causes.append((experts, "verify memory"))
    if (configuration.context_tokens or 0.0) > _LONG_CONTEXT:
        causes.append(("the KV cache is read once per verified row, not per request", ""))
    if configuration.num_steps is None or (configuration.topk or 1.0) > 1.0:
        causes.append(("overhead of a draft tree (try topk 1)", ""))
    if explanation is not None:
        causes = _by_size(causes, explanation)
    return (
        *(text for text, _ in causes),
        "a wrong baseline: other flags, load or scope than the run, or a prefix cache in one of the two alone",
    )


def _excess(calibration: Calibration, observation: Observation) -> tuple[str, str]:
    """What two depths at one load say of the price of a draft step, and of a round before any."""
    at = observation.configuration
    line = {
        one.configuration.num_steps: one.decode_round_cost
        for one in calibration.observations
        if one.configuration.num_steps is not None
        and replace(one.configuration, num_steps=at.num_steps, num_draft_tokens=at.num_draft_tokens)
        == at
    }
    if len(line) < 2:
        return "", ""
    depths = np.array(list(line))
    step, fixed = np.polyfit(depths, list(line.values()), 1)
    prior = calibration.prior.median
    steps = fixed_said = ""
    if step > FAR_ABOVE * _upper(calibration, "step_cost"):
        steps = (
            f": {step:.2f} steps for each drafted token, {prior['step_cost']:.2f} on public systems"
        )
    if fixed > FAR_ABOVE * _upper(calibration, "fixed_cost"):
        fixed_said = (
            f": {fixed:.2f} steps before any draft, {prior['fixed_cost']:.2f} on public systems"
        )
    return steps, fixed_said


def _upper(calibration: Calibration, name: str) -> float:
    """Upper end of a constant over public systems."""
    return next(one.prior_high for one in calibration.constants if one.name == name)


def _library_over_pcie(rig: Scenario) -> bool:
    """Whether an engine leaves the all-reduces of a rig to the library."""
    return rig.tp_size > 2 and rig.interconnect.startswith("pcie") and rig.kernel != "engine"


def _by_size(causes: list[tuple[str, str]], explanation: Explanation) -> list[tuple[str, str]]:
    """Causes with what they add to a round in the fitted form, largest first; without a size last."""
    added = {one.name: one.added_s / explanation.price.step_s.median for one in explanation.causes}
    sized = [
        (f"{text}: {added[part]:+.2f} steps" if added.get(part, 0.0) > 0 else text, part)
        for text, part in causes
        if part not in added or added[part] > 0
    ]
    return sorted(sized, key=lambda cause: -added.get(cause[1], 0.0))
