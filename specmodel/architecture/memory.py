"""Whether a model with its requests fits the memory of some GPUs."""

from dataclasses import dataclass
from typing import Final

from specmodel.architecture.passes import MOST_RANKS, check_ranks, kv_cache, weight_bytes
from specmodel.architecture.shape import ModelShape
from specmodel.errors import ParameterError
from specmodel.units import GIGA

# Memory that engines use by default; the rest is the driver's, the graphs' and fragmentation's
# (judgement: vLLM's default, and close to SGLang's).
USABLE_SHARE: Final = 0.9

# Tokens of a prefill chunk that activations are held for (judgement: small engine default).
CHUNK_TOKENS: Final = 2048

# Buffers of one hidden state per token that are alive at once (judgement).
COPIES_OF_ACTIVATIONS: Final = 8

# Logits are sampled in fp32.
LOGITS_BYTES: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Memory that a model needs on each GPU, and what there is."""

    model: str
    num_gpus: int
    gpu_memory_bytes: float
    weight_bytes: float  # on one GPU, as cache and activations
    kv_bytes: float
    activation_bytes: float
    all_weight_bytes: float  # of the model, each counted once
    usable_share: float
    smallest_num_gpus: int | None  # smallest of 1, 2, 4, 8, ... that would do; None if none does

    @property
    def needed_bytes(self) -> float:
        """Weights, cache and activations on one GPU."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def usable_bytes(self) -> float:
        """Memory of one GPU that may be used."""
        return self.usable_share * self.gpu_memory_bytes

    @property
    def fits(self) -> bool:
        """Whether the need is within what may be used."""
        return self.needed_bytes <= self.usable_bytes

    @property
    def sentence(self) -> str:
        """What a person is told, in one line."""
        verb = "fits" if self.fits else "does not fit"
        parts = ", ".join(
            f"{name} {size / GIGA:.1f}"
            for name, size in (
                ("weights", self.weight_bytes),
                ("KV cache", self.kv_bytes),
                ("activations", self.activation_bytes),
            )
        )
        text = (
            f"{self.model} (weights {self.all_weight_bytes / GIGA:.0f} GB) {verb} "
            f"{self.num_gpus} x {self.gpu_memory_bytes / GIGA:.0f} GB: "
            f"{self.needed_bytes / GIGA:.1f} GB a GPU ({parts}), "
            f"{self.usable_bytes / GIGA:.1f} GB usable"
        )
        if self.fits:
            return text
        if self.smallest_num_gpus is None:
            return f"{text}; no number of these GPUs is enough"
        return f"{text}; {self.smallest_num_gpus} GPUs would do"


def memory_fit(
    shape: ModelShape,
    num_gpus: int,
    gpu_memory_bytes: float,
    *,
    batch_size: float = 1,
    context_tokens: float = 0,
    kv_bytes_per_value: float = 2.0,
    context_parallel: int = 1,
    usable_share: float = USABLE_SHARE,
) -> MemoryFit:
    r"""Memory that a model and its requests need on each of :math:`s` GPUs that share it.

    .. math:: w/s + B\,b(C) + a \le u M

    Replicated parts count on every GPU. Activations :math:`a` are an estimate: eight hidden states and one
    split intermediate state per token of a prefill chunk of 2048, and fp32 logits (judgements). A draft
    model needs memory besides.

    >>> from specmodel.architecture import preset
    >>> memory_fit(preset("Kimi-K2.5"), 4, 96e9).fits, memory_fit(preset("Kimi-K2.5"), 8, 96e9).fits
    (False, True)
    """
    check_ranks("num_gpus", num_gpus)
    _within("gpu_memory_bytes", gpu_memory_bytes, 1.0, 1e15)
    _within("batch_size", batch_size, 0.0, 1e9)
    _within("context_tokens", context_tokens, 0.0, 1e9)
    _within("usable_share", usable_share, 1e-6, 1.0)

    def need(ranks: int) -> tuple[float, float, float]:
        cache = kv_cache(
            shape,
            bytes_per_value=kv_bytes_per_value,
            tp_size=ranks,
            context_parallel=min(context_parallel, ranks),
        )
        held = batch_size * float(cache.held_bytes(context_tokens))
        weights = weight_bytes(shape, tp_size=ranks).total
        return weights, held, _activation_bytes(shape, ranks, batch_size)

    usable = usable_share * gpu_memory_bytes
    sizes = [2**power for power in range(MOST_RANKS.bit_length())]
    weights, held, activations = need(num_gpus)
    return MemoryFit(
        model=shape.name,
        num_gpus=num_gpus,
        gpu_memory_bytes=gpu_memory_bytes,
        weight_bytes=weights,
        kv_bytes=held,
        activation_bytes=activations,
        all_weight_bytes=weight_bytes(shape).total,
        usable_share=usable_share,
        smallest_num_gpus=next((each for each in sizes if sum(need(each)) <= usable), None),
    )


def require_fit(fit: MemoryFit) -> None:
    """Refuse a model that does not fit: a case that cannot run has no price. allreduce.md 1."""
    if not fit.fits:
        allowed = (
            "of GPUs with more memory"
            if fit.smallest_num_gpus is None
            else f"at least {fit.smallest_num_gpus} (of 1, 2, 4, 8, ...)"
        )
        raise ParameterError("num_gpus", fit.num_gpus, allowed, fit.sentence)


def _activation_bytes(shape: ModelShape, ranks: int, rows: float) -> float:
    """Buffers of a prefill chunk and the logits of the rows that are sampled."""
    widths = [
        getattr(group.mlp, "experts_per_token", 1) * group.mlp.width for group in shape.layers
    ]
    per_token = COPIES_OF_ACTIVATIONS * shape.hidden_size + 2 * max(widths) / ranks
    return CHUNK_TOKENS * per_token * 2.0 + rows * shape.vocab_size * LOGITS_BYTES


def _within(name: str, value: float, lowest: float, highest: float) -> None:
    """Refuse a number outside its bounds, nan included."""
    if not lowest <= value <= highest:
        raise ParameterError(name, value, f"from {lowest:g} to {highest:g}")
