"""From the text of an option to its value: numbers, depths, lists of accuracies."""

import math
import re
from pathlib import Path

import click

from specmodel.bounds import BOUNDS

DEEPEST = int(BOUNDS["num_steps"].most)
"""Deepest draft that is answered for. [tokens]"""

_MOST_STEPS = 10**9

_SEPARATOR = re.compile(r"\s*[,;]\s*|\s+")

_PICTURES = (".png", ".svg", ".pdf")


class Number(click.FloatRange):
    """A finite number, inside the bounds of a quantity.

    Parameters
    ----------
    quantity : str
        Key of `specmodel.bounds.BOUNDS`.
    from_below : bool
        Leave what is below the bounds to the code that knows why; only what is above is refused.
    """

    def __init__(self, quantity: str, *, from_below: bool = False) -> None:
        self.bounds = BOUNDS[quantity]
        super().__init__(min=None if from_below else self.bounds.least, max=self.bounds.most)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or refuse the text in one line."""
        try:
            number = float(str(value))
        except ValueError:
            hint = "; decimals need a point" if "," in str(value) else ""
            self.fail(f"{value!r} is not a number{hint}", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if number > self.bounds.most or (self.min is not None and number < self.min):
            self.fail(f"{value!r} is outside {self.bounds}", param, ctx)
        return number

    def _describe_range(self) -> str:
        """The bounds, for the help."""
        return str(self.bounds)


class Until(click.ParamType[float | None]):
    """A step, or ``end`` (None) for the one that a log tells."""

    name = "end|STEP"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the step, or refuse the text in one line."""
        if value is None or value == "end":
            return None
        try:
            step = int(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a step nor 'end'", param, ctx)
        if not 1 <= step <= _MOST_STEPS:
            self.fail(f"{value!r} is outside 1 to {_MOST_STEPS}", param, ctx)
        return float(step)


class ServedPairs(click.ParamType[tuple[float, float]]):
    """Two accept lengths, ``LOGGED:SERVED``."""

    name = "logged:served"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return the pair, or refuse the text in one line."""
        if isinstance(value, tuple):
            return value
        logged, separator, served = str(value).partition(":")
        number = Number("accept_length")
        if not separator:
            self.fail(f"{value!r} is no pair such as 2.75:2.4", param, ctx)
        return number.convert(logged, param, ctx), number.convert(served, param, ctx)


def depths(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Depths of ``10`` or ``1:10``; a callback of an option.

    Parameters
    ----------
    ctx, param
        Of the option.
    value : str or None
        As typed.

    Returns
    -------
    tuple of int or None
        Rising; None where the option was not given.

    Raises
    ------
    click.BadParameter
        If it is neither a depth nor a range, or outside what is modelled.
    """
    if value is None:
        return None
    first, separator, last = value.partition(":")
    try:
        low = int(first)
        high = int(last) if separator else low
    except ValueError:
        reason = f"{value!r} is neither a depth such as 10 nor a range such as 1:10"
        raise click.BadParameter(reason, ctx, param) from None
    if low < 1:
        reason = (
            f"{value!r} begins at {low}, and a depth is at least 1; depth 0 is no speculation, its "
            "speed-up is 1, and it is among the candidates of every range"
        )
    elif high < low:
        reason = f"{value!r} ends before it begins"
    elif high > DEEPEST:
        reason = f"{value!r} is deeper than {DEEPEST}, the deepest that is modelled"
    else:
        return tuple(range(low, high + 1))
    raise click.BadParameter(reason, ctx, param)


def accuracies(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[float, ...] | None:
    """Numbers of a list such as ``.742,.47``; whether they are lawful is checked where they are used.

    Parameters
    ----------
    ctx, param
        Of the option.
    value : str or None
        As typed, depth 1 first; commas, semicolons or blanks between the numbers.

    Returns
    -------
    tuple of float or None
        At least one; None where the option was not given.

    Raises
    ------
    click.BadParameter
        If a part is empty or no number, the list too long, or its separators are mixed.
    """
    if value is None:
        return None
    text = value.strip()
    if not text:
        raise click.BadParameter("an empty list; give one accuracy per depth", ctx, param)
    if len({separator.strip() for separator in _SEPARATOR.findall(text)}) > 1:
        reason = f"{value!r} has several separators; decimals need a point, and commas separate"
        raise click.BadParameter(reason, ctx, param)
    numbers = []
    for place, part in enumerate(_SEPARATOR.split(text), start=1):
        if not part:
            reason = f"entry {place} of {value!r} is empty; give one accuracy per depth"
            raise click.BadParameter(reason, ctx, param)
        try:
            numbers.append(float(part))
        except ValueError:
            hint = "; write it as a fraction, such as 0.742" if part.endswith("%") else ""
            reason = f"{part!r} in {value!r} is not a number{hint}"
            raise click.BadParameter(reason, ctx, param) from None
    if len(numbers) > DEEPEST:
        reason = f"{len(numbers)} accuracies; the deepest that is modelled is {DEEPEST}"
        raise click.BadParameter(reason, ctx, param)
    return tuple(numbers)


def picture(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """File of a picture, refused before anything is computed where its type is not known.

    Parameters
    ----------
    ctx, param
        Of the option.
    value : str or None
        As typed.

    Returns
    -------
    Path or None
        None where the option was not given.

    Raises
    ------
    click.BadParameter
        If it does not end in .png, .svg or .pdf.
    """
    if value is None:
        return None
    if not value.lower().endswith(_PICTURES):
        raise click.BadParameter(f"{value!r} must end in {', '.join(_PICTURES)}", ctx, param)
    return Path(value)


def changes_of(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Keys and texts of ``KEY=VALUE``."""
    pairs = []
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not text.strip():
            raise click.BadParameter(f"{value[:60]!r} is not KEY=VALUE", ctx, param)
        pairs.append((key.strip(), text.strip()))
    return tuple(pairs)
