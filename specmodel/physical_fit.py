"""The calibrated hardware model: posterior of its factors, and the errors that measurements left beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
        shapes = {
            "mean": (count,),
            "covariance": (count, count),
            "prior_sd": (count,),
            "residual": (rows,),
            "noise_sd": (rows,),
            "shared_sd": (rows,),
        }
        for name, shape in shapes.items():
            _check_array(name, getattr(self, name), shape)
        for name in ("prior_sd", "noise_sd"):
            if not np.all(getattr(self, name) >= _LEAST_SPREAD):
                raise ParameterError(name, f"{np.min(getattr(self, name)):g}", "positive")
        if not 0 <= self.non_decode_share < 1:
            raise ParameterError("non_decode_share", self.non_decode_share, "in [0, 1)")
        if not 0 <= self.non_decode_sd <= 1:
            raise ParameterError("non_decode_sd", self.non_decode_sd, "in [0, 1]")
        _check_covariance(self.covariance, self.prior_sd)
        _check_loads(self.measured.loads, rows)
        _check_array("log_time", self.measured.log_time, (rows,))
        _check_array("jacobian", self.measured.jacobian, (rows, count))
        _check_share("target_share", self.measured.target_share, rows)

    @classmethod
    def from_prior(
        cls,
        rig: Mapping[str, Any],
        factors: Sequence[str],
        prior_sd: Array,
        *,
        form: ModelError | None = None,
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
            form=form or ModelError(),
        )

    def centre(self, own: frozenset[int] = frozenset()) -> Array:
        r"""Factors at which a rig is to be priced: fitted ones, the prior's where it has its own.

        .. math:: z'_j = 0,\ j \in \text{own}
        """
        found = self.mean.copy()
        found[list(own)] = 0.0
        return found

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
        shared, own = (
            np.vstack([*(_of(each, chosen=chosen) for each in asked), np.zeros(self.mean.size)])
            for chosen in (False, True)
        )
        between = _between_measured if len(known.loads) else _between_unmeasured
        covariance = np.eye(mean.size)
        covariance[:-1, :-1] = np.block([[between(a, b, self.form) for b in asked] for a in asked])
        covariance += (own * np.square(self.prior_sd)) @ own.T
        if not len(known.loads):
            return _sensible(mean, covariance + shared @ self.covariance @ shared.T)
        cross = np.vstack([*(between(each, known, self.form) for each in asked), -self.shared_sd])
        gain = np.linalg.solve(self._measured_covariance(), cross.T).T
        slopes = shared - gain @ known.jacobian
        covariance += slopes @ self.covariance @ slopes.T - gain @ cross.T
        return _sensible(mean + gain @ self.residual, covariance)

    def _measured_covariance(self) -> Array:
        """Covariance of the measurements given the factors."""
        return measured_covariance(self.measured, self.noise_sd, self.shared_sd, self.form)


def measured_covariance(
    measured: Priced, noise_sd: Array, shared_sd: Array, form: ModelError
) -> Array:
    r"""Covariance of measurements around the form with its factors given.

    .. math:: K = k + \operatorname{diag}(\epsilon^2) + s s^\top
    """
    share = measured.target_share
    found = error_covariance(measured.loads, share, measured.loads, share, form)
    return np.asarray(found + np.diag(np.square(noise_sd)) + np.outer(shared_sd, shared_sd))


def _of(one: Priced, *, chosen: bool) -> Array:
    """Slopes of the rig's own factors, or of the others."""
    own = np.zeros(one.jacobian.shape[1], dtype=bool)
    own[list(one.own)] = True
    return np.where(own == chosen, one.jacobian, 0.0)


def _between_measured(first: Priced, second: Priced, form: ModelError) -> Array:
    """Covariance of the form's errors of two rigs, each the measured one with changes."""
    grown = 1.0 + ADDED_PER_CHANGE * len(first.changes & second.changes)
    return grown * _same_rig(first, second, form)


def _between_unmeasured(first: Priced, second: Priced, form: ModelError) -> Array:
    """Covariance of the form's errors of two rigs that are equally unknown."""
    share = SHARED_PER_CHANGE ** len(first.changes ^ second.changes)
    return share * _same_rig(first, second, form)


def _same_rig(first: Priced, second: Priced, form: ModelError) -> Array:
    """Covariance of the form's errors as if of one rig."""
    return error_covariance(
        first.loads, first.target_share, second.loads, second.target_share, form
    )


def _check_array(name: str, values: Array, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape, or one that holds what is no number or far from any."""
    if values.shape != shape or not np.all(np.abs(values) <= _LARGEST):
        raise ParameterError(name, f"shape {values.shape}", f"finite, of shape {shape}")


def _check_covariance(covariance: Array, prior_sd: Array) -> None:
    """Refuse a posterior covariance that is none, or wider than the prior."""
    scaled = covariance / np.outer(prior_sd, prior_sd)
    if not np.allclose(scaled, scaled.T, atol=_ROUNDED):
        raise ParameterError("covariance", "one that is not symmetric", "symmetric")
    values = np.linalg.eigvalsh(scaled) if scaled.size else np.zeros(1)
    if values[0] < -_ROUNDED or values[-1] > 1.0 + _ROUNDED:
        allowed = "positive semi-definite and no wider than the prior"
        raise ParameterError("covariance", "another one", allowed)


def _check_loads(loads: Loads, rows: int) -> None:
    """Refuse loads of another number, or that nothing can have measured."""
    least = {"num_steps": 0, "topk": 1, "num_draft_tokens": 1, "batch_size": 1, "context_tokens": 0}
    for name, lowest in least.items():
        values = getattr(loads, name)
        if values.shape != (rows,) or not np.all((values >= lowest) & (values <= _MOST_TOKENS)):
            raise ParameterError(name, f"shape {values.shape}", f"{rows} numbers from {lowest}")


def _check_share(name: str, share: Array, rows: int) -> None:
    """Refuse shares of another number, or outside 0 to 1."""
    if share.shape != (rows,) or not np.all((share >= 0) & (share <= 1)):
        raise ParameterError(name, f"shape {share.shape}", f"{rows} shares in [0, 1]")


def _sensible(mean: Array, covariance: Array) -> tuple[Array, Array]:
    """A prediction, unless it is of no time that a clock shows."""
    sound = np.all(np.abs(mean) <= _LARGEST) and np.all(np.diag(covariance) <= _LARGEST)
    if not sound:
        raise FitError(
            "the physical form of this calibration gives no sensible time; check its points, and "
            "run `specmodel fit` again"
        )
    return mean, covariance
