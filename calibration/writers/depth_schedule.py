"""The depth to run at each batch size: what every schedule that an engine reads is made from."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from calibration.writers.accept_lengths_by_depth import AcceptLengths, accept_lengths_by_depth
from calibration.writers.batch_hull import (
    batches_to_choose_for,
    chain_depths,
    context_of,
)
from calibration.writers.loaded_server import (
    LoadedOverhead,
    loaded_overhead_at,
    overhead_note,
)
from calibration.writers.schedule import BatchChoice, DepthRange, DepthSchedule
from specmodel.calibration import Calibration
from specmodel.prediction import predict
from specmodel.question import AcceptLength, Configuration, Question

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

    Parameters
    ----------
    calibration : Calibration
        Of points that state their batch and their depth, chains.
    accept_lengths : FullAccuracy or mapping from int to float
        A served curve, or accept lengths by depth, bonus token included, [tokens].
    max_batch_size : int, optional
        Where to end, at most the largest measured batch, which is the default.
    context_tokens : float, optional
        Context of the schedule; by default the only one of the points, [tokens].
    workload : str, optional
        Workload of the calibration whose baselines count.
    loaded_overhead : float or mapping from float to float, optional
        How much slower a server at depth 0 is for holding a draft model, as in `loaded_overhead_at`.

    Returns
    -------
    DepthSchedule

    Raises
    ------
    ParameterError
        If the points do not state batch or depth, an accept length is impossible, or something
        beyond the points is asked for.

    Notes
    -----
    Costs are those of `specmodel.prediction.predict`, medians. Depth 0 is not free: a depth competes
    with the loaded server at 0, so it may be taken although it is slower than a server without a draft
    model; a note says where. Up to `EVERY_BATCH` each batch is looked at, above it one in every
    thirty-second and each measured one, and the choice holds up to the next. A range between two of
    one depth that is equal to them within `TIE` is theirs. Nothing is chosen beyond the measured
    batches and depths.

    Examples
    --------
    >>> from calibration.fitting import fit
    >>> from calibration.packaged import packaged_table
    >>> calibration = fit(packaged_table("vllm-16035-llama3-8b").path, profile=False)
    >>> depth_schedule(calibration, {2: 1.89, 4: 2.08}).as_lists()
    [[1, 1, 2]]
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
