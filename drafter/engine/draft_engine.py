"""Drafts that are asked for: shared state of all buckets, one captured graph for each."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import torch

from drafter.engine.captured_run import CapturedRun
from drafter.kernels.attention import LATENT_ROWS
from drafter.kernels.draft_steps import NO_REQUEST, DraftShape, DraftSteps
from drafter.kernels.launch_plan import (
    INDEX_TYPES,
    STORAGE_TYPES,
    check_range,
    check_tensor,
    device_sm,
    power_of_two,
)
from drafter.kernels.norm_rope import CacheSpace
from drafter.kernels.numerics import IS_INTERPRETED
from drafter.kernels.tree import Tree
from drafter.kernels.weights import PackedWeights
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
    return power_of_two(count)


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
    held = next((size for size in CONTEXT_BUCKETS if size >= context_tokens), context_tokens)
    wanted = -(-PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // (batch_size * num_kv_heads))
    parts = min(wanted, -(-held // LEAST_PART_TOKENS), MOST_PARTS)
    above = row_bucket(parts)
    return above // 2 if above > 1 and parts**2 <= above * above // 2 else above


class SharedState:
    """Weights, cache and angles of a draft model.

    The cache of request i is row i of `keys` and `values`, whatever the bucket, so a round may follow one
    of another depth. Values are zero until written.
    """

    def __init__(
        self,
        spec: DraftSpec,
        weights: Mapping[str, torch.Tensor],
        *,
        dtype: torch.dtype,
        device: torch.device,
        capacity: int,
        most_requests: int,
        context_tokens: int | None = None,
    ) -> None:
        check_range("capacity", capacity, 2, 2**31 - 1)
        check_range("most_requests", most_requests, 1, BATCH_BUCKETS[-1])
        self.spec, self.dtype, self.device, self.capacity = spec, dtype, device, capacity
        self.most_requests = batch_bucket(most_requests)
        self.context_tokens = context_tokens
        self.packed = PackedWeights.from_canonical(spec, weights, dtype=dtype, device=device)
        self.cache = CacheSpace.empty(
            spec,
            batch_size=self.most_requests,
            capacity=capacity,
            dtype=dtype,
            device=device,
            context_tokens=context_tokens,
        )
        self.keys, self.values = self.cache.keys, self.cache.values

    def steps(self, shape: DraftShape) -> DraftSteps:
        """Buffers of one shape on these weights and this cache.

        A shape's rows of the cache lie together, so it is a view of the shared one.
        """
        check_range("batch_size", shape.batch_size, 1, self.most_requests)
        cache = self.cache.of_requests(shape.batch_size)
        return DraftSteps(self.spec, self.packed, cache, shape)


PROGRAMMATIC_FROM_SM = 90
"""Compute capability times ten from which launches can overlap, [-]."""


class DraftedChain(NamedTuple):
    """The chains of a batch of B requests.

    Views of static buffers: the next draft of the same bucket overwrites them.
    """

    tokens: torch.Tensor
    scores: torch.Tensor


class BucketRun(NamedTuple):
    """The buffers of a bucket, and its graph where one was captured."""

    steps: DraftSteps
    graph: CapturedRun | None


class DraftEngine:
    """Drafts of up to `most_requests` requests, whose caches it keeps.

    The eager path launches the same kernels in the same order, so its results are equal bit for bit. A
    bucket's graph is captured when it is first asked for. drafter.md 13 and 14.
    """

    def __init__(
        self,
        spec: DraftSpec,
        weights: Mapping[str, torch.Tensor],
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str = "cuda",
        capacity: int = 2048,
        most_requests: int = 1,
        uses_graphs: bool | None = None,
        is_programmatic: bool | None = None,
        context_tokens: int | None = None,
    ) -> None:
        place = torch.device(device)
        is_cuda = place.type == "cuda"
        if not is_cuda and not (place.type == "cpu" and IS_INTERPRETED):
            hint = "on a CPU start with TRITON_INTERPRET=1"
            raise ParameterError("device", place, "a CUDA device", hint)
        if uses_graphs and not is_cuda:
            raise ParameterError("uses_graphs", "True", "False without a CUDA device")
        self.state = SharedState(
            spec,
            weights,
            dtype=dtype,
            device=place,
            capacity=capacity,
            most_requests=most_requests,
            context_tokens=context_tokens,
        )
        self.uses_graphs = is_cuda if uses_graphs is None else uses_graphs
        can_overlap = is_cuda and device_sm(place) >= PROGRAMMATIC_FROM_SM
        self.is_programmatic = can_overlap if is_programmatic is None else is_programmatic
        self._pool = torch.cuda.graph_pool_handle() if self.uses_graphs else None
        self._num_multiprocessors = (
            torch.cuda.get_device_properties(place).multi_processor_count if is_cuda else 1
        )
        self._runs: dict[DraftShape, BucketRun] = {}

    def draft(
        self,
        tokens: torch.Tensor,
        captured: torch.Tensor,
        before: torch.Tensor,
        accepted: torch.Tensor,
        *,
        num_steps: int,
        topk: int = 1,
        num_draft_tokens: int | None = None,
        context_tokens: int | None = None,
    ) -> DraftedChain | Tree:
        """Draft for the first B requests, after the tokens that were accepted last.

        Counts stay on the device and are not checked: `before` + `accepted` + drafts must stay within the
        capacity. Caches of other requests are left alone.
        """
        if tokens.ndim != 2:
            raise ParameterError("tokens", f"{tokens.ndim} dimensions", "two: requests and tokens")
        batch, most = tokens.shape
        bucket = self.bucket(
            batch_size=batch,
            most_accepted=most,
            num_steps=num_steps,
            topk=topk,
            num_draft_tokens=num_draft_tokens,
            context_tokens=context_tokens,
        )
        steps, graph = self.run_of(bucket)
        given = {"tokens": tokens, "captured": captured, "before": before, "accepted": accepted}
        _load(steps, bucket, given)
        if graph is None:
            steps.run()
        else:
            graph.replay()
        if topk == 1:
            return DraftedChain(steps.chain.drafted[:batch], steps.chain.scores[:batch])
        return Tree(*(part[:batch] for part in steps.tree))

    def bucket(
        self,
        *,
        batch_size: int,
        most_accepted: int,
        num_steps: int,
        topk: int = 1,
        num_draft_tokens: int | None = None,
        context_tokens: int | None = None,
    ) -> DraftShape:
        """Shape of the bucket that serves a request: what one graph holds for.

        Lengths and tokens live on the device, so nothing else decides on a graph. drafter.md 14.
        """
        padded = batch_bucket(batch_size)
        check_range("batch_size", padded, 1, self.state.most_requests)
        return DraftShape(
            capacity=self.state.capacity,
            is_programmatic=self.is_programmatic,
            batch_size=padded,
            num_steps=num_steps,
            topk=topk,
            num_draft_tokens=num_draft_tokens if topk > 1 else None,
            most_accepted=min(row_bucket(most_accepted), max(most_accepted, self.state.capacity)),
            num_splits=split_bucket(
                min(context_tokens or self.state.capacity, self.state.capacity),
                batch_size=padded,
                num_kv_heads=cache_readers(self.state.spec, topk=topk),
                num_multiprocessors=self._num_multiprocessors,
            ),
        )

    def run_of(self, bucket: DraftShape) -> BucketRun:
        """Buffers and graph of a bucket, made when they are first asked for.

        Capture runs the bucket several times without requests, which writes nothing to the caches.
        """
        found = self._runs.get(bucket)
        if found is None:
            steps = self.state.steps(bucket)
            steps.before.fill_(NO_REQUEST)
            graph = None
            if self.uses_graphs:
                graph = CapturedRun(steps.run, device=self.state.device, pool=self._pool)
            found = BucketRun(steps, graph)
            self._runs[bucket] = found
        return found


def _load(steps: DraftSteps, bucket: DraftShape, given: Mapping[str, torch.Tensor]) -> None:
    """Copy a batch into the buffers of its bucket; the padding has no requests."""
    batch, most = given["tokens"].shape
    states = steps.captured.shape[1]
    for name, shape, types in (
        ("tokens", (batch, most), INDEX_TYPES),
        ("captured", (batch, most, states), STORAGE_TYPES),
        ("before", (batch,), INDEX_TYPES),
        ("accepted", (batch,), INDEX_TYPES),
    ):
        check_tensor(name, given[name].contiguous(), shape, types)
    rows = (bucket.batch_size, bucket.most_accepted)
    steps.tokens.view(rows)[:batch, :most].copy_(given["tokens"])
    steps.captured.view(*rows, states)[:batch, :most].copy_(given["captured"])
    for name, padding in (("before", NO_REQUEST), ("accepted", 0)):
        own: torch.Tensor = getattr(steps, name)
        own[:batch].copy_(given[name])
        own[batch:].fill_(padding)
