"""The tail families: one small class each, with the prior that served curves taught it.

The priors of the exponential, first-then-constant and Weibull shapes are mean and spread over 49
drafters (121 curves, block drafters among them) of [sgl-project-specforge-specbundle]_,
[semianalysis-inferencex-golden]_ and served logs [specmodel-served-depths]_, every drafter weighing
the same; those of the families that only fall or only rise are judgements near what the curves that
do so teach. The weights are the inverse mean square errors when accept lengths at depths 3 and 5
predict depth 7 on the chains of [sgl-project-specforge-specbundle]_. The tests learn both again.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, final

import numpy as np

from specmodel.acceptance.bounds import FloatArray
from specmodel.acceptance.tail import AbstractTail, TailPrior, sigmoid

DECAY_LENGTH = 1.5
"""Depths in which the distance to the asymptote falls to 1/e, where data are few."""

_BEND = 0.01
_STEEPEST = 3.0


@final
class ExponentialTail(AbstractTail):
    r"""First value, then exponential decay to an asymptote: the default.

    .. math:: a_i = a_\infty + (a_1 - a_\infty)\, e^{-(i-1)/L}

    Notes
    -----
    Level :math:`\mathrm{logit}\,a_1`, shape :math:`\mathrm{logit}\,a_\infty - \mathrm{logit}\,a_1`
    and :math:`\ln L`. The asymptote may lie above the first value. With two data the decay length
    stays near its prior, `DECAY_LENGTH`; more data teach it. Best of the families on published
    chains [sgl-project-specforge-specbundle]_.
    """

    name: ClassVar[str] = "exponential"
    prior: ClassVar[TailPrior] = TailPrior(
        mean=(-0.60, math.log(DECAY_LENGTH)), sd=(0.73, 0.58), weight=0.21
    )

    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the curve."""
        level, shift, log_length = _columns(parameters)
        first, asymptote = sigmoid(level), sigmoid(level + shift)
        return asymptote + (first - asymptote) * np.exp(-(depth - 1.0) * np.exp(-log_length))


@final
class FirstThenConstantTail(AbstractTail):
    r"""First value, then one constant for all other depths.

    .. math:: a_1, \quad a_i = a \;(i \ge 2)

    Notes
    -----
    Level :math:`\mathrm{logit}\,a_1`, shape :math:`\mathrm{logit}\,a - \mathrm{logit}\,a_1`.
    """

    name: ClassVar[str] = "first-then-constant"
    prior: ClassVar[TailPrior] = TailPrior(mean=(-0.48,), sd=(0.55,), weight=0.16)

    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the curve."""
        level, shift = _columns(parameters)
        return np.where(depth == 1.0, sigmoid(level), sigmoid(level + shift))


@final
class GeometricDecayTail(AbstractTail):
    r"""Conditional accuracy falls by a constant factor per depth.

    .. math:: a_i = a_1 e^{-d (i-1)}, \qquad d \ge 0

    Notes
    -----
    Level :math:`\mathrm{logit}\,a_1`, shape d, bent to stay above 0: the family cannot
    rise.
    """

    name: ClassVar[str] = "geometric-decay"
    prior: ClassVar[TailPrior] = TailPrior(mean=(0.045,), sd=(0.06,), weight=0.15)

    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the curve."""
        level, decay = _columns(parameters)
        return np.asarray(sigmoid(level) * np.exp(-_positive(decay) * (depth - 1.0)))


@final
class PowerLawTail(AbstractTail):
    r"""Conditional accuracy falls as a power of depth.

    .. math:: a_i = a_1 i^{-b}, \qquad b \ge 0

    Notes
    -----
    Level :math:`\mathrm{logit}\,a_1`, shape b, bent to stay above 0: the family cannot
    rise.
    """

    name: ClassVar[str] = "power-law"
    prior: ClassVar[TailPrior] = TailPrior(mean=(0.10,), sd=(0.11,), weight=0.22)

    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the curve."""
        level, power = _columns(parameters)
        return np.asarray(sigmoid(level) * depth ** -_positive(power))


@final
class WeibullTail(AbstractTail):
    r"""Discrete Weibull survival.

    .. math:: S_i = a_1^{\,i^\beta}, \qquad a_i = a_1^{\,i^\beta - (i-1)^\beta}

    Notes
    -----
    Level :math:`\mathrm{logit}\,a_1`, shape :math:`\ln\beta`; above 0 the conditionals fall with
    depth, below 0 they rise.
    """

    name: ClassVar[str] = "weibull"
    prior: ClassVar[TailPrior] = TailPrior(mean=(0.16,), sd=(0.19,), weight=0.22)

    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the curve."""
        level, log_power = _columns(parameters)
        power = np.exp(np.minimum(log_power, _STEEPEST))
        return np.asarray(sigmoid(level) ** (depth**power - (depth - 1.0) ** power))


@final
class BetaGeometricTail(AbstractTail):
    r"""Requests differ and each has a constant acceptance rate: conditionals rise.

    .. math:: a_i = \frac{m(1-\rho) + (i-1)\rho}{1 - \rho + (i-1)\rho}

    Notes
    -----
    Level :math:`\mathrm{logit}\,m`, shape :math:`\rho`, the correlation within a request, bent to
    stay above 0 and cut at 0.95. Right for n-gram drafts on edits [vllm-project-vllm-24344]_; for learned drafters
    alone it is optimistic at depth, hence its small weight.
    """

    name: ClassVar[str] = "beta-geometric"
    prior: ClassVar[TailPrior] = TailPrior(mean=(0.03,), sd=(0.05,), weight=0.02)

    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the curve."""
        level, correlation = _columns(parameters)
        share = np.minimum(_positive(correlation), 0.95)
        before = (depth - 1.0) * share
        return np.asarray((sigmoid(level) * (1.0 - share) + before) / (1.0 - share + before))


@final
class ConstantTail(AbstractTail):
    r"""The same conditional accuracy at every depth: the textbook chain.

    .. math:: a_i = \alpha

    Notes
    -----
    Level :math:`\mathrm{logit}\,\alpha`, no shape. Eq. 1 of [leviathan2023]_; optimistic beyond
    the measured depth, hence its small weight.
    """

    name: ClassVar[str] = "constant"
    prior: ClassVar[TailPrior] = TailPrior(mean=(), sd=(), weight=0.02)

    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the curve."""
        (level,) = _columns(parameters)
        return np.asarray(sigmoid(level) + 0.0 * depth)


DEFAULT_TAIL: Final = ExponentialTail()
"""The family whose value is reported; the others give the spread."""

TAILS: Final[Mapping[str, AbstractTail]] = MappingProxyType(
    {
        tail.name: tail
        for tail in (
            DEFAULT_TAIL,
            FirstThenConstantTail(),
            GeometricDecayTail(),
            PowerLawTail(),
            WeibullTail(),
            BetaGeometricTail(),
            ConstantTail(),
        )
    }
)
"""Command-line names of the families."""


def _columns(parameters: FloatArray) -> tuple[FloatArray, ...]:
    """Return each parameter with a trailing axis that broadcasts over depths."""
    return tuple(parameters[..., i, None] for i in range(parameters.shape[-1]))


def _positive(shape: FloatArray) -> FloatArray:
    """Return the shape where it is positive, a smooth bend towards 0 where it is not."""
    return np.asarray(_BEND * np.logaddexp(0.0, shape / _BEND))
