"""What to do with a run in training, in a code for machines and two or three sentences for people."""

import math
from enum import StrEnum
from typing import Final, NamedTuple

from specmodel.units import PERCENT

# Probability from which something is expected. [-]
LIKELY: Final = 0.5

# Probability below which something is called out of reach. A judgement. [-]
UNLIKELY: Final = 0.1

# Relative gain in speed-up below which the rest of a run adds little: what equal benchmark runs
# differ by. A judgement. [-]
LITTLE_GAIN: Final = 0.02


class VerdictCode(StrEnum):
    """Whether the rest of a run is worth it."""

    WORTH_FINISHING = "worth_finishing"
    ALREADY_THERE = "already_there"
    LITTLE_LEFT = "little_left"
    CANNOT_REACH_TARGET = "cannot_reach_target"
    ROUND_COST_TOO_HIGH = "round_cost_too_high"
    UNKNOWN = "unknown"


class Facts(NamedTuple):
    """What a verdict rests on: medians in serving, and probabilities of the target.

    Accept lengths and what is known of the end are None where they are not known; the end is the
    present of a run that is finished. `needed` and `needed_in_log` are the accept lengths that the
    target needs, infinite where none is enough. `public_round_cost` is that of public systems at
    this configuration, `speedup_at_public_cost` the speed-up that the run would have with it, and
    `fastest` the one with every draft token accepted. `added` is the median of what the rest of
    the run adds to the speed-up, which is not quite the difference of the medians.
    """

    target: float
    now_speedup: float
    now_interval: tuple[float, float]
    now_tokens_per_s: float | None
    now_probability: float
    end_speedup: float | None
    end_probability: float | None
    end_in_log: float | None
    added: float | None
    now_step: int | None
    end_step: int | None
    remaining_hours: float | None
    finished: bool
    round_cost: float
    public_round_cost: float
    round_cost_is_high: bool
    speedup_at_public_cost: float
    fastest: float
    needed: float
    needed_in_log: float
    why_unknown: str


class Verdict(NamedTuple):
    """The code, and the text of two or three sentences."""

    code: VerdictCode
    text: str


def verdict(facts: Facts) -> Verdict:
    """Return what to do, from what is known."""
    code = _code(facts)
    sentences = [_now(facts), _end(facts), _ADVICE[code](facts)]
    return Verdict(code, " ".join(sentence for sentence in sentences if sentence))


def _code(facts: Facts) -> VerdictCode:
    """The first that holds."""
    at_the_end = facts.end_probability
    best = facts.now_probability if at_the_end is None else at_the_end
    if facts.now_probability >= LIKELY:
        return VerdictCode.ALREADY_THERE
    if best < LIKELY and (_round_is_the_problem(facts) or facts.fastest < facts.target):
        return VerdictCode.ROUND_COST_TOO_HIGH
    if at_the_end is None:
        return VerdictCode.UNKNOWN
    if at_the_end < UNLIKELY:
        return VerdictCode.CANNOT_REACH_TARGET
    if _gain(facts) < LITTLE_GAIN * facts.now_speedup:
        return VerdictCode.LITTLE_LEFT
    return VerdictCode.WORTH_FINISHING


def _round_is_the_problem(facts: Facts) -> bool:
    """Whether the target would be reached with the rounds of public systems."""
    return facts.round_cost_is_high and facts.speedup_at_public_cost >= facts.target


def _gain(facts: Facts) -> float:
    """What the rest of the run adds to the speed-up; 0 where that is not known."""
    return facts.added or 0.0


def _now(facts: Facts) -> str:
    """What the checkpoint serves now."""
    where = "" if facts.now_step is None else f" (step {facts.now_step:,})"
    rate = facts.now_tokens_per_s
    speed = "" if rate is None else f", {rate:.0f} tok/s"
    low, high = facts.now_interval
    return (
        f"Now{where} it is expected to serve at {facts.now_speedup:.2f}x{speed} "
        f"(90 %: {low:.2f}x to {high:.2f}x)."
    )


def _end(facts: Facts) -> str:
    """What the finished run will serve."""
    if facts.finished or facts.end_speedup is None or facts.end_probability is None:
        return ""
    return (
        f"At step {facts.end_step:,} it is expected at {facts.end_speedup:.2f}x, "
        f"with a chance of {_percent(facts.end_probability)} of {facts.target:g}x."
    )


def _percent(probability: float) -> str:
    """A probability for people: draws do not tell 0 from almost 0."""
    if probability < 0.005:
        return "less than 1 %"
    return "more than 99 %" if probability > 0.995 else f"{probability / PERCENT:.0f} %"


def _remaining(facts: Facts) -> str:
    """The rest of the run, with its hours where they are known."""
    if facts.end_step is None or facts.now_step is None:
        return "the rest of the run"
    hours = facts.remaining_hours
    time = "" if hours is None else f" ({hours:.1f} h)" if hours < 10 else f" ({hours:.0f} h)"
    return f"the remaining {facts.end_step - facts.now_step:,} steps{time}"


def _added(facts: Facts) -> str:
    """What the rest of the run adds, in words."""
    gain = _gain(facts)
    return f"add {gain:.2f}x" if gain >= 0.005 else "add nothing"


def _worth(facts: Facts) -> str:
    return f"Worth finishing: {_remaining(facts)} {_added(facts)}."


def _there(facts: Facts) -> str:
    there = f"{facts.target:g}x is already reached"
    if facts.finished:
        return f"{there}, and the run is finished."
    if facts.end_speedup is None:
        return f"{there}; what the rest of the run adds is not known{_because(facts)}."
    return f"{there}; {_remaining(facts)} {_added(facts)}."


def _little(facts: Facts) -> str:
    needs = f"{facts.target:g}x needs an accept length of {_length(facts.needed_in_log)} in the log"
    if facts.finished:
        return f"The run is finished; {needs}."
    return f"Little is left: {_remaining(facts)} {_added(facts)}; {needs}."


def _out_of_reach(facts: Facts) -> str:
    ends = "" if facts.end_in_log is None else f", and this run ends at {facts.end_in_log:.2f}"
    rest = "" if facts.finished else f"; {_remaining(facts)} {_added(facts)}"
    return (
        f"{facts.target:g}x is out of reach: it needs an accept length of "
        f"{_length(facts.needed_in_log)} in the log{ends}{rest}."
    )


def _round_cost(facts: Facts) -> str:
    cost = f"a round costs {facts.round_cost:.2f} baseline steps"
    if _round_is_the_problem(facts):
        rest = "" if facts.end_step is None else f"; {_remaining(facts)} {_added(facts)}"
        return (
            f"Make rounds cheaper before training on: {cost} where public systems take "
            f"{facts.public_round_cost:.2f}, so {facts.target:g}x needs an accept length of "
            f"{_length(facts.needed)} in serving, {_length(facts.needed_in_log)} in the log; with "
            f"rounds as on public systems it would be {facts.speedup_at_public_cost:.2f}x, so the "
            f"accept length is not the problem{rest}."
        )
    return (
        f"More training cannot help: {cost}, and even with every draft token accepted the speed-up "
        f"is {facts.fastest:.2f}x; draft another number of tokens, or make rounds cheaper."
    )


def _unknown(facts: Facts) -> str:
    return f"Whether the rest of the run is worth it is not known{_because(facts)}."


def _because(facts: Facts) -> str:
    """Why there is no projection, where that is known."""
    return f" ({facts.why_unknown})" if facts.why_unknown else ""


def _length(value: float) -> str:
    """An accept length that may be out of any reach."""
    return f"{value:.2f}" if math.isfinite(value) else "more than any"


_ADVICE: Final = {
    VerdictCode.WORTH_FINISHING: _worth,
    VerdictCode.ALREADY_THERE: _there,
    VerdictCode.LITTLE_LEFT: _little,
    VerdictCode.CANNOT_REACH_TARGET: _out_of_reach,
    VerdictCode.ROUND_COST_TOO_HIGH: _round_cost,
    VerdictCode.UNKNOWN: _unknown,
}
