"""What a server pays for a loaded draft model while it drafts nothing."""

import math
from collections.abc import Mapping
from typing import Final

from specmodel.errors import ParameterError

LoadedOverhead = float | Mapping[float, float]
"""A share of the step time, or shares by batch size."""

MEASURED_OVERHEAD: Final[Mapping[float, float]] = {2.0: 0.066, 189.0: 0.216}
"""Longer step of a server at depth 0 with its draft model loaded, by concurrent requests: time per
output token against a server without one, vllm-project/vllm issue 49548. One machine, one model: on
any other it is an assumption. [share of the step]"""


def loaded_overhead_at(batch_size: float, overhead: LoadedOverhead | None = None) -> float:
    r"""Relative time that a step at depth 0 takes longer than one of a server without a draft model.

    .. math:: o(B) = o_i + (o_{i+1} - o_i) \frac{\ln B - \ln B_i}{\ln B_{i+1} - \ln B_i}

    Parameters
    ----------
    batch_size : float
        :math:`B`, running requests, at least 1.
    overhead : float or mapping from float to float, optional
        One share for every batch, or shares :math:`o_i` by batch size :math:`B_i`; by default
        `MEASURED_OVERHEAD`, [-].

    Returns
    -------
    float
        :math:`o`, not negative; constant outside the batches of a mapping, [-].

    Raises
    ------
    ParameterError
        If a share is negative or not finite, or a batch is below 1.

    Notes
    -----
    A speculation-loaded server at depth 0 keeps a CUDA-graph mode and KV memory for its draft model,
    and some releases still run the draft's extend: it is slower than a server without speculation.

    Examples
    --------
    >>> loaded_overhead_at(2), loaded_overhead_at(400)
    (0.066, 0.216)
    >>> round(loaded_overhead_at((2 * 189) ** 0.5), 3)
    0.141
    >>> loaded_overhead_at(8, 0.05)
    0.05
    """
    if not batch_size >= 1:
        raise ParameterError("batch_size", f"{batch_size:g}", "at least 1")
    known = MEASURED_OVERHEAD if overhead is None else overhead
    if not isinstance(known, Mapping):
        return _share(known)
    points = sorted((float(batch), _share(share)) for batch, share in known.items())
    if not points or not points[0][0] >= 1:
        raise ParameterError(
            "loaded_overhead",
            f"{points[0][0]:g}" if points else "nothing",
            "shares by batch sizes of at least 1",
            "give one share, or leave it out",
        )
    below = [point for point in points if point[0] <= batch_size]
    above = [point for point in points if point[0] >= batch_size]
    if not below or not above:
        return (below or above)[-1 if below else 0][1]
    (low, at_low), (high, at_high) = below[-1], above[0]
    if low == high:
        return at_low
    return at_low + (at_high - at_low) * math.log(batch_size / low) / math.log(high / low)


def overhead_note(overhead: LoadedOverhead | None = None) -> str:
    """Return the assumption about depth 0 in words.

    Parameters
    ----------
    overhead : float or mapping, optional
        As in `loaded_overhead_at`.

    Returns
    -------
    str
        One sentence.

    Examples
    --------
    >>> overhead_note(0.05)
    'depth 0 with the draft model loaded is taken to be slower than no speculation by 5 %, as given'
    """
    known = MEASURED_OVERHEAD if overhead is None else overhead
    if isinstance(known, Mapping):
        stated = ", ".join(f"{share:.3g} at {batch:g} requests" for batch, share in known.items())
        source = (
            "measured on another system (vllm-project/vllm issue 49548); measure it on yours"
            if overhead is None
            else "as given"
        )
        return (
            "depth 0 with the draft model loaded is taken to be slower than no speculation by the "
            f"share {stated}, interpolated in the logarithm of the batch; {source}"
        )
    percent = f"{known:.2%}".rstrip("%").rstrip("0").rstrip(".")
    return (
        "depth 0 with the draft model loaded is taken to be slower than no speculation by "
        f"{percent} %, as given"
    )


def _share(value: float) -> float:
    """A share, checked."""
    if not (math.isfinite(value) and value >= 0):
        raise ParameterError(
            "loaded_overhead", f"{value:g}", "finite and not negative", "0.066 is 6.6 %"
        )
    return float(value)
