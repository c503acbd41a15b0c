"""What is captured and timed for each load, a draft or the same step in eager torch, and within what time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import torch

from drafter.engine.draft_engine import SharedState, cache_readers, split_bucket
from drafter.floors import StepWork, cached_values_per_token, step_work
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.kernels.norm_rope import rope_table
from drafter.kernels.weights import LatentWeights, PackedWeights
from drafter.spec import DraftSpec
from drafter.timing.device import ReadBuffer
from drafter.timing.stopwatch import SamplePlan, Work
from specmodel.errors import ParameterError

_NO_KERNEL: Final = (
    "no viable backend",
    "no available kernel",
    "no kernel found to launch",
    "only supports ampere",
    "only supports head dimension",
    "flash attention build does not support",
    "could not run 'aten::",
)
"""Words with which torch says that none of its kernels of attention takes the device, type or heads."""


def has_baseline(spec: DraftSpec) -> bool:
    """Whether the torch baseline computes such heads."""
    return spec.latent is None and spec.sliding_window is None


class TorchBaseline:
    """A chain of drafts in torch, on static buffers, so that a graph can be captured of it.

    Every request is as long as the others, so attention reads slices of the cache without a mask and
    torch can take its fastest kernel. Gate and up are one product. It rounds as engines do: to the
    storage type after every operation. drafter.md 20.
    """

    def __init__(
        self,
        spec: DraftSpec,
        packed: PackedWeights,
        *,
        batch_size: int,
        context_tokens: int,
        accepted: int,
        num_steps: int,
        context_for_rope: int | None = None,
    ) -> None:
        if not has_baseline(spec) or isinstance(packed.attention, LatentWeights):
            raise ParameterError(
                "attention", "latent or a window", "grouped heads that see everything"
            )
        self.spec, self.packed, self._norms = spec, packed, packed.attention
        self.context_tokens, self.accepted = context_tokens, accepted
        head = packed.head
        dtype, device = head.dtype, head.device
        slots = context_tokens + accepted + num_steps
        states = spec.num_captured_states
        self.tokens = torch.zeros(batch_size, accepted, dtype=torch.int64, device=device)
        self.captured = torch.zeros(
            batch_size, accepted, states * spec.target_hidden_size, dtype=dtype, device=device
        )
        cache = (batch_size, spec.num_kv_heads, slots, spec.head_dim)
        self.keys, self.values = (torch.zeros(cache, dtype=dtype, device=device) for _ in range(2))
        self.drafted = torch.zeros(batch_size, num_steps, dtype=torch.int64, device=device)
        cosine, sine = rope_table(
            spec.rope,
            head_dim=spec.head_dim,
            num_positions=slots,
            max_positions=spec.max_positions,
            context_tokens=context_for_rope,
            device=device,
        )
        self._cosine, self._sine = cosine.to(dtype), sine.to(dtype)
        self._gate_up = torch.cat([packed.gate, packed.up])

    def run(self, num_steps: int) -> None:
        """Draft a chain of so many tokens into `drafted`.

        Nothing is read back, so it can be captured.
        """
        place = self.context_tokens
        stream = self._layer(self.tokens, self._fused_states(), place)[:, -1:]
        place += self.accepted
        token = self._guess(stream, 0)
        for step in range(1, num_steps):
            carry = self._norm(stream, self.packed.final_norm) if self.spec.norm_output else stream
            stream = self._layer(token, carry, place)
            place += 1
            token = self._guess(stream, step)

    def _norm(self, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMSNorm of the last axis."""
        functional = torch.nn.functional
        return functional.rms_norm(values, weight.shape, weight, self.spec.rms_norm_eps)

    def _fused_states(self) -> torch.Tensor:
        """Hidden states from the captured ones: [B, M, H]."""
        packed, states = self.packed, self.captured
        if packed.fc is None:
            return states
        if packed.state_norm is not None:
            parts = states.unflatten(-1, packed.state_norm.shape)
            normed = torch.nn.functional.rms_norm(
                parts, parts.shape[-1:], eps=self.spec.rms_norm_eps
            )
            states = (normed * packed.state_norm).flatten(-2)
        return torch.nn.functional.linear(states, packed.fc, packed.fc_bias)

    def _layer(self, tokens: torch.Tensor, hidden: torch.Tensor, place: int) -> torch.Tensor:
        """Residual stream after the layer, for tokens [B, n] from slot `place` on."""
        spec, packed, functional = self.spec, self.packed, torch.nn.functional
        embedded = self._norm(packed.embedding[tokens], packed.embed_norm)
        normed = self._norm(hidden, packed.hidden_norm)
        fused = functional.linear(
            torch.cat([embedded, normed], dim=-1), packed.qkv, packed.qkv_bias
        )
        attended = self._attention(fused, place)
        residual = normed if spec.norm_before_residual else hidden
        stream = residual + functional.linear(attended, packed.out, packed.out_bias)
        gate, up = functional.linear(self._norm(stream, packed.mlp_norm), self._gate_up).chunk(
            2, -1
        )
        return stream + functional.linear(functional.silu(gate) * up, packed.down)

    def _attention(self, fused: torch.Tensor, place: int) -> torch.Tensor:
        """Attended values [B, n, NH D]; keys and values enter the cache."""
        spec = self.spec
        batch, count = fused.shape[:2]
        heads = fused.unflatten(-1, (-1, spec.head_dim)).transpose(1, 2)
        widths = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        query, key, value = heads.split(widths, dim=1)
        if self._norms is not None:
            query, key = self._norm(query, self._norms[0]), self._norm(key, self._norms[1])
        rows = slice(place, place + count)
        self.keys[:, :, rows] = self._rotated(key, rows)
        self.values[:, :, rows] = value
        seen = slice(0, place + count)
        from torch.nn.attention.bias import causal_lower_right  # it brings all of torch._dynamo

        bias = causal_lower_right(count, place + count) if count > 1 else None
        attended = torch.nn.functional.scaled_dot_product_attention(
            self._rotated(query, rows),
            self.keys[:, :, seen],
            self.values[:, :, seen],
            attn_mask=bias,
            enable_gqa=spec.num_heads != spec.num_kv_heads,
        )
        return attended.transpose(1, 2).reshape(batch, count, spec.num_heads * spec.head_dim)

    def _rotated(self, heads: torch.Tensor, rows: slice) -> torch.Tensor:
        """Pairs half a head apart, turned by the angles of their positions."""
        cosine, sine = self._cosine[rows], self._sine[rows]
        first, second = heads.chunk(2, dim=-1)
        turned = (first * cosine - second * sine, second * cosine + first * sine)
        return torch.cat(turned, dim=-1)

    def _guess(self, stream: torch.Tensor, step: int) -> torch.Tensor:
        """Best token of the target's vocabulary after the last row: [B, 1]."""
        packed = self.packed
        logits = torch.nn.functional.linear(self._norm(stream, packed.final_norm), packed.head)
        best = logits.argmax(dim=-1)
        token = best + packed.offsets[best]
        self.drafted[:, step] = token[:, 0]
        return token


class StepLoad(NamedTuple):
    """A load of a draft step."""

    batch_size: int
    context_tokens: int
    topk: int

    def __str__(self) -> str:
        return f"batch {self.batch_size}, context {self.context_tokens}, topk {self.topk}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingGrid:
    """What is timed.

    drafter.md 20 asks for batches 1 to 64, contexts 0.5k to 32k, trees, depths 1, 3, 5 and 7.
    """

    batch_sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    topks: tuple[int, ...] = (1,)
    depths: tuple[int, ...] = (1, 3, 5, 7)
    accepted: tuple[int, ...] = (4, 1, 2, 8)
    num_draft_tokens: int = 32
    plan: SamplePlan = field(default_factory=SamplePlan)

    def __post_init__(self) -> None:
        axes = {"batch_sizes": 1, "contexts": 0, "topks": 1, "depths": 1, "accepted": 1}
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
        """Loads of one batch, shortest context first."""
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

    :math:`n = 2`, since the baseline has a cache of its own; 1 for latent heads, which have no baseline.
    """
    copies = 2 if spec.latent is None else 1
    per_slot = copies * batch_size * cached_values_per_token(spec) * value_bytes
    fits = (each for each in grid.contexts if per_slot * (each + grid.spare_slots) <= free_bytes)
    return tuple(sorted(fits))


class TimeLimit:
    """A moment after which no load is begun.

    A load at batch 64 can take ten times as long as one at batch 1. What it will take is guessed from the
    loads before: their shortest time for each byte that a step reads, of as many branches where there are
    such. The first load is always begun.
    """

    def __init__(self, until_s: float | None, host_s: Callable[[], float]) -> None:
        self._until_s, self._host_s = until_s, host_s
        self._s_per_byte: dict[int, float] = {}

    def allows(self, load: StepLoad, step_bytes: float) -> bool:
        """Whether a load may be begun."""
        if self._until_s is None or not self._s_per_byte:
            return True
        pace = self._s_per_byte.get(load.topk, min(self._s_per_byte.values()))
        return self._host_s() + pace * step_bytes <= self._until_s

    def timed(self, load: StepLoad, step_bytes: float, run: Callable[[], None]) -> None:
        """Measure a load, and keep how long that took."""
        begun = self._host_s()
        run()
        pace = (self._host_s() - begun) / step_bytes
        self._s_per_byte[load.topk] = min(pace, self._s_per_byte.get(load.topk, pace))


class WorkSource(NamedTuple):
    """What works are made from."""

    state: SharedState
    flush: ReadBuffer
    grid: TimingGrid
    num_multiprocessors: int
    is_programmatic: bool

    def buffers(self, load: StepLoad, accepted: int) -> DraftSteps:
        """Buffers of a load, filled so that a draft can run."""
        spec, batch = self.state.spec, load.batch_size
        longest = load.context_tokens + self.grid.spare_slots
        parts = split_bucket(
            longest,
            batch_size=batch,
            num_kv_heads=cache_readers(spec, topk=load.topk),
            num_multiprocessors=self.num_multiprocessors,
        )
        shape = DraftShape(
            batch_size=batch,
            num_steps=self.grid.num_steps,
            topk=load.topk,
            num_draft_tokens=self.tree_tokens(load.topk),
            most_accepted=accepted,
            capacity=self.state.capacity,
            num_splits=parts,
            is_programmatic=self.is_programmatic,
        )
        steps = self.state.steps(shape)
        steps.tokens.random_(spec.target_vocab_size)
        steps.captured.normal_()
        steps.before.fill_(load.context_tokens)
        steps.accepted.fill_(accepted)
        return steps

    def tree_tokens(self, topk: int) -> int | None:
        """Nodes of the verified tree, root included; None for a chain, [tokens]."""
        if topk == 1:
            return None
        candidates = topk + (self.grid.num_steps - 1) * topk**2
        return min(self.grid.num_draft_tokens, candidates + 1)

    def work_of(self, load: StepLoad) -> StepWork:
        """Bytes and operations of a step at a load."""
        return step_work(
            self.state.spec,
            context_tokens=load.context_tokens,
            batch_size=load.batch_size,
            value_bytes=self.state.keys.element_size(),
        )

    def flushed(self, name: str, run: Callable[[], None]) -> Work:
        """A work after a flush."""

        def both() -> None:
            self.flush.read()
            run()

        return Work(name, both)


FLUSH: Final = "flush"
"""Name of the work that only flushes the cache, whose time is taken off."""

HOT_STEPS: Final = 4
"""Steps that are repeated for the time with a hot cache, [-]."""


def draft_name(num_steps: int) -> str:
    """Name of the work of a draft without selection."""
    return f"draft of {num_steps}"


def baseline_name(num_steps: int) -> str:
    """Name of the work of the baseline."""
    return f"baseline of {num_steps}"


def extend_name(accepted: int) -> str:
    """Name of the work of an extend pass."""
    return f"extend of {accepted}"


def load_works(source: WorkSource, load: StepLoad) -> tuple[list[Work], str]:
    """Works that time the steps and the whole draft of a load, and why torch has no kernel for its baseline.

    The step alone reads what the extend pass before it left, which is what it left at capture.
    """
    grid = source.grid
    steps = source.buffers(load, grid.accepted[0])
    works = [Work(FLUSH, source.flush.read)]
    works += [source.flushed(draft_name(k), partial(_draft, steps, k)) for k in grid.depths]
    if load.topk > 1:
        works.append(source.flushed("whole tree", steps.run))
    works.append(source.flushed("cold step", lambda: steps.step(1)))
    works.append(Work("hot steps", partial(_repeat_step, steps)))
    if load.topk > 1 or not has_baseline(source.state.spec):
        return works, ""
    run = _baseline(source, load).run
    try:
        run(min(2, grid.num_steps))  # both kinds of pass, before anything is captured
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        if not any(words in said.lower() for words in _NO_KERNEL):
            raise
        return works, f"torch has no kernel of attention: {said}"
    for depth in sorted({min(grid.depths), max(grid.depths)}):
        works.append(source.flushed(baseline_name(depth), partial(run, depth)))
    return works, ""


def deepest_draft(source: WorkSource, load: StepLoad) -> Work:
    """The deepest draft of a load, alone: nothing of the baseline is built, which needs a cache of its own."""
    steps, depth = source.buffers(load, source.grid.accepted[0]), source.grid.num_steps
    return source.flushed(draft_name(depth), partial(_draft, steps, depth))


def extend_works(source: WorkSource, load: StepLoad, accepted: Sequence[int]) -> list[Work]:
    """Works that time extend passes of several widths; a pass drafts the first token too."""
    passes = ((extend_name(count), source.buffers(load, count).extend) for count in accepted)
    return [Work(FLUSH, source.flush.read), *(source.flushed(*each) for each in passes)]


def _draft(steps: DraftSteps, depth: int) -> None:
    """Extend pass and steps, without selection."""
    steps.extend()
    for step in range(1, depth):
        steps.step(step)


def _repeat_step(steps: DraftSteps) -> None:
    """The first step several times in a row."""
    for _ in range(HOT_STEPS):
        steps.step(1)


def _baseline(source: WorkSource, load: StepLoad) -> TorchBaseline:
    """The same draft in torch, on the same weights and with random inputs."""
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
    return baseline
