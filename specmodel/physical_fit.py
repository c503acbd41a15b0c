"""The calibrated hardware model: posterior of its factors, and the errors that measurements left beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import FitError, ParameterError
from specmodel.model_error import (
    ADDED_PER_CHANGE,
    SHARED_PER_CHANGE,
    Loads,
    ModelError,
    error_covariance,
)

Array = NDArray[np.float64]

_LARGEST: Final = 100.0
"""Of a logarithm, its slope or its spread; e to that power is beyond any clock. [-]"""

_LEAST_SPREAD: Final = 1e-9
"""Of a spread whose square is divided by. [-]"""

_MOST_TOKENS: Final = 1e12
"""Of anything that is counted in a load. [-]"""

_ROUNDED: Final = 1e-6
"""What the digits of a file may break of a covariance over that of the prior. [-]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Priced:
    """Times that the hardware model gives for a rig at its loads, and what small changes of the factors do."""

    loads: Loads  # of length n
    log_time: Array  # [ln s]
    jacobian: Array  # its derivatives by the factors, [-]
    # share of the target's pass and of the host in the time; 1 for a base step, [-]
    target_share: Array
    changes: frozenset[str] = frozenset()  # what differs from the rig that was fitted
    # factors that this rig does not share with it: they are the prior's
    own: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, eq=False)
class PhysicalFit:
    r"""Factors of the hardware model with their posterior, and the measurements they were fitted to.

    .. math:: y = h(z) + g + \epsilon,\quad z \sim \mathcal N(0, \Sigma_0),\quad g \sim \mathcal{GP}(0, k)
    """

    rig: Mapping[str, Any]  # record of the rig, for whoever prices it; plain JSON
    factors: tuple[str, ...]  # names
    mean: Array  # fitted factors, on the scale on which their prior is normal around 0, [-]
    covariance: Array  # of their posterior, [-]
    prior_sd: Array  # of their prior, [-]
    measured: Priced  # the measured loads, priced at `mean`; none for a prior
    residual: Array  # measured minus fitted ln time, [-]
    noise_sd: Array  # of each measurement, [-]
    # what one standard deviation of the non-decode share more takes from the true ln times,
    # with its sign: not above 0, [-]
    shared_sd: Array
    non_decode_share: float = 0.0  # of the baseline, and how well it is known, [-]
    non_decode_sd: float = 0.0
    form: ModelError = field(default_factory=ModelError)  # spreads of g
    notes: tuple[str, ...] = ()  # what was assumed

    def __post_init__(self) -> None:
        count, rows = len(self.factors), len(self.measured.loads)
        measured = self.measured
        _check("mean", self.mean, (count,))
        _check("prior_sd", self.prior_sd, (count,), least=_LEAST_SPREAD)
        _check("covariance", self.covariance, (count, count))
        _check("residual", self.residual, (rows,))
        _check("noise_sd", self.noise_sd, (rows,), least=_LEAST_SPREAD)
        _check("shared_sd", self.shared_sd, (rows,))
        if not 0 <= self.non_decode_share < 1:
            raise ParameterError("non_decode_share", self.non_decode_share, "in [0, 1)")
        if not 0 <= self.non_decode_sd <= 1:
            raise ParameterError("non_decode_sd", self.non_decode_sd, "in [0, 1]")
        _check_covariance(self.covariance, self.prior_sd)
        for each in fields(Loads):
            least = 0.0 if each.name in {"num_steps", "context_tokens"} else 1.0
            load = getattr(measured.loads, each.name)
            _check(each.name, load, (rows,), least=least, most=_MOST_TOKENS)
        _check("log_time", measured.log_time, (rows,))
        _check("jacobian", measured.jacobian, (rows, count))
        _check("target_share", measured.target_share, (rows,), least=0.0, most=1.0)

    @classmethod
    def from_prior(
        cls, rig: Mapping[str, Any], factors: Sequence[str], prior_sd: Array
    ) -> "PhysicalFit":
        r"""Return the form before anything was measured.

        .. math:: z \sim \mathcal N(0, \Sigma_0)
        """
        none = np.zeros(0)
        return cls(
            rig=rig,
            factors=tuple(factors),
            mean=np.zeros(len(factors)),
            covariance=np.diag(np.square(prior_sd)),
            prior_sd=np.asarray(prior_sd, dtype=np.float64),
            measured=Priced(
                loads=Loads.of(num_steps=none, batch_size=none, context_tokens=none),
                log_time=none,
                jacobian=np.zeros((0, len(factors))),
                target_share=none,
            ),
            residual=none,
            noise_sd=none,
            shared_sd=none,
        )

    def centre(self, own: frozenset[int] = frozenset()) -> Array:
        r"""Factors at which a rig is to be priced: fitted ones, the prior's where it has its own.

        .. math:: z'_j = 0,\ j \in \text{own}
        """
        found = self.mean.copy()
        found[list(own)] = 0.0
        return found

    def share_at(self, error: ArrayLike) -> Array:
        """Non-decode share at an error in standard deviations."""
        share = self.non_decode_share + self.non_decode_sd * np.asarray(error)
        return np.asarray(np.clip(share, 0.0, 0.99))

    def predict(self, *asked: Priced) -> tuple[Array, Array]:
        r"""Joint prediction of ln times at the loads of several rigs.

        .. math:: h' + k'^\top K^{-1} r,\quad
                  A \Sigma A^\top + J'_\text{own} \Sigma_0 J_\text{own}'^\top + k'' - k'^\top K^{-1} k',\quad
                  A = J' - k'^\top K^{-1} J
        """
        mean, covariance = self.predict_with_share(*asked)
        return mean[:-1], covariance[:-1, :-1]

    def predict_with_share(self, *asked: Priced) -> tuple[Array, Array]:
        r"""Joint prediction of ln times and of the error of the non-decode share.

        .. math:: y = h + g - s u + \epsilon,\quad u \sim \mathcal N(0, 1)
        """
        known = self.measured
        if any(each.jacobian.shape[1] != self.mean.size for each in asked):
            raise ParameterError("jacobian", "other factors", f"{self.mean.size} factors")
        mean = np.append(np.concatenate([each.log_time for each in asked]), 0.0)
        none = np.zeros(self.mean.size)
        own = np.vstack([*map(_own_slopes, asked), none])
        slopes = np.vstack([*(each.jacobian for each in asked), none]) - own
        covariance = np.eye(mean.size)
        covariance[:-1, :-1] = np.block([[self._between(a, b) for b in asked] for a in asked])
        covariance += (own * np.square(self.prior_sd)) @ own.T
        if len(known.loads):
            cross = np.vstack([*(self._between(each, known) for each in asked), -self.shared_sd])
            inside = measured_covariance(known, self.noise_sd, self.shared_sd, self.form)
            gain = np.linalg.solve(inside, cross.T).T
            slopes -= gain @ known.jacobian
            mean += gain @ self.residual
            covariance -= gain @ cross.T
        covariance += slopes @ self.covariance @ slopes.T
        if not np.all(np.abs([mean, np.diag(covariance)]) <= _LARGEST):
            raise FitError(
                "the physical form of this calibration gives no sensible time; check its points, and "
                "run `specmodel fit` again"
            )
        return mean, covariance

    def _between(self, first: Priced, second: Priced) -> Array:
        """Covariance of the errors of two rigs: changes of a measured one, or equally unknown."""
        same = error_covariance(
            first.loads, first.target_share, second.loads, second.target_share, self.form
        )
        if len(self.measured.loads):
            return (1.0 + ADDED_PER_CHANGE * len(first.changes & second.changes)) * same
        return SHARED_PER_CHANGE ** len(first.changes ^ second.changes) * same


def measured_covariance(
    measured: Priced, noise_sd: Array, shared_sd: Array, form: ModelError
) -> Array:
    r"""Covariance of measurements around the form with its factors given.

    .. math:: K = k + \operatorname{diag}(\epsilon^2) + s s^\top
    """
    share = measured.target_share
    found = error_covariance(measured.loads, share, measured.loads, share, form)
    return np.asarray(found + np.diag(np.square(noise_sd)) + np.outer(shared_sd, shared_sd))


def _own_slopes(one: Priced) -> Array:
    """Slopes of the factors that a rig does not share, and 0 elsewhere."""
    own = np.zeros_like(one.jacobian)
    own[:, [*one.own]] = one.jacobian[:, [*one.own]]
    return own


def _check(
    name: str,
    values: Array,
    shape: tuple[int, ...],
    *,
    least: float = -_LARGEST,
    most: float = _LARGEST,
) -> None:
    """Refuse an array of another shape, or one that holds what is no number or outside its bounds."""
    if values.shape != shape or not np.all((values >= least) & (values <= most)):
        allowed = f"of shape {shape}, from {least:g} to {most:g}"
        raise ParameterError(name, f"shape {values.shape}", allowed)


def _check_covariance(covariance: Array, prior_sd: Array) -> None:
    """Refuse a posterior covariance that is none, or wider than the prior."""
    scaled = covariance / np.outer(prior_sd, prior_sd)
    if not np.allclose(scaled, scaled.T, atol=_ROUNDED):
        raise ParameterError("covariance", "one that is not symmetric", "symmetric")
    values = np.linalg.eigvalsh(scaled) if scaled.size else np.zeros(1)
    if values[0] < -_ROUNDED or values[-1] > 1.0 + _ROUNDED:
        allowed = "positive semi-definite and no wider than the prior"
        raise ParameterError("covariance", "another one", allowed)
