"""What all buckets of an engine share: weights and cache, each on the device once."""

from collections.abc import Mapping
from typing import final

import torch

from drafter.engine.buckets import BATCH_BUCKETS, Bucket, batch_bucket
from drafter.kernels.argument_checks import check_range
from drafter.kernels.cache_space import CacheSpace
from drafter.kernels.draft_shape import DraftShape
from drafter.kernels.draft_steps import DraftSteps
from drafter.kernels.packed_weights import PackedWeights
from drafter.spec import DraftSpec


@final
class SharedState:
    """Weights, cache and angles of a draft model.

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches.
    weights : mapping of str to torch.Tensor
        Canonical names.
    dtype : torch.dtype
        Storage type.
    device : torch.device
        Where.
    capacity : int
        Slots of a request, drafts included, [tokens].
    most_requests : int
        Requests that the cache has room for; rounded up to a bucket, [requests].
    context_tokens : int, optional
        Context for which the dynamic rope kind is stretched, [tokens].

    Raises
    ------
    ParameterError
        If weights or counts do not fit.

    Notes
    -----
    The cache of request i is row i of `keys` and `values`, whatever the bucket, so a round may follow one
    of another depth. Values are zero until written.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> weights = random_weights(spec, seed=0, dtype=torch.float32)
    >>> state = SharedState(
    ...     spec, weights, dtype=torch.float16, device=torch.device("cpu"), capacity=32, most_requests=3
    ... )
    >>> state.keys.shape
    torch.Size([4, 32, 2, 8])
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

    def steps(
        self,
        bucket: Bucket,
        *,
        is_fused: bool = True,
        is_programmatic: bool = False,
        keeps_logits: bool = False,
    ) -> DraftSteps:
        """Buffers of one bucket on these weights and this cache.

        Parameters
        ----------
        bucket : Bucket
            What they are for.
        is_fused, is_programmatic, keeps_logits : bool
            As `DraftShape` has them.

        Returns
        -------
        DraftSteps

        Raises
        ------
        ParameterError
            If the bucket does not fit the model or the capacity.

        Notes
        -----
        A bucket's rows of the cache lie together, so it is a view of the shared one.

        Examples
        --------
        >>> SharedState.steps.__name__
        'steps'
        """
        check_range("batch_size", bucket.batch_size, 1, self.most_requests)
        shape = DraftShape(
            batch_size=bucket.batch_size,
            num_steps=bucket.num_steps,
            topk=bucket.topk,
            num_draft_tokens=bucket.num_draft_tokens,
            most_accepted=bucket.most_accepted,
            capacity=self.capacity,
            num_splits=bucket.num_splits,
            is_fused=is_fused,
            is_programmatic=is_programmatic,
            keeps_logits=keeps_logits,
        )
        cache = self.cache.of_requests(bucket.batch_size)
        return DraftSteps(self.spec, self.packed, cache, shape)
