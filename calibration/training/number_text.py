"""Numbers as trainers print them, and how finely they were printed."""

import re
from typing import Final

from calibration.training.records import PRINTED_NAN
from specmodel.units import PERCENT

# Pattern of a printed number; letters in either case.
NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf|infinity)"

_LONGEST = 40
_FINITE = re.compile(r"[-+]?(?:\d+\.?(\d*)|\.(\d+))(?:[eE]([-+]?\d+))?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE)


def printed_number(text: str) -> float | None:
    """Return the number that a text is."""
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
    """Return half a unit of the last printed digit of a number."""
    text = text.strip()
    percent = text.endswith("%")
    found = _FINITE.fullmatch(text.removesuffix("%")) if len(text) <= _LONGEST else None
    if found is None:
        return None
    decimals = len(found[1] or found[2] or "")
    exponent = int(found[3] or 0) - decimals
    unit = float(f"5e{exponent - 1}")
    return unit * PERCENT if percent else unit
