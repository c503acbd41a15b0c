"""The factors that a calibration of the physical form fits, and what times they give."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.cost.forward import PRIOR_LOG_SD, StepMultipliers
from specmodel.errors import ParameterError
from specmodel.model_error import Loads
from specmodel.physical_fit import Priced
from specmodel.rig.served_model import Rig

Array = NDArray[np.float64]

KV_ROW_SHARE: Final = 0.3
"""Prior median of the share of verified rows that read the cache again; most kernels read it once per
request, some once per row (theory.md B10; a judgement). [-]"""

KV_ROW_LOGIT_SD: Final = 1.5
"""Its spread on the logit scale (judgement). [-]"""

FACTOR_LOG_SD: Final[Mapping[str, float]] = {**PRIOR_LOG_SD, "kv_row_share": KV_ROW_LOGIT_SD}
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

    On one GPU the factor of the all-reduce has no effect.
    """
    spreads = {**FACTOR_LOG_SD, "allreduce": rig.allreduce_log_sd}
    return np.array([spreads[name] for name in FACTORS])


def multipliers_of(internal: Array) -> StepMultipliers:
    r"""Multipliers from the scale on which their prior is normal.

    .. math:: m = e^{z},\quad \rho = 1/(1 + e^{-(z + z_0)})

    All 0 is the prior median.
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
    """Logarithms of step and round times under draws of the factors.

    `Rig.round_parts`, of which depth 0 is a step.
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

    Central differences, all in one call.
    """
    count = len(FACTORS)
    moves = _DIFFERENCE * np.eye(count)
    found, share = log_times(rig, loads, internal + np.vstack([np.zeros(count), moves, -moves]))
    slopes = (found[1 : count + 1] - found[count + 1 :]) / (2.0 * _DIFFERENCE)
    return Priced(loads=loads, log_time=found[0], jacobian=slopes.T, target_share=share[0])
