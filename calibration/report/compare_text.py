"""A comparison as plain text: speeds side by side, what moved, where the faster side changes."""

from typing import TYPE_CHECKING

from specmodel.text_layout import (
    fits,
    interval,
    labelled,
    listed,
    long_table,
    number,
    percent,
    plural,
    probability,
    spread,
    wrapped,
)
from specmodel.units import MILLI

if TYPE_CHECKING:
    from calibration.tune.compare import Comparison, Factor, Pair

_LONGEST_LOAD = 30


def compare_text(found: "Comparison") -> str:
    """Return a comparison as text."""
    lines = [wrapped("B over A; A is {}, B is {}".format(*found.names)), "", _table(found)]
    lines += ["", labelled("altogether", _said(found))]
    drafting = [one for one in found.pairs if one.a.num_steps != 0] or [*found.pairs]
    if len(drafting) == 1:
        lines.append(listed("what moved", _moved(drafting[0])))
    else:
        parts = {"accept length": found.accept, "the round": found.round}
        told = [
            f"{name} x {spread(one.ratio)}, {_noise(one)}" for name, one in parts.items() if one
        ]
        lines.append(listed("what moved", told or ["not told: no accept length on both sides"]))
    if found.workloads:
        told = [
            f"{one.name or 'not named'}: {spread(one.speed.ratio)}, {_noise(one.speed)}"
            for one in found.workloads
        ]
        lines.append(listed("by workload", told))
    if found.crossover_batch is not None:
        lines.append(
            labelled(
                "crossover", f"at batch {number(found.crossover_batch, 0)} the faster side changes"
            )
        )
    if found.differences:
        lines.append(listed("stated apart", found.differences))
    if found.left_out:
        lines.append(listed("not compared", found.left_out[:8]))
    return "\n".join(lines)


def _table(found: "Comparison") -> str:
    """One line a load."""
    from calibration.tune.compare import load_words

    rows = [["load", "speed (90 %)", "accept", "round", "outside", "rows"]]
    for one in found.pairs:
        parts = [one.accept, one.round, one.outside]
        other = one.a.num_steps != one.b.num_steps and one.b.num_steps > 0
        depth = f" against {one.b.num_steps:g}" if other else ""
        rows.append(
            [
                load_words(one.a) + depth,
                spread(one.speed.ratio),
                *("-" if part is None else number(part.ratio.median, 3) for part in parts),
                f"{one.a.num_rows} + {one.b.num_rows}",
            ]
        )
    if all(one.outside is None for one in found.pairs):
        rows = [[*row[:4], row[5]] for row in rows]
    align = "l" + "r" * (len(rows[0]) - 1)
    text = long_table(rows, align=align, longest=_LONGEST_LOAD)
    return text if fits(text) else long_table(rows, align=align, longest=12)


def _said(found: "Comparison") -> str:
    """Which side is faster, and how sure that is."""
    chance = found.probability_b_faster
    side, sure = ("B", chance) if chance >= 0.5 else ("A", 1.0 - chance)
    loads = sum(one.a.num_steps != 0 for one in found.pairs) or len(found.pairs)
    text = f"speed x {spread(found.overall.ratio)} over {plural(loads, 'load')}; at one like these "
    text += f"{side} is faster with probability {probability(sure)}"
    unsure = not any(one.speed.moved for one in found.pairs)
    return text + ("; no difference is more than noise" if unsure else "")


def _moved(one: "Pair") -> list[str]:
    """The factors of one load, from what to what."""
    found = []
    if one.accept is not None:
        found.append(
            f"accept length {number(one.a.accept_length)} to {number(one.b.accept_length)}: "
            f"x {number(one.accept.ratio.median, 3)}, {_noise(one.accept)}"
        )
    if one.round is not None:
        times = [number(side.round_s / MILLI, 1) for side in (one.a, one.b)]
        found.append(
            f"a round {times[0]} to {times[1]} ms: x {number(one.round.ratio.median, 3)} "
            f"({interval(one.round.ratio)}), {_noise(one.round)}"
        )
    if one.outside is not None:
        found.append(f"time outside decoding: x {number(one.outside.ratio.median, 3)}")
    elif one.round is not None:
        found.append(
            "prefill and waiting, if any, are in the round: no TTFT and output length on both sides"
        )
    if one.round is None:
        found.append("no accept length on both sides, so what moved is not told")
    gain = one.speed.ratio.median - 1.0
    found.append(f"together {'+' if gain >= 0 else '-'}{percent(abs(gain), 1)} speed")
    return found


def _noise(factor: "Factor") -> str:
    """Whether a factor is more than noise."""
    return "more than noise" if factor.moved else "within noise"
