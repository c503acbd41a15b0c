"""Numbers as trainers print them, and how finely they were printed."""

import re
from typing import Final

from calibration.training.records import PRINTED_NAN
from specmodel.units import PERCENT

NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf|infinity)"
"""Pattern of a printed number; letters in either case."""

_LONGEST = 40
_FINITE = re.compile(r"[-+]?(?:\d+\.?(\d*)|\.(\d+))(?:[eE]([-+]?\d+))?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE)


def printed_number(text: str) -> float | None:
    """Return the number that a text is.

    Parameters
    ----------
    text : str
        Without anything around it but blanks; a percent sign divides by 100.

    Returns
    -------
    float or None
        `PRINTED_NAN` for ``nan``, ``inf`` and ``-inf``; None where it is no number.

    Examples
    --------
    >>> [printed_number(text) for text in ("0.604", "9.30e-04", "58.1%", "nan", "None", "1.2.3")]
    [0.604, 0.00093, 0.581, inf, None, None]
    """
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    if text.endswith("%"):
        number = printed_number(text[:-1]) if not text.endswith("%%") else None
        return None if number is None else number * PERCENT
    if _FINITE.fullmatch(text):
        number = float(text)
        return number if abs(number) < PRINTED_NAN else PRINTED_NAN
    return PRINTED_NAN if _NOT_FINITE.fullmatch(text) else None


def half_unit(text: str) -> float | None:
    """Return half a unit of the last printed digit of a number.

    Parameters
    ----------
    text : str
        As for `printed_number`.

    Returns
    -------
    float or None
        None where the text is no finite number.

    Examples
    --------
    >>> [half_unit(text) for text in ("0.604", "9.30e-04", "58.1%", "7", "nan")]
    [0.0005, 5e-07, 0.0005, 0.5, None]
    """
    text = text.strip()
    percent = text.endswith("%")
    found = _FINITE.fullmatch(text.removesuffix("%")) if len(text) <= _LONGEST else None
    if found is None:
        return None
    decimals = len(found[1] or found[2] or "")
    exponent = int(found[3] or 0) - decimals
    unit = float(f"5e{exponent - 1}")
    return unit * PERCENT if percent else unit
