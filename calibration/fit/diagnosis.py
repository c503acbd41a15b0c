"""Whether rounds cost more than on public systems, and what to look at when they do."""

from dataclasses import replace
from typing import NamedTuple

from calibration.rig.explain import Explanation
from calibration.rig.scenario import Scenario
from specmodel.calibration import Calibration
from specmodel.prediction import predict
from specmodel.question import AcceptLength, Configuration, Estimate, Observation, Question

FEW_REQUESTS = 4.0
"""Batch up to which a step is bound by reading weights, so that these causes apply. [-]"""

FAR_ABOVE = 1.1
"""Round cost over the upper end of public systems from which it is worth a diagnosis. [-]"""

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
        causes=_causes(calibration, observation.configuration, explanation),
    )


def _causes(
    calibration: Calibration, configuration: Configuration, explanation: Explanation | None
) -> tuple[str, ...]:
    """What to test for a configuration, the likeliest first, or the largest."""
    causes = [
        ("the draft does not run in a CUDA graph", "draft host"),
        ("a draft sharded over GPUs: an all-reduce at every draft step", "draft all-reduce"),
    ]
    if explanation is None or _library_over_pcie(explanation.scenario):
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
        "a wrong baseline: other flags, load or scope than the run",
    )


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
