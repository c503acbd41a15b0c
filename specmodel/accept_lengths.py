"""From what a user knows of acceptance to an accept length at every depth that is asked for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmodel.ask import Ask, MeasuredLengths
from specmodel.errors import Note, ParameterError, UsageError
from specmodel.question import AcceptLength, Configuration, Estimate, longest_accept_length
from specmodel.statistics import NORMAL_95

# A cold prediction from one number needs nothing of the acceptance models, so they load on demand.
if TYPE_CHECKING:
    from specmodel.acceptance import FullAccuracy, TransferFactor
    from specmodel.acceptance.other_depth import CarriedAcceptLength, TailSpread

Array = NDArray[np.float64]

SHAPE_SPREAD = 0.3
"""Log-scale spread of (accept length - 1) at another depth, for each unit of its logarithm by which it
differs from the measured one at its own depth: of two workloads of one draft model on
[sgl-project-specforge-specbundle]_ it has .04 to .11. [-]"""

LOAD_SPREAD = 0.03
"""Log-scale spread of (accept length - 1) between loads of one server; concurrency 1 to 64 in
`points_2026_11.csv` has .003 to .02, other servers up to .06. A judgement. [-]"""

_ROUNDING = 5e-3  # an accept length printed with two decimals may pass its limit by half a unit


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
    transfer: "TransferFactor | None" = None


def accept_lengths(
    ask: Ask,
    configurations: Sequence[Configuration],
    *,
    calibrated_depth: int | None = None,
    measured: MeasuredLengths | None = None,
) -> AcceptLengths:
    r"""Accept length at the depth of each configuration, validated here and nowhere else.

    .. math:: \tau_k = 1 + \sum_{i \le k} S_i, \qquad \tau_\text{served} = 1 + F (\tau - 1)

    At the depth at which a list was served its sum is exact; at others a position accepts more or less
    (`specmodel.acceptance.served_depth`). Beyond a list, and for a single number at another depth than its own
    (`calibrated_depth` where nothing else says it), the tail model carries it, and the spread over tail
    families is its uncertainty. What the points measured at several depths goes before the tail
    model, and is the answer where the ask says nothing of acceptance.
    """
    points = measured or MeasuredLengths()
    if ask.list_depth is not None:
        found = _from_list(ask, configurations, points)
    elif ask.accept_length is not None:
        found = _from_number(ask, ask.accept_length, configurations, calibrated_depth, points)
    else:
        found = _from_points(ask, configurations, points)
    if not ask.from_training:
        return found
    from specmodel.acceptance import transfer_prior, transfer_words

    transfer = transfer_prior(matched=ask.matched_prompts)
    said = f"{transfer_words(transfer)}; the accept length of one served checkpoint replaces it"
    served = [_served(*each, transfer) for each in zip(found.values, configurations, strict=True)]
    notes = (*found.notes, Note("transfer", said))
    return found._replace(
        values=tuple(served), as_logged=found.values, transfer=transfer, notes=notes
    )


def accept_length_draws(
    found: AcceptLengths,
    depths: Sequence[int],
    *,
    num_draws: int,
    rng: "np.random.Generator",  # quoted: numpy.random loads on demand
) -> Array:
    r"""Equally likely accept lengths at several depths, jointly: one row a draw.

    .. math:: \tau_k^{(d)} = 1 + F^{(d)} \left(\tau_k e^{\pm s_k z^{(d)}} - 1\right)

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
    if found.transfer is not None:
        error = found.transfer.total_sd * rng.standard_normal((num_draws, 1))
        factor = found.transfer.median * np.exp(error)
        drawn = np.clip(1.0 + factor * (drawn - 1.0), 1.0, np.maximum(steps + 1.0, median))
    return np.asarray(drawn)


def _from_points(
    ask: Ask, configurations: Sequence[Configuration], points: MeasuredLengths
) -> AcceptLengths:
    """Accept lengths that the points measured, between their depths and beyond them."""
    depths = [int(one.num_steps or 0) for one in configurations]
    values = _on_measured_curves(points, depths)
    if values is None or ask.num_steps is None or ask.from_training:
        raise nothing_accepted()
    known = points.depths
    said = f"accept lengths are what the points measured{_at(known)}"
    carried = [depth for depth in depths if depth not in known]
    if carried:
        said += f"; the acceptance model carries them to{_at(carried)[3:]}"
    if len(points.by_workload) > 1:
        said += "; they are the mean over workloads, --workload names one"
    if points.moved:
        said += "; the points have them at another load, which changes them little"
    notes = (Note("accept_length_measured", said), *(_tree_note(configurations) if carried else ()))
    return AcceptLengths(tuple(map(_within, values, configurations)), None, None, None, notes)


def nothing_accepted() -> UsageError:
    """What is said where nothing tells the acceptance."""
    return UsageError("--accept, --full or --conditional", "nothing says what is accepted")


def _at(depths: Sequence[int]) -> str:
    """Depths in words."""
    *before, last = map(str, depths) if depths else [""]
    if not before:
        return f" at depth {last}" if last else ""
    return f" at depths {', '.join(before)} and {last}"


def _on_measured_curves(
    points: MeasuredLengths,
    depths: Sequence[int],
    given: tuple[float, int] | None = None,
    *,
    shape_spread: float = SHAPE_SPREAD,
) -> list[AcceptLength] | None:
    r"""Accept lengths on the curves that the points measured; of a given height where one is known.

    .. math:: \tau(k) - 1 = (\tau_m(k) - 1)\,
        \frac{\hat\tau(k; \tau_0) - 1}{\hat\tau(k; \tau_m(k_0)) - 1}

    What is usual between a curve through the given number and one through the measured one is asked of the
    tail model. None where the points do not know them: one depth alone has no shape. A number at a depth
    that they lack is one more point of the curve, where a draft model can have both.
    """
    from specmodel.acceptance import carry_accept_length
    from specmodel.acceptance.measured import of_one_drafter, through_measured

    accepted, spread = [], []
    for measured in points.by_workload:
        lengths, wanted = dict(measured), [*depths]
        if given is not None:
            value, start = given
            both = {**lengths, start: value}
            if start not in lengths and of_one_drafter(_chain(both)):
                lengths = both
            wanted = [*range(1, max(*depths, start) + 1)]
        curve, missing = _chain(lengths), sorted({*wanted} - {*lengths})
        if (missing and not curve) or (given and len(curve) < 2):
            continue
        sd = dict.fromkeys(lengths, 0.0)
        if missing:
            carried = through_measured(curve, missing)
            lengths |= zip(missing, carried.value.tolist(), strict=True)
            sd |= zip(missing, carried.sd.tolist(), strict=True)
        height = before = 0.0
        if given is not None:
            height, before = value - 1.0, min(lengths[start], start + 1.0) - 1.0
        if height != before:
            of_points = np.array([lengths[depth] - 1.0 for depth in wanted])
            new, old = carry_accept_length([[value], [before + 1.0]], start, wanted).value - 1.0
            scaled = of_points * new / np.maximum(old, _ROUNDING)
            # Only measured noise falls with depth.
            rises = np.maximum(np.diff(scaled), np.minimum(np.diff(of_points), 0.0))
            sums = np.concatenate([[0.0], np.cumsum(rises)])
            above = np.maximum(height + sums - sums[start - 1], 0.0)
            lengths |= zip(wanted, (1.0 + np.minimum(above, wanted)).tolist(), strict=True)
        above = np.array([lengths[depth] - 1.0 for depth in depths])
        relative = np.array([sd[depth] for depth in depths]) / np.maximum(above, _ROUNDING)
        if points.moved:
            relative = np.hypot(relative, LOAD_SPREAD)
        if height != before:
            away = math.log(max(height, _ROUNDING) / max(before, _ROUNDING))
            relative = np.hypot(relative, shape_spread * away)
            relative[[depth == start for depth in depths]] = 0.0
        accepted.append(above)
        spread.append(relative)
    if not accepted:
        return None
    mean = np.mean(accepted, axis=0)
    between = np.std(accepted, axis=0, ddof=min(1, len(accepted) - 1)) / np.maximum(mean, _ROUNDING)
    relative = np.sqrt(np.mean(np.square(spread), axis=0) + between**2)
    return list(map(_log_normal, mean.tolist(), relative.tolist()))


def _log_normal(accepted: float, relative: float) -> AcceptLength:
    """An accept length of so many accepted tokens, whose logarithm has so much spread."""
    width = math.exp(NORMAL_95 * relative)
    estimate = Estimate(1.0 + accepted, 1.0 + accepted / width, 1.0 + accepted * width)
    return AcceptLength(estimate=estimate, log_sd=relative * accepted / (1.0 + accepted))


def _chain(lengths: Mapping[int, float]) -> dict[int, float]:
    """Accept lengths that the curve of a chain can have."""
    return {depth: one for depth, one in lengths.items() if one <= depth + 1.0 + _ROUNDING}


def _from_list(
    ask: Ask, configurations: Sequence[Configuration], points: MeasuredLengths
) -> AcceptLengths:
    """Accept lengths from a list of full or conditional accuracies."""
    from specmodel.acceptance import ConditionalAccuracy, FullAccuracy, check_shape, tail_spread
    from specmodel.acceptance.served_depth import served_at_depths

    given: FullAccuracy | ConditionalAccuracy
    if ask.full_accuracy is not None:
        given = full = FullAccuracy(ask.full_accuracy)
    else:
        given = ConditionalAccuracy(ask.conditional_accuracy or ())
        full = given.to_full()
    length = full.num_steps
    served = ask.accept_depth or length
    if served < length or (ask.from_training and served > length):
        why = f"a list of {length} accuracies belongs to depth {length}"
        raise UsageError("a deeper --accept-depth, or none", f"{why}, not {served}")
    notes = [Note(one.code.replace("-", "_"), one.message) for one in check_shape(given)]
    depths = [served if one.num_steps is None else int(one.num_steps) for one in configurations]
    if ask.from_training:  # every position of a log is judged, whatever the depth
        values = _spread(tail_spread(full, depths))
    else:
        *values, there = _spread(served_at_depths(full, served, [*depths, served]))
        height = there.estimate.median
        # Points of another height may be of another draft model, whose shape says little.
        on_points = _on_measured_curves(points, depths, (height, served), shape_spread=1.0)
        if on_points is not None:
            values = [_both(*each) for each in zip(values, on_points, strict=True)]
            also = f"the points measured accept lengths{_at(points.depths)}, which are used beside the list"
            notes.append(Note("accept_length_measured", also))
    said: list[str] = []
    if not ask.from_training and {*depths} != {served}:
        said.append(
            f"these accuracies were served at depth {served} (--accept-depth states another), and a "
            "position accepts less the deeper rounds are: other depths are corrected for it"
        )
    if max(depths) > length:
        said.append(
            f"the list ends at depth {length}; deeper accept lengths are carried there by the tail "
            "model, and the spread over tail families is in the interval"
        )
    if said:
        notes.append(Note("accept_length_carried", "; ".join(said)))
    notes += _tree_note(configurations)
    within = tuple(map(_within, values, configurations))
    if served > length:
        curve = tail_spread(full, np.arange(served + 1)).value
        full = FullAccuracy(np.minimum.accumulate(np.clip(np.diff(curve), 0.0, 1.0)))
    return AcceptLengths(within, None, served, full, tuple(notes))


def _both(one: AcceptLength, other: AcceptLength) -> AcceptLength:
    """An accept length that is known twice, each with its spread; one without is kept."""
    if not one.log_sd or not other.log_sd:
        return other if one.log_sd else one
    accepted = np.array([each.estimate.median - 1.0 for each in (one, other)])
    relative = np.array([one.log_sd, other.log_sd]) * (1.0 + 1.0 / np.maximum(accepted, _ROUNDING))
    share = relative**-2.0
    middle = np.exp(share @ np.log(np.maximum(accepted, _ROUNDING)) / share.sum())
    return _log_normal(float(middle), float(share.sum() ** -0.5))


def _from_number(
    ask: Ask,
    given: float | AcceptLength,
    configurations: Sequence[Configuration],
    calibrated_depth: int | None,
    points: MeasuredLengths,
) -> AcceptLengths:
    """Accept lengths from one number and the depth it belongs to."""
    if not isinstance(given, AcceptLength):
        given = AcceptLength.exact(given)
    value = given.estimate.median
    depths = [one.num_steps for one in configurations]
    measured: float | None = ask.accept_depth
    if measured is None and len(set(depths)) == 1:
        measured = depths[0]
    elif measured is None:
        measured = calibrated_depth
        if measured is None:
            why = "one accept length cannot stand for several depths, and nothing says at which it "
            raise UsageError("--accept-depth", f"{why}was measured")
    there = [one for one in configurations if one.num_steps == measured]
    for one in there or [Configuration(num_steps=measured)]:
        _check(value, one)
    if measured is None or len(there) == len(configurations):
        where = None if measured is None else int(measured)
        return AcceptLengths((given,) * len(depths), None, where, None, ())
    whole = int(measured)
    from specmodel.acceptance import carry_accept_length, full_accuracy_from_accept_length

    whole_depths = [int(depth or 0) for depth in depths]
    others = [depth for depth in whole_depths if depth != measured]
    to = f"depth {others[0]:g}" if len(others) == 1 else "the other depths"
    said = f"accept length {value:g} was measured at depth {whole} and is carried to {to} by the "
    carried = _on_measured_curves(points, whole_depths, (value, whole))
    if carried is not None:
        said += f"curve that the points measured{_at(points.depths)}"
        note = Note("accept_length_measured", said)
    else:
        carried = _spread(carry_accept_length(value, whole, whole_depths))
        said += (
            "tail model; one number says little of the curve, a list of accuracies (--full, "
            "--conditional) or a run there says more"
        )
        note = Note("accept_length_carried", said)
    values = map(_within, [_as_sure_as(given, one) for one in carried], configurations)
    curve = full_accuracy_from_accept_length(value, whole)
    return AcceptLengths(tuple(values), None, whole, curve, (note, *_tree_note(configurations)))


def _spread(carried: "CarriedAcceptLength | TailSpread") -> list[AcceptLength]:
    """Accept lengths of the tail model."""
    columns = (carried.value, carried.low, carried.high, carried.sd)
    return [
        AcceptLength(estimate=Estimate(value, low, high), log_sd=sd / value)
        for value, low, high, sd in zip(*(one.tolist() for one in columns), strict=True)
    ]


def _as_sure_as(given: AcceptLength, carried: AcceptLength) -> AcceptLength:
    """A carried accept length with the spread of the one that was measured."""
    if not given.log_sd:
        return carried
    before, after = given.estimate, carried.estimate
    low, high = (after.low * before.low / before.median, after.high * before.high / before.median)
    log_sd = math.hypot(given.log_sd, carried.log_sd)
    return AcceptLength(estimate=Estimate(after.median, low, high), log_sd=log_sd)


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
    """A sum or a carried accept length, its bounds cut to what a round can emit."""
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
    cut = Estimate(estimate.median, estimate.low, max(longest, estimate.median))
    return AcceptLength(estimate=cut, log_sd=value.log_sd)


def _tree_note(configurations: Sequence[Configuration]) -> list[Note]:
    """What is to be said where a chain's acceptance is used for a tree."""
    what = (
        "these accuracies are those of a chain; a tree of the same depth accepts more, how much "
        "depends on its width: measure its accept length and give it with --accept"
    )
    tree = any((one.topk or 1.0) > 1.0 for one in configurations)
    return [Note("chain_acceptance_for_a_tree", what)] if tree else []


def _served(
    logged: AcceptLength, configuration: Configuration, transfer: "TransferFactor"
) -> AcceptLength:
    """What a server is expected to reach where a training log says this."""
    longest = longest_accept_length(configuration)
    median, most = logged.estimate.median, math.inf if longest is None else longest
    accepted = median - 1.0
    if accepted <= 0.0:
        return logged
    log_sd = math.hypot(transfer.total_sd, logged.log_sd * median / accepted)
    served = _log_normal(transfer.median * accepted, log_sd)
    one = served.estimate
    return replace(served, estimate=Estimate(min(one.median, most), one.low, min(one.high, most)))
