"""A draft model that is asked for drafts: pads to a bucket, replays its graph, returns what was drafted."""

from collections.abc import Mapping
from typing import NamedTuple, final

import torch

from drafter.engine.buckets import Bucket, batch_bucket, cache_readers, row_bucket, split_bucket
from drafter.engine.captured_run import CapturedRun, GraphPool
from drafter.engine.shared_state import SharedState
from drafter.kernels.argument_checks import INDEX_TYPES, STORAGE_TYPES, check_tensor
from drafter.kernels.draft_steps import DraftSteps
from drafter.kernels.extend_plan import NO_REQUEST
from drafter.kernels.launch_plan import device_sm
from drafter.kernels.numerics import IS_INTERPRETED
from drafter.kernels.tree_best import Tree
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError

PROGRAMMATIC_FROM_SM = 90
"""Compute capability times ten from which launches can overlap, [-]."""


class DraftedChain(NamedTuple):
    """The chains of a batch of B requests.

    Parameters
    ----------
    tokens : torch.Tensor, shape (B, num_steps)
        int64 ids of the target vocabulary.
    scores : torch.Tensor, shape (B, num_steps)
        fp32 log-probability of the path up to each, [-].

    Notes
    -----
    Views of static buffers: the next draft of the same bucket overwrites them.

    Examples
    --------
    >>> DraftedChain._fields
    ('tokens', 'scores')
    """

    tokens: torch.Tensor
    scores: torch.Tensor


class BucketRun(NamedTuple):
    """The buffers of a bucket, and its graph where one was captured.

    Parameters
    ----------
    steps : DraftSteps
        Buffers and launches.
    graph : CapturedRun or None
        None on the eager path.

    Examples
    --------
    >>> BucketRun._fields
    ('steps', 'graph')
    """

    steps: DraftSteps
    graph: CapturedRun | None


@final
class DraftEngine:
    """Drafts of up to `most_requests` requests, whose caches it keeps.

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches.
    weights : mapping of str to torch.Tensor
        Canonical names.
    dtype : torch.dtype
        Storage type of weights, activations and cache.
    device : torch.device or str
        A CUDA device; the CPU where this process interprets kernels.
    capacity : int
        Slots of a request's cache, drafts included, [tokens].
    most_requests : int
        Requests that are kept, at most 64, [requests].
    uses_graphs : bool, optional
        Replay captured graphs; by default where there is a CUDA device.
    is_programmatic : bool, optional
        Launches overlap; by default where the device can.
    context_tokens : int, optional
        Context for which the dynamic rope kind is stretched, [tokens].

    Raises
    ------
    ParameterError
        If weights or counts do not fit, or nothing can run kernels on the device.

    Notes
    -----
    The eager path launches the same kernels in the same order, so its results are equal bit for bit. A
    bucket's graph is captured when it is first asked for. drafter.md 13 and 14.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> weights = random_weights(spec, seed=0, dtype=torch.float32)
    >>> DraftEngine(spec, weights, dtype=torch.float32, device="meta")
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: device must be a CUDA device, got meta; on a CPU start with ...
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
        self._pool = GraphPool() if self.uses_graphs else None
        self._num_multiprocessors = (
            torch.cuda.get_device_properties(place).multi_processor_count if is_cuda else 1
        )
        self._runs: dict[Bucket, BucketRun] = {}

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

        Parameters
        ----------
        tokens : torch.Tensor, shape (B, M)
            Newly accepted tokens, each one further than its captured states.
        captured : torch.Tensor, shape (B, M, A Ht)
            Captured states of the target.
        before : torch.Tensor, shape (B,)
            Tokens of each request that the cache holds already, [tokens].
        accepted : torch.Tensor, shape (B,)
            How many of the M are new tokens of each request, at least 1, [tokens].
        num_steps : int
            Draft tokens on the longest path, [tokens].
        topk : int
            Branches kept per step; 1 drafts a chain, [-].
        num_draft_tokens : int, optional
            Nodes of the verified tree, root included; needed for a tree, [tokens].
        context_tokens : int, optional
            Bound of the longest cache after this draft, where one is known on the host: it decides how
            attention is cut, not what it sees; the capacity by default, [tokens].

        Returns
        -------
        DraftedChain or Tree
            Views of static buffers, B rows.

        Raises
        ------
        ParameterError
            If shapes or counts do not fit.

        Notes
        -----
        Counts stay on the device and are not checked: `before` + `accepted` + drafts must stay within the
        capacity. Caches of other requests are left alone.

        Examples
        --------
        >>> DraftEngine.draft.__name__
        'draft'
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
    ) -> Bucket:
        """Bucket that serves a request.

        Parameters
        ----------
        batch_size : int
            Requests, [-].
        most_accepted : int
            Newly accepted tokens of the request with most of them, [tokens].
        num_steps, topk, num_draft_tokens, context_tokens : int
            As `draft` takes them.

        Returns
        -------
        Bucket

        Raises
        ------
        ParameterError
            If a count is outside its range.

        Examples
        --------
        >>> DraftEngine.bucket.__name__
        'bucket'
        """
        padded = batch_bucket(batch_size)
        return Bucket(
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

    def run_of(self, bucket: Bucket) -> BucketRun:
        """Buffers and graph of a bucket, made when they are first asked for.

        Parameters
        ----------
        bucket : Bucket
            The bucket.

        Returns
        -------
        BucketRun

        Raises
        ------
        ParameterError
            If it does not fit the model or the capacity.

        Notes
        -----
        Capture runs the bucket several times without requests, which writes nothing to the caches.

        Examples
        --------
        >>> DraftEngine.run_of.__name__
        'run_of'
        """
        found = self._runs.get(bucket)
        if found is None:
            steps = self.state.steps(bucket, is_programmatic=self.is_programmatic)
            steps.before.fill_(NO_REQUEST)
            graph = None
            if self.uses_graphs:
                graph = CapturedRun(steps.run, device=self.state.device, pool=self._pool)
            found = BucketRun(steps, graph)
            self._runs[bucket] = found
        return found


def _load(steps: DraftSteps, bucket: Bucket, given: Mapping[str, torch.Tensor]) -> None:
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
