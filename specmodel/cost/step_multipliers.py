"""What a measurement may change about the physical form: factors whose priors sit at 1."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import final

import numpy as np
from numpy.typing import NDArray

from specmodel.errors import ParameterError

Factor = float | NDArray[np.float64]

PRIOR_LOG_SD: Mapping[str, float] = MappingProxyType(
    {
        "bandwidth": 0.15,
        "compute": 0.40,
        "allreduce": 0.47,
        "kernels": 0.50,
        "round_host": 0.70,
        "spec_host": 0.70,
        "draft_host": 0.70,
        "routing": 0.10,
    }
)
r"""Standard deviation of the logarithm of each factor, median 1. [-]

``allreduce`` is the spread :math:`\ln 1.6` of eight sets of rows on one kind of 8-GPU machine
(allreduce.md 7). The others are judgements: read kernels reach 0.79 to 0.98 of the datasheet on most
cards of the catalogue, matrix products 0.4 to 0.8, hosts differ by two."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepMultipliers:
    r"""Factors on the rates and times of the physical form; 1 is the prior median.

    .. math:: \ln m_i \sim \mathcal N(0, \sigma_i^2)

    Parameters
    ----------
    bandwidth : float or numpy.ndarray
        On the memory bandwidth, positive, [-].
    compute : float or numpy.ndarray
        On the rate of matrix products, positive, [-].
    allreduce : float or numpy.ndarray
        On the time of each collective, not negative, [-].
    kernels : float or numpy.ndarray
        On the fixed time of small kernels and of launches, not negative, [-].
    round_host : float or numpy.ndarray
        On the host time of a step or round, not negative, [-].
    spec_host : float or numpy.ndarray
        On that of a round besides: what speculation adds to scheduling, not negative, [-].
    draft_host : float or numpy.ndarray
        On the host time of a draft forward, not negative, [-].
    routing : float or numpy.ndarray
        Exponent on the tokens that choose experts independently: 1 for uniform routing, below 1 when
        tokens share experts; between 0 and 1.5, [-].
    kv_row_share : float or numpy.ndarray
        0 when the KV cache is read once per request and step, 1 when once per verified row, [0, 1].

    Raises
    ------
    ParameterError
        If a factor is outside its range.

    Notes
    -----
    Arrays broadcast against the configurations, so posterior draws are priced in one call.

    Examples
    --------
    >>> StepMultipliers(bandwidth=0.9).compute
    1.0
    """

    bandwidth: Factor = 1.0
    compute: Factor = 1.0
    allreduce: Factor = 1.0
    kernels: Factor = 1.0
    round_host: Factor = 1.0
    spec_host: Factor = 1.0
    draft_host: Factor = 1.0
    routing: Factor = 1.0
    kv_row_share: Factor = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = np.asarray(getattr(self, field.name), dtype=np.float64)
            positive = field.name in {"bandwidth", "compute"}
            most = {"kv_row_share": 1.0, "routing": 1.5}.get(field.name, np.inf)
            sound = (
                np.isfinite(value) & (value <= most) & ((value > 0) if positive else (value >= 0))
            )
            if not np.all(sound):
                least = "above 0" if positive else "at least 0"
                most_text = f" and at most {most:g}" if most < np.inf else " and finite"
                raise ParameterError(field.name, f"{value[~sound].flat[0]:g}", least + most_text)
