"""Bounds of the whole numbers that a model is described with."""

import dataclasses
from typing import Any

from specmodel.errors import ParameterError

LARGEST_COUNT = 10**10
"""No size, width or number of a model is above it; a larger one is a typing error (judgement)."""


def check_counts(record: Any, *, zero_allowed: tuple[str, ...] = ()) -> None:
    r"""Refuse a record whose whole numbers are out of bounds.

    .. math:: 1 \le n \le 10^{10}

    Parameters
    ----------
    record : dataclass instance
        Its fields that hold an int are checked; bool, None and records are left alone.
    zero_allowed : tuple of str
        Fields that may be 0.

    Raises
    ------
    ParameterError
        With the name of the first field that is out of bounds.

    Notes
    -----
    The upper bound is a judgement that keeps every product finite.

    Examples
    --------
    >>> from specmodel.architecture.blocks import DenseMlp
    >>> DenseMlp(width=0)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: width must be a whole number from 1 to 10000000000, got 0
    """
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        lowest = 0 if field.name in zero_allowed else 1
        if not lowest <= value <= LARGEST_COUNT:
            allowed = f"a whole number from {lowest} to {LARGEST_COUNT}"
            raise ParameterError(field.name, value, allowed)
