"""The calibrated physical form: a Gaussian process around a linear form, against its closed forms."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.errors import FitError, ParameterError
from specmodel.model_error import (
    ADDED_PER_CHANGE,
    SHARED_PER_CHANGE,
    Loads,
    ModelError,
    error_covariance,
)
from specmodel.physical_fit import PhysicalFit, Priced, measured_covariance

Array = NDArray[np.float64]

NAMES = ("one", "two", "three")
PRIOR_SD = np.array([0.15, 0.4, 0.7])
LOCAL = ModelError(level=0, rows=0, context=0, rounds=0, draft=0, tree=0, local=0.2)


def priced(rng: np.random.Generator, count: int, **more: Any) -> Priced:
    """Loads of a rig with random slopes."""
    depth = rng.integers(0, 6, count).astype(float)
    return Priced(
        loads=Loads.of(
            num_steps=depth,
            batch_size=2.0 ** rng.integers(0, 7, count),
            context_tokens=rng.choice([0.0, 2048.0, 65536.0], count),
        ),
        log_time=rng.normal(-4, 1, count),
        jacobian=rng.normal(0, 0.5, (count, len(NAMES))),
        target_share=np.where(depth > 0, rng.uniform(0.5, 0.95, count), 1.0),
        **more,
    )


def conditioned(
    measured: Priced, log_time: Array, shared_sd: Array, form: ModelError
) -> PhysicalFit:
    """The fit of a form that is linear in its factors: log_time holds the form at factors 0."""
    noise_sd = np.full(log_time.size, form.noise)
    inside = np.linalg.inv(measured_covariance(measured, noise_sd, shared_sd, form))
    slopes = measured.jacobian
    information = np.diag(PRIOR_SD**-2) + slopes.T @ inside @ slopes
    covariance = np.asarray(np.linalg.inv(information), dtype=np.float64)
    mean = covariance @ slopes.T @ inside @ (log_time - measured.log_time)
    at_fit = replace(measured, log_time=measured.log_time + slopes @ mean)
    return PhysicalFit(
        rig={},
        factors=NAMES,
        mean=mean,
        covariance=covariance,
        prior_sd=PRIOR_SD,
        measured=at_fit,
        residual=log_time - at_fit.log_time,
        noise_sd=noise_sd,
        shared_sd=shared_sd,
        form=form,
    )


def at_centre(fit: PhysicalFit, asked: Priced) -> Priced:
    """Loads that were priced at factors 0, priced at the fitted ones."""
    return replace(asked, log_time=asked.log_time + asked.jacobian @ fit.centre(asked.own))


def error_between(first: Priced, second: Priced, form: ModelError, *, known: bool) -> Array:
    """Covariance of the form's errors of two rigs, by the rule for changed ones."""
    same = error_covariance(
        first.loads, first.target_share, second.loads, second.target_share, form
    )
    if known:
        return np.asarray(same * (1 + ADDED_PER_CHANGE * len(first.changes & second.changes)))
    return np.asarray(same * SHARED_PER_CHANGE ** len(first.changes ^ second.changes))


def dense_conditional(
    measured: Priced, log_time: Array, shared_sd: Array, asked: list[Priced], form: ModelError
) -> tuple[Array, Array]:
    """Mean and covariance of asked times and of the shared error, from the joint Gaussian of everything.

    The vector is (factors, own factors, errors of all loads, noise, the shared error); measured and asked
    times are linear in it, and the second block is conditioned on the first by Schur's complement.
    """
    rigs = [measured, *asked]
    counts = [len(each.loads) for each in rigs]
    total, rows = sum(counts), counts[0]
    errors = np.block([[error_between(a, b, form, known=rows > 0) for b in rigs] for a in rigs])
    prior = np.diag(PRIOR_SD**2)
    size = 2 * len(NAMES) + total + rows + 1
    joint = np.zeros((size, size))
    joint[:3, :3] = joint[3:6, 3:6] = prior
    joint[6 : 6 + total, 6 : 6 + total] = errors
    joint[6 + total : -1, 6 + total : -1] = form.noise**2 * np.eye(rows)
    joint[-1, -1] = 1.0
    linear = np.zeros((total + 1, size))
    linear[-1, -1] = 1.0
    start = 0
    for one, count in zip(rigs, counts, strict=True):
        part = slice(start, start + count)
        for factor in range(len(NAMES)):
            linear[part, factor + (3 if factor in one.own else 0)] = one.jacobian[:, factor]
        linear[part, 6 + start : 6 + start + count] = np.eye(count)
        start += count
    linear[:rows, 6 + total : -1] = np.eye(rows)
    linear[:rows, -1] = -shared_sd
    covariance = linear @ joint @ linear.T
    before = np.concatenate([*(each.log_time for each in rigs), np.zeros(1)])
    gain = np.linalg.solve(covariance[:rows, :rows], covariance[:rows, rows:]).T
    mean = before[rows:] + gain @ (log_time - before[:rows])
    return mean, covariance[rows:, rows:] - gain @ covariance[:rows, rows:]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("count", [1, 2, 25])
def test_it_is_the_conditional_of_the_joint_gaussian(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    measured = priced(rng, count)
    log_time = measured.log_time + rng.normal(0, 0.3, count)
    shared_sd = rng.normal(0, 0.05, count)
    fit = conditioned(measured, log_time, shared_sd, ModelError())
    asked = [
        priced(rng, 4),
        priced(rng, 3, changes=frozenset({"gpu"}), own=frozenset({0, 1})),
        priced(rng, 2, changes=frozenset({"gpu", "model"}), own=frozenset({0})),
    ]
    centred = [at_centre(fit, each) for each in asked]
    mean, covariance = fit.predict_with_share(*centred)
    expected = dense_conditional(measured, log_time, shared_sd, asked, ModelError())
    np.testing.assert_allclose(mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(covariance, expected[1], atol=1e-9)
    times = fit.predict(*centred)
    np.testing.assert_allclose(times[0], mean[:-1], atol=1e-12)
    np.testing.assert_allclose(times[1], covariance[:-1, :-1], atol=1e-12)


def test_without_a_measurement_it_is_the_prior() -> None:
    rng = np.random.default_rng(3)
    asked = [priced(rng, 3), priced(rng, 2, changes=frozenset({"gpu"}), own=frozenset({1}))]
    fit = PhysicalFit.from_prior({}, NAMES, PRIOR_SD)
    mean, covariance = fit.predict_with_share(*asked)
    assert mean.tolist() == [*asked[0].log_time, *asked[1].log_time, 0.0]
    nothing = priced(rng, 0)
    expected = dense_conditional(nothing, np.zeros(0), np.zeros(0), asked, ModelError())
    np.testing.assert_allclose(covariance, expected[1], atol=1e-12)


def test_one_measurement_moves_a_load_by_the_part_that_both_share() -> None:
    rng = np.random.default_rng(5)
    flat: dict[str, Any] = {"jacobian": np.zeros((1, 3)), "target_share": np.ones(1)}
    known = replace(priced(rng, 1), loads=Loads.of(num_steps=0, batch_size=4), **flat)
    fit = conditioned(known, known.log_time + 0.5, np.zeros(1), LOCAL)
    near = replace(priced(rng, 1), loads=Loads.of(num_steps=0, batch_size=8), **flat)
    mean, covariance = fit.predict(near)
    variance, shared = 0.2**2, 0.2**2 * np.exp(-1)  # an octave of rows away
    heard = shared / (variance + LOCAL.noise**2)
    assert mean[0] - near.log_time[0] == pytest.approx(heard * 0.5)
    assert covariance[0, 0] == pytest.approx(variance - heard * shared)


def test_a_load_far_from_every_measurement_is_left_to_the_form() -> None:
    rng = np.random.default_rng(6)
    flat: dict[str, Any] = {"jacobian": np.zeros((1, 3)), "target_share": np.ones(1)}
    known = replace(priced(rng, 1), loads=Loads.of(num_steps=0, batch_size=1), **flat)
    fit = conditioned(known, known.log_time + 0.5, np.zeros(1), LOCAL)
    far = replace(priced(rng, 1), loads=Loads.of(num_steps=0, batch_size=2.0**30), **flat)
    mean, covariance = fit.predict(far)
    assert mean[0] == pytest.approx(far.log_time[0], abs=1e-12)
    assert covariance[0, 0] == pytest.approx(0.2**2)


@pytest.mark.parametrize("seed", range(10))
def test_measurements_make_nothing_less_certain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    measured, asked = priced(rng, 12), priced(rng, 6)
    log_time = measured.log_time + rng.normal(0, 0.3, 12)
    before = PhysicalFit.from_prior({}, NAMES, PRIOR_SD).predict(asked)[1]
    for count in (1, 4, 12):
        some = replace(
            measured,
            loads=measured.loads.take(np.arange(count)),
            log_time=measured.log_time[:count],
            jacobian=measured.jacobian[:count],
            target_share=measured.target_share[:count],
        )
        fit = conditioned(some, log_time[:count], np.zeros(count), ModelError())
        assert np.linalg.eigvalsh(np.diag(PRIOR_SD**2) - fit.covariance)[0] > -1e-12
        after = fit.predict(at_centre(fit, asked))[1]
        assert np.linalg.eigvalsh(before - after)[0] > -1e-10
        assert np.linalg.eigvalsh(after)[0] > -1e-10
        before = after


def test_a_measured_load_is_known_but_for_noise() -> None:
    rng = np.random.default_rng(8)
    measured = priced(rng, 5)
    log_time = measured.log_time + rng.normal(0, 0.3, 5)
    quiet = replace(ModelError(), noise=1e-4)
    fit = conditioned(measured, log_time, np.zeros(5), quiet)
    mean, covariance = fit.predict(fit.measured)
    np.testing.assert_allclose(mean, log_time, atol=1e-4)
    np.testing.assert_allclose(covariance, 0, atol=1e-7)


def test_the_ratio_of_a_rig_to_itself_is_certain() -> None:
    rng = np.random.default_rng(9)
    measured = priced(rng, 5)
    fit = conditioned(measured, measured.log_time + 0.2, np.zeros(5), ModelError())
    asked = at_centre(fit, priced(rng, 2, changes=frozenset({"gpu"}), own=frozenset({0})))
    mean, covariance = fit.predict(asked, asked)
    ratio = np.array([1.0, 0.0, -1.0, 0.0])
    assert ratio @ mean == 0
    assert ratio @ covariance @ ratio == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("measured", [0, 6])
def test_what_differs_from_the_measured_rig_widens(measured: int) -> None:
    rng = np.random.default_rng(10)
    known, asked = priced(rng, measured), priced(rng, 3)
    fit = (
        conditioned(known, known.log_time + 0.1, np.zeros(measured), ModelError())
        if measured
        else PhysicalFit.from_prior({}, NAMES, PRIOR_SD)
    )
    same = at_centre(fit, asked)
    weights = np.concatenate([np.ones(3), -np.ones(3)]) / 3
    spreads = []
    for changes in ((), ("gpu",), ("gpu", "model")):
        other = replace(same, changes=frozenset(changes))
        spreads.append(float(weights @ fit.predict(same, other)[1] @ weights))
    assert spreads[0] == pytest.approx(0, abs=1e-12)
    assert spreads[0] < spreads[1] < spreads[2]


def test_a_centre_has_the_prior_where_a_rig_has_its_own_factors() -> None:
    rng = np.random.default_rng(11)
    measured = priced(rng, 6)
    fit = conditioned(measured, measured.log_time + 0.4, np.zeros(6), ModelError())
    assert fit.centre() == pytest.approx(fit.mean)
    assert fit.centre(frozenset({1})).tolist() == [fit.mean[0], 0.0, fit.mean[2]]
    assert fit.mean[1] != 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", np.array([0.0, np.nan, 0.0])),
        ("mean", np.zeros(2)),
        ("covariance", np.full((3, 3), np.inf)),
        ("covariance", np.diag([-0.01, 0.01, 0.01])),
        ("covariance", np.diag(4 * PRIOR_SD**2)),
        ("covariance", np.diag(0.5 * PRIOR_SD**2) + np.eye(3, k=1) * 0.01),
        ("prior_sd", np.array([0.15, 0.0, 0.7])),
        ("prior_sd", np.array([0.15, -0.4, 0.7])),
        ("noise_sd", np.zeros(4)),
        ("noise_sd", np.ones(3)),
        ("residual", np.full(4, 1e9)),
        ("shared_sd", np.zeros((4, 1))),
        ("non_decode_share", 1.0),
        ("non_decode_share", float("nan")),
        ("non_decode_sd", -0.1),
        ("non_decode_sd", float("nan")),
    ],
)
def test_a_fit_that_none_is_is_refused(name: str, value: Any) -> None:
    rng = np.random.default_rng(12)
    measured = priced(rng, 4)
    fit = conditioned(measured, measured.log_time + 0.1, np.zeros(4), ModelError())
    with pytest.raises(ParameterError, match=name):
        replace(fit, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_steps", np.array([0.0, 1.0, 2.0, np.nan])),
        ("batch_size", np.array([0.0, 1.0, 1.0, 1.0])),
        ("context_tokens", np.full(4, -1.0)),
        ("topk", np.ones(5)),
        ("num_draft_tokens", np.full(4, 1e30)),
        ("log_time", np.full(4, np.inf)),
        ("jacobian", np.zeros((4, 2))),
        ("target_share", np.full(4, 1.5)),
    ],
)
def test_measured_loads_that_cannot_be_are_refused(name: str, value: Any) -> None:
    rng = np.random.default_rng(13)
    measured = priced(rng, 4)
    fit = conditioned(measured, measured.log_time + 0.1, np.zeros(4), ModelError())
    broken = (
        replace(fit.measured, loads=replace(fit.measured.loads, **{name: value}))
        if hasattr(fit.measured.loads, name)
        else replace(fit.measured, **{name: value})
    )
    with pytest.raises(ParameterError, match=name):
        replace(fit, measured=broken)


def test_a_time_that_no_clock_shows_is_not_predicted() -> None:
    fit = PhysicalFit.from_prior({}, NAMES, PRIOR_SD)
    asked = priced(np.random.default_rng(14), 1)
    with pytest.raises(FitError, match="specmodel fit"):
        fit.predict(replace(asked, log_time=np.array([800.0])))
    with pytest.raises(ParameterError, match="jacobian"):
        fit.predict(replace(asked, jacobian=np.zeros((1, 2))))
