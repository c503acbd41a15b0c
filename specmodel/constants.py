"""The constants of a serving system: their names, meaning, scale and bounds."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Scale(Enum):
    """On which scale a constant has a normal prior."""

    LOG = "log"
    LOGIT = "logit"


class Constant(NamedTuple):
    """One constant of the model."""

    name: str  # the name in files and code; the symbol in formulas
    symbol: str
    scale: Scale  # positive constants are normal in their logarithm, shares in their logit
    meaning: str  # what it is, with its unit, for a person to read
    needs: str  # which measurements tell it apart from the others


CONSTANTS: tuple[Constant, ...] = (
    Constant(
        name="fixed_cost",
        symbol="c0",
        scale=Scale.LOG,
        meaning="verification and host time of a round, per baseline step of the verified rows",
        needs="two depths (against step_cost)",
    ),
    Constant(
        name="step_cost",
        symbol="c1",
        scale=Scale.LOG,
        meaning="one more draft step and the token it adds to verification, in baseline steps",
        needs="two depths",
    ),
    Constant(
        name="tree_cost",
        symbol="c_tree",
        scale=Scale.LOG,
        meaning="extra cost of drafting a tree (topk > 1), in baseline steps",
        needs="a chain and a tree",
    ),
    Constant(
        name="expert_ratio",
        symbol="omega",
        scale=Scale.LOG,
        meaning="time to read one token's experts per time of the rest of a step (MoE)",
        needs="a mixture of experts, and two depths or two batches",
    ),
    Constant(
        name="non_decode_share",
        symbol="f",
        scale=Scale.LOGIT,
        meaning="share of baseline wall time that is not decoding, fastest workload",
        needs="two accept lengths at one configuration, or TTFT and output length",
    ),
    Constant(
        name="baseline_share",
        symbol="kappa",
        scale=Scale.LOGIT,
        meaning="part of a workload's slower baseline that is not decoding",
        needs="two workloads with different baselines at one batch and context",
    ),
    Constant(
        name="batch_growth_share",
        symbol="psi",
        scale=Scale.LOGIT,
        meaning="share of the baseline's growth from B to B*n requests that verification pays",
        needs="a baseline batch curve, and two depths or two batches",
    ),
    Constant(
        name="draft_time_exponent",
        symbol="eta",
        scale=Scale.LOGIT,
        meaning="1: a draft step takes the same seconds at every batch; 0: it grows with the step",
        needs="two batches or contexts, with a baseline at each",
    ),
    Constant(
        name="kv_row_share",
        symbol="rho",
        scale=Scale.LOGIT,
        meaning="0: verification reads the KV cache once per request; 1: once per verified row",
        needs="two contexts, with a baseline at each",
    ),
)

NAMES: tuple[str, ...] = tuple(constant.name for constant in CONSTANTS)
NUM_CONSTANTS = len(CONSTANTS)
_IS_LOGIT = np.array([constant.scale is Scale.LOGIT for constant in CONSTANTS])


def to_natural(internal: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Constants in their own units from the scale on which their prior is normal.

    .. math:: \theta = e^{x} \quad\text{or}\quad \theta = 1/(1+e^{-x})

    Log-normal and logit-normal priors keep every draw physical; theory.md part D.
    """
    x = np.clip(np.asarray(internal, dtype=np.float64), -60.0, 60.0)
    return np.where(_IS_LOGIT, 1.0 / (1.0 + np.exp(-x)), np.exp(x))


def to_internal(natural: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Constants on the scale on which their prior is normal; the inverse of `to_natural`.

    .. math:: x = \ln\theta \quad\text{or}\quad x = \ln\frac{\theta}{1-\theta}
    """
    value = np.asarray(natural, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(_IS_LOGIT, np.log(value) - np.log1p(-value), np.log(value))


def slope(natural: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Derivative of each constant with respect to its internal scale.

    .. math:: \theta' = \theta \quad\text{or}\quad \theta' = \theta(1-\theta)
    """
    value = np.asarray(natural, dtype=np.float64)
    return np.where(_IS_LOGIT, value * (1.0 - value), value)


@dataclass(frozen=True, kw_only=True)
class ConstantEstimate:
    """Posterior of one constant, with its prior."""

    name: str  # as in `specmodel.constants.NAMES`
    value: float  # median and central 90 % interval
    low: float
    high: float
    prior_value: float  # the same before the points
    prior_low: float
    prior_high: float
    # 1 - posterior sd / prior sd on the internal scale, the prior as wide as the points made
    # it: 0 means the points say nothing, [0, 1]
    learned: float

    @property
    def prior_dominated(self) -> bool:
        """Whether this is the prior rather than the points."""
        return self.learned < PRIOR_DOMINATED


PRIOR_DOMINATED = 0.1
"""Share learned below which a constant is called prior-dominated (theory.md part D: posterior sd above
0.9 of the prior's)."""
