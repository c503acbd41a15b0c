"""The time below which no kernel can bring a draft step: its bytes over the memory's bandwidth."""

from dataclasses import dataclass
from typing import Final, final

from drafter.spec import DraftSpec
from drafter.step_work import BF16_BYTES, StepWork, step_work
from specmodel.hardware import Gpu

USUAL_GPUS: Final = ("H200", "H100", "RTX PRO 6000 WS", "RTX 4090")
"""Devices that a floor is shown for where none is named; names of the catalogue."""

USUAL_CONTEXT_TOKENS: Final = 2048
"""Context that a floor is shown for where none is named. [tokens]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Least time of a draft step on a device.

    Parameters
    ----------
    gpu : Gpu
        The device.
    work : StepWork
        What the step moves and computes.
    datasheet_s : float
        At the bandwidth of the datasheet, [s].
    measured_s : float or None
        At a measured read bandwidth, where the catalogue has one, [s].
    extend_adds_s : float
        What an extend reads besides, at the bandwidth of the datasheet, [s].
    compute_bound : bool
        Whether arithmetic, not memory, sets the floor.
    """

    gpu: Gpu
    work: StepWork
    datasheet_s: float
    measured_s: float | None
    extend_adds_s: float
    compute_bound: bool


def step_floor(
    spec: DraftSpec,
    gpu: Gpu,
    *,
    context_tokens: int = USUAL_CONTEXT_TOKENS,
    batch_size: int = 1,
) -> Floor:
    r"""Least time of a decode step in bf16.

    .. math:: T = \max(\text{bytes} / b,\; \text{FLOP} / f)

    Parameters
    ----------
    spec : DraftSpec
        The draft model.
    gpu : Gpu
        :math:`b, f`, bandwidth and dense bf16 rate of its catalogue entry.
    context_tokens : int
        Cached tokens of a request, at least 0, [tokens].
    batch_size : int
        Requests, at least 1, [-].

    Returns
    -------
    Floor

    Raises
    ------
    ParameterError
        If an argument is out of bounds, or the catalogue has no bandwidth for the device.

    Notes
    -----
    A bound, not an estimate: kernels, launches and the embedding's row come on top, and no kernel reads
    at the full rate of the datasheet. Where the whole model fits in the L2 cache and stays there, a step
    can be faster; after a pass of the target it does not. Without a bf16 rate only memory counts.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> from specmodel.hardware import gpu
    >>> floor = step_floor(public_shape("Llama-3.1-8B").spec, gpu("H200"))
    >>> round(floor.datasheet_s * 1e6, 1), floor.compute_bound
    (157.7, False)
    """
    work = step_work(
        spec, context_tokens=context_tokens, batch_size=batch_size, value_bytes=BF16_BYTES
    )
    bandwidth = gpu.bandwidth_bytes_per_s()
    computing_s = (
        work.flop / gpu.dense_flop_per_s["bf16"] if "bf16" in gpu.dense_flop_per_s else 0.0
    )
    reading_s = work.step_bytes / bandwidth
    measured = gpu.measured_read_bandwidth_bytes_per_s
    return Floor(
        gpu=gpu,
        work=work,
        datasheet_s=max(reading_s, computing_s),
        measured_s=None if measured is None else max(work.step_bytes / measured, computing_s),
        extend_adds_s=work.extend_bytes / bandwidth,
        compute_bound=computing_s > reading_s,
    )


def memory_bound_tokens(gpu: Gpu) -> float:
    r"""Tokens of a step up to which reading the weights takes longer than computing on them.

    .. math:: T = f / b

    Parameters
    ----------
    gpu : Gpu
        With a bandwidth and a dense bf16 rate.

    Returns
    -------
    float
        Positive, [tokens].

    Raises
    ------
    ParameterError
        If the catalogue lacks one of the two.

    Notes
    -----
    For bf16: a parameter is 2 bytes and 2 FLOP a token, so the two factors cancel. The cache is left out.

    Examples
    --------
    >>> from specmodel.hardware import gpu
    >>> round(memory_bound_tokens(gpu("H200")))
    206
    """
    return gpu.flop_per_s("bf16") / gpu.bandwidth_bytes_per_s()


def gpu_label(gpu: Gpu) -> str:
    r"""Shortest name of a device that the catalogue finds it by.

    .. math:: \text{GPU} \mapsto \text{name}

    Parameters
    ----------
    gpu : Gpu
        The device.

    Returns
    -------
    str
        Its name or one of its aliases.

    Notes
    -----
    For the head of a column.

    Examples
    --------
    >>> from specmodel.hardware import gpu
    >>> gpu_label(gpu("RTX PRO 6000 WS"))
    'RTX PRO 6000 WS'
    """
    return min((gpu.name, *gpu.aliases), key=len)
