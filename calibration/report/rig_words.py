"""A rig and the parts of its round in plain words."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # a prediction that prices no rig starts without the physical form
    from calibration.rig.scenario import Scenario
    from specmodel.architecture import MemoryFit

_KERNELS: Final = {"nccl": ", NCCL", "engine": ", the engine's own all-reduce"}


def rig_words(scenario: "Scenario") -> str:
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
    >>> from calibration.physical.scenario import Scenario
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


def round_words(scenario: "Scenario") -> str:
    """Return how a round drafts: its depth, and what is not that of a chain.

    Examples
    --------
    >>> from calibration.physical.scenario import Scenario
    >>> from specmodel.architecture import preset
    >>> llama = Scenario(model=preset("Llama-3.1-8B"), gpu="H100", depth=3, topk=4, num_draft_tokens=16)
    >>> round_words(llama)
    'depth 3, topk 4, 16 verified'
    """
    chain = scenario.num_draft_tokens in {None, scenario.depth + 1}
    tree = "" if scenario.topk == 1 else f", topk {scenario.topk}"
    rows = "" if chain and not tree else f", {scenario.num_draft_tokens} verified"
    return f"depth {scenario.depth}{tree}{rows}"


def memory_words(memory: "MemoryFit", *, besides: str = "") -> str:
    """Return what a rig needs and has; of one that was measured, it fits whatever is computed.

    Examples
    --------
    >>> from specmodel.rig import Rig
    >>> memory_words(Rig(target="Qwen3-8B", device="H100").fit(batch_size=1e5))[-30:]
    'or is more of the memory used?'
    """
    if memory.fits:
        return memory.sentence + besides
    return (
        f"{memory.sentence}. But such a load was measured, so it needs less than is computed here: is "
        "the KV cache in fp8 (--kv-dtype), or is more of the memory used?"
    )
