"""What a user asks of a calibration, completed from it to questions: one way in for everybody.

The command line and `Calibration.predict` both make an `Ask`; what it leaves out is the calibrated
configuration, where there is a single one.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from specmodel.cost.growth import SAME_CONTEXT_OCTAVES, context_octaves
from specmodel.errors import ParameterError, UnknownKeyError, UsageError
from specmodel.question import BOUNDS, AcceptLength, Configuration, Question

if TYPE_CHECKING:
    from specmodel.acceptance import ConditionalAccuracy, FullAccuracy
    from specmodel.calibration import Calibration


class Ask(NamedTuple):
    """Everything that a user knows and wants; None for what is taken from the calibration.

    Acceptance is one of a number, full or conditional accuracies; `accept_depth` is the depth at which it
    was served, `from_training` marks values of a training log, `matched_prompts`
    whether its prompts are like the served ones. `num_steps` are the depths to answer for.
    """

    accept_length: float | AcceptLength | None = None
    full_accuracy: tuple[float, ...] | None = None
    conditional_accuracy: tuple[float, ...] | None = None
    accept_depth: int | None = None
    from_training: bool = False
    matched_prompts: bool | None = None
    num_steps: tuple[int, ...] | None = None
    topk: float | None = None
    num_draft_tokens: float | None = None
    batch_size: float | None = None
    context_tokens: float | None = None
    workload: str | None = None
    baseline_tokens_per_s: float | None = None
    target_speedup: float | None = None
    claim: float | None = None

    @property
    def list_depth(self) -> int | None:
        """Length of the list; None for a single number."""
        given = self.full_accuracy or self.conditional_accuracy
        return len(given) if given else None


_OPTIONS = {
    "num_steps": "--depth",
    "topk": "--topk",
    "batch_size": "--batch-size",
    "context_tokens": "--context-tokens",
}


def configurations(system: "Calibration", ask: Ask) -> list[Configuration]:
    r"""Configurations to answer for, one per depth, completed from the calibration.

    .. math:: \text{given} \cup \text{calibrated}

    A list of accuracies is answered for at its own depth where none is given. Without points, batch and
    context stay unknown and topk is a chain; a depth that the points do not state stays None.
    """
    depths: Sequence[float | None]
    if ask.num_steps is not None:
        depths = ask.num_steps
    elif ask.list_depth is not None:
        depths = (ask.accept_depth or ask.list_depth,)
    elif not system.configurations:
        raise UsageError("--depth", "the packaged prior has no calibrated depth")
    else:
        depths = (_single(system, "num_steps"),)
        if depths == (None,):
            depths = (ask.accept_depth,)
    topks = {one.topk for one in system.configurations}
    topk = ask.topk
    if topk is None:  # a chain where the points hold chains
        topk = 1.0 if not topks or 1.0 in topks else _single(system, "topk")
    batch, context = ask.batch_size, ask.context_tokens
    if batch is None:
        batch = _single(system, "batch_size")
    if context is None:
        context = _single(system, "context_tokens")
    else:
        context = _measured_context(system, context)
    # Verified tokens are those given, those of the same depth and topk in the points, else a chain's.
    given, counted, found = ask.num_draft_tokens, points_depth(system, ask), []
    for depth in depths:
        known = {
            one.num_draft_tokens
            for one in system.configurations
            if one.num_steps == (depth if depth != counted else None) and one.topk == (topk or 1.0)
        }
        tokens = given or (known.pop() if len(known) == 1 else None)
        if tokens is None and (topk or 1.0) > 1.0:
            why = "a tree's number of verified tokens does not follow from its depth"
            raise UsageError("--num-draft-tokens", why)
        found.append(
            Configuration(
                num_steps=None if depth is None else float(depth),
                topk=topk,
                num_draft_tokens=tokens,
                batch_size=batch,
                context_tokens=context,
            )
        )
    if ask.num_draft_tokens is not None:
        for one in found:
            _check_verified_tokens(system, one)
    return found


def _measured_context(system: "Calibration", context: float) -> float:
    """The context of a measured load, where the asked one is the same load; else as asked."""
    known = [one.context_tokens for one in system.configurations if one.context_tokens is not None]
    away = {one: abs(context_octaves(one) - context_octaves(context)) for one in known}
    nearest = min(known, key=lambda one: away[one], default=None)
    return nearest if nearest is not None and away[nearest] <= SAME_CONTEXT_OCTAVES else context


def _single(system: "Calibration", name: str) -> float | None:
    """The calibration's only value of a quantity; None where it states none."""
    values = {getattr(one, name) for one in system.configurations}
    if len(values) > 1:
        stated = [f"{value:g}" for value in sorted(values - {None})]
        known = ", ".join(["not stated"] * (None in values) + stated)
        why = f"the calibration holds several values of {name} ({known})"
        raise UsageError(_OPTIONS[name], why)
    return values.pop() if values else None


def _check_verified_tokens(system: "Calibration", one: Configuration) -> None:
    """Refuse a chain that verifies another number of tokens than a chain does.

    What was measured is possible, whatever it is, and one draft step may propose a whole block.
    """
    steps, tokens = one.num_steps, one.num_draft_tokens
    if steps is None or tokens is None or one.topk != 1 or tokens == steps + 1:
        return
    if (steps == 1 and tokens > 1) or any(
        (known.num_steps, known.topk, known.num_draft_tokens) == (steps, 1, tokens)
        for known in system.configurations
    ):
        return
    raise UsageError(
        "--topk of the tree, or leave --num-draft-tokens out",
        f"a chain of depth {steps:g} verifies {steps + 1:g} tokens (num_steps + 1), not {tokens:g}",
    )


def depth_unknown(system: "Calibration") -> bool:
    """Whether the calibration has points and none of them states its depth."""
    return {one.num_steps for one in system.configurations} == {None}


def calibrated_depth(system: "Calibration") -> int | None:
    """The one depth at which the points were measured; None where there are several or none."""
    depths = {one.num_steps for one in system.configurations}
    depth = depths.pop() if len(depths) == 1 else None
    return None if depth is None else int(depth)


def points_depth(system: "Calibration", ask: Ask) -> int | None:
    """Depth that points count as which state none: that at which the acceptance of the ask was measured.

    It is --accept-depth, the length of a list, else the one depth that is asked for; None where the
    points state theirs, or nothing says it.
    """
    if not depth_unknown(system):
        return None
    if ask.list_depth is not None or ask.accept_depth is not None:
        return ask.accept_depth or ask.list_depth
    return ask.num_steps[0] if ask.num_steps is not None and len(ask.num_steps) == 1 else None


class MeasuredLengths(NamedTuple):
    """Accept lengths by depth, of each workload; whether some are of another load than the question's."""

    by_workload: tuple[dict[int, float], ...] = ()
    moved: bool = False

    @property
    def depths(self) -> list[int]:
        """Every depth that is known of a workload."""
        return sorted({depth for one in self.by_workload for depth in one})


def measured_accept_lengths(
    system: "Calibration", ask: Ask, asked: Sequence[Configuration]
) -> MeasuredLengths:
    """Accept lengths of the points by depth, of the workload of the ask, else of every one.

    Those of chains, or of trees as wide as that of the question, each at the measured load nearest to
    that of the question: acceptance hardly knows the load.
    """
    found: dict[str, dict[int, tuple[float, float]]] = {}
    at, blocks = asked[0], {(one.num_steps, one.num_draft_tokens) for one in asked}
    for one in system.observations:
        where = one.configuration
        if where.num_steps is None or where.topk != at.topk:
            continue
        depth, tokens = int(where.num_steps), where.num_draft_tokens
        alike = depth + 1 if where.topk == 1 else at.num_draft_tokens
        if tokens != alike and (depth, tokens) not in blocks:
            continue
        far = sum(
            abs(math.log((measured + 1.0) / (asked_for + 1.0)))
            for measured, asked_for in (
                (where.batch_size, at.batch_size),
                (where.context_tokens, at.context_tokens),
            )
            if measured is not None and asked_for is not None
        )
        for workload, length in (one.accept_lengths or {"": one.accept_length_at}).items():
            known = found.setdefault(workload, {})
            if depth not in known or far < known[depth][0]:
                known[depth] = (far, length)
    workload = workload_of(system, at, ask) or ""
    chosen = [found[workload]] if workload in found else [*found.values()]
    return MeasuredLengths(
        tuple({depth: length for depth, (_, length) in one.items()} for one in chosen),
        moved=any(far > 0.0 for one in chosen for far, _ in one.values()),
    )


def workload_of(system: "Calibration", configuration: Configuration, ask: Ask) -> str | None:
    """Workload to answer for: the given one, or the only one measured at this load.

    None for a workload that the points do not hold or do not name; one that is not calibrated needs a
    baseline.
    """
    if ask.workload is not None:
        known = list(dict.fromkeys(entry.workload for entry in system.baselines.entries))
        if ask.workload not in known and ask.baseline_tokens_per_s is None:
            raise UnknownKeyError("workload", ask.workload, [name for name in known if name])
        return ask.workload
    # Points that do not name their workload do not say that the next run is the same one: its
    # baseline is still the only one known, but what it misses is drawn anew.
    names = {entry.workload for entry in system.baselines.at(configuration)}
    return (names.pop() or None) if len(names) == 1 else None


def question_of(
    system: "Calibration", ask: Ask, configuration: Configuration, accept_length: AcceptLength
) -> Question:
    """One question of an ask."""
    return Question(
        accept_length=accept_length,
        configuration=configuration,
        workload=workload_of(system, configuration, ask),
        baseline_tokens_per_s=ask.baseline_tokens_per_s,
        points_depth=points_depth(system, ask),
    )


def ask_of(
    accepted: "Accepted",
    *,
    depth: float | Iterable[float] | None,
    num_steps: float | Iterable[float] | None,
    **asked: Any,
) -> Ask:
    """The ask of a program, held to what the command line allows."""
    if depth is not None and num_steps is not None:
        raise UsageError("one of them", "depth and num_steps say the same thing twice")
    depths = num_steps if depth is None else depth
    known: dict[str, Any] = {"accept_length": accepted}
    if accepted is not None and not isinstance(accepted, int | float | AcceptLength):
        from specmodel.acceptance import ConditionalAccuracy, FullAccuracy

        name = "conditional" if isinstance(accepted, ConditionalAccuracy) else "full"
        if isinstance(accepted, FullAccuracy | ConditionalAccuracy):
            accepted = accepted.values
        values = tuple(map(float, accepted))
        known = {f"{name}_accuracy": values}
        most = int(BOUNDS["num_steps"].most)
        if not 1 <= len(values) <= most:
            raise ParameterError("accuracies", f"{len(values)} of them", f"1 to {most}")
    ask = Ask(**known, **asked)
    if depths is not None:
        wanted: Iterable[Any] = depths if isinstance(depths, Iterable) else (depths,)
        steps: tuple[Any, ...] = tuple(wanted) or (math.nan,)  # none is no depth
        ask = ask._replace(num_steps=steps)
    for name in ("num_steps", "accept_depth", "topk", "num_draft_tokens"):
        most = int(BOUNDS["num_steps" if name == "accept_depth" else name].most)
        value = getattr(ask, name)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and not (1 <= one <= most and float(one).is_integer()):
                raise ParameterError(name, f"{one:g}", f"a whole number from 1 to {most}")
    if ask.num_steps is not None:
        ask = ask._replace(num_steps=tuple(sorted({int(one) for one in ask.num_steps})))
    for name, quantity in _NUMBERS.items():
        value, bounds = getattr(ask, name), BOUNDS[quantity]
        if value is None or isinstance(value, AcceptLength):
            continue
        low = quantity != "accept_length" and value < bounds.least  # that is said with a hint later
        if not math.isfinite(value) or value > bounds.most or low:
            said = name.replace("accept_length", "accept length")
            raise ParameterError(said, f"{value:g}", f"finite, in {bounds}")
    return ask


_NUMBERS = {
    "accept_length": "accept_length",
    "claim": "accept_length",
    "batch_size": "batch_size",
    "context_tokens": "context_tokens",
    "baseline_tokens_per_s": "baseline_tokens_per_s",
    "target_speedup": "speedup",
}
Accepted: TypeAlias = (
    "float | AcceptLength | FullAccuracy | ConditionalAccuracy | Iterable[float] | None"
)
"""What a program may give as acceptance."""
