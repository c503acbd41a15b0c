"""Works of one load: what is captured to time extend passes, steps, whole drafts and the baseline."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

import torch

from drafter.engine.shared_state import SharedState
from drafter.kernels.draft_steps import DraftSteps
from drafter.spec import DraftSpec
from drafter.timing.device_failures import first_line
from drafter.timing.grid import StepLoad
from drafter.timing.stopwatch import Work
from drafter.timing.torch_baseline import NoAttentionKernelError, TorchBaseline
from drafter.timing.work_source import MADE_UP_BYTES_PER_S, WorkSource
from specmodel.errors import SpecModelError

HOT_STEPS: Final = 4
"""Steps that are repeated for the time with a hot cache, [-]."""


def draft_name(num_steps: int) -> str:
    """Name of the work of a draft without selection.

    Parameters
    ----------
    num_steps : int
        Depth, [tokens].

    Returns
    -------
    str

    Examples
    --------
    >>> draft_name(3)
    'draft of 3'
    """
    return f"draft of {num_steps}"


def baseline_name(num_steps: int) -> str:
    """Name of the work of the baseline.

    Parameters
    ----------
    num_steps : int
        Depth, [tokens].

    Returns
    -------
    str

    Examples
    --------
    >>> baseline_name(3)
    'baseline of 3'
    """
    return f"baseline of {num_steps}"


def extend_name(accepted: int) -> str:
    """Name of the work of an extend pass.

    Parameters
    ----------
    accepted : int
        Newly accepted tokens, [tokens].

    Returns
    -------
    str

    Examples
    --------
    >>> extend_name(4)
    'extend of 4'
    """
    return f"extend of {accepted}"


class BaselineFailedError(SpecModelError, RuntimeError):
    """The torch baseline failed for a reason that is not known to be harmless.

    Parameters
    ----------
    load : StepLoad
        Where.
    reason : str
        What torch said.
    """

    def __init__(self, load: StepLoad, reason: str) -> None:
        self.load, self.reason = load, reason
        super().__init__(f"{load}: the torch baseline failed: {reason}")


@final
class LoadWorks(NamedTuple):
    """Works of a load.

    Parameters
    ----------
    works : list of Work
        With different names.
    no_baseline : str
        What torch said where it has no kernel for the baseline; else empty.

    Examples
    --------
    >>> LoadWorks([]).no_baseline
    ''
    """

    works: list[Work]
    no_baseline: str = ""


def load_works(source: WorkSource, load: StepLoad) -> LoadWorks:
    """Works that time the steps and the whole draft of a load.

    Parameters
    ----------
    source : WorkSource
        Weights, cache, flush.
    load : StepLoad
        The load.

    Returns
    -------
    LoadWorks
        The flush; drafts by depth; for a tree the whole draft with its selection; a step alone cold,
        and several hot; for a chain the baseline at the shallowest and the deepest depth.

    Raises
    ------
    BaselineFailedError
        If the baseline fails for another reason than that torch has no kernel of attention for it.

    Notes
    -----
    The step alone reads what the extend pass before it left, which is what it left at capture.

    Examples
    --------
    >>> load_works.__name__
    'load_works'
    """
    grid = source.grid
    steps = source.buffers(load, grid.accepted[0])
    pace = _pace(source, load)
    step_s = pace.step_s
    works = [source.flush_alone()]
    works += [_draft_work(source, steps, pace, depth) for depth in grid.depths]
    if load.topk > 1:
        whole_s = pace.drafted_s(grid.num_steps) + 0.05 * step_s
        works.append(source.flushed("whole tree", steps.run, whole_s))
    works.append(source.flushed("cold step", lambda: steps.step(1), 1.05 * step_s))
    works.append(Work("hot steps", lambda: _repeat_step(steps), 0.9 * HOT_STEPS * step_s))
    if not has_baseline(source.state.spec, load):
        return LoadWorks(works)
    run = _baseline(source, load)
    try:
        run(min(2, grid.num_steps))  # both kinds of pass, before anything is captured
    except NoAttentionKernelError as error:
        return LoadWorks(works, error.reason)
    for depth in sorted({min(grid.depths), max(grid.depths)}):
        made_up_s = 1.5 * pace.drafted_s(depth)
        works.append(source.flushed(baseline_name(depth), partial(run, depth), made_up_s))
    return LoadWorks(works)


def deepest_draft(source: WorkSource, load: StepLoad) -> Work:
    """The deepest draft of a load, alone.

    Parameters
    ----------
    source : WorkSource
        Weights, cache, flush.
    load : StepLoad
        The load.

    Returns
    -------
    Work
        A flush and the draft, as `load_works` has it.

    Notes
    -----
    Nothing of the torch baseline is built, which needs a cache of its own.

    Examples
    --------
    >>> deepest_draft.__name__
    'deepest_draft'
    """
    grid = source.grid
    steps = source.buffers(load, grid.accepted[0])
    return _draft_work(source, steps, _pace(source, load), grid.num_steps)


def extend_works(source: WorkSource, load: StepLoad, accepted: Sequence[int]) -> list[Work]:
    """Works that time extend passes of several widths.

    Parameters
    ----------
    source : WorkSource
        Weights, cache, flush.
    load : StepLoad
        Batch and context.
    accepted : sequence of int
        Newly accepted tokens of each request, [tokens].

    Returns
    -------
    list of Work
        The flush, then a pass of each width.

    Notes
    -----
    A pass drafts the first token too.

    Examples
    --------
    >>> extend_works.__name__
    'extend_works'
    """
    work = source.work_of(load)
    pass_s = 1.3 * (work.step_bytes + work.extend_bytes) / MADE_UP_BYTES_PER_S
    works = [source.flush_alone()]
    for count in accepted:
        steps = source.buffers(load, count)
        works.append(source.flushed(extend_name(count), steps.extend, pass_s))
    return works


class _Pace(NamedTuple):
    """What a dry run says of a load, [s]."""

    step_s: float
    extend_s: float

    def drafted_s(self, depth: int) -> float:
        """A draft of so many tokens, [s]."""
        return self.extend_s + (depth - 1) * self.step_s


def _pace(source: WorkSource, load: StepLoad) -> _Pace:
    """Times that are made up for a load."""
    work = source.work_of(load)
    step_s = 1.3 * work.step_bytes / MADE_UP_BYTES_PER_S
    return _Pace(step_s, step_s + 1.3 * work.extend_bytes / MADE_UP_BYTES_PER_S)


def _draft_work(source: WorkSource, steps: DraftSteps, pace: _Pace, depth: int) -> Work:
    """A draft of so many tokens after a flush."""
    return source.flushed(draft_name(depth), partial(_draft, steps, depth), pace.drafted_s(depth))


def _draft(steps: DraftSteps, depth: int) -> None:
    """Extend pass and steps, without selection."""
    steps.extend()
    for step in range(1, depth):
        steps.step(step)


def _repeat_step(steps: DraftSteps) -> None:
    """The first step several times in a row."""
    for _ in range(HOT_STEPS):
        steps.step(1)


def has_baseline(spec: DraftSpec, load: StepLoad) -> bool:
    """Whether there is a torch baseline for a load.

    Parameters
    ----------
    spec : DraftSpec
        Of the draft model.
    load : StepLoad
        The load.

    Returns
    -------
    bool
        For chains of models with grouped heads and without a sliding window.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> spec = public_shape("gpt-oss").spec
    >>> has_baseline(spec, StepLoad(1, 2048, 1)), has_baseline(spec, StepLoad(1, 2048, 4))
    (True, False)
    """
    return load.topk == 1 and spec.sliding_window is None and spec.latent is None


def _baseline(source: WorkSource, load: StepLoad) -> Callable[[int], None]:
    """What drafts so many tokens in torch, on the same weights and with random inputs."""
    state, grid = source.state, source.grid
    baseline = TorchBaseline(
        state.spec,
        state.packed,
        batch_size=load.batch_size,
        context_tokens=load.context_tokens,
        accepted=grid.accepted[0],
        num_steps=grid.num_steps,
        context_for_rope=state.context_tokens,
    )
    baseline.tokens.random_(state.spec.target_vocab_size)
    for tensor in (baseline.captured, baseline.keys, baseline.values):
        tensor.normal_()

    def run(depth: int) -> None:
        try:
            baseline.run(depth)
        except (NoAttentionKernelError, torch.OutOfMemoryError):
            raise
        except RuntimeError as error:
            raise BaselineFailedError(load, first_line(error)) from error

    return run


def fill_cache(state: SharedState) -> None:
    """Fill the cache with random values: zeros can be faster than what a model leaves there.

    Parameters
    ----------
    state : SharedState
        Its `keys` and `values` are overwritten.

    Examples
    --------
    >>> fill_cache.__name__
    'fill_cache'
    """
    torch.nn.init.normal_(state.keys)
    torch.nn.init.normal_(state.values)
