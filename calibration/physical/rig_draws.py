"""Equally likely times and speed-ups of a changed rig."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibration.physical.rig_prediction import ChangedRig, scenario_at
from calibration.physical.scenario import Scenario
from specmodel.form_error import DEGREES_OF_FREEDOM, Loads
from specmodel.question import Question

Array = NDArray[np.float64]


def speedup_draws(
    rig: ChangedRig,
    questions: Sequence[Question],
    accept_length: Array,
    rng: np.random.Generator,
) -> Array:
    r"""Equally likely speed-ups of questions on a changed rig, jointly.

    .. math:: \ln T \sim t_\nu(m, C)

    Parameters
    ----------
    rig : ChangedRig
        Of all questions.
    questions : sequence of Question
        n of them, such as depths.
    accept_length : numpy.ndarray, shape (d, n)
        Draws, [tokens].
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    numpy.ndarray, shape (d, n)
        [-].

    Raises
    ------
    ParameterError
        As `rig_predictions`.

    Notes
    -----
    What depths have in common does not move the choice among them.
    """
    scenarios = [scenario_at(rig.rig, question) for question in questions]
    fit = rig.pricing.fit
    mean, covariance = fit.predict_with_share(*(rig.pricing.priced(each) for each in scenarios))
    drawn = _drawn(mean, covariance, accept_length.shape[0], rng)
    logs = drawn[:, :-1]
    cost = np.exp(logs[:, 1::2] - logs[:, 0::2])
    share = _share(rig, drawn)
    return np.asarray(1.0 / (share + (1.0 - share) * cost / accept_length))


def time_draws(
    rig: ChangedRig, scenario: Scenario, loads: Loads, num_draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    r"""Logarithms of the times of loads of a changed rig: the medians, then equally likely ones.

    .. math:: (\ln T, f) \sim t_\nu(m, C)

    Parameters
    ----------
    rig : ChangedRig
        Both rigs.
    scenario : Scenario
        The changed rig; its own load does not matter.
    loads : Loads
        n of them.
    num_draws : int
        d.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    log_times : numpy.ndarray, shape (d + 1, n)
        [ln s].
    non_decode_share : numpy.ndarray, shape (d + 1, 1)
        Of the same draws: where it is larger, decoding is faster, [-].

    Raises
    ------
    ParameterError
        If a load cannot be.

    Notes
    -----
    Without the noise of a new measurement.
    """
    mean, covariance = rig.pricing.fit.predict_with_share(rig.pricing.priced(scenario, loads))
    drawn = np.vstack([mean, _drawn(mean, covariance, num_draws, rng)])
    return drawn[:, :-1], _share(rig, drawn)


def _share(rig: ChangedRig, drawn: Array) -> Array:
    """Non-decode share of draws whose last column is its error in standard deviations."""
    fit = rig.pricing.fit
    found = fit.non_decode_share + fit.non_decode_sd * drawn[:, -1:]
    return np.asarray(np.clip(found, 0.0, 0.99))


def _drawn(mean: Array, covariance: Array, num_draws: int, rng: np.random.Generator) -> Array:
    """Draws of a multivariate Student's t."""
    values, vectors = np.linalg.eigh(covariance)
    normal = rng.standard_normal((num_draws, mean.size)) * np.sqrt(np.maximum(values, 0.0))
    chi = rng.chisquare(DEGREES_OF_FREEDOM, (num_draws, 1)) / DEGREES_OF_FREEDOM
    return np.asarray(mean + (normal @ vectors.T) / np.sqrt(chi))
