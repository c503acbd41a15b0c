"""From what a user gives to questions: depths, load and workload, completed from the calibration."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from specmodel.calibration import Calibration
from specmodel.errors import SpecModelError, UnknownKeyError
from specmodel.question import Configuration


class UsageError(SpecModelError):
    """Something must be given that was not; the command line exits with 2.

    Parameters
    ----------
    option : str
        The option to give.
    reason : str
        Why it cannot be guessed.
    """

    exit_code = 2

    def __init__(self, option: str, reason: str) -> None:
        self.option, self.reason = option, reason
        super().__init__(f"{reason}; give {option}")


class AskedConfiguration(NamedTuple):
    """Parts of a configuration that the user gave; None for those to take from the calibration.

    Depths are a tuple, because one command may ask for several.
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
        One per depth. A calibration that does not state its depth is answered at that depth, which
        stays None.

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
    elif list_depth is not None and not depth_unknown(calibration):
        depths = (list_depth,)
    elif calibration.configurations:
        depths = (_single(calibration, "num_steps"),)
    else:
        raise UsageError("--depth", "the packaged prior has no calibrated depth")
    topk = asked.topk if asked.topk is not None else _only_chain_or_single(calibration)
    load = {
        name: given if given is not None else _single(calibration, name)
        for name, given in (
            ("batch_size", asked.batch_size),
            ("context_tokens", asked.context_tokens),
        )
    }
    return [
        Configuration(
            num_steps=None if depth is None else float(depth),
            topk=topk,
            num_draft_tokens=_draft_tokens(calibration, asked, depth, topk),
            **load,
        )
        for depth in depths
    ]


def check_verified_tokens(
    calibration: Calibration, asked: AskedConfiguration, found: Iterable[Configuration]
) -> None:
    """Refuse a chain that verifies another number of tokens than a chain does.

    Parameters
    ----------
    calibration : Calibration
        What it measured is possible, whatever it is.
    asked : AskedConfiguration
        What was given.
    found : iterable of Configuration
        Completed from it.

    Raises
    ------
    UsageError
        If verified tokens were given and do not fit. One draft step may propose a whole block.
    """
    if asked.num_draft_tokens is None:
        return
    measured = {
        (one.num_steps, one.topk, one.num_draft_tokens) for one in calibration.configurations
    }
    for one in found:
        steps, tokens = one.num_steps, asked.num_draft_tokens
        if steps is None or one.topk != 1 or (steps, one.topk, tokens) in measured:
            continue
        if tokens == steps + 1 or (steps == 1 and tokens > 1):
            continue
        raise UsageError(
            "--topk of the tree, or leave --num-draft-tokens out",
            f"a chain of depth {steps:g} verifies {steps + 1:g} tokens (num_steps + 1), not {tokens:g}",
        )


def depth_unknown(calibration: Calibration) -> bool:
    """Whether the calibration has points and none of them states its depth."""
    depths = {one.num_steps for one in calibration.configurations}
    return depths == {None}


def calibrated_depth(calibration: Calibration) -> int | None:
    """The one depth at which the points were measured; None where there are several or none."""
    depths = {one.num_steps for one in calibration.configurations}
    depth = depths.pop() if len(depths) == 1 else None
    return None if depth is None else int(depth)


def workload_of(
    calibration: Calibration,
    configuration: Configuration,
    *,
    workload: str | None = None,
    baseline_tokens_per_s: float | None = None,
) -> str | None:
    """Workload to answer for: the given one, or the only one measured at this load.

    Parameters
    ----------
    calibration : Calibration
        What is calibrated.
    configuration : Configuration
        Its batch and context are the load.
    workload : str, optional
        What was given.
    baseline_tokens_per_s : float, optional
        A baseline that was given; a workload that is not calibrated needs one, [tokens/s].

    Returns
    -------
    str or None
        None for a workload that the points do not hold or do not name.

    Raises
    ------
    UnknownKeyError
        If the given workload is not in the calibration and no baseline of it was given.
    """
    entries = calibration.baselines.entries
    if workload is not None:
        known = _distinct(entry.workload for entry in entries)
        if workload not in known and baseline_tokens_per_s is None:
            raise UnknownKeyError("workload", workload, [name for name in known if name])
        return workload
    batch, context = configuration.batch_size, configuration.context_tokens
    here = _distinct(
        entry.workload
        for entry in entries
        if _same(entry.batch_size, batch) and _same(entry.context_tokens, context)
    )
    # Points that do not name their workload do not say that the next run is the same one: its
    # baseline is still the only one known, but what it misses is drawn anew.
    return here[0] if len(here) == 1 and here[0] else None


def _distinct(names: Iterable[str]) -> list[str]:
    """Names in their order, each once."""
    return list(dict.fromkeys(names))


def _same(measured: float, asked: float | None) -> bool:
    """Whether a load is the one asked for; NaN is one that is not stated."""
    return measured != measured if asked is None else measured == asked  # noqa: PLR0124 - NaN


def _single(calibration: Calibration, name: str) -> float | None:
    """The calibration's only value of a quantity; None where it states none."""
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
