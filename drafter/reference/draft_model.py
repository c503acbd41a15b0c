"""The draft model of one request: extend passes, draft steps, and the map to target tokens."""

from collections.abc import Mapping
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import embedding

from drafter.reference.cache import KvCache
from drafter.reference.fusion import fuse_states
from drafter.reference.layer import draft_layer
from drafter.reference.linear import linear
from drafter.reference.rms_norm import rms_norm
from drafter.reference.rope import RotaryTable
from drafter.reference.rope_frequencies import rotary_frequencies, rotary_magnitude
from drafter.reference.visibility import visible_by_position
from drafter.spec import DraftSpec
from drafter.tensor_shapes import expected_shapes
from specmodel.errors import ParameterError


class DraftPass(NamedTuple):
    """What one pass over T rows gives.

    Parameters
    ----------
    logits : Tensor, shape [T, Vd]
        Over the draft vocabulary, [-].
    carry : Tensor, shape [T, H]
        Hidden states that the next draft step is fed, [-].
    cache : KvCache
        With the T rows at its end.

    Examples
    --------
    >>> DraftPass._fields
    ('logits', 'carry', 'cache')
    """

    logits: Tensor
    carry: Tensor
    cache: KvCache

    def last(self) -> "DraftPass":
        """Only the last row of logits and carry; the cache as it is.

        Returns
        -------
        DraftPass
            Of T = 1.

        Examples
        --------
        >>> from drafter.reference.example import example_spec
        >>> rows = torch.zeros(3, 2)
        >>> DraftPass(rows, rows, KvCache.empty(example_spec())).last().logits.shape
        torch.Size([1, 2])
        """
        return DraftPass(self.logits[-1:], self.carry[-1:], self.cache)


@final
class DraftModel:
    """An EAGLE-3 draft model with every switch of its spec, one request at a time.

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches.
    weights : mapping of str to Tensor
        Canonical names; `d2t` is always there.
    dtype : torch.dtype
        What everything is computed in. Weights rounded to a storage dtype and computed in fp64 are the
        truth that kernels of that storage dtype are held to.
    context_tokens : int, optional
        Longest context that the dynamic rope kind is asked for (`rotary_frequencies`), [tokens].

    Raises
    ------
    ParameterError
        If a tensor that the spec needs is missing or has another shape, or a bias is there that it has not.

    Notes
    -----
    Row t of an extend pass holds token t+1 and the captured states of token t. Positions may start
    anywhere, since the embedding of positions is relative. [li2025]_ section 3.1; drafter.md 6.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> model = DraftModel(spec, random_weights(spec, seed=0, dtype=torch.float64))
    >>> states = torch.ones(3, 60, dtype=torch.float64)
    >>> first = model.extend(torch.tensor([5, 6, 7]), states, torch.arange(3))
    >>> first.logits.shape, len(first.cache)
    (torch.Size([3, 29]), 3)
    """

    def __init__(
        self,
        spec: DraftSpec,
        weights: Mapping[str, Tensor],
        *,
        dtype: torch.dtype = torch.float64,
        context_tokens: int | None = None,
    ) -> None:
        self.spec, self.dtype = spec, dtype
        self.weights = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in weights.items()
        }
        for name, shape in expected_shapes(spec).items():
            found = tuple(self.weights[name].shape) if name in self.weights else "no such tensor"
            if found != shape:
                raise ParameterError(f"shape of {name}", found, f"{shape} as the spec says")
        for name in self.weights:
            if name.endswith(".bias") and name not in expected_shapes(spec):
                raise ParameterError(
                    "weights", f"with {name}", "without biases that the spec has not"
                )
        self._frequencies = rotary_frequencies(
            spec.rope,
            spec.head_dim if spec.latent is None else spec.latent.rope_dim,
            max_positions=spec.max_positions,
            context_tokens=context_tokens,
        )

    def empty_cache(self) -> KvCache:
        """Cache of a request that has not begun.

        Returns
        -------
        KvCache
            Without rows.

        Examples
        --------
        >>> from drafter.random_weights import random_weights
        >>> from drafter.reference.example import example_spec
        >>> spec = example_spec()
        >>> len(DraftModel(spec, random_weights(spec, seed=0, dtype=torch.float64)).empty_cache())
        0
        """
        return KvCache.empty(self.spec, dtype=self.dtype)

    def extend(
        self,
        tokens: Tensor,
        aux_states: Tensor,
        positions: Tensor,
        cache: KvCache | None = None,
    ) -> DraftPass:
        """First pass of a round, over tokens that the target has accepted.

        Parameters
        ----------
        tokens : Tensor of int64, shape [T]
            Target ids, each one further than its captured states.
        aux_states : Tensor, shape [T, A Ht], or [T, Ht] without `use_aux_hidden_state`
            Captured states of the target, [-].
        positions : Tensor of int64, shape [T]
            [tokens].
        cache : KvCache, optional
            Of the rounds before, without the rows of their drafts; None for a new request.

        Returns
        -------
        DraftPass
            Of all T rows; a draft starts from the last one.

        Raises
        ------
        ParameterError
            If shapes or token ids are not those of the spec.

        Examples
        --------
        >>> from drafter.random_weights import random_weights
        >>> from drafter.reference.example import example_spec
        >>> spec = example_spec()
        >>> model = DraftModel(spec, random_weights(spec, seed=0, dtype=torch.float64))
        >>> model.extend(torch.tensor([5, 61]), torch.ones(2, 60), torch.arange(2))
        Traceback (most recent call last):
        ...
        specmodel.errors.ParameterError: tokens must be target ids from 0 to 60, got 61
        """
        hidden = fuse_states(self.spec, self.weights, aux_states.to(self.dtype))
        return self.step(tokens, hidden, positions, self.empty_cache() if cache is None else cache)

    def step(
        self,
        tokens: Tensor,
        hidden: Tensor,
        positions: Tensor,
        cache: KvCache,
        visible: Tensor | None = None,
    ) -> DraftPass:
        r"""Logits and carry after the layer, for rows that already have a hidden state.

        .. math:: \text{logits} = W_{head}\operatorname{norm}(r), \qquad
            \text{carry} = r \text{ or } \operatorname{norm}(r)

        Parameters
        ----------
        tokens : Tensor of int64, shape [T]
            Target ids.
        hidden : Tensor, shape [T, H]
            Fused states, or carries of the step before, [-].
        positions : Tensor of int64, shape [T]
            [tokens].
        cache : KvCache
            Of S rows.
        visible : Tensor of bool, shape [T, S + T], optional
            Which rows each row sees; None: all that are not after it, within the sliding window.

        Returns
        -------
        DraftPass
            The carry is the normed one with `norm_output`.

        Raises
        ------
        ParameterError
            If shapes or token ids are not those of the spec.

        Examples
        --------
        >>> from drafter.random_weights import random_weights
        >>> from drafter.reference.example import example_spec
        >>> spec = example_spec()
        >>> model = DraftModel(spec, random_weights(spec, seed=0, dtype=torch.float64))
        >>> hidden = torch.ones(1, 24, dtype=torch.float64)
        >>> step = model.step(torch.tensor([5]), hidden, torch.tensor([0]), model.empty_cache())
        >>> step.carry.shape
        torch.Size([1, 24])
        """
        spec, weights = self.spec, self.weights
        self._check(tokens, hidden, positions)
        if visible is None:
            visible = visible_by_position(
                positions,
                torch.cat([cache.positions, positions]),
                sliding_window=spec.sliding_window,
            )
        table = RotaryTable.at(
            positions,
            self._frequencies,
            magnitude=rotary_magnitude(spec.rope),
            dtype=self.dtype,
        )
        residual, cache = draft_layer(
            spec,
            weights,
            embedding(tokens, weights["embed_tokens.weight"]),
            hidden,
            table=table,
            positions=positions,
            visible=visible,
            cache=cache,
        )
        normed = rms_norm(residual, weights["norm.weight"], spec.rms_norm_eps)
        return DraftPass(
            logits=linear(normed, weights, "lm_head"),
            carry=normed if spec.norm_output else residual,
            cache=cache,
        )

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        r"""Ids of the target's vocabulary.

        .. math:: i + \text{d2t}_i

        Parameters
        ----------
        draft_ids : Tensor of int64, any shape
            :math:`i`, between 0 and Vd - 1.

        Returns
        -------
        Tensor of int64, same shape
            Between 0 and V - 1.

        Notes
        -----
        `d2t` holds offsets in every code base. drafter.md 3.

        Examples
        --------
        >>> from drafter.random_weights import random_weights
        >>> from drafter.reference.example import example_spec
        >>> spec = example_spec()
        >>> weights = random_weights(spec, seed=0, dtype=torch.float64)
        >>> weights["d2t"] = torch.full((29,), 10)
        >>> DraftModel(spec, weights).target_ids(torch.tensor([3])).tolist()
        [13]
        """
        return draft_ids + self.weights["d2t"][draft_ids]

    def _check(self, tokens: Tensor, hidden: Tensor, positions: Tensor) -> None:
        """Refuse rows that do not fit together or into the vocabulary."""
        rows = len(tokens)
        if rows == 0 or list(hidden.shape) != [rows, self.spec.hidden_size]:
            allowed = f"[{rows or 'at least 1'}, {self.spec.hidden_size}] for {rows} tokens"
            raise ParameterError("shape of hidden", list(hidden.shape), allowed)
        if list(positions.shape) != [rows]:
            raise ParameterError("shape of positions", list(positions.shape), f"[{rows}]")
        last = self.spec.target_vocab_size - 1
        wrong = tokens[(tokens < 0) | (tokens > last)]
        if len(wrong):
            raise ParameterError("tokens", int(wrong[0]), f"target ids from 0 to {last}")
