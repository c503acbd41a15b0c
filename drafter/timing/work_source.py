"""What works of a load are made from: weights and cache of a draft model, a flush, a grid."""

from collections.abc import Callable
from typing import Final, NamedTuple, final

from drafter.engine.buckets import Bucket, cache_readers, split_bucket
from drafter.engine.shared_state import SharedState
from drafter.kernels.draft_steps import DraftSteps
from drafter.step_work import StepWork, step_work
from drafter.timing.grid import StepLoad, TimingGrid
from drafter.timing.memory_read import ReadBuffer
from drafter.timing.stopwatch import Work

FLUSH: Final = "flush"
"""Name of the work that only flushes the cache."""

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
