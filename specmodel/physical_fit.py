"""A calibrated physical form: fitted factors, and the errors that measurements left beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from specmodel.errors import ParameterError
from specmodel.fit_checks import (
    LEAST_SPREAD,
    check_array,
    check_covariance,
    check_loads,
    check_share,
    sensible,
)
from specmodel.form_error import (
    ADDED_PER_CHANGE,
    SHARED_PER_CHANGE,
    FormError,
    Loads,
    error_covariance,
)

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """Times that the form gives for a rig at its loads, and what small changes of the factors do.

    Parameters
    ----------
    loads : Loads
        Of length n.
    log_time : numpy.ndarray, shape (n,)
        [ln s].
    jacobian : numpy.ndarray, shape (n, f)
        Its derivatives by the factors, [-].
    target_share : numpy.ndarray, shape (n,)
        Share of the target's pass and of the host in the time; 1 for a base step, [-].
    changes : frozenset of str
        What differs from the rig that was fitted.
    own : frozenset of int
        Factors that this rig does not share with it: they are the prior's.

    Examples
    --------
    >>> one = Priced(loads=Loads.of(num_steps=0), log_time=np.zeros(1), jacobian=np.zeros((1, 8)),
    ...              target_share=np.ones(1))
    >>> sorted(one.changes)
    []
    """

    loads: Loads
    log_time: Array
    jacobian: Array
    target_share: Array
    changes: frozenset[str] = frozenset()
    own: frozenset[int] = frozenset()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalFit:
    r"""Factors of the physical form with their posterior, and the measurements they were fitted to.

    .. math:: y = h(z) + g + \epsilon,\quad z \sim \mathcal N(0, \Sigma_0),\quad g \sim \mathcal{GP}(0, k)

    Parameters
    ----------
    rig : mapping
        Record of the rig, for whoever prices it; plain JSON.
    factors : tuple of str
        Names.
    mean : numpy.ndarray, shape (f,)
        Fitted factors, on the scale on which their prior is normal around 0, [-].
    covariance : numpy.ndarray, shape (f, f)
        Of their posterior, [-].
    prior_sd : numpy.ndarray, shape (f,)
        Of their prior, [-].
    measured : Priced
        The measured loads, priced at `mean`; none for a prior.
    residual : numpy.ndarray, shape (n,)
        Measured minus fitted ln time, [-].
    noise_sd : numpy.ndarray, shape (n,)
        Of each measurement, [-].
    shared_sd : numpy.ndarray, shape (n,)
        What one standard deviation of the non-decode share more takes from the true ln times, with its
        sign: not above 0, [-].
    non_decode_share, non_decode_sd : float
        Of the baseline, and how well it is known, [-].
    form : FormError
        Spreads of :math:`g`.
    notes : tuple of str
        What was assumed.

    Raises
    ------
    ParameterError
        If the arrays do not fit together, or hold what no fit gives.

    Examples
    --------
    >>> fit = PhysicalFit.from_prior({}, ("bandwidth",), np.array([0.15]))
    >>> len(fit.measured.loads)
    0
    """

    rig: Mapping[str, Any]
    factors: tuple[str, ...]
    mean: Array
    covariance: Array
    prior_sd: Array
    measured: Priced
    residual: Array
    noise_sd: Array
    shared_sd: Array
    non_decode_share: float = 0.0
    non_decode_sd: float = 0.0
    form: FormError = field(default_factory=FormError)
    notes: tuple[str, ...] = ()

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
            check_array(name, getattr(self, name), shape)
        for name in ("prior_sd", "noise_sd"):
            if not np.all(getattr(self, name) >= LEAST_SPREAD):
                raise ParameterError(name, f"{np.min(getattr(self, name)):g}", "positive")
        if not 0 <= self.non_decode_share < 1:
            raise ParameterError("non_decode_share", self.non_decode_share, "in [0, 1)")
        if not 0 <= self.non_decode_sd <= 1:
            raise ParameterError("non_decode_sd", self.non_decode_sd, "in [0, 1]")
        check_covariance(self.covariance, self.prior_sd)
        check_loads(self.measured.loads, rows)
        check_array("log_time", self.measured.log_time, (rows,))
        check_array("jacobian", self.measured.jacobian, (rows, count))
        check_share("target_share", self.measured.target_share, rows)

    @classmethod
    def from_prior(
        cls,
        rig: Mapping[str, Any],
        factors: Sequence[str],
        prior_sd: Array,
        *,
        form: FormError | None = None,
    ) -> "PhysicalFit":
        r"""Return the form before anything was measured.

        .. math:: z \sim \mathcal N(0, \Sigma_0)

        Parameters
        ----------
        rig : mapping
            Its record.
        factors : sequence of str
            Names, f of them.
        prior_sd : numpy.ndarray, shape (f,)
            [-].
        form : FormError, optional
            The packaged one without it.

        Returns
        -------
        PhysicalFit

        Raises
        ------
        ParameterError
            If names and spreads differ in number.

        Notes
        -----
        Predicts with the prior's spread.

        Examples
        --------
        >>> PhysicalFit.from_prior({}, ("bandwidth",), np.array([0.15])).mean.tolist()
        [0.0]
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
            form=form or FormError(),
        )

    def centre(self, own: frozenset[int] = frozenset()) -> Array:
        r"""Factors at which a rig is to be priced: fitted ones, the prior's where it has its own.

        .. math:: z'_j = 0,\ j \in \text{own}

        Parameters
        ----------
        own : frozenset of int
            Positions of the factors that it does not share.

        Returns
        -------
        numpy.ndarray, shape (f,)

        Notes
        -----
        On the scale of `mean`.

        Examples
        --------
        >>> PhysicalFit.from_prior({}, ("bandwidth",), np.array([0.15])).centre().tolist()
        [0.0]
        """
        found = self.mean.copy()
        found[list(own)] = 0.0
        return found

    def predict(self, *asked: Priced) -> tuple[Array, Array]:
        r"""Joint prediction of ln times at the loads of several rigs.

        .. math:: h' + k'^\top K^{-1} r,\quad
                  A \Sigma A^\top + J'_\text{own} \Sigma_0 J_\text{own}'^\top + k'' - k'^\top K^{-1} k',\quad
                  A = J' - k'^\top K^{-1} J

        Parameters
        ----------
        *asked : Priced
            Loads of a rig each, priced at `centre` of its own factors; m loads together.

        Returns
        -------
        mean : numpy.ndarray, shape (m,)
            [ln s].
        covariance : numpy.ndarray, shape (m, m)
            Without the noise of a new measurement, [-].

        Raises
        ------
        ParameterError
            If the numbers of factors differ.
        FitError
            If what was fitted gives no sensible time.

        Notes
        -----
        Linear in the factors around the fit. Where a rig was measured, its error is carried to changed
        rigs and grows by `ADDED_PER_CHANGE`; else errors of two rigs correlate by `SHARED_PER_CHANGE` for
        each thing that differs between them. Own factors are drawn once for all rigs that own them.

        Examples
        --------
        >>> fit = PhysicalFit.from_prior({}, ("bandwidth",), np.array([0.15]))
        >>> step = Priced(loads=Loads.of(num_steps=0), log_time=np.zeros(1), jacobian=-np.ones((1, 1)),
        ...               target_share=np.ones(1))
        >>> mean, covariance = fit.predict(step)
        >>> float(mean[0]), bool(covariance[0, 0] > 0.15**2)
        (0.0, True)
        """
        mean, covariance = self.predict_with_share(*asked)
        return mean[:-1], covariance[:-1, :-1]

    def predict_with_share(self, *asked: Priced) -> tuple[Array, Array]:
        r"""Joint prediction of ln times and of the error of the non-decode share.

        .. math:: y = h + g - s u + \epsilon,\quad u \sim \mathcal N(0, 1)

        Parameters
        ----------
        *asked : Priced
            As in `predict`; m loads together.

        Returns
        -------
        mean : numpy.ndarray, shape (m + 1,)
            [ln s]; the last is :math:`u`, in standard deviations of the share, [-].
        covariance : numpy.ndarray, shape (m + 1, m + 1)
            [-].

        Raises
        ------
        ParameterError, FitError
            As `predict`.

        Notes
        -----
        :math:`s` is `shared_sd`, not above 0: of a share larger than fitted, less of the measured time
        was decoding than was taken; so what is predicted of times and what of the share go together.

        Examples
        --------
        >>> fit = PhysicalFit.from_prior({}, ("bandwidth",), np.array([0.15]))
        >>> step = Priced(loads=Loads.of(num_steps=0), log_time=np.zeros(1), jacobian=-np.ones((1, 1)),
        ...               target_share=np.ones(1))
        >>> float(fit.predict_with_share(step)[1][1, 1])
        1.0
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
            return sensible(mean, covariance + shared @ self.covariance @ shared.T)
        cross = np.vstack([*(between(each, known, self.form) for each in asked), -self.shared_sd])
        gain = np.linalg.solve(self._measured_covariance(), cross.T).T
        slopes = shared - gain @ known.jacobian
        covariance += slopes @ self.covariance @ slopes.T - gain @ cross.T
        return sensible(mean + gain @ self.residual, covariance)

    def _measured_covariance(self) -> Array:
        """Covariance of the measurements given the factors."""
        return measured_covariance(self.measured, self.noise_sd, self.shared_sd, self.form)


def measured_covariance(
    measured: Priced, noise_sd: Array, shared_sd: Array, form: FormError
) -> Array:
    r"""Covariance of measurements around the form with its factors given.

    .. math:: K = k + \operatorname{diag}(\epsilon^2) + s s^\top

    Parameters
    ----------
    measured : Priced
        n loads of one rig.
    noise_sd, shared_sd : numpy.ndarray, shape (n,)
        :math:`\epsilon, s`, [-].
    form : FormError
        Spreads of :math:`k`.

    Returns
    -------
    numpy.ndarray, shape (n, n)

    Raises
    ------
    ParameterError
        If the arrays differ in length.

    Notes
    -----
    Positive definite, since noise is.

    Examples
    --------
    >>> one = Priced(loads=Loads.of(num_steps=0), log_time=np.zeros(1), jacobian=np.zeros((1, 8)),
    ...              target_share=np.ones(1))
    >>> bool(measured_covariance(one, np.ones(1), np.zeros(1), FormError())[0, 0] > 1)
    True
    """
    share = measured.target_share
    found = error_covariance(measured.loads, share, measured.loads, share, form)
    return np.asarray(found + np.diag(np.square(noise_sd)) + np.outer(shared_sd, shared_sd))


def _of(one: Priced, *, chosen: bool) -> Array:
    """Slopes of the rig's own factors, or of the others."""
    own = np.zeros(one.jacobian.shape[1], dtype=bool)
    own[list(one.own)] = True
    return np.where(own == chosen, one.jacobian, 0.0)


def _between_measured(first: Priced, second: Priced, form: FormError) -> Array:
    """Covariance of the form's errors of two rigs, each the measured one with changes."""
    grown = 1.0 + ADDED_PER_CHANGE * len(first.changes & second.changes)
    return grown * _same_rig(first, second, form)


def _between_unmeasured(first: Priced, second: Priced, form: FormError) -> Array:
    """Covariance of the form's errors of two rigs that are equally unknown."""
    share = SHARED_PER_CHANGE ** len(first.changes ^ second.changes)
    return share * _same_rig(first, second, form)


def _same_rig(first: Priced, second: Priced, form: FormError) -> Array:
    """Covariance of the form's errors as if of one rig."""
    return error_covariance(
        first.loads, first.target_share, second.loads, second.target_share, form
    )
