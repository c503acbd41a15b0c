"""Buckets of a draft: what a graph is captured for, and which one serves a request."""

from dataclasses import dataclass
from typing import Final

from drafter.kernels.latent_attention import LATENT_ROWS
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError

BATCH_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Batches that graphs are captured for; a batch is padded to the next one, [requests]."""

CONTEXT_BUCKETS: Final = (2048, 8192, 32768)
"""Contexts up to which the parts of attention are planned; a longer one is its own bucket, [tokens]."""

PROGRAMS_PER_MULTIPROCESSOR: Final = 2
"""Programs of attention that keep a multiprocessor busy, [-]."""

LEAST_PART_TOKENS: Final = 128
"""Context of one part of attention below which merging costs more than it saves, [tokens]."""

MOST_PARTS: Final = 128
"""Parts that a merge reads, [-]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What one graph holds for.

    Lengths and tokens live on the device, so nothing else decides on a graph. drafter.md 14.
    """

    batch_size: int
    num_steps: int
    topk: int = 1
    num_draft_tokens: int | None = None
    most_accepted: int
    num_splits: int


def batch_bucket(batch_size: int) -> int:
    """Batch that a graph is captured for.

    Rows of the padding have no request: they write no cache, and their results are not returned.
    """
    if not 1 <= batch_size <= BATCH_BUCKETS[-1]:
        allowed = f"between 1 and {BATCH_BUCKETS[-1]}"
        raise ParameterError("batch_size", batch_size, allowed, "draft in several batches")
    return next(bucket for bucket in BATCH_BUCKETS if bucket >= batch_size)


def row_bucket(count: int) -> int:
    r"""Rows of the extend pass that a graph is captured for.

    .. math:: 2^{\lceil \log_2 M \rceil}

    Rows without a token are computed and dropped, which costs little while weights are what is read.
    """
    if count < 1:
        raise ParameterError("tokens of a request", count, "at least 1")
    return int(1 << (count - 1).bit_length())


def cache_readers(spec: DraftSpec, *, topk: int) -> int:
    """Programs of attention that share a request in a draft step before its context is cut.

    What `split_bucket` counts beside the requests. A part of latent heads is as wide as a latent, so parts
    that fill no chip cost more than those of grouped heads.
    """
    return spec.num_kv_heads if spec.latent is None else -(-topk * spec.num_heads // LATENT_ROWS)


def split_bucket(
    context_tokens: int, *, batch_size: int, num_kv_heads: int, num_multiprocessors: int
) -> int:
    r"""Parts into which attention cuts a context.

    .. math:: P = 2^{\lfloor \log_2 x + 1/2 \rfloor},\quad
        x = \min\left(\frac{2 S}{B N_{KV}}, \frac{C'}{128}, 128\right)

    with :math:`C'` the smallest bucket of contexts that holds :math:`C`.

    Few requests fill a chip only if their context is cut; a cut finer than 128 tokens costs more in the
    merge than it saves, and each part of each head is written and read in fp32, so the count is not always
    rounded up. A judgement that no GPU has confirmed yet. drafter.md 13.
    """
    counts = {
        "context_tokens": context_tokens,
        "batch_size": batch_size,
        "num_kv_heads": num_kv_heads,
        "num_multiprocessors": num_multiprocessors,
    }
    for name, value in counts.items():
        if value < 1:
            raise ParameterError(name, value, "at least 1")
    held = next((size for size in CONTEXT_BUCKETS if size >= context_tokens), context_tokens)
    wanted = -(-PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // (batch_size * num_kv_heads))
    parts = min(wanted, -(-held // LEAST_PART_TOKENS), MOST_PARTS)
    above = row_bucket(parts)
    return above // 2 if above > 1 and parts**2 <= above * above // 2 else above
