"""The depth to run at each batch size: what every schedule that an engine reads is made from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from specmodel.acceptance import FullAccuracy
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.prediction import predict
from specmodel.question import AcceptLength, Configuration, Question

AcceptLengths = FullAccuracy | Mapping[int, float]
"""A curve of served full accuracies, or accept lengths by depth (bonus token included)."""


def given_depths(accept_lengths: AcceptLengths) -> tuple[int, ...]:
    """Return the depths for which an accept length is known, ascending."""
    if isinstance(accept_lengths, FullAccuracy):
        return tuple(range(1, accept_lengths.num_steps + 1))
    depths = sorted(depth for depth in accept_lengths if depth != 0)
    if not depths or depths[0] < 1 or any(depth != int(depth) for depth in depths):
        raise ParameterError(
            "accept_lengths", list(accept_lengths), "given for depths 1, 2, ..., whole numbers"
        )
    return tuple(int(depth) for depth in depths)


def accept_lengths_by_depth(
    accept_lengths: AcceptLengths, depths: Sequence[int]
) -> tuple[tuple[int, float], ...]:
    r"""Accept length at each depth, which never falls with depth.

    .. math:: \tau_k = 1 + \sum_{i \le k} S_i

    A deeper chain accepts all that a shallower one does.
    """
    if isinstance(accept_lengths, FullAccuracy):
        return tuple((depth, accept_lengths.accept_length(depth)) for depth in depths)
    before = 1.0
    for depth in given_depths(accept_lengths):
        length = float(accept_lengths[depth])
        if not 1.0 <= length <= depth + 1.0:
            raise ParameterError(
                f"accept length at depth {depth}",
                f"{length:g}",
                f"from 1 to {depth + 1}",
                "the bonus token is counted",
            )
        if length < before:
            raise ParameterError(
                f"accept length at depth {depth}",
                f"{length:g}",
                f"at least {before:g}, that of the depth before it",
                "use lengths of one drafter on one workload",
            )
        before = length
    return tuple((depth, float(accept_lengths[depth])) for depth in depths)


EVERY_BATCH: Final = 64
"""Batch size up to which each one is looked at. [requests]"""

_SPACING = 32


def batch_range(calibration: Calibration) -> tuple[int, int]:
    """Return the smallest and the largest whole batch size among the points."""
    low, high = calibration.hull.get("batch_size", (math.nan, math.nan))
    if math.isnan(low) or math.ceil(low) > math.floor(high):
        raise ParameterError(
            "calibration",
            "of points without batch_size",
            "of points that state it",
            "add the column batch_size to the points and fit again",
        )
    return math.ceil(low), math.floor(high)


def batches_to_choose_for(
    calibration: Calibration, max_batch_size: int | None = None
) -> tuple[list[int], int]:
    """Return the batch sizes at which a choice is made, and the last one for which it holds."""
    first, last = batch_range(calibration)
    if max_batch_size is not None:
        if not first <= max_batch_size <= last:
            raise ParameterError(
                "max_batch_size",
                max_batch_size,
                f"from {first} to {last}, the batches of the points",
                "measure a larger batch and fit again",
            )
        last = max_batch_size
    chosen = set(range(first, min(last, EVERY_BATCH) + 1))
    batch = max(first, EVERY_BATCH)
    while batch <= last:
        chosen.add(batch)
        batch += max(batch // _SPACING, 1)
    measured = [one.batch_size for one in calibration.configurations if one.batch_size]
    measured += calibration.baselines.column("batch_size").tolist()
    chosen |= {int(one) for one in measured if first <= one <= last}  # never true of NaN
    return sorted(chosen), last


def chain_depths(
    calibration: Calibration, accept_lengths: AcceptLengths
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the depths with an accept length that the points reach, and those that they do not."""
    stated = [one for one in calibration.configurations if one.num_steps is not None]
    chains = [
        one.num_steps
        for one in stated
        if one.num_steps is not None and one.topk == 1 and one.num_draft_tokens == one.num_steps + 1
    ]
    if not stated:
        raise ParameterError(
            "calibration",
            "of points without num_steps",
            "of points that state it",
            "add the column num_steps to the points and fit again",
        )
    if not chains:
        raise ParameterError(
            "calibration",
            "of trees or blocks only",
            "of points with topk 1 and num_steps + 1 draft tokens",
            "a schedule of depths is one of chains",
        )
    low, high = min(chains), max(chains)
    given = given_depths(accept_lengths)
    inside = tuple(depth for depth in given if low <= depth <= high)
    if not inside:
        raise ParameterError(
            "accept_lengths",
            f"for depth {', '.join(map(str, given))}",
            f"for a depth from {low:g} to {high:g}, as in the points",
            "measure another depth and fit again",
        )
    return inside, tuple(depth for depth in given if depth not in inside)


def context_of(calibration: Calibration, context_tokens: float | None = None) -> float | None:
    """Return the context that a schedule is for: the given one, or the only one of the points."""
    low, high = calibration.hull.get("context_tokens", (math.nan, math.nan))
    if context_tokens is None:
        if math.isnan(low):
            return None
        stated = {one.context_tokens for one in calibration.configurations} - {None}
        if len(stated) == 1:  # measured contexts of one load are one
            return stated.pop()
        if low < high:
            raise ParameterError(
                "context_tokens",
                "nothing",
                f"from {low:g} to {high:g}: the points hold several contexts",
                "make one schedule per context",
            )
        return low
    if not low <= context_tokens <= high:
        raise ParameterError(
            "context_tokens",
            f"{context_tokens:g}",
            "left out: the points do not state theirs"
            if math.isnan(low)
            else f"from {low:g} to {high:g}, as in the points",
            "measure that context and fit again",
        )
    return context_tokens


LoadedOverhead = float | Mapping[float, float]
"""A share of the step time, or shares by batch size."""

MEASURED_OVERHEAD: Final[Mapping[float, float]] = {2.0: 0.066, 189.0: 0.216}
"""Longer step of a server at depth 0 with its draft model loaded, by concurrent requests: time per
output token against a server without one, vllm-project/vllm issue 49548. One machine, one model: on
any other it is an assumption. [share of the step]"""


def loaded_overhead_at(batch_size: float, overhead: LoadedOverhead | None = None) -> float:
    r"""Relative time that a step at depth 0 takes longer than one of a server without a draft model.

    .. math:: o(B) = o_i + (o_{i+1} - o_i) \frac{\ln B - \ln B_i}{\ln B_{i+1} - \ln B_i}

    A speculation-loaded server at depth 0 keeps a CUDA-graph mode and KV memory for its draft model,
    and some releases still run the draft's extend: it is slower than a server without speculation.
    """
    if not batch_size >= 1:
        raise ParameterError("batch_size", f"{batch_size:g}", "at least 1")
    known = MEASURED_OVERHEAD if overhead is None else overhead
    if not isinstance(known, Mapping):
        return _share(known)
    points = sorted((float(batch), _share(share)) for batch, share in known.items())
    if not points or not points[0][0] >= 1:
        raise ParameterError(
            "loaded_overhead",
            f"{points[0][0]:g}" if points else "nothing",
            "shares by batch sizes of at least 1",
            "give one share, or leave it out",
        )
    below = [point for point in points if point[0] <= batch_size]
    above = [point for point in points if point[0] >= batch_size]
    if not below or not above:
        return (below or above)[-1 if below else 0][1]
    (low, at_low), (high, at_high) = below[-1], above[0]
    if low == high:
        return at_low
    return at_low + (at_high - at_low) * math.log(batch_size / low) / math.log(high / low)


def overhead_note(overhead: LoadedOverhead | None = None) -> str:
    """Return the assumption about depth 0 in words."""
    known = MEASURED_OVERHEAD if overhead is None else overhead
    if isinstance(known, Mapping):
        stated = ", ".join(f"{share:.3g} at {batch:g} requests" for batch, share in known.items())
        source = (
            "measured on another system (vllm-project/vllm issue 49548); measure it on yours"
            if overhead is None
            else "as given"
        )
        return (
            "depth 0 with the draft model loaded is taken to be slower than no speculation by the "
            f"share {stated}, interpolated in the logarithm of the batch; {source}"
        )
    percent = f"{known:.2%}".rstrip("%").rstrip("0").rstrip(".")
    return (
        "depth 0 with the draft model loaded is taken to be slower than no speculation by "
        f"{percent} %, as given"
    )


def _share(value: float) -> float:
    """A share, checked."""
    if not (math.isfinite(value) and value >= 0):
        raise ParameterError(
            "loaded_overhead", f"{value:g}", "finite and not negative", "0.066 is 6.6 %"
        )
    return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    r"""What each depth gives at one batch size, and the depth taken.

    .. math:: v_0 = \frac{1}{1 + o(B)}, \qquad v_k = S_k(B)

    Depth 0 is that of a server that holds its draft model.
    """

    batch_size: int
    last_batch_size: int
    num_steps: int
    relative_throughput: tuple[tuple[int, float], ...]

    def at(self, num_steps: int) -> float:
        """Throughput at a candidate depth relative to a server without a draft model."""
        return dict(self.relative_throughput)[num_steps]

    @property
    def unloaded_is_faster(self) -> bool:
        """Whether a server without a draft model beats every depth."""
        return max(value for _, value in self.relative_throughput) < 1.0

    def paying_depths(self) -> tuple[int, ...]:
        """Depths up to the one taken that are faster than depth 0; (0,) where it is taken."""
        if self.num_steps == 0:
            return (0,)
        floor = self.at(0)
        return tuple(
            depth
            for depth, value in self.relative_throughput
            if 0 < depth <= self.num_steps and value > floor
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRange:
    """Batch sizes that run one depth, ends included."""

    first_batch_size: int
    last_batch_size: int
    num_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthSchedule:
    """Depth by batch size within what was measured."""

    ranges: tuple[DepthRange, ...]
    choices: tuple[BatchChoice, ...]
    accept_lengths: tuple[tuple[int, float], ...]
    context_tokens: float | None
    notes: tuple[str, ...]

    @property
    def first_batch_size(self) -> int:
        """Smallest batch that the schedule knows."""
        return self.ranges[0].first_batch_size

    @property
    def last_batch_size(self) -> int:
        """Largest batch that the schedule knows."""
        return self.ranges[-1].last_batch_size

    @property
    def max_num_steps(self) -> int:
        """Deepest depth of the schedule; 0 where speculation never pays."""
        return max(one.num_steps for one in self.ranges)

    def as_lists(self) -> list[list[int]]:
        """Ranges as ``[start, end, num_steps]``."""
        return [[one.first_batch_size, one.last_batch_size, one.num_steps] for one in self.ranges]

    def choice_at(self, batch_size: int) -> BatchChoice:
        """The choice that holds at a batch; raises `ParameterError` where there is none."""
        for choice in self.choices:
            if choice.batch_size <= batch_size <= choice.last_batch_size:
                return choice
        raise ParameterError(
            "batch_size",
            batch_size,
            f"from {self.first_batch_size} to {self.last_batch_size}, as in the points",
            "measure that batch and fit again",
        )


def schedule_text(schedule: DepthSchedule) -> str:
    """Return a schedule for a person: ranges, accept lengths assumed, where it stops."""
    assumed = dict(schedule.accept_lengths)
    lines = [
        f"batch {one.first_batch_size} to {one.last_batch_size}: "
        + (
            f"depth {one.num_steps}, accept length {assumed[one.num_steps]:.4g}"
            if one.num_steps
            else "depth 0, no drafting"
        )
        for one in schedule.ranges
    ]
    return "\n".join([*lines, *schedule.notes]) + "\n"


TIE: Final = 0.01
"""Relative throughput within which two depths are equal; the smaller one is taken, as vLLM's own tuner
does. [-]"""


def depth_schedule(
    calibration: Calibration,
    accept_lengths: AcceptLengths,
    *,
    max_batch_size: int | None = None,
    context_tokens: float | None = None,
    workload: str | None = None,
    loaded_overhead: LoadedOverhead | None = None,
) -> DepthSchedule:
    r"""Best depth at each batch size that the points reach, merged into contiguous ranges.

    .. math:: k^*(B) = \min\{k : v_k \ge (1 - \epsilon) \max_j v_j\}, \qquad \epsilon = 0.01
    """
    depths, left_out = chain_depths(calibration, accept_lengths)
    lengths = accept_lengths_by_depth(accept_lengths, depths)
    context = context_of(calibration, context_tokens)
    batches, last = batches_to_choose_for(calibration, max_batch_size)
    questions = [
        Question(
            accept_length=AcceptLength.exact(length),
            configuration=Configuration(
                num_steps=float(depth), batch_size=float(batch), context_tokens=context
            ),
            workload=workload,
        )
        for batch in batches
        for depth, length in lengths
    ]
    speedups = [one.speedup.median for one in predict(calibration, questions)]
    count = len(lengths)
    choices = tuple(
        _choice(
            (batch, following - 1),
            [depth for depth, _ in lengths],
            speedups[row * count : (row + 1) * count],
            loaded_overhead_at(batch, loaded_overhead),
        )
        for row, (batch, following) in enumerate(
            zip(batches, [*batches[1:], last + 1], strict=True)
        )
    )
    settled = _without_ties(choices)
    return DepthSchedule(
        ranges=_ranges(settled),
        choices=settled,
        accept_lengths=lengths,
        context_tokens=context,
        notes=_notes(settled, lengths, left_out, context, loaded_overhead),
    )


def _choice(
    batches: tuple[int, int], depths: Sequence[int], speedups: Sequence[float], overhead: float
) -> BatchChoice:
    """The smallest depth that is as good as the best."""
    values = ((0, 1.0 / (1.0 + overhead)), *zip(depths, speedups, strict=True))
    enough = (1.0 - TIE) * max(value for _, value in values)
    return BatchChoice(
        batch_size=batches[0],
        last_batch_size=batches[1],
        num_steps=min(depth for depth, value in values if value >= enough),
        relative_throughput=values,
    )


def _runs(choices: Sequence[BatchChoice]) -> list[list[BatchChoice]]:
    """Consecutive choices of one depth."""
    runs: list[list[BatchChoice]] = []
    for choice in choices:
        if runs and runs[-1][0].num_steps == choice.num_steps:
            runs[-1].append(choice)
        else:
            runs.append([choice])
    return runs


def _without_ties(choices: tuple[BatchChoice, ...]) -> tuple[BatchChoice, ...]:
    """The same without ranges that lie between two of one depth and are equal to them."""
    runs = _runs(choices)
    for before, run, after in zip(runs, runs[1:], runs[2:], strict=False):
        depth = before[0].num_steps
        alike = all(
            one.at(depth) >= (1.0 - TIE) * max(value for _, value in one.relative_throughput)
            for one in run
        )
        if depth == after[0].num_steps and alike:
            run[:] = [replace(one, num_steps=depth) for one in run]
    return tuple(one for run in runs for one in run)


def _ranges(choices: Sequence[BatchChoice]) -> tuple[DepthRange, ...]:
    """Choices merged."""
    return tuple(
        DepthRange(
            first_batch_size=run[0].batch_size,
            last_batch_size=run[-1].last_batch_size,
            num_steps=run[0].num_steps,
        )
        for run in _runs(choices)
    )


def _notes(
    choices: Sequence[BatchChoice],
    lengths: Sequence[tuple[int, float]],
    left_out: Sequence[int],
    context: float | None,
    overhead: LoadedOverhead | None,
) -> tuple[str, ...]:
    """What a schedule assumes and where it stops."""
    first, last = choices[0].batch_size, choices[-1].last_batch_size
    notes = [
        "accept lengths assumed: "
        + ", ".join(f"{length:.4g} at depth {depth}" for depth, length in lengths),
        (
            f"the points reach batch {first} to {last}: outside, this schedule knows nothing; limit "
            f"the server to {last} requests"
        ),
    ]
    if context is not None and math.isfinite(context):
        notes.append(f"for a context of {context:g} tokens; make one schedule per context")
    if left_out:
        notes.append(
            "not considered, because no point has them: depth "
            + ", ".join(str(depth) for depth in left_out)
        )
    notes.append(overhead_note(overhead))
    slower = [one for one in choices if one.unloaded_is_faster]
    if slower:
        where = ", ".join(
            f"{run[0].batch_size} to {run[-1].last_batch_size}" for run in _adjacent(slower)
        )
        notes.append(f"a server without a draft model is faster than any depth at batch {where}")
    return tuple(notes)


def _adjacent(choices: Sequence[BatchChoice]) -> list[list[BatchChoice]]:
    """Choices in groups without a gap."""
    groups: list[list[BatchChoice]] = []
    for choice in choices:
        if groups and groups[-1][-1].last_batch_size + 1 == choice.batch_size:
            groups[-1].append(choice)
        else:
            groups.append([choice])
    return groups
