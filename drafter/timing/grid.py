"""Loads and depths at which a draft model is timed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, final

from drafter.spec import DraftSpec
from drafter.step_work import cached_values_per_token
from drafter.timing.stopwatch import SamplePlan
from specmodel.errors import ParameterError


@final
class StepLoad(NamedTuple):
    """A load of a draft step.

    Parameters
    ----------
    batch_size, context_tokens, topk : int
        Requests; cached tokens of each; branches, [-].

    Examples
    --------
    >>> str(StepLoad(1, 2048, 1))
    'batch 1, context 2048, topk 1'
    """

    batch_size: int
    context_tokens: int
    topk: int

    def __str__(self) -> str:
        return f"batch {self.batch_size}, context {self.context_tokens}, topk {self.topk}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TimingGrid:
    """What is timed.

    Parameters
    ----------
    batch_sizes, contexts, topks : tuple of int
        Loads of the steps: every combination, [-].
    depths : tuple of int
        Depths over which the time of a step is a slope, at least two, [tokens].
    accepted : tuple of int
        Newly accepted tokens of an extend pass; the first is that of whole drafts, [tokens].
    num_draft_tokens : int
        Nodes of a verified tree, root included, at most 64, [tokens].
    plan : SamplePlan
        How much is sampled of each.

    Raises
    ------
    ParameterError
        If an axis is empty or a count is below what is possible.

    Notes
    -----
    drafter.md 20 asks for batches 1 to 64, contexts 0.5k to 32k, trees, depths 1, 3, 5 and 7.

    Examples
    --------
    >>> grid = TimingGrid(batch_sizes=(1, 8), contexts=(2048,), topks=(1, 4))
    >>> [str(load) for load in grid.loads(8)]
    ['batch 8, context 2048, topk 1', 'batch 8, context 2048, topk 4']
    """

    batch_sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    topks: tuple[int, ...] = (1,)
    depths: tuple[int, ...] = (1, 3, 5, 7)
    accepted: tuple[int, ...] = (4, 1, 2, 8)
    num_draft_tokens: int = 32
    plan: SamplePlan = field(default_factory=SamplePlan)

    def __post_init__(self) -> None:
        axes = {
            "batch_sizes": 1,
            "contexts": 0,
            "topks": 1,
            "depths": 1,
            "accepted": 1,
        }
        for name, least in axes.items():
            values: tuple[int, ...] = getattr(self, name)
            if not values or min(values) < least or len(set(values)) < len(values):
                raise ParameterError(name, values, f"different numbers of at least {least}")
        if len(self.depths) < 2:
            raise ParameterError("depths", self.depths, "at least two: a step's time is a slope")

    @property
    def num_steps(self) -> int:
        """Depth of the deepest draft, [tokens]."""
        return max(self.depths)

    @property
    def spare_slots(self) -> int:
        """Slots that a draft needs beyond the context, [tokens]."""
        return max(self.accepted) + (self.num_steps - 1) * max(self.topks) + 1

    def loads(self, batch_size: int) -> Iterator[StepLoad]:
        """Loads of one batch, shortest context first.

        Parameters
        ----------
        batch_size : int
            Requests, [-].

        Yields
        ------
        StepLoad

        Examples
        --------
        >>> len(list(FULL_GRID.loads(1)))
        12
        """
        for context in sorted(self.contexts):
            for topk in self.topks:
                yield StepLoad(batch_size, context, topk)


FULL_GRID = TimingGrid(
    batch_sizes=(1, 2, 4, 8, 16, 32, 64), contexts=(512, 2048, 8192, 32768), topks=(1, 4, 8)
)
"""The whole grid of drafter.md 20; about a quarter of an hour."""

QUICK_GRID = TimingGrid(batch_sizes=(1, 8, 64), contexts=(2048, 32768), topks=(1, 4))
"""The corners that a prediction needs most; a few minutes."""

DRY_GRID = TimingGrid(
    batch_sizes=(1,),
    contexts=(8,),
    topks=(1, 2),
    depths=(1, 2),
    accepted=(2, 1),
    num_draft_tokens=4,
    plan=SamplePlan(replays=1, samples=1, warm_up_s=0.0),
)
"""One tiny load, for the interpreter."""

GRIDS = {"full": FULL_GRID, "quick": QUICK_GRID, "dry": DRY_GRID}
"""Grids by the name that the command takes."""


def fitting_contexts(
    spec: DraftSpec, grid: TimingGrid, *, batch_size: int, value_bytes: int, free_bytes: float
) -> tuple[int, ...]:
    r"""Contexts of a grid whose caches fit into memory.

    .. math:: n B (C + s) c w \le F

    Parameters
    ----------
    spec : DraftSpec
        With :math:`c` cached values a token.
    grid : TimingGrid
        With contexts :math:`C` and spare slots :math:`s`.
    batch_size : int
        :math:`B`, requests, [-].
    value_bytes : int
        :math:`w`, stored width, [B].
    free_bytes : float
        :math:`F`, memory that may be used, [B].

    Returns
    -------
    tuple of int
        Rising; empty where not even the shortest fits, [tokens].

    Notes
    -----
    :math:`n = 2`, since the baseline has a cache of its own; 1 for latent heads, which have no baseline.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> spec = public_shape("Llama-3.1-8B").spec
    >>> fitting_contexts(spec, FULL_GRID, batch_size=64, value_bytes=2, free_bytes=20e9)
    (512, 2048, 8192, 32768)
    >>> fitting_contexts(spec, FULL_GRID, batch_size=64, value_bytes=2, free_bytes=6e9)
    (512, 2048, 8192)
    """
    copies = 2 if spec.latent is None else 1
    per_slot = copies * batch_size * cached_values_per_token(spec) * value_bytes
    fits = (each for each in grid.contexts if per_slot * (each + grid.spare_slots) <= free_bytes)
    return tuple(sorted(fits))
