"""The factors that a calibration of the physical form fits, and what times they give."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.cost.step_multipliers import PRIOR_LOG_SD, StepMultipliers
from specmodel.errors import ParameterError
from specmodel.form_error import Loads
from specmodel.physical_fit import Priced
from specmodel.rig.served_model import Rig

Array = NDArray[np.float64]

KV_ROW_SHARE: Final = 0.3
"""Prior median of the share of verified rows that read the cache again; most kernels read it once per
request, some once per row (theory.md B10; a judgement). [-]"""

KV_ROW_LOGIT_SD: Final = 1.5
"""Its spread on the logit scale (judgement). [-]"""

FACTOR_LOG_SD: Mapping[str, float] = MappingProxyType(
    {**PRIOR_LOG_SD, "kv_row_share": KV_ROW_LOGIT_SD}
)
"""Prior standard deviations of the fitted factors: log scale, of `kv_row_share` logit. `allreduce` is
replaced by the spread of the link's own prior. [-]"""

FACTORS: tuple[str, ...] = tuple(FACTOR_LOG_SD)
"""Names of the fitted factors, in the order of every vector of them."""

MOST_ROUTING: Final = 1.5
"""Largest exponent of the routing. [-]"""

_DIFFERENCE = 1e-3


def factor_sd(rig: Rig) -> Array:
    r"""Prior spread of the factors of a rig.

    .. math:: z \sim \mathcal N(0, \operatorname{diag}(\sigma^2))

    Parameters
    ----------
    rig : Rig
        Its link tells the spread of the all-reduce.

    Returns
    -------
    numpy.ndarray, shape (f,)
        In the order of `FACTORS`, [-].

    Notes
    -----
    On one GPU the factor of the all-reduce has no effect.

    Examples
    --------
    >>> float(factor_sd(Rig(target="Qwen3-8B", device="H100"))[0])
    0.15
    """
    spreads = {**FACTOR_LOG_SD, "allreduce": rig.allreduce_log_sd}
    return np.array([spreads[name] for name in FACTORS])


def multipliers_of(internal: Array) -> StepMultipliers:
    r"""Multipliers from the scale on which their prior is normal.

    .. math:: m = e^{z},\quad \rho = 1/(1 + e^{-(z + z_0)})

    Parameters
    ----------
    internal : numpy.ndarray, shape (d, f)
        :math:`z` of each draw, in the order of `FACTORS`, [-].

    Returns
    -------
    StepMultipliers
        Arrays of shape (d,).

    Raises
    ------
    ParameterError
        If there is another number of factors.

    Notes
    -----
    All 0 is the prior median.

    Examples
    --------
    >>> multipliers_of(np.zeros((1, len(FACTORS)))).bandwidth.tolist()
    [1.0]
    """
    values = np.asarray(internal, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(FACTORS):
        raise ParameterError("internal", values.shape, f"(draws, {len(FACTORS)})")
    found = dict(zip(FACTORS, np.exp(np.clip(values, -20.0, 20.0)).T, strict=True))
    odds = found["kv_row_share"] * KV_ROW_SHARE / (1.0 - KV_ROW_SHARE)
    found["kv_row_share"] = odds / (1.0 + odds)
    found["routing"] = np.minimum(found["routing"], MOST_ROUTING)
    return StepMultipliers(**found)


def log_times(rig: Rig, loads: Loads, internal: Array) -> tuple[Array, Array]:
    r"""Logarithms of step and round times under draws of the factors.

    .. math:: \ln T_1 \ \text{at depth 0},\quad \ln T_r\ \text{elsewhere}

    Parameters
    ----------
    rig : Rig
        What is priced.
    loads : Loads
        Of length n.
    internal : numpy.ndarray, shape (d, f)
        As in `multipliers_of`, [-].

    Returns
    -------
    log_time : numpy.ndarray, shape (d, n)
        [ln s].
    target_share : numpy.ndarray, shape (d, n)
        Share of the target's pass and of the host in the time; 1 at depth 0, [-].

    Raises
    ------
    ParameterError
        If a load is impossible, or rounds are asked of a rig without draft model.

    Notes
    -----
    `Rig.round_parts`, of which depth 0 is a step.

    Examples
    --------
    >>> rig = Rig(target="Llama-3.1-8B", device="H100")
    >>> times, share = log_times(rig, Loads.of(num_steps=[0, 0], batch_size=[1, 64]), np.zeros((3, 9)))
    >>> times.shape, float(share.min())
    ((3, 2), 1.0)
    """
    parts = rig.round_parts(
        loads.num_steps,
        topk=loads.topk,
        num_draft_tokens=np.where(loads.rounds, loads.num_draft_tokens, 1.0),
        batch_size=loads.batch_size,
        context_tokens=loads.context_tokens,
        multipliers=multipliers_of(internal),
    )
    shape = (internal.shape[0], len(loads))
    total_s = np.broadcast_to(parts.total_s, shape)
    return np.log(total_s), 1.0 - np.broadcast_to(parts.draft.total_s, shape) / total_s


def priced(rig: Rig, loads: Loads, internal: Array) -> Priced:
    r"""Logarithms of times and their derivatives by the factors.

    .. math:: h(z),\quad J = \partial h / \partial z

    Parameters
    ----------
    rig, loads : Rig, Loads
        As in `log_times`.
    internal : numpy.ndarray, shape (f,)
        :math:`z`, [-].

    Returns
    -------
    Priced

    Raises
    ------
    ParameterError
        As `log_times`.

    Notes
    -----
    Central differences, all in one call.

    Examples
    --------
    >>> rig = Rig(target="Llama-3.1-8B", device="H100")
    >>> found = priced(rig, Loads.of(num_steps=0), np.zeros(9))
    >>> bool(found.jacobian[0, FACTORS.index("bandwidth")] < -0.5)
    True
    """
    count = len(FACTORS)
    moves = _DIFFERENCE * np.eye(count)
    found, share = log_times(rig, loads, internal + np.vstack([np.zeros(count), moves, -moves]))
    slopes = (found[1 : count + 1] - found[count + 1 :]) / (2.0 * _DIFFERENCE)
    return Priced(loads=loads, log_time=found[0], jacobian=slopes.T, target_share=share[0])
