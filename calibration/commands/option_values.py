"""From the text of an option to its value: depths, lists of accuracies."""

from pathlib import Path

import click

DEEPEST = 128
"""Deepest draft that is answered for. [tokens]"""

_PICTURES = (".png", ".svg", ".pdf")


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
        If a part is no number.
    """
    if value is None:
        return None
    numbers = []
    for part in value.replace(";", " ").replace(",", " ").split():
        try:
            numbers.append(float(part))
        except ValueError:
            hint = "; write it as a fraction, such as 0.742" if part.endswith("%") else ""
            reason = f"{part!r} in {value!r} is not a number{hint}"
            raise click.BadParameter(reason, ctx, param) from None
    if not numbers:
        raise click.BadParameter("an empty list; give one accuracy per depth", ctx, param)
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
