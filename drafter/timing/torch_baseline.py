"""The same draft in eager torch with library products: what a kernel of our own has to beat."""

from typing import Final, final

import torch
from torch.nn.attention.bias import causal_lower_right

from drafter.kernels.attention_weights import GroupedWeights
from drafter.kernels.packed_weights import PackedWeights
from drafter.kernels.rope_table import rope_table
from drafter.spec import DraftSpec
from drafter.timing.device_failures import first_line
from specmodel.errors import ParameterError, SpecModelError

_WINDOWED: Final = "a sliding window"
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


class NoAttentionKernelError(SpecModelError, RuntimeError):
    """torch has no kernel of attention for this device, type or these heads.

    Parameters
    ----------
    reason : str
        What torch said.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"torch has no kernel of attention for it: {reason}")


@final
class TorchBaseline:
    """A chain of drafts in torch, on static buffers, so that a graph can be captured of it.

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches; grouped heads without a sliding window.
    packed : PackedWeights
        Weights, q, k and v in one matrix as engines have them.
    batch_size, context_tokens, accepted, num_steps : int
        Requests; tokens that each has in its cache; newly accepted ones of each; longest draft, [-].
    context_for_rope : int, optional
        Context for which the dynamic rope kind is stretched, [tokens].

    Raises
    ------
    ParameterError
        If the model has a sliding window or latent heads.
    NoAttentionKernelError
        From `run`, if torch cannot attend on this device.

    Notes
    -----
    Every request is as long as the others, so attention reads slices of the cache without a mask and
    torch can take its fastest kernel. Gate and up are one product. It rounds as engines do: to the
    storage type after every operation. drafter.md 20.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> weights = random_weights(spec, seed=0, dtype=torch.float32)
    >>> packed = PackedWeights.from_canonical(spec, weights, dtype=torch.float32, device="cpu")
    >>> baseline = TorchBaseline(
    ...     spec, packed, batch_size=2, context_tokens=0, accepted=3, num_steps=4
    ... )
    >>> baseline.run(4)
    >>> baseline.drafted.shape
    torch.Size([2, 4])
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
        if spec.sliding_window is not None:
            raise ParameterError(
                "attention", _WINDOWED, "without one", "there is no baseline for it"
            )
        if not isinstance(packed.attention, GroupedWeights):
            raise ParameterError(
                "attention", "latent", "grouped heads", "there is no baseline for it"
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

        Parameters
        ----------
        num_steps : int
            Tokens: one from the extend pass, one from each further step, [tokens].

        Notes
        -----
        Nothing is read back, so it can be captured.

        Examples
        --------
        >>> TorchBaseline.run.__name__
        'run'
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
            variance = parts.float().square().mean(-1, keepdim=True)
            normed = parts.float() * (variance + self.spec.rms_norm_eps).rsqrt()
            states = (normed.to(parts.dtype) * packed.state_norm).flatten(-2)
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
        query_norm, key_norm = self._norms
        if query_norm is not None and key_norm is not None:
            query, key = self._norm(query, query_norm), self._norm(key, key_norm)
        rows = slice(place, place + count)
        self.keys[:, :, rows] = self._rotated(key, rows)
        self.values[:, :, rows] = value
        seen = slice(0, place + count)
        bias = None
        if count > 1:
            bias = causal_lower_right(count, place + count)
        try:
            attended = torch.nn.functional.scaled_dot_product_attention(
                self._rotated(query, rows),
                self.keys[:, :, seen],
                self.values[:, :, seen],
                attn_mask=bias,
                enable_gqa=spec.num_heads != spec.num_kv_heads,
            )
        except RuntimeError as error:
            said = str(error).lower()
            if any(words in said for words in _NO_KERNEL):
                raise NoAttentionKernelError(first_line(error)) from error
            raise
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
