"""Draft models and drafts on which kernels are checked, and the errors that are allowed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from drafter.spec import DraftSpec, LatentHeads, Rope

LIMITS: Final[Mapping[str, float]] = {"float32": 1e-5, "float16": 3e-3, "bfloat16": 1.5e-2}
"""Relative error of the norm of logits that is allowed by storage type, [-]. drafter.md 15."""

MARGIN: Final = 4.0
"""Margin of the best logit, in allowed errors, from which its token has to be equal, [-]. drafter.md 15."""

TORCH_ERRORS: Final = 2.0
"""Errors of the same draft in plain torch, in the same type, that kernels may make, [-]. A judgement."""

MOST_ALLOWED: Final = 0.1
"""Relative error from which a check says nothing, whatever torch loses, [-]. A judgement."""

GRAPH: Final = "graph = eager"
"""What is compared where a graph has to give every bit of launches in turn."""

OVERLAP: Final = "overlap ~ eager"
"""What is compared where launches overlap that are compiled apart."""

INTERPRETED_PARAMETERS: Final = 4_000_000
"""Parameters of a step that the interpreter multiplies in some seconds, [-]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCase:
    """A draft that is compared with the reference."""

    name: str
    spec: DraftSpec
    dtype: str
    batch_size: int = 1
    accepted: int = 3
    before: int = 0
    num_steps: int = 3
    topk: int = 1
    num_draft_tokens: int | None = None
    is_fused: bool = True
    is_trained: bool = False

    @property
    def limit(self) -> float:
        """Relative error that is allowed for weights of an ordinary scale, [-]."""
        return LIMITS[self.dtype]

    def allowed(self, torch_error: float) -> float:
        """Relative error that is allowed for the weights of the case."""
        return allowed_error(self.limit, torch_error) if self.is_trained else self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a check found."""

    name: str
    dtype: str
    quantity: str
    error: float
    limit: float
    torch_error: float | None = None
    tokens: int = 0
    equal_tokens: int = 0

    @property
    def passed(self) -> bool:
        """Whether the error is allowed and every compared token agrees."""
        return self.error <= self.limit and self.tokens == self.equal_tokens


def allowed_error(fixed: float, torch_error: float) -> float:
    """Error that kernels may make: what the type costs, or what it costs these weights.

    Large norms and channels far above the others, as trained models have them, cost every forward in 16
    bits more than random weights do. Above 0.1 right and wrong kernels are not told apart; such weights
    are checked in float32.
    """
    if not math.isfinite(torch_error):
        return fixed
    return max(fixed, min(TORCH_ERRORS * torch_error, MOST_ALLOWED))


_ODD: Final = DraftSpec(
    hidden_size=88,
    target_hidden_size=72,
    num_aux_states=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    mlp_width=123,
    target_vocab_size=300,
    draft_vocab_size=157,
)


def check_cases() -> tuple[CheckCase, ...]:
    """Small cases that meet every switch, every storage type, chain and tree.

    Few enough for the interpreter: about a minute.
    """
    qwen = replace(_ODD, qk_norm=True, norm_before_residual=True, rms_norm_eps=1e-6)
    llama3 = Rope(
        kind="llama3", theta=5e5, factor=8.0, original_max_positions=64, high_freq_factor=4.0
    )
    newer = replace(_ODD, fc_norm=True, norm_output=True, rope=llama3)
    stretched = Rope(kind="yarn", theta=5e4, factor=16.0, original_max_positions=64)
    yarn = replace(_ODD, norm_before_fc=True, attention_bias=True, fc_bias=True, rope=stretched)
    latent = replace(
        _ODD,
        latent=LatentHeads(query_rank=37, kv_rank=50, nope_dim=13, rope_dim=6, value_dim=11),
        rope=replace(stretched, mscale_all_dim=1.0),
    )
    tree = CheckCase(
        name="tree", spec=_ODD, dtype="float32", batch_size=2, topk=3, num_draft_tokens=8
    )
    return (
        CheckCase(name="chain", spec=_ODD, dtype="float32"),
        CheckCase(name="chain", spec=_ODD, dtype="float16", before=37),
        CheckCase(name="chain", spec=_ODD, dtype="bfloat16", batch_size=2),
        CheckCase(name="chain, unfused", spec=_ODD, dtype="bfloat16", is_fused=False),
        CheckCase(name="qwen3 type", spec=qwen, dtype="float32", batch_size=2, before=5),
        CheckCase(name="norms of 3.1", spec=newer, dtype="bfloat16"),
        CheckCase(name="biases, yarn", spec=yarn, dtype="float32"),
        CheckCase(name="window", spec=replace(_ODD, sliding_window=8), dtype="float32", before=20),
        CheckCase(name="batch 12", spec=_ODD, dtype="float16", batch_size=12, num_steps=2),
        tree,
        replace(tree, spec=newer, dtype="bfloat16", batch_size=1, before=11),
        CheckCase(name="latent", spec=latent, dtype="float32", batch_size=2, before=5),
        replace(tree, name="latent tree", spec=latent, dtype="bfloat16", before=7),
    )


def cases_of(spec: DraftSpec, *, dtype: str, is_trained: bool = False) -> tuple[CheckCase, ...]:
    """Cases of one draft model: a chain and a tree.

    The reference multiplies every weight in fp64 seven times: an extend pass and three steps of the chain,
    an extend pass and two levels of the tree.
    """
    chain = CheckCase(
        name="chain", spec=spec, dtype=dtype, accepted=4, num_steps=4, is_trained=is_trained
    )
    tree = replace(chain, name="tree", accepted=3, num_steps=3, topk=4, num_draft_tokens=16)
    return chain, tree
