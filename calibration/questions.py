"""From what a user gives to questions: depths, defaults of the calibration, accept lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from specmodel.calibrated import Calibration
from specmodel.configuration import Configuration
from specmodel.errors import SpecModelError


class UsageError(SpecModelError):
    """Something must be given that was not; the command line exits with 2.

    Parameters
    ----------
    option : str
        The option to give.
    reason : str
        Why it cannot be guessed.
    """

    def __init__(self, option: str, reason: str) -> None:
        self.option, self.reason = option, reason
        super().__init__(f"{reason}; give {option}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AskedConfiguration:
    """Parts of a configuration that the user gave; None for those to take from the calibration.

    Parameters
    ----------
    num_steps : tuple of int or None
        Depths to answer for.
    topk, num_draft_tokens, batch_size, context_tokens : float or None
        As in `Configuration`.
    """

    num_steps: tuple[int, ...] | None = None
    topk: float | None = None
    num_draft_tokens: float | None = None
    batch_size: float | None = None
    context_tokens: float | None = None


_OPTIONS = {
    "num_steps": "--depth",
    "topk": "--topk",
    "batch_size": "--batch-size",
    "context_tokens": "--context-tokens",
}


def _single(calibration: Calibration, name: str) -> float | None:
    """The calibration's only value of a quantity; None where it states none.

    Raises
    ------
    UsageError
        If the calibration holds several.
    """
    values = {getattr(one, name) for one in calibration.configurations}
    if len(values) > 1:
        known = ", ".join(
            "not stated" if value is None else f"{value:g}"
            for value in sorted(values, key=lambda value: -1.0 if value is None else value)
        )
        raise UsageError(
            _OPTIONS[name], f"the calibration holds several values of {name} ({known})"
        )
    return values.pop() if values else None


def configurations(
    calibration: Calibration, asked: AskedConfiguration, *, list_depth: int | None = None
) -> list[Configuration]:
    r"""Configurations to answer for, completed from the calibration where it holds one value.

    .. math:: \text{given} \cup \text{calibrated}

    Parameters
    ----------
    calibration : Calibration
        What is calibrated.
    asked : AskedConfiguration
        What was given.
    list_depth : int, optional
        Length of an accuracy list: the depth where none is given.

    Returns
    -------
    list of Configuration
        One per depth.

    Raises
    ------
    UsageError
        If a quantity is neither given nor single in the calibration.

    Notes
    -----
    Without points, batch and context stay unknown and topk is a chain.
    """
    depths: Sequence[float | None]
    if asked.num_steps is not None:
        depths = asked.num_steps
    elif list_depth is not None:
        depths = (list_depth,)
    else:
        depths = (_single(calibration, "num_steps"),)
    topk = asked.topk
    if topk is None:
        topk = _only_chain_or_single(calibration)
    batch = asked.batch_size
    if batch is None:
        batch = _single(calibration, "batch_size")
    context = asked.context_tokens
    if context is None:
        context = _single(calibration, "context_tokens")
    return [
        Configuration(
            num_steps=None if depth is None else float(depth),
            topk=topk,
            num_draft_tokens=_draft_tokens(calibration, asked, depth, topk),
            batch_size=batch,
            context_tokens=context,
        )
        for depth in depths
    ]


def _only_chain_or_single(calibration: Calibration) -> float:
    """Branching: a chain where the points hold chains, else the single value."""
    values = {one.topk or 1.0 for one in calibration.configurations}
    if not values or 1.0 in values:
        return 1.0
    value = _single(calibration, "topk")
    return 1.0 if value is None else value


def _draft_tokens(
    calibration: Calibration, asked: AskedConfiguration, depth: float | None, topk: float
) -> float | None:
    """Verified tokens: given, those of the same depth and topk in the points, else a chain's."""
    if asked.num_draft_tokens is not None:
        return asked.num_draft_tokens
    known = {
        one.num_draft_tokens
        for one in calibration.configurations
        if one.num_steps == depth and one.topk == topk
    }
    if len(known) == 1:
        return known.pop()
    if topk > 1:
        raise UsageError(
            "--num-draft-tokens",
            "a tree's number of verified tokens does not follow from its depth",
        )
    return None
