"""Extend and decode steps of a whole draft, from the kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.attention import MOST_RANK, MOST_TAIL_SLOTS, MOST_TURNED
from drafter.kernels.head import MOST_TILES, MOST_TOPK, Chain, head, head_tiles, pick
from drafter.kernels.launch_plan import (
    FUSED_NORM_TOKENS,
    MATVEC_TOKENS,
    check_range,
    check_tensor,
    launch,
    overlapping,
    power_of_two,
)
from drafter.kernels.layer import LayerBuffers, layer_pass
from drafter.kernels.norm_rope import CacheSpace, row_norm
from drafter.kernels.numerics import Fed
from drafter.kernels.products import linear
from drafter.kernels.tree import Candidates, Frontier, Tree, tree_best, tree_level
from drafter.kernels.weights import PackedWeights
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShape:
    """What one set of static buffers is made for.

    One graph is captured per shape. drafter.md 14.
    """

    batch_size: int
    num_steps: int
    topk: int = 1
    num_draft_tokens: int | None = None
    most_accepted: int = 8
    capacity: int = 2048
    num_splits: int = 8
    is_fused: bool = True
    is_programmatic: bool = False
    keeps_logits: bool = False

    def __post_init__(self) -> None:
        check_range("batch_size", self.batch_size, 1, 1024)
        check_range("num_steps", self.num_steps, 1, MOST_TAIL_SLOTS)
        check_range("topk", self.topk, 1, MOST_TOPK)
        check_range("num_splits", self.num_splits, 1, 128)
        check_range("most_accepted", self.most_accepted, 1, self.capacity)
        if self.topk > 1:
            slots = (self.num_steps - 1) * self.topk
            hint = "fewer steps or fewer branches"
            check_range("slots of the tree", slots, 0, MOST_TAIL_SLOTS, hint)
            if self.num_draft_tokens is None:
                raise ParameterError("num_draft_tokens", None, "given for a tree")
            most = min(self.num_candidates + 1, MOST_TAIL_SLOTS)
            check_range("num_draft_tokens", self.num_draft_tokens, 1, most)

    @property
    def num_candidates(self) -> int:
        """Nodes that a tree considers, root left out, [-]."""
        return self.topk + (self.num_steps - 1) * self.topk**2


NO_REQUEST = -(2**30)
"""Tokens in the cache of a row of the batch without a request: none of its drafts has a slot, [tokens]."""


@triton.jit(do_not_specialize=["width"])
def extend_plan_kernel(
    before, accepted, positions, lengths, last_rows, width, BLOCK: tl.constexpr, PDL: tl.constexpr
) -> None:
    """One program places the width rows of one request: positions [B, width]."""
    request = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    start = tl.load(before + request)
    count = tl.minimum(tl.load(accepted + request), width)
    place = positions + request.to(tl.int64) * width + row
    tl.store(place, tl.where(row < count, start + row, -1), mask=row < width)
    tl.store(lengths + request, start + count)
    tl.store(last_rows + request, request * width + tl.maximum(count - 1, 0))


def extend_plan(
    before: torch.Tensor,
    accepted: torch.Tensor,
    positions: torch.Tensor,
    lengths: torch.Tensor,
    last_rows: torch.Tensor,
) -> None:
    """Write position, length and last row of each request's newly accepted tokens.

    The counts are not read back, so one graph serves every number of accepted tokens.
    """
    batch_size = len(before)
    width = len(positions) // batch_size
    arguments = (before, accepted, positions, lengths, last_rows, width, power_of_two(width))
    launch(extend_plan_kernel, (batch_size,), *arguments, warps=1)


class _HeadSpace(NamedTuple):
    """What the head of one pass writes."""

    tile: int
    tile_max: torch.Tensor
    tile_sum: torch.Tensor
    tile_keys: torch.Tensor
    guesses: torch.Tensor
    log_probs: torch.Tensor


def _overlapping(method: Callable[..., None]) -> Callable[..., None]:
    """Launches of a method overlap where the shape asks for it."""

    @wraps(method)
    def run(self: "DraftSteps", *arguments: int) -> None:
        with overlapping(self.shape.is_programmatic):
            method(self, *arguments)

    return run


class DraftSteps:
    """A draft model in kernels, with every buffer of one shape.

    Inputs: `tokens`, `captured`, `before`, `accepted`, written in place (`load`). Results: `chain` or
    `tree`. `run` launches kernels only: it can be captured after it has run once. Rows of `tokens`
    past the accepted ones must hold some id of the vocabulary. drafter.md 6 and 14.
    """

    def __init__(
        self, spec: DraftSpec, weights: PackedWeights, cache: CacheSpace, shape: DraftShape
    ) -> None:
        check_range("topk", shape.topk, 1, spec.draft_vocab_size)
        if spec.sliding_window is not None and shape.topk > 1:
            check_range("num_steps", shape.num_steps, 1, spec.sliding_window, "window of attention")
        if spec.latent is not None:
            check_range("kv_rank", spec.latent.kv_rank, 1, MOST_RANK)
            check_range("rope_dim", spec.latent.rope_dim, 2, MOST_TURNED)
        dtype, device = weights.head.dtype, weights.head.device
        slots = (shape.batch_size, shape.capacity, *cache.keys.shape[2:])
        check_tensor("cache", cache.keys, slots, (dtype,), weights.head)
        self.spec, self.shape, self.weights, self.cache = spec, shape, weights, cache
        batch, topk = shape.batch_size, shape.topk
        rows = batch * shape.most_accepted

        def index(*size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        width = spec.num_captured_states * spec.target_hidden_size
        self.tokens = index(rows, dtype=torch.int64)
        self.captured = index(rows, width, dtype=dtype)
        self.before, self.accepted = index(batch), index(batch)
        self.lengths, self.last_rows = index(batch), index(batch)
        self._positions = index(rows)
        self._states = torch.empty_like(self.captured)
        self._hidden = index(rows, spec.hidden_size, dtype=torch.float32)
        self._extend_buffers, self._step_buffers = (
            LayerBuffers.empty(spec, count, num_splits=shape.num_splits, dtype=dtype, device=device)
            for count in (rows, batch * topk)
        )
        self._extend_head, self._step_head = (
            self._head_space(count) for count in (batch, batch * topk)
        )
        logits = (shape.num_steps, batch * topk, spec.draft_vocab_size)
        self.logits = index(*logits, dtype=torch.float32) if shape.keeps_logits else None
        drafted = (batch, shape.num_steps)
        self.chain = Chain(
            starts=self.lengths,
            positions=index(batch),
            lengths=index(batch),
            drafted=index(*drafted, dtype=torch.int64),
            scores=index(*drafted, dtype=torch.float32),
        )
        kept = (batch, shape.num_candidates)
        self.candidates = Candidates(
            tokens=index(*kept, dtype=torch.int64),
            scores=index(*kept, dtype=torch.float32),
            parents=index(*kept),
        )
        self._is_best = index(*kept)
        self.frontiers = [Frontier.empty(batch, topk, device) for _ in range(shape.num_steps - 1)]
        self.tree = Tree.empty(batch, shape.num_draft_tokens or 1, device)

    @classmethod
    def alone(
        cls,
        spec: DraftSpec,
        weights: Mapping[str, torch.Tensor],
        shape: DraftShape,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str = "cuda",
        context_tokens: int | None = None,
    ) -> "DraftSteps":
        """Steps with weights and a cache that they share with nothing.

        Steps of several shapes on one cache: `drafter.engine.draft_engine`.
        """
        packed = PackedWeights.from_canonical(spec, weights, dtype=dtype, device=device)
        cache = CacheSpace.empty(
            spec,
            batch_size=shape.batch_size,
            capacity=shape.capacity,
            dtype=dtype,
            device=device,
            context_tokens=context_tokens,
        )
        return cls(spec, packed, cache, shape)

    def load(
        self,
        tokens: torch.Tensor,
        captured: torch.Tensor,
        before: torch.Tensor,
        accepted: torch.Tensor,
    ) -> None:
        """Copy the inputs of a round into the static buffers.

        The counts are not read on the host: `before` + `accepted` + drafts must stay within the
        capacity.
        """
        batch, most = self.shape.batch_size, self.shape.most_accepted
        given = {"tokens": tokens, "captured": captured, "before": before, "accepted": accepted}
        for name, tensor in given.items():
            own: torch.Tensor = getattr(self, name)
            is_count = name in {"before", "accepted"}
            wanted = (batch,) if is_count else (batch, most, *own.shape[1:])
            check_tensor(name, tensor.contiguous(), wanted, (tensor.dtype,))
            own.copy_(tensor.reshape(own.shape))

    def run(self) -> None:
        """Launch the whole draft: extend pass, draft steps, and the selection of a tree.

        The order of launches depends on the shape alone.
        """
        self.extend()
        for step in range(1, self.shape.num_steps):
            self.step(step)
        if self.shape.topk > 1:
            self.select()

    @_overlapping
    def extend(self) -> None:
        """Launch the pass over the newly accepted tokens, which also drafts the first level.

        Rows without a token are computed and not written to the cache.
        """
        spec, weights = self.spec, self.weights
        own = (self._positions, self.lengths, self.last_rows)
        extend_plan(self.before, self.accepted, *own)
        hidden, states = self.captured, self.captured
        if weights.fc is not None:
            if weights.state_norm is not None:
                parts = (len(states), *weights.state_norm.shape)
                written = self._states.view(parts)
                row_norm(states.view(parts), weights.state_norm, written, eps=spec.rms_norm_eps)
                states = self._states
            hidden = self._hidden
            linear(states, weights.fc, hidden, bias=weights.fc_bias)
        places = self._positions
        fed = Fed(self.tokens, hidden, None, places, places, self.lengths)
        self._pass(self._extend_buffers, fed)
        self._guess(0, self._extend_buffers, self._extend_head, self.last_rows)

    @_overlapping
    def step(self, step: int) -> None:
        """Launch one draft step.

        The first step is fed carries of the extend pass, the others those of the step before.
        """
        is_first = step == 1
        carries = (self._extend_buffers if is_first else self._step_buffers).carry
        if self.shape.topk > 1:
            front = self.frontiers[step - 1]
            fed = Fed(
                front.tokens,
                carries,
                front.carry_rows,
                front.positions,
                front.slots,
                front.lengths,
                self.lengths,
                front.ancestors,
            )
        else:
            guesses = (self._extend_head if is_first else self._step_head).guesses[:, 0]
            rows = self.last_rows if is_first else None
            places = self.chain.positions
            fed = Fed(guesses, carries, rows, places, places, self.chain.lengths)
        self._pass(self._step_buffers, fed)
        self._guess(step, self._step_buffers, self._step_head, None)

    @_overlapping
    def select(self) -> None:
        """Launch the choice of the nodes that the target verifies.

        Of a tree only; a chain is verified as it is.
        """
        own, shape = (self.candidates, self.tokens, self.last_rows), self.shape
        written = (self._is_best, self.tree)
        tree_best(*own, *written, num_steps=shape.num_steps, topk=shape.topk)

    def products(self) -> list[torch.Tensor]:
        """What every product of an extend pass gave, each in its own buffer."""
        own = self._extend_buffers
        inner = [] if own.attention.expanded is None else [own.attention.expanded]
        kept = [self._hidden, own.qkv, own.middle, own.gated, own.stream, *inner]
        return kept if self.logits is None else [*kept, self.logits[0]]

    def _pass(self, buffers: LayerBuffers, fed: Fed) -> None:
        """The layer over some tokens."""
        given = (self.spec, self.weights, buffers, self.cache, fed)
        layer_pass(*given, is_fused=self.shape.is_fused)

    def _guess(
        self, step: int, buffers: LayerBuffers, space: _HeadSpace, rows: torch.Tensor | None
    ) -> None:
        """The head after a pass, its best guesses, and the state of the next step."""
        spec, weights, shape = self.spec, self.weights, self.shape
        eps = spec.rms_norm_eps
        num_tokens = len(space.guesses)
        inputs: torch.Tensor = buffers.stream
        norm: torch.Tensor | None = weights.final_norm
        if num_tokens <= MATVEC_TOKENS and spec.norm_output:
            inputs, norm = buffers.carry, None
        elif num_tokens > FUSED_NORM_TOKENS or not shape.is_fused:
            row_norm(inputs, weights.final_norm, buffers.normed, eps=eps)
            inputs, norm = buffers.normed, None
        logits = None if self.logits is None else self.logits[step, :num_tokens]
        kept = (space.tile_max, space.tile_sum, space.tile_keys)
        how: dict[str, Any] = {"input_index": rows, "norm": norm, "eps": eps, "logits": logits}
        head(inputs, weights.head, *kept, **how)
        is_tree = shape.topk > 1
        guesses, chain = (space.guesses, space.log_probs), None if is_tree else self.chain
        pick(*kept, weights.offsets, *guesses, tile=space.tile, chain=chain, step=step)
        if is_tree:
            tree_level(
                *guesses,
                self.lengths,
                self.candidates,
                level=step,
                rows=rows,
                before=self.frontiers[step - 1] if step else None,
                following=self.frontiers[step] if step + 1 < shape.num_steps else None,
            )

    def _head_space(self, num_tokens: int) -> _HeadSpace:
        """Space for the head after a pass of which `num_tokens` rows have guesses."""
        topk, ids = self.shape.topk, self.spec.draft_vocab_size
        tile, _ = head_tiles(num_tokens, self.weights.head)
        device, num_tiles = self.tokens.device, -(-ids // tile)
        check_range("tiles", num_tiles, 1, MOST_TILES)

        def space(*size: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(num_tokens, *size, dtype=dtype, device=device)

        return _HeadSpace(
            tile=tile,
            tile_max=space(num_tiles, dtype=torch.float32),
            tile_sum=space(num_tiles, dtype=torch.float32),
            tile_keys=space(num_tiles, topk, dtype=torch.int64),
            guesses=space(topk, dtype=torch.int64),
            log_probs=space(topk, dtype=torch.float32),
        )
