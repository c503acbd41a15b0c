"""A rig and the parts of its round in plain words."""

from collections.abc import Mapping
from typing import Final

from calibration.physical.scenario import Scenario

PART_NAMES: Final[Mapping[str, str]] = {
    "draft memory": "draft: reading weights and cache",
    "draft compute": "draft: computing",
    "draft all-reduce": "draft: all-reduce",
    "draft host": "draft: kernels, launches, host",
    "verify memory": "verify: reading weights and cache",
    "verify compute": "verify: computing",
    "verify all-reduce": "verify: all-reduce",
    "verify host": "verify: kernels and launches",
    "round host": "host between rounds",
}
"""Plain names of the parts of a round."""

_KERNELS: Final = {"nccl": ", NCCL", "engine": ", the engine's own all-reduce"}


def rig_words(scenario: Scenario) -> str:
    """Return a rig on one line: model, weights, GPUs and link.

    Parameters
    ----------
    scenario : Scenario
        Its load does not matter.

    Returns
    -------
    str

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> rig_words(Scenario(model=preset("Qwen3-8B"), gpu="H100"))
    'Qwen3-8B (weights as released) on 1 x H100'
    """
    link = "" if scenario.tp_size == 1 else f" over {scenario.interconnect or 'the measured link'}"
    kernel = _KERNELS.get(scenario.kernel, "") if scenario.tp_size > 1 else ""
    measured = ", all-reduce measured" if scenario.curve is not None else ""
    formats = scenario.dtype or "weights as released"
    return (
        f"{scenario.model.name} ({formats}) on {scenario.tp_size} x {scenario.gpu}{link}{kernel}"
        f"{measured}"
    )
