"""A whole draft from the kernels: extend pass, draft steps and selection, without a read-back."""

from collections.abc import Mapping
from typing import NamedTuple, final

import torch

from drafter.kernels.argument_checks import check_range, check_tensor
from drafter.kernels.cache_space import CacheSpace
from drafter.kernels.draft_shape import DraftShape
from drafter.kernels.extend_plan import extend_plan
from drafter.kernels.fed import Fed
from drafter.kernels.head import head, head_tiles
from drafter.kernels.launch_plan import FUSED_NORM_TOKENS, MATVEC_TOKENS
from drafter.kernels.layer_buffers import LayerBuffers
from drafter.kernels.layer_pass import layer_pass
from drafter.kernels.linear import linear
from drafter.kernels.packed_weights import PackedWeights
from drafter.kernels.pick import Chain, pick
from drafter.kernels.row_norm import row_norm
from drafter.kernels.tree_best import Tree, tree_best
from drafter.kernels.tree_level import Candidates, Frontier, tree_level
from drafter.spec import DraftSpec


class _HeadSpace(NamedTuple):
    """What the head of one pass writes."""

    tile: int
    tile_max: torch.Tensor
    tile_sum: torch.Tensor
    tile_keys: torch.Tensor
    guesses: torch.Tensor
    log_probs: torch.Tensor


@final
class DraftSteps:
    """A draft model in kernels, with every buffer of one shape.

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches.
    weights : PackedWeights
        Of that model; activations are of their type, kernels run where they are.
    cache : CacheSpace
        Of `shape.batch_size` requests.
    shape : DraftShape
        What the buffers are made for.

    Raises
    ------
    ParameterError
        If counts or the cache do not fit.

    Notes
    -----
    Inputs: `tokens`, `captured`, `before`, `accepted`, written in place (`load`). Results: `chain` or
    `tree`. `run` launches kernels only: it can be captured after it has run once. Rows of `tokens`
    past the accepted ones must hold some id of the vocabulary. drafter.md 6 and 14.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> steps = DraftSteps.alone(
    ...     spec,
    ...     random_weights(spec, seed=0, dtype=torch.float32),
    ...     DraftShape(batch_size=2, num_steps=3, capacity=64),
    ...     dtype=torch.float16,
    ...     device="cpu",
    ... )
    >>> steps.chain.drafted.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        spec: DraftSpec,
        weights: PackedWeights,
        cache: CacheSpace,
        shape: DraftShape,
    ) -> None:
        check_range("topk", shape.topk, 1, spec.draft_vocab_size)
        if spec.sliding_window is not None and shape.topk > 1:
            check_range("num_steps", shape.num_steps, 1, spec.sliding_window, "window of attention")
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

        Parameters
        ----------
        spec : DraftSpec
            Shapes and switches.
        weights : mapping of str to torch.Tensor
            Canonical names.
        shape : DraftShape
            What the buffers are made for.
        dtype : torch.dtype
            Storage type of weights, activations and cache.
        device : torch.device or str
            Where the kernels run.
        context_tokens : int, optional
            Context for which the dynamic rope kind is stretched, [tokens].

        Returns
        -------
        DraftSteps

        Raises
        ------
        ParameterError
            If weights or counts do not fit.

        Notes
        -----
        Steps of several shapes on one cache: `drafter.engine.shared_state`.

        Examples
        --------
        >>> DraftSteps.alone.__name__
        'alone'
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

        Parameters
        ----------
        tokens : torch.Tensor, shape (B, M)
            Newly accepted tokens, each one further than its captured states.
        captured : torch.Tensor, shape (B, M, A Ht)
            Captured states of the target.
        before : torch.Tensor, shape (B,)
            Tokens that the cache holds already, [tokens].
        accepted : torch.Tensor, shape (B,)
            How many of the M are new tokens of each request, at least 1, [tokens].

        Raises
        ------
        ParameterError
            If a shape is not the buffers'.

        Notes
        -----
        The counts are not read on the host: `before` + `accepted` + drafts must stay within the
        capacity.

        Examples
        --------
        >>> from drafter.random_weights import random_weights
        >>> from drafter.reference.example import example_spec
        >>> spec = example_spec()
        >>> shape = DraftShape(batch_size=1, num_steps=1, most_accepted=2, capacity=8)
        >>> weights = random_weights(spec, seed=0, dtype=torch.float32)
        >>> steps = DraftSteps.alone(spec, weights, shape, dtype=torch.float32, device="cpu")
        >>> one = torch.ones(1, dtype=torch.int32)
        >>> steps.load(torch.tensor([[5, 6]]), torch.ones(1, 2, 60), 0 * one, 2 * one)
        >>> steps.tokens.tolist(), steps.accepted.tolist()
        ([5, 6], [2])
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

        Notes
        -----
        The order of launches depends on the shape alone.

        Examples
        --------
        >>> DraftSteps.run.__name__
        'run'
        """
        self.extend()
        for step in range(1, self.shape.num_steps):
            self.step(step)
        if self.shape.topk > 1:
            self.select()

    def extend(self) -> None:
        """Launch the pass over the newly accepted tokens, which also drafts the first level.

        Notes
        -----
        Rows without a token are computed and not written to the cache.

        Examples
        --------
        >>> DraftSteps.extend.__name__
        'extend'
        """
        spec, weights, pdl = self.spec, self.weights, self.shape.is_programmatic
        extend_plan(
            self.before,
            self.accepted,
            self._positions,
            self.lengths,
            self.last_rows,
            programmatic=pdl,
        )
        hidden, states = self.captured, self.captured
        if weights.fc is not None:
            if weights.state_norm is not None:
                parts = (len(states), *weights.state_norm.shape)
                row_norm(
                    states.view(parts),
                    weights.state_norm,
                    self._states.view(parts),
                    eps=spec.rms_norm_eps,
                    programmatic=pdl,
                )
                states = self._states
            hidden = self._hidden
            linear(states, weights.fc, hidden, bias=weights.fc_bias, programmatic=pdl)
        places = self._positions
        fed = Fed(self.tokens, hidden, None, places, places, self.lengths)
        self._pass(self._extend_buffers, fed)
        self._guess(0, self._extend_buffers, self._extend_head, self.last_rows)

    def step(self, step: int) -> None:
        """Launch one draft step.

        Parameters
        ----------
        step : int
            Counted from 1, below `num_steps`.

        Notes
        -----
        The first step is fed carries of the extend pass, the others those of the step before.

        Examples
        --------
        >>> DraftSteps.step.__name__
        'step'
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

    def select(self) -> None:
        """Launch the choice of the nodes that the target verifies.

        Notes
        -----
        Of a tree only; a chain is verified as it is.

        Examples
        --------
        >>> DraftSteps.select.__name__
        'select'
        """
        tree_best(
            self.candidates,
            self.tokens,
            self.last_rows,
            self._is_best,
            self.tree,
            num_steps=self.shape.num_steps,
            topk=self.shape.topk,
            programmatic=self.shape.is_programmatic,
        )

    def _pass(self, buffers: LayerBuffers, fed: Fed) -> None:
        """The layer over some tokens."""
        layer_pass(
            self.spec,
            self.weights,
            buffers,
            self.cache,
            fed,
            is_fused=self.shape.is_fused,
            programmatic=self.shape.is_programmatic,
        )

    def _guess(
        self, step: int, buffers: LayerBuffers, space: _HeadSpace, rows: torch.Tensor | None
    ) -> None:
        """The head after a pass, its best guesses, and the state of the next step."""
        spec, weights, shape = self.spec, self.weights, self.shape
        pdl, eps = shape.is_programmatic, spec.rms_norm_eps
        num_tokens = len(space.guesses)
        inputs: torch.Tensor = buffers.stream
        norm: torch.Tensor | None = weights.final_norm
        if num_tokens <= MATVEC_TOKENS and spec.norm_output:
            inputs, norm = buffers.carry, None
        elif num_tokens > FUSED_NORM_TOKENS or not shape.is_fused:
            row_norm(inputs, weights.final_norm, buffers.normed, eps=eps, programmatic=pdl)
            inputs, norm = buffers.normed, None
        head(
            inputs,
            weights.head,
            space.tile_max,
            space.tile_sum,
            space.tile_keys,
            input_index=rows,
            norm=norm,
            eps=eps,
            logits=None if self.logits is None else self.logits[step, :num_tokens],
            programmatic=pdl,
        )
        is_tree = shape.topk > 1
        pick(
            space.tile_max,
            space.tile_sum,
            space.tile_keys,
            weights.offsets,
            space.guesses,
            space.log_probs,
            tile=space.tile,
            chain=None if is_tree else self.chain,
            step=step,
            programmatic=pdl,
        )
        if is_tree:
            tree_level(
                space.guesses,
                space.log_probs,
                self.lengths,
                self.candidates,
                level=step,
                rows=rows,
                before=self.frontiers[step - 1] if step else None,
                following=self.frontiers[step] if step + 1 < shape.num_steps else None,
                programmatic=pdl,
            )

    def _head_space(self, num_tokens: int) -> _HeadSpace:
        """Space for the head after a pass of which `num_tokens` rows have guesses."""
        topk, ids = self.shape.topk, self.spec.draft_vocab_size
        tile, _ = head_tiles(num_tokens, self.weights.head)
        device, num_tiles = self.tokens.device, -(-ids // tile)

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
