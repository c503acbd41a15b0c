"""Works of one load: what is captured to time extend passes, steps, whole drafts and the baseline."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

import torch

from drafter.engine.buckets import Bucket, cache_readers, split_bucket
from drafter.engine.shared_state import SharedState
from drafter.kernels.draft_steps import DraftSteps
from drafter.spec import DraftSpec
from drafter.step_work import StepWork, step_work
from drafter.timing.device_failures import first_line
from drafter.timing.grid import StepLoad, TimingGrid
from drafter.timing.memory_read import ReadBuffer
from drafter.timing.stopwatch import Work
from drafter.timing.torch_baseline import NoAttentionKernelError, TorchBaseline
from specmodel.errors import SpecModelError

FLUSH: Final = "flush"
"""Name of the work that only flushes the cache."""

HOT_STEPS: Final = 4
"""Steps that are repeated for the time with a hot cache, [-]."""

MADE_UP_BYTES_PER_S: Final = 1e9
"""Rate at which a dry run pretends to read, [B/s]."""

_MADE_UP_FLUSH_S: Final = 1e-4


@final
class WorkSource(NamedTuple):
    """What works are made from.

    Parameters
    ----------
    state : SharedState
        Weights and cache, filled with random values.
    flush : ReadBuffer
        What is read before each draft.
    grid : TimingGrid
        Depths and accepted tokens.
    num_multiprocessors : int
        Of the device, [-].
    is_programmatic : bool
        Launches overlap.

    Examples
    --------
    >>> WorkSource._fields[0]
    'state'
    """

    state: SharedState
    flush: ReadBuffer
    grid: TimingGrid
    num_multiprocessors: int
    is_programmatic: bool

    def buffers(self, load: StepLoad, accepted: int) -> DraftSteps:
        """Buffers of a load, filled so that a draft can run.

        Parameters
        ----------
        load : StepLoad
            The load.
        accepted : int
            Newly accepted tokens of each request, [tokens].

        Returns
        -------
        DraftSteps
            Random tokens and captured states, `load.context_tokens` in every cache.
        """
        spec, batch = self.state.spec, load.batch_size
        longest = load.context_tokens + self.grid.spare_slots
        steps = self.state.steps(
            Bucket(
                batch_size=batch,
                num_steps=self.grid.num_steps,
                topk=load.topk,
                num_draft_tokens=self.tree_tokens(load.topk),
                most_accepted=accepted,
                num_splits=split_bucket(
                    longest,
                    batch_size=batch,
                    num_kv_heads=cache_readers(spec, topk=load.topk),
                    num_multiprocessors=self.num_multiprocessors,
                ),
            ),
            is_programmatic=self.is_programmatic,
        )
        steps.tokens.random_(spec.target_vocab_size)
        steps.captured.normal_()
        steps.before.fill_(load.context_tokens)
        steps.accepted.fill_(accepted)
        return steps

    def tree_tokens(self, topk: int) -> int | None:
        """Nodes of the verified tree, root included; None for a chain, [tokens].

        Parameters
        ----------
        topk : int
            Branches, [-].

        Returns
        -------
        int or None
        """
        if topk == 1:
            return None
        candidates = topk + (self.grid.num_steps - 1) * topk**2
        return min(self.grid.num_draft_tokens, candidates + 1)

    def work_of(self, load: StepLoad) -> StepWork:
        """Bytes and operations of a step at a load.

        Parameters
        ----------
        load : StepLoad
            The load.

        Returns
        -------
        StepWork
        """
        return step_work(
            self.state.spec,
            context_tokens=load.context_tokens,
            batch_size=load.batch_size,
            value_bytes=self.state.keys.element_size(),
        )

    def flushed(self, name: str, run: Callable[[], None], made_up_s: float) -> Work:
        """A work after a flush.

        Parameters
        ----------
        name : str
            Of the work.
        run : callable
            Launches it.
        made_up_s : float
            Of the work without the flush, [s].

        Returns
        -------
        Work
        """

        def both() -> None:
            self.flush.read()
            run()

        return Work(name, both, _MADE_UP_FLUSH_S + made_up_s)

    def flush_alone(self) -> Work:
        """The flush, whose time is taken off.

        Returns
        -------
        Work
        """
        return Work(FLUSH, self.flush.read, _MADE_UP_FLUSH_S)


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
