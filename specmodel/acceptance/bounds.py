"""Argument bounds shared by the acceptance formulas: a value outside raises, naming its place."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


def finite(name: str, values: ArrayLike) -> FloatArray:
    """Return the values as floats; raise where one is not a finite number."""
    array = np.asarray(values, dtype=np.float64)
    _raise_where(name, array, ~np.isfinite(array), "finite")
    return array


def unit_interval(name: str, values: ArrayLike) -> FloatArray:
    """Return the values as floats in [0, 1]; a percentage is suggested, never assumed."""
    array = finite(name, values)
    outside = (array < 0.0) | (array > 1.0)
    percent = bool(np.all(array >= 0.0) and np.all(array <= 100.0))
    hint = "a percentage? divide by 100" if percent else "a probability is meant"
    _raise_where(name, array, outside, "in [0, 1]", hint)
    return array


def at_least(name: str, values: ArrayLike, lowest: float, hint: str = "") -> FloatArray:
    """Return the values as floats that are not below the lowest lawful one."""
    array = finite(name, values)
    _raise_where(name, array, array < lowest, f"at least {lowest:g}", hint)
    return array


def whole(name: str, values: ArrayLike, lowest: int = 0) -> IntArray:
    """Return the values as integers that are not below the lowest lawful one."""
    array = at_least(name, values, lowest)
    _raise_where(name, array, array != np.floor(array), "a whole number")
    return array.astype(np.int64)


def _raise_where(
    name: str, array: FloatArray, wrong: NDArray[np.bool_], allowed: str, hint: str = ""
) -> None:
    """Raise for the first wrong value, with its index when there are several."""
    if not np.any(wrong):
        return
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"[{', '.join(map(str, index))}]" if index else ""
    raise ParameterError(f"{name}{place}", f"{array[index]:g}", allowed, hint)
