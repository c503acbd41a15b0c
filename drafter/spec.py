"""An EAGLE-3 draft model as counts and switches, the same for every layout of checkpoints."""

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from specmodel.architecture.shape import check_counts
from specmodel.errors import ParameterError

RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn"]
"""How positions are scaled before the rotary embedding."""

ROPE_KINDS: Final[tuple[RopeKind, ...]] = get_args(RopeKind)
"""Every kind that is known."""


def _check_positive(name: str, value: float, *, zero: bool = False) -> None:
    """Refuse what is not a finite number above zero (or zero, where that is allowed)."""
    possible = value >= 0 if zero else value > 0
    if not (math.isfinite(value) and possible):
        raise ParameterError(name, value, "finite and " + ("at least 0" if zero else "positive"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary embedding of queries and keys.

    Kinds and keys as the configurations of transformers name them; ``type`` and ``rope_type`` are one.
    """

    kind: RopeKind = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_positions: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ROPE_KINDS:
            raise ParameterError("rope kind", repr(self.kind), f"one of {list(ROPE_KINDS)}")
        for name in ("theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast"):
            _check_positive(f"rope {name}", getattr(self, name))
        _check_positive("rope beta_slow", self.beta_slow)
        for name in ("mscale", "mscale_all_dim", "attention_factor"):
            value = getattr(self, name)
            if value is not None:
                # a DeepSeek config turns a temperature off with 0
                _check_positive(f"rope {name}", value, zero=name != "attention_factor")
        check_counts(self)
        if self.kind in {"llama3", "yarn"} and self.original_max_positions is None:
            raise ParameterError(
                "rope original_max_positions", None, f"a number of positions for kind {self.kind}"
            )
        if self.kind == "llama3" and self.low_freq_factor >= self.high_freq_factor:
            allowed = f"below high_freq_factor {self.high_freq_factor:g}"
            raise ParameterError("rope low_freq_factor", self.low_freq_factor, allowed)
        if self.kind == "yarn" and self.beta_slow > self.beta_fast:
            allowed = f"at most beta_fast {self.beta_fast:g}"
            raise ParameterError("rope beta_slow", self.beta_slow, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentHeads:
    """Widths of multi-head latent attention.

    The names in a config are DeepSeek-V3's: q_lora_rank, kv_lora_rank, qk_nope_head_dim,
    qk_rope_head_dim, v_head_dim.
    """

    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        check_counts(self)
        if self.rope_dim % 2:
            raise ParameterError("rope_dim", self.rope_dim, "even, since positions rotate pairs")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpec:
    r"""Everything that decides what an EAGLE-3 draft model computes, but its weights.

    `head_dim` is a count of its own: gpt-oss and Qwen3 heads have :math:`N_H D \ne H`.
    """

    hidden_size: int
    target_hidden_size: int
    num_aux_states: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_width: int
    target_vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float = 1e-5
    rope: Rope = Rope()
    max_positions: int = 2048
    attention_bias: bool = False
    fc_bias: bool = False
    qk_norm: bool = False
    norm_before_residual: bool = False
    fc_norm: bool = False
    norm_before_fc: bool = False
    norm_output: bool = False
    use_aux_hidden_state: bool = True
    sliding_window: int | None = None
    latent: LatentHeads | None = None

    def __post_init__(self) -> None:
        check_counts(self)
        _check_positive("rms_norm_eps", self.rms_norm_eps)
        if self.draft_vocab_size > self.target_vocab_size:
            allowed = f"at most the target_vocab_size {self.target_vocab_size}"
            raise ParameterError("draft_vocab_size", self.draft_vocab_size, allowed)
        if self.latent is None:
            if self.num_heads % self.num_kv_heads:
                allowed = f"a multiple of num_kv_heads {self.num_kv_heads}"
                raise ParameterError("num_heads", self.num_heads, allowed)
            if self.head_dim % 2:
                raise ParameterError(
                    "head_dim", self.head_dim, "even, since positions rotate pairs"
                )
        if self.fc_norm and self.norm_before_fc:
            hint = "one norms each captured state, the other their concatenation"
            raise ParameterError(
                "fc_norm", self.fc_norm, "false where norm_before_fc is true", hint
            )
        if not self.use_aux_hidden_state and self.hidden_size != self.target_hidden_size:
            allowed = f"the target_hidden_size {self.target_hidden_size} where no states are fused"
            raise ParameterError("hidden_size", self.hidden_size, allowed)

    @property
    def num_captured_states(self) -> int:
        """Hidden states of the target that a token brings: those that are fused, or the last alone, [-]."""
        return self.num_aux_states if self.use_aux_hidden_state else 1
