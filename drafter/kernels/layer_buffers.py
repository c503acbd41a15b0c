"""Space for one pass of the layer, allocated once."""

from dataclasses import dataclass
from typing import final

import torch

from drafter.kernels.attention_buffers import GroupedBuffers, LatentBuffers
from drafter.kernels.attention_widths import AttentionWidths
from drafter.spec import DraftSpec


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBuffers:
    """What one pass over T tokens writes, in the order in which it does.

    Parameters
    ----------
    fused_input : torch.Tensor, shape (T, 2 H)
        Both halves of the layer's input, in the storage type.
    residual : torch.Tensor, shape (T, H)
        fp32, before attention.
    qkv : torch.Tensor, shape (T, (NH + 2 NKV) D); latent heads: (T, query_rank + kv_rank + rope_dim)
        fp32, before norm and rotation.
    attention : GroupedBuffers or LatentBuffers
        Of the kind of heads.
    heads : torch.Tensor, shape (T, NH D); latent heads: (T, NH value_dim)
        Attended values, in the storage type.
    middle : torch.Tensor, shape (T, H)
        fp32, the residual stream after attention.
    normed : torch.Tensor, shape (T, H)
        In the storage type: input of the MLP, later of the head.
    gated : torch.Tensor, shape (T, I)
        In the storage type.
    stream : torch.Tensor, shape (T, H)
        fp32, the residual stream after the layer.
    carry : torch.Tensor, shape (T, H)
        fp32, what the next step is fed: `stream`, or its norm in a tensor of its own.

    Notes
    -----
    The residual stream stays in fp32; engines round it to the storage type.

    Examples
    --------
    >>> "stream" in LayerBuffers.__dataclass_fields__
    True
    """

    fused_input: torch.Tensor
    residual: torch.Tensor
    qkv: torch.Tensor
    attention: GroupedBuffers | LatentBuffers
    heads: torch.Tensor
    middle: torch.Tensor
    normed: torch.Tensor
    gated: torch.Tensor
    stream: torch.Tensor
    carry: torch.Tensor

    @classmethod
    def empty(
        cls,
        spec: DraftSpec,
        num_tokens: int,
        *,
        num_splits: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> "LayerBuffers":
        """Space for a pass.

        Parameters
        ----------
        spec : DraftSpec
            Shapes; `norm_output` gives the carry its own tensor.
        num_tokens : int
            T, [tokens].
        num_splits : int
            P, [-].
        dtype : torch.dtype
            Storage type.
        device : torch.device or str
            Where.

        Returns
        -------
        LayerBuffers
            Not initialised.

        Notes
        -----
        The parts of the context are the largest: T · NH · P rows of fp32, 67 MB for eight tokens of 64 latent
        heads in 64 parts, else a few MB.

        Examples
        --------
        >>> from drafter.reference.example import example_spec
        >>> LayerBuffers.empty(
        ...     example_spec(), 5, num_splits=2, dtype=torch.float16, device="cpu"
        ... ).carry.shape
        torch.Size([5, 24])
        """
        heads, hidden, latent = spec.num_heads, spec.hidden_size, spec.latent
        widths = AttentionWidths.of(spec)

        def stored(*shape: int) -> torch.Tensor:
            return torch.empty(num_tokens, *shape, dtype=dtype, device=device)

        def exact(*shape: int) -> torch.Tensor:
            return torch.empty(num_tokens, *shape, dtype=torch.float32, device=device)

        parts = {
            "query": stored(heads, widths.cached),
            "part_out": exact(heads, num_splits, widths.attended),
            "part_log": exact(heads, num_splits),
        }
        attention: GroupedBuffers | LatentBuffers
        if latent is None:
            attention = GroupedBuffers(**parts)
        else:
            attention = LatentBuffers(
                compressed=stored(latent.query_rank),
                expanded=exact(heads, latent.nope_dim + latent.rope_dim),
                attended=stored(heads, latent.kv_rank),
                **parts,
            )
        stream = exact(hidden)
        return cls(
            fused_input=stored(2 * hidden),
            residual=exact(hidden),
            qkv=exact(widths.first_rows),
            attention=attention,
            heads=stored(widths.out),
            middle=exact(hidden),
            normed=stored(hidden),
            gated=stored(spec.mlp_width),
            stream=stream,
            carry=exact(hidden) if spec.norm_output else stream,
        )
