import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from specmodel.constants import (
    CONSTANTS,
    NAMES,
    NUM_CONSTANTS,
    Scale,
    slope,
    to_internal,
    to_natural,
)

Array = NDArray[np.float64]

internal_values = arrays(np.float64, NUM_CONSTANTS, elements=st.floats(-12, 12))


def test_names_and_symbols_are_unique() -> None:
    assert len(set(NAMES)) == NUM_CONSTANTS == len({constant.symbol for constant in CONSTANTS})


def test_every_constant_says_what_tells_it_apart() -> None:
    assert all(constant.meaning and constant.needs for constant in CONSTANTS)


@given(internal_values)
def test_the_scales_are_inverse_and_keep_their_bounds(internal: Array) -> None:
    natural = to_natural(internal)
    assert np.all(natural > 0)
    shares = [constant.scale is Scale.LOGIT for constant in CONSTANTS]
    assert np.all(natural[shares] < 1)
    np.testing.assert_allclose(to_internal(natural), internal, rtol=1e-9, atol=1e-9)


@given(internal_values)
def test_slope_is_the_derivative_of_the_natural_value(internal: Array) -> None:
    step = 1e-6
    difference = (to_natural(internal + step) - to_natural(internal - step)) / (2 * step)
    np.testing.assert_allclose(slope(to_natural(internal)), difference, rtol=1e-4, atol=1e-9)


def test_many_vectors_at_once_are_the_same_as_one_by_one() -> None:
    internal = np.random.default_rng(0).normal(size=(4, NUM_CONSTANTS))
    for function in (to_natural, slope):
        together = function(internal)
        for row in range(4):
            np.testing.assert_array_equal(together[row], function(internal[row]))


def test_extreme_internal_values_stay_finite() -> None:
    for value in (-1e6, 1e6):
        assert np.all(np.isfinite(to_natural(np.full(NUM_CONSTANTS, value))))
