"""Buckets of a draft: what a graph is captured for, and which one serves a request."""

from dataclasses import dataclass
from typing import Final, final

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What one graph holds for.

    Parameters
    ----------
    batch_size : int
        One of `BATCH_BUCKETS`, [requests].
    num_steps : int
        Draft tokens on the longest path, [tokens].
    topk : int
        Branches kept per step; 1 is a chain, [-].
    num_draft_tokens : int or None
        Nodes of the verified tree, root included; None for a chain, [tokens].
    most_accepted : int
        Rows of a request in the extend pass, a power of two, [tokens].
    num_splits : int
        Parts of the context in attention, a power of two, [-].

    Notes
    -----
    Lengths and tokens live on the device, so nothing else decides on a graph. drafter.md 14.

    Examples
    --------
    >>> Bucket(batch_size=4, num_steps=3, most_accepted=4, num_splits=8).topk
    1
    """

    batch_size: int
    num_steps: int
    topk: int = 1
    num_draft_tokens: int | None = None
    most_accepted: int
    num_splits: int


def batch_bucket(batch_size: int) -> int:
    r"""Batch that a graph is captured for.

    .. math:: \min\{b \in \text{buckets} : b \ge B\}

    Parameters
    ----------
    batch_size : int
        :math:`B`, between 1 and the largest bucket, [requests].

    Returns
    -------
    int
        At least `batch_size`, less than twice as much, [requests].

    Raises
    ------
    ParameterError
        If no bucket holds that many.

    Notes
    -----
    Rows of the padding have no request: they write no cache, and their results are not returned.

    Examples
    --------
    >>> [batch_bucket(size) for size in (1, 3, 64)]
    [1, 4, 64]
    """
    if not 1 <= batch_size <= BATCH_BUCKETS[-1]:
        allowed = f"between 1 and {BATCH_BUCKETS[-1]}"
        raise ParameterError("batch_size", batch_size, allowed, "draft in several batches")
    return next(bucket for bucket in BATCH_BUCKETS if bucket >= batch_size)


def row_bucket(count: int) -> int:
    r"""Rows of the extend pass that a graph is captured for.

    .. math:: 2^{\lceil \log_2 M \rceil}

    Parameters
    ----------
    count : int
        :math:`M`, newly accepted tokens of the request with most of them, at least 1, [tokens].

    Returns
    -------
    int
        A power of two, [tokens].

    Raises
    ------
    ParameterError
        If the count is below 1.

    Notes
    -----
    Rows without a token are computed and dropped, which costs little while weights are what is read.

    Examples
    --------
    >>> [row_bucket(count) for count in (1, 3, 8, 9)]
    [1, 4, 8, 16]
    """
    if count < 1:
        raise ParameterError("tokens of a request", count, "at least 1")
    return int(1 << (count - 1).bit_length())


def cache_readers(spec: DraftSpec, *, topk: int) -> int:
    r"""Programs of attention that share a request in a draft step before its context is cut.

    .. math:: N_{KV} \text{ or } \lceil k N_H / 16 \rceil

    Parameters
    ----------
    spec : DraftSpec
        Grouped heads have a program for each of :math:`N_{KV}`, whose rows hold all branches; latent heads
        one for 16 rows, a row being one of :math:`N_H` heads of a branch.
    topk : int
        :math:`k`, branches, [-].

    Returns
    -------
    int
        At least 1, [-].

    Notes
    -----
    What `split_bucket` counts beside the requests. A part of latent heads is as wide as a latent, so parts
    that fill no chip cost more than those of grouped heads.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> cache_readers(public_shape("Llama-3.1-8B").spec, topk=4)
    8
    >>> cache_readers(public_shape("Kimi-K2.5-MLA").spec, topk=4)
    16
    """
    return spec.num_kv_heads if spec.latent is None else -(-topk * spec.num_heads // LATENT_ROWS)


def split_bucket(
    context_tokens: int, *, batch_size: int, num_kv_heads: int, num_multiprocessors: int
) -> int:
    r"""Parts into which attention cuts a context.

    .. math:: P = 2^{\lceil \log_2 x \rceil},\quad
        x = \min\left(\frac{2 S}{B N_{KV}}, \frac{C'}{128}, 128\right)

    with :math:`C'` the smallest bucket of contexts that holds :math:`C`.

    Parameters
    ----------
    context_tokens : int
        :math:`C`, slots of the longest request, drafts included, at least 1, [tokens].
    batch_size, num_kv_heads : int
        :math:`B, N_{KV}`, programs that there are without a cut; of latent heads what `cache_readers`
        says, [-].
    num_multiprocessors : int
        :math:`S`; 1 where there is no GPU, [-].

    Returns
    -------
    int
        Between 1 and 128, [-].

    Raises
    ------
    ParameterError
        If a count is below 1.

    Notes
    -----
    Few requests fill a chip only if their context is cut; a cut finer than 128 tokens costs more in the
    merge than it saves. A judgement that no GPU has confirmed yet. drafter.md 13.

    Examples
    --------
    >>> split_bucket(1500, batch_size=1, num_kv_heads=8, num_multiprocessors=132)
    16
    >>> split_bucket(30_000, batch_size=64, num_kv_heads=8, num_multiprocessors=132)
    1
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
    return row_bucket(min(wanted, -(-held // LEAST_PART_TOKENS), MOST_PARTS))
