"""Steps and rounds of a server at every batch, by the physical form of a calibrated rig."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.arrival_question import AskedArrival, ServerTimes, between_batches
from calibration.physical.rig_draws import time_draws
from calibration.physical.rig_prediction import ChangedRig, scenario_at
from calibration.physical.scenario import Scenario
from specmodel.errors import ParameterError
from specmodel.form_error import Loads
from specmodel.question import Question

Array = NDArray[np.float64]

MOST_RUNNING: Final = 1024
"""Most requests that run at once where memory would hold more (judgement). [requests]"""

_NEAR = 1.2


def rig_server_times(
    rig: ChangedRig,
    question: Question,
    asked: AskedArrival,
    accept_length: Array,
    rng: np.random.Generator,
) -> ServerTimes:
    r"""Steps and rounds at every batch that the memory holds, with draws of what is not known of them.

    .. math:: T_1(b),\quad T_r(b)

    Parameters
    ----------
    rig : ChangedRig
        A calibrated rig, with its changes.
    question : Question
        Its batch does not matter.
    asked : AskedArrival
        With a prefill, times are those of decoding alone; without, what is not decoding takes the share
        of the baseline's time that it takes in the points.
    accept_length : numpy.ndarray, shape (d + 1,)
        At the median, then draws, [tokens].
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ServerTimes

    Raises
    ------
    ParameterError
        If the rig cannot be, or lacks the memory.

    Notes
    -----
    Factors of the form, what it misses and the non-decode share are drawn jointly for all batches.
    """
    scenario = scenario_at(
        rig.rig, replace(question, configuration=replace(question.configuration, batch_size=1.0))
    )
    most, limit = _most_running(rig, scenario, asked.max_running)
    batches = _batches(most)
    loads = _loads(scenario, batches)
    logs, share = time_draws(rig, scenario, loads, accept_length.size - 1, rng)
    step_s, round_s = (
        np.exp(between_batches(batches, each, most)) for each in np.split(logs, 2, axis=1)
    )
    if asked.prefill_s is None:
        step_s = step_s / (1.0 - share)
        round_s = round_s + share * accept_length[:, None] * step_s
    measured = rig.pricing.fit.measured.loads.batch_size
    return ServerTimes(
        step_s=step_s,
        round_s=round_s,
        form="physical",
        limit=limit,
        largest_measured=float(np.max(measured)) if measured.size else None,
        non_decode_share=float(share[0, 0]),
    )


def _most_running(rig: ChangedRig, scenario: Scenario, asked: int | None) -> tuple[int, str]:
    """Most requests that run at once: the user's limit, or what memory holds."""
    rig.pricing.memory(scenario)
    low, high = 1, (asked or MOST_RUNNING) + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            rig.pricing.memory(replace(scenario, batch_size=float(middle)))
        except ParameterError:
            high = middle
        else:
            low = middle
    if asked is None:
        held = low < MOST_RUNNING
        return low, "what memory holds" if held else "as many as engines run; memory holds more"
    if low < asked:
        raise ParameterError(
            "max_running",
            asked,
            f"at most {low}, which memory holds at context {scenario.context_tokens:g}",
            "more GPUs or a smaller kv_dtype hold more",
        )
    return asked, ""


def _batches(most: int) -> Array:
    """Batches at which steps and rounds are priced; between them they are smooth."""
    found = [1.0]
    while found[-1] < most:
        found.append(min(max(found[-1] + 1.0, round(_NEAR * found[-1])), float(most)))
    return np.array(found)


def _loads(scenario: Scenario, batches: Array) -> Loads:
    """Base steps, then rounds."""
    rounds = Loads.of(
        num_steps=scenario.depth,
        topk=scenario.topk,
        num_draft_tokens=scenario.num_draft_tokens or scenario.depth + 1,
        batch_size=batches,
        context_tokens=scenario.context_tokens,
    )
    return rounds.base_steps().joined(rounds)
