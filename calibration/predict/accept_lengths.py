"""From what a user knows of acceptance to an accept length at every depth that is asked for."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmodel.ask import UsageError
from specmodel.errors import Note, ParameterError
from specmodel.question import AcceptLength, Configuration, Estimate, longest_accept_length

# A cold prediction from one number needs nothing of the acceptance models, so they load on demand.
if TYPE_CHECKING:
    from specmodel.acceptance import FullAccuracy

Array = NDArray[np.float64]

_NORMAL_95 = 1.6448536269514722
_ROUNDING = 5e-3  # an accept length printed with two decimals may pass its limit by half a unit


class AskedAcceptLength(NamedTuple):
    """What the user knows of acceptance: one number or one list, and where it comes from.

    `accept_depth` is the depth at which a single number was measured; None for the depth of the
    question. `from_training` marks values of a training log.
    """

    accept_length: float | None = None
    full_accuracy: tuple[float, ...] | None = None
    conditional_accuracy: tuple[float, ...] | None = None
    accept_depth: int | None = None
    from_training: bool = False

    @property
    def list_depth(self) -> int | None:
        """Length of the list; None for a single number."""
        given = self.full_accuracy or self.conditional_accuracy
        return len(given) if given else None


class AcceptLengths(NamedTuple):
    """Accept lengths at the depths of a question, with what is uncertain about each.

    `values` are those to predict with; `as_logged` are the same before the transfer from training
    to serving, None where nothing was transferred. `measured_depth` is where the user's value
    belongs, None where that is not known. `curve` is the full accuracy at that depth and above,
    assumed where only one number is known; None where no value was carried.
    """

    values: tuple[AcceptLength, ...]
    as_logged: tuple[AcceptLength, ...] | None
    measured_depth: int | None
    curve: "FullAccuracy | None"
    notes: tuple[Note, ...]


def accept_lengths(
    asked: AskedAcceptLength,
    configurations: Sequence[Configuration],
    *,
    calibrated_depth: int | None = None,
) -> AcceptLengths:
    r"""Accept length at the depth of each configuration.

    .. math:: \tau_k = 1 + \sum_{i \le k} S_i, \qquad \tau_\text{served} = 1 + F (\tau - 1)

    Parameters
    ----------
    asked : AskedAcceptLength
        What is known.
    configurations : sequence of Configuration
        Where it is needed; a depth of None is the calibration's, which it does not state.
    calibrated_depth : int, optional
        Where a single number was measured, if nothing else says so, [tokens].

    Returns
    -------
    AcceptLengths
        In the order of the configurations.

    Raises
    ------
    ParameterError
        If a value is impossible: outside [0, 1], rising, below 1 or above the longest path + 1.
    UsageError
        If a single number is asked for at several depths and its own depth is not known.

    Notes
    -----
    Up to the depth of a list its sum is exact. Beyond it, and for a single number at another depth,
    the tail model carries it, and the spread over tail families is its uncertainty.

    Examples
    --------
    >>> asked = AskedAcceptLength(full_accuracy=(0.742, 0.47, 0.29, 0.15, 0.097))
    >>> found = accept_lengths(asked, [Configuration(num_steps=3), Configuration(num_steps=5)])
    >>> [round(value.estimate.median, 3) for value in found.values]
    [2.502, 2.749]
    """
    depths = [_depth(one) for one in configurations]
    if asked.list_depth is not None:
        found = _from_list(asked, configurations, depths)
    else:
        found = _from_number(asked, configurations, depths, calibrated_depth)
    found = found._replace(
        values=tuple(
            _within(value, one) for value, one in zip(found.values, configurations, strict=True)
        )
    )
    if not asked.from_training:
        return found
    from specmodel.acceptance import TRANSFER_PRIOR

    width = math.exp(_NORMAL_95 * TRANSFER_PRIOR.total_sd)
    median = TRANSFER_PRIOR.median
    transfer = Note(
        "transfer",
        f"from training log to server, accept length - 1 is taken times {median:g} (90 %: "
        f"{median / width:.2f} to {median * width:.2f}), a prior; the accept length of one served "
        "checkpoint replaces it",
    )
    return found._replace(
        notes=(*found.notes, transfer),
        values=tuple(
            _served(value, longest_accept_length(one))
            for value, one in zip(found.values, configurations, strict=True)
        ),
        as_logged=found.values,
    )


def accept_length_draws(
    found: AcceptLengths,
    depths: Sequence[int],
    *,
    num_draws: int,
    rng: "np.random.Generator",  # quoted: numpy.random loads on demand
) -> Array:
    r"""Equally likely accept lengths at several depths, jointly.

    .. math:: \tau_k^{(d)} = 1 + F^{(d)} \left(\tau_k e^{\pm s_k z^{(d)}} - 1\right)

    Parameters
    ----------
    found : AcceptLengths
        At those depths.
    depths : sequence of int
        The depths, [tokens].
    num_draws : int
        Number of draws.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    numpy.ndarray, shape (num_draws, depths)
        Between 1 and depth + 1, [tokens].

    Notes
    -----
    One error is shared by all depths of a draw. A curve held at its measured depth that is higher
    beyond it is lower before it, hence the sign; the transfer from training acts on all depths alike.
    """
    logged = found.as_logged or found.values
    steps = np.asarray(depths, dtype=np.float64)
    median = np.array([value.estimate.median for value in logged])
    log_sd = np.array([value.log_sd for value in logged])
    before = steps < (found.measured_depth or 0)
    signed = np.where(before, -log_sd, log_sd)
    drawn = median * np.exp(signed * rng.standard_normal((num_draws, 1)))
    drawn = np.clip(drawn, 1.0, np.maximum(steps + 1.0, median))
    if found.as_logged is not None:
        from specmodel.acceptance import TRANSFER_PRIOR

        factor = TRANSFER_PRIOR.median * np.exp(
            TRANSFER_PRIOR.total_sd * rng.standard_normal((num_draws, 1))
        )
        drawn = np.clip(1.0 + factor * (drawn - 1.0), 1.0, np.maximum(steps + 1.0, median))
    return np.asarray(drawn)


def _depth(configuration: Configuration) -> int | None:
    """Depth of a configuration as a whole number."""
    return None if configuration.num_steps is None else int(configuration.num_steps)


def _from_list(
    asked: AskedAcceptLength, configurations: Sequence[Configuration], depths: list[int | None]
) -> AcceptLengths:
    """Accept lengths from a list of full or conditional accuracies."""
    from specmodel.acceptance import (
        ConditionalAccuracy,
        FullAccuracy,
        check_shape,
    )

    given: FullAccuracy | ConditionalAccuracy
    if asked.full_accuracy is not None:
        given = full = FullAccuracy(asked.full_accuracy)
    else:
        given = ConditionalAccuracy(asked.conditional_accuracy or ())
        full = given.to_full()
    measured = full.num_steps
    if asked.accept_depth not in {None, measured}:
        raise UsageError(
            "--accept-depth with --accept only",
            f"a list of {measured} accuracies belongs to depth {measured}",
        )
    notes = [Note(one.code.replace("-", "_"), one.message) for one in check_shape(given)]
    wanted = [measured if depth is None else depth for depth in depths]
    if max(wanted) > measured:
        notes.append(
            Note(
                "accept_length_carried",
                f"the list ends at depth {measured}; deeper accept lengths are carried there by the "
                "tail model, and the spread over tail families is in the interval",
            )
        )
    notes += _tree_note(configurations)
    return AcceptLengths(
        values=_along(full, wanted),
        as_logged=None,
        measured_depth=measured,
        curve=full,
        notes=tuple(notes),
    )


def _along(full: "FullAccuracy", depths: list[int]) -> tuple[AcceptLength, ...]:
    """Accept lengths at depths of a list: its sums, and beyond it the tail model."""
    if max(depths) <= full.num_steps:
        return tuple(AcceptLength.exact(full.accept_length(depth)) for depth in depths)
    from specmodel.acceptance import tail_spread

    spread = tail_spread(full, depths)
    columns = (spread.value, spread.low, spread.high, spread.sd)
    return tuple(
        AcceptLength(estimate=Estimate(median=value, low=low, high=high), log_sd=sd / value)
        for value, low, high, sd in zip(*(one.tolist() for one in columns), strict=True)
    )


def _from_number(
    asked: AskedAcceptLength,
    configurations: Sequence[Configuration],
    depths: list[int | None],
    calibrated_depth: int | None,
) -> AcceptLengths:
    """Accept lengths from one number and the depth it belongs to."""
    value = asked.accept_length
    if value is None:
        raise UsageError("--accept, --full or --conditional", "nothing says what is accepted")
    measured = asked.accept_depth
    if measured is None:
        if len(set(depths)) == 1:
            for one in configurations:
                _check(value, one)
            return AcceptLengths(
                values=(AcceptLength.exact(value),) * len(depths),
                as_logged=None,
                measured_depth=depths[0],
                curve=None,
                notes=(),
            )
        measured = calibrated_depth
    if measured is None:
        raise UsageError(
            "--accept-depth",
            "one accept length cannot stand for several depths, and nothing says at which it was "
            "measured",
        )
    if None in depths:
        raise UsageError(
            "--depth",
            f"the calibration does not state its depth, so an accept length of depth {measured} "
            "cannot be carried to it",
        )
    return _carried(value, measured, configurations, [depth for depth in depths if depth])


def _carried(
    value: float, measured: int, configurations: Sequence[Configuration], depths: list[int]
) -> AcceptLengths:
    """Accept lengths carried from the depth of one number to others."""
    known = next((one for one in configurations if one.num_steps == measured), None)
    _check(value, known or Configuration(num_steps=float(measured)))
    if all(depth == measured for depth in depths):
        return AcceptLengths(
            values=(AcceptLength.exact(value),) * len(depths),
            as_logged=None,
            measured_depth=measured,
            curve=None,
            notes=(),
        )
    from specmodel.acceptance import (
        carry_accept_length,
        full_accuracy_from_accept_length,
    )

    carried = carry_accept_length(value, measured, depths)
    others = [depth for depth in depths if depth != measured]
    where = f"depth {others[0]}" if len(others) == 1 else "the other depths"
    return AcceptLengths(
        values=tuple(
            AcceptLength(estimate=Estimate(median=median, low=low, high=high), log_sd=sd / median)
            for median, low, high, sd in zip(
                carried.value.tolist(),
                carried.low.tolist(),
                carried.high.tolist(),
                carried.sd.tolist(),
                strict=True,
            )
        ),
        as_logged=None,
        measured_depth=measured,
        curve=full_accuracy_from_accept_length(value, measured),
        notes=(
            Note(
                "accept_length_carried",
                f"accept length {value:g} was measured at depth {measured} and is carried to "
                f"{where} by the tail model; one number says little of the curve, a list of "
                "accuracies (--full, --conditional) or a run there says more",
            ),
            *_tree_note(configurations),
        ),
    )


def _check(value: float, configuration: Configuration) -> None:
    """Refuse an accept length that no round can have."""
    longest = longest_accept_length(configuration)
    most = math.inf if longest is None else longest + _ROUNDING
    if math.isfinite(value) and 1.0 <= value <= most:
        return
    allowed = "at least 1, and finite" if longest is None else f"between 1 and {longest:g}"
    depth = configuration.num_steps
    if longest is not None and depth is not None:
        allowed += f", the most that a round of depth {depth:g} emits"
    hint = "give the depth it was measured at with --accept-depth"
    if not value >= 1.0:
        hint = "every round emits the target model's own token; if that is left out, add 1"
    elif longest is None:
        hint = "give a number of tokens per round"
    raise ParameterError("accept length", f"{value:g}", allowed, hint)


def _within(value: AcceptLength, configuration: Configuration) -> AcceptLength:
    """An accept length whose bounds a round can emit; refused where its median cannot be."""
    estimate, longest = value.estimate, longest_accept_length(configuration)
    if longest is None or estimate.high <= longest:
        return value
    if estimate.median > longest + _ROUNDING:
        depth = configuration.num_steps
        where = "" if depth is None else f" at depth {depth:g}"
        raise ParameterError(
            "accept length",
            f"{estimate.median:.4g}{where}",
            f"at most {longest:g}, the most that a round emits",
            "it cannot be above the tokens that are verified (--num-draft-tokens)",
        )
    high = max(longest, estimate.median)
    return AcceptLength(
        estimate=Estimate(median=estimate.median, low=estimate.low, high=high),
        log_sd=value.log_sd,
    )


def _tree_note(configurations: Sequence[Configuration]) -> list[Note]:
    """What is to be said where a chain's acceptance is used for a tree."""
    if all((one.topk or 1.0) <= 1.0 for one in configurations):
        return []
    return [
        Note(
            "chain_acceptance_for_a_tree",
            "these accuracies are those of a chain; a tree of the same depth accepts more, how much "
            "depends on its width: measure its accept length and give it with --accept",
        )
    ]


def _served(logged: AcceptLength, longest: float | None) -> AcceptLength:
    """What a server is expected to reach where a training log says this."""
    from specmodel.acceptance import TRANSFER_PRIOR

    median, most = logged.estimate.median, math.inf if longest is None else longest
    accepted = median - 1.0
    if accepted <= 0.0:
        return logged
    served = TRANSFER_PRIOR.median * accepted
    log_sd = math.hypot(TRANSFER_PRIOR.total_sd, logged.log_sd * median / accepted)
    width = math.exp(_NORMAL_95 * log_sd)
    return AcceptLength(
        estimate=Estimate(
            median=min(1.0 + served, most),
            low=1.0 + served / width,
            high=min(1.0 + served * width, most),
        ),
        log_sd=log_sd * served / (1.0 + served),
    )
