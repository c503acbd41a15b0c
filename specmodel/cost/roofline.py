"""The smooth roofline: a kernel takes the longer of its reading and its computing time."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def smooth_maximum(first_s: ArrayLike, second_s: ArrayLike) -> Array:
    r"""Time of a kernel whose reading and computing overlap.

    .. math:: T = (x^4 + y^4)^{1/4}

    Parameters
    ----------
    first_s, second_s : array-like
        :math:`x, y \ge 0`, the two times, [s].

    Returns
    -------
    numpy.ndarray, broadcast shape
        At least the longer of the two, at most 1.19 times it, [s].

    Notes
    -----
    The exponent 4 is a judgement within 4 to 8: a hard maximum has no gradient in the shorter time,
    and real kernels bend before the ridge, where the norm is 2**(1/4) = 1.19 of either time. Holds
    for one kind of kernel; kernels that run one after another are added. theory.md B3.

    Examples
    --------
    >>> smooth_maximum([3.0, 1.0], [0.0, 1.0]).round(3).tolist()
    [3.0, 1.189]
    """
    first, second = np.asarray(first_s, dtype=np.float64), np.asarray(second_s, dtype=np.float64)
    longer = np.maximum(first, second)
    if not longer.any():
        return np.asarray(longer)
    ratio = np.minimum(first, second) / np.where(longer > 0, longer, 1.0)
    square = ratio * ratio
    return np.asarray(longer * np.sqrt(np.sqrt(1.0 + square * square)))


def roofline_parts(first_s: ArrayLike, second_s: ArrayLike) -> tuple[Array, Array]:
    r"""The smooth maximum, split into what each of the two times is to blame for.

    .. math:: T_x = x \frac{\partial T}{\partial x} = \frac{x^4}{x^4 + y^4} T,\quad T_x + T_y = T

    Parameters
    ----------
    first_s, second_s : array-like
        :math:`x, y \ge 0`, [s].

    Returns
    -------
    tuple of numpy.ndarray
        :math:`T_x, T_y`, which sum to `smooth_maximum`, [s].

    Notes
    -----
    Euler's theorem for a function of degree one: each part is also what a small relative change of
    that time would move, so the parts are elasticities.

    Examples
    --------
    >>> reading, computing = roofline_parts(2.0, 1.0)
    >>> round(float(reading), 3), round(float(computing), 3)
    (1.911, 0.119)
    """
    first, second = np.asarray(first_s, dtype=np.float64), np.asarray(second_s, dtype=np.float64)
    total = smooth_maximum(first, second)
    scale = np.where(total > 0, total, 1.0)
    share = (first / scale) ** 2
    part = share * share * total
    return part, np.maximum(total - part, 0.0)
