"""A measured all-reduce: time against message size, between the sizes and how far beyond them."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError

Array = NDArray[np.float64]

MOST_BEYOND: Final = 2.0
"""Distance beyond the measured sizes, as a factor, up to which a curve speaks for itself. [-]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceCurve:
    r"""Time of an all-reduce against its size, as measured.

    .. math:: T(S) = T_i + (T_{i+1} - T_i) \frac{S - S_i}{S_{i+1} - S_i}, \quad S_i \le S \le S_{i+1}

    Parameters
    ----------
    size_bytes : numpy.ndarray, shape (m,)
        :math:`S_i`, message per rank, rising, [bytes].
    time_s : numpy.ndarray, shape (m,)
        :math:`T_i`, [s].

    Notes
    -----
    Between two sizes time is linear in bytes, not in logarithms: a latency plus bytes over a
    bandwidth, which every protocol follows, is then met exactly. On the packaged tables the median
    error with one size left out is two thirds of that in log-log. A switch of protocol between two
    sizes is seen from its ends only: measure at the sizes that are served. Below the smallest size
    the time is the smallest size's; above the largest the last slope continues, held between no
    slope and proportional time. Holds for one library, number of ranks and capture mode.

    Examples
    --------
    >>> curve = AllReduceCurve.from_points([4096, 8192, 16384], [7e-6, 8e-6, 10e-6])
    >>> float(curve.at(12288)), float(curve.at(1024)), float(curve.at(32768))
    (9e-06, 7e-06, 1.4e-05)
    """

    size_bytes: Array
    time_s: Array

    def __post_init__(self) -> None:
        sizes, times = self.size_bytes, self.time_s
        if sizes.shape != times.shape or sizes.ndim != 1 or not sizes.size:
            raise ParameterError("size_bytes", sizes.shape, "as many sizes as times, at least one")
        for name, values in (("size_bytes", sizes), ("time_s", times)):
            if not np.all(np.isfinite(values) & (values > 0)):
                raise ParameterError(name, np.min(values), "positive and finite")
        if np.any(np.diff(sizes) <= 0):
            raise ParameterError("size_bytes", "others", "rising")

    @classmethod
    def from_points(cls, size_bytes: ArrayLike, time_s: ArrayLike) -> "AllReduceCurve":
        r"""Build a curve; of several times at one size the median counts.

        .. math:: T_i = \operatorname{median}\{T : S = S_i\}

        Parameters
        ----------
        size_bytes : array-like, shape (n,)
            Message per rank, positive, [bytes].
        time_s : array-like, shape (n,)
            Positive, [s].

        Returns
        -------
        AllReduceCurve

        Raises
        ------
        ParameterError
            Where there is no point, or a size or a time is not positive and finite.

        Notes
        -----
        The order of the points does not matter.

        Examples
        --------
        >>> AllReduceCurve.from_points([2048, 1024, 1024], [8e-6, 6e-6, 7e-6]).time_s.tolist()
        [6.5e-06, 8e-06]
        """
        sizes = np.atleast_1d(np.asarray(size_bytes, dtype=np.float64))
        times = np.atleast_1d(np.asarray(time_s, dtype=np.float64))
        if sizes.shape != times.shape or sizes.ndim != 1 or not sizes.size:
            raise ParameterError("size_bytes", sizes.shape, "as many sizes as times, at least one")
        for name, values in (("size_bytes", sizes), ("time_s", times)):
            if not np.all(np.isfinite(values) & (values > 0)):
                raise ParameterError(name, np.min(values), "positive and finite")
        unique = np.unique(sizes)
        medians = np.array([np.median(times[sizes == size]) for size in unique])
        return cls(size_bytes=unique, time_s=medians)

    def at(self, size_bytes: ArrayLike) -> Array:
        r"""Time of an all-reduce of any size.

        .. math:: T(S)

        Parameters
        ----------
        size_bytes : array-like
            :math:`S`, not negative, [bytes].

        Returns
        -------
        numpy.ndarray
            Of the same shape, [s].

        Raises
        ------
        ParameterError
            If a size is negative or not a number.

        Notes
        -----
        Ask `beyond` how far a size is from the measured ones.

        Examples
        --------
        >>> AllReduceCurve.from_points([1024, 2048], [6e-6, 8e-6]).at([[1024, 1536]]).tolist()
        [[6e-06, 7e-06]]
        """
        sizes = checked_sizes(size_bytes)
        value = np.interp(sizes, self.size_bytes, self.time_s)
        above = np.maximum(sizes - self.size_bytes[-1], 0.0)
        return np.asarray(value + self._last_slope() * above)

    def beyond(self, size_bytes: ArrayLike) -> Array:
        r"""Factor by which a size is outside the measured ones; 1 inside.

        .. math:: \max(S_1 / S, S / S_m, 1)

        Parameters
        ----------
        size_bytes : array-like
            :math:`S`, [bytes].

        Returns
        -------
        numpy.ndarray
            At least 1, [-]. Beyond `MOST_BEYOND` a user should be told.

        Raises
        ------
        ParameterError
            If a size is negative or not a number.

        Notes
        -----
        Small sizes are on the floor, so a factor below the smallest one matters less than one above.

        Examples
        --------
        >>> AllReduceCurve.from_points([1024, 4096], [6e-6, 7e-6]).beyond([512, 2048, 16384]).tolist()
        [2.0, 1.0, 4.0]
        """
        sizes = np.maximum(checked_sizes(size_bytes), np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            below = self.size_bytes[0] / sizes
        outside = np.maximum(below, sizes / self.size_bytes[-1])
        return np.asarray(np.maximum(outside, 1.0), dtype=np.float64)

    def left_out_errors(self) -> Array:
        r"""Relative error at every inner size when it is left out.

        .. math:: \hat T_{-i}(S_i) / T_i - 1

        Returns
        -------
        numpy.ndarray, shape (m - 2,)
            Signed, [-]; empty with fewer than three sizes. The ends are not predicted from outside.

        Notes
        -----
        On a grid of doubling sizes this is the error at twice the distance of the grid.

        Examples
        --------
        >>> AllReduceCurve.from_points([1, 2, 3], [1.0, 2.5, 3.0]).left_out_errors().tolist()
        [-0.2]
        """
        sizes, times = self.size_bytes, self.time_s
        if sizes.size < 3:
            return np.empty(0)
        share = (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
        return np.asarray((times[:-2] + share * (times[2:] - times[:-2])) / times[1:-1] - 1.0)

    def _last_slope(self) -> float:
        """Slope beyond the largest size, [s/byte]."""
        proportional = float(self.time_s[-1] / self.size_bytes[-1])
        if self.size_bytes.size == 1:
            return proportional
        slope = (self.time_s[-1] - self.time_s[-2]) / (self.size_bytes[-1] - self.size_bytes[-2])
        return min(max(float(slope), 0.0), proportional)


def checked_sizes(size_bytes: ArrayLike) -> Array:
    r"""Sizes as an array.

    .. math:: S \ge 0

    Parameters
    ----------
    size_bytes : array-like
        :math:`S`, [bytes].

    Returns
    -------
    numpy.ndarray

    Raises
    ------
    ParameterError
        If one is negative or not finite.

    Notes
    -----
    Shared by the curve and the forms.

    Examples
    --------
    >>> checked_sizes(1024).item()
    1024.0
    """
    sizes = np.asarray(size_bytes, dtype=np.float64)
    if not np.all(np.isfinite(sizes) & (sizes >= 0)):
        raise ParameterError("size_bytes", np.min(sizes), "not negative and finite")
    return sizes
