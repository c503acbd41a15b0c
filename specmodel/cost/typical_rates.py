"""What to expect of a device and an engine before anything was measured."""

from collections.abc import Mapping
from types import MappingProxyType

from specmodel.cost.forward_work import DeviceRates
from specmodel.hardware import Gpu

STREAM_SHARE = 0.8
"""Part of the datasheet bandwidth that a whole decode step reaches while it streams weights. Read kernels
alone reach 0.79 to 0.98 on the cards of the catalogue, 0.61 on MI355X. A judgement. [-]"""

PRODUCT_SHARE = 0.5
"""Part of the dense datasheet rate that the products of a verify step reach. A judgement. [-]"""

KERNEL_S = 1.2e-6
"""Time of a small kernel inside a graph: 3.6 ms that a Kimi-K2.5 step on 8 RTX PRO 6000 spends on
neither weights nor collectives, over 2,950 kernels [step-costs]_. [s]"""

STEP_HOST_S = 0.7e-3
"""Gaps that the host leaves in a step or round, as in a trace of GLM-5.2 on 8 H200 [step-costs]_. [s]"""

KERNELS_PER_LAYER: Mapping[str, float] = MappingProxyType(
    {"latent_moe": 42.0, "moe": 25.0, "hybrid": 20.0, "dense": 14.0}
)
"""Kernels of a layer by kind. Latent attention with experts: 2,900 to 3,000 kernels in 60 to 80 layers
[step-costs]_; the others are judgements from the operations a layer has. [-]"""


def typical_rates(device: Gpu, dtype: str) -> DeviceRates:
    r"""Rates to expect of a GPU of the catalogue.

    .. math:: 0.8\, b,\quad 0.5\, f

    Parameters
    ----------
    device : Gpu
        From `specmodel.hardware.gpu`.
    dtype : str
        Precision of the products, as `Gpu.flop_per_s` takes it.

    Returns
    -------
    DeviceRates

    Raises
    ------
    ParameterError
        If the catalogue has no bandwidth or no rate of that precision.

    Notes
    -----
    What a measurement says more precisely goes into `StepMultipliers`, whose priors are as wide as these
    shares are uncertain.

    Examples
    --------
    >>> from specmodel.hardware import gpu
    >>> round(typical_rates(gpu("H100"), "bf16").bandwidth_bytes_per_s / 1e12, 2)
    2.68
    """
    return DeviceRates(
        bandwidth_bytes_per_s=STREAM_SHARE * device.bandwidth_bytes_per_s(),
        flop_per_s=PRODUCT_SHARE * device.flop_per_s(dtype),
        kernel_s=KERNEL_S,
    )
