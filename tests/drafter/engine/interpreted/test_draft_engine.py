"""The engine pads to buckets, keeps caches across them, and drafts what the fp64 reference drafts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from drafter.checkpoint import random_weights
from drafter.engine.draft_engine import DraftedChain, DraftEngine
from drafter.kernels.tree import Tree
from drafter.public_models import example_spec
from drafter.reference import DraftModel, draft_chain, draft_tree
from drafter.spec import DraftSpec, LatentHeads
from specmodel.errors import ParameterError
from tests.extent import extent, prove, sample

CAPACITY = extent(test=24, prove=48)
LATENT = LatentHeads(query_rank=12, kv_rank=10, nope_dim=6, rope_dim=4, value_dim=5)
Weights = dict[str, torch.Tensor]
Engine = Callable[..., DraftEngine]


class Inputs(NamedTuple):
    """Of one round."""

    tokens: torch.Tensor
    captured: torch.Tensor
    before: torch.Tensor
    accepted: torch.Tensor


@pytest.fixture
def latent() -> LatentHeads | None:
    """Grouped heads, but where a test asks for latent ones."""
    return None


@pytest.fixture
def spec(latent: LatentHeads | None) -> DraftSpec:
    return replace(example_spec(), norm_output=True, latent=latent)


@pytest.fixture
def weights(spec: DraftSpec) -> Weights:
    return random_weights(spec, seed=3, dtype=torch.float32, ascending=False)


@pytest.fixture
def engine(spec: DraftSpec, weights: Weights) -> Engine:
    def make(**options: Any) -> DraftEngine:
        return DraftEngine(
            spec, weights, dtype=torch.float32, device="cpu", capacity=CAPACITY, **options
        )

    return make


def inputs(spec: DraftSpec, accepted: list[int], before: list[int], seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(accepted), max(accepted))
    states = spec.num_aux_states * spec.target_hidden_size
    return Inputs(
        tokens=torch.randint(spec.target_vocab_size, shape, generator=generator),
        captured=torch.randn(*shape, states, generator=generator),
        before=torch.tensor(before, dtype=torch.int32),
        accepted=torch.tensor(accepted, dtype=torch.int32),
    )


def row(given: Inputs, request: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the reference is fed for one request."""
    count, start = int(given.accepted[request]), int(given.before[request])
    return (
        given.tokens[request, :count],
        given.captured[request, :count].double(),
        torch.arange(start, start + count),
    )


def test_a_padded_batch_drafts_what_each_request_drafts_alone(
    spec: DraftSpec, weights: Weights, engine: Engine
) -> None:
    given = inputs(spec, accepted=[3, 1, 2], before=[0, 0, 0])
    drafted = engine(most_requests=3).draft(*given, num_steps=2)
    assert isinstance(drafted, DraftedChain)
    model = DraftModel(spec, weights, dtype=torch.float64)
    for request in range(3):
        truth = draft_chain(model, *row(given, request), num_steps=2)
        assert drafted.tokens[request].tolist() == truth.tokens.tolist()
        torch.testing.assert_close(
            drafted.scores[request].double(), truth.log_probs.cumsum(0), rtol=1e-5, atol=1e-5
        )


@sample(1)
@pytest.mark.parametrize("latent", [None, LATENT], ids=["grouped", "latent"])
def test_a_round_of_another_depth_and_width_goes_on_from_the_cache_of_the_one_before(
    spec: DraftSpec, weights: Weights, engine: Engine
) -> None:
    drafting = engine(most_requests=2)
    first = inputs(spec, accepted=[4, 2], before=[0, 0])
    second = inputs(spec, accepted=[1, 2], before=[4, 2], seed=1)
    drafting.draft(*first, num_steps=3)
    drafted = drafting.draft(*second, num_steps=2, topk=3, num_draft_tokens=6)
    assert isinstance(drafted, Tree)
    model = DraftModel(spec, weights, dtype=torch.float64)
    for request in range(2):
        cache = draft_chain(model, *row(first, request), num_steps=1).cache
        truth = draft_tree(
            model, *row(second, request), num_steps=2, topk=3, num_draft_tokens=6, cache=cache
        )
        assert drafted.tokens[request].tolist() == truth.tokens.tolist()
        assert drafted.parents[request].tolist() == truth.parents.tolist()


@prove
def test_the_bound_of_the_context_changes_how_attention_is_cut_and_not_what_is_drafted(
    spec: DraftSpec, engine: Engine
) -> None:
    given = inputs(spec, accepted=[5], before=[0])
    drafting = engine()
    whole = drafting.draft(*given, num_steps=2)
    tokens, scores = whole.tokens.clone(), whole.scores.clone()
    bound = drafting.draft(*given, num_steps=2, context_tokens=8)
    assert tokens.tolist() == bound.tokens.tolist()
    torch.testing.assert_close(scores, bound.scores, rtol=1e-5, atol=1e-6)


@prove
def test_a_smaller_batch_after_a_larger_one_is_not_mixed_with_its_rows(
    spec: DraftSpec, engine: Engine
) -> None:
    large = inputs(spec, accepted=[2, 2, 2, 2], before=[0] * 4)
    small = Inputs(*(value[:3] for value in inputs(spec, [2, 2, 2, 2], [0] * 4, 5)))
    drafting, fresh = engine(most_requests=4), engine(most_requests=4)
    drafting.draft(*large, num_steps=2)
    again = drafting.draft(*small, num_steps=2).tokens.clone()
    assert again.tolist() == fresh.draft(*small, num_steps=2).tokens.tolist()


def test_buckets_are_made_once_and_share_weights_and_cache(spec: DraftSpec, engine: Engine) -> None:
    drafting = engine(most_requests=4)
    given = inputs(spec, accepted=[1, 1, 1], before=[0, 0, 0])
    drafting.draft(*given, num_steps=2)
    bucket = drafting.bucket(batch_size=3, most_accepted=1, num_steps=2)
    assert (bucket.batch_size, bucket.num_steps, bucket.most_accepted) == (4, 2, 1)
    runs = [drafting.run_of(bucket), drafting.run_of(replace(bucket, batch_size=2))]
    assert drafting.run_of(bucket).steps is runs[0].steps
    heads = {run.steps.weights.head.data_ptr() for run in runs}
    assert len(heads) == 1
    assert runs[0].graph is None


@sample(1)
@pytest.mark.parametrize("latent", [None, LATENT], ids=["grouped", "latent"])
@pytest.mark.parametrize("shape", [{}, {"topk": 2, "num_draft_tokens": 4}], ids=["chain", "tree"])
def test_caches_of_requests_outside_the_batch_are_left_alone(
    spec: DraftSpec, engine: Engine, shape: dict[str, Any]
) -> None:
    drafting = engine(most_requests=4)
    drafting.state.keys.fill_(0.5)
    given = inputs(spec, accepted=[2, 2, 1], before=[0, 0, 0])
    drafting.draft(*given, num_steps=3, **shape)
    assert bool((drafting.state.keys[3] == 0.5).all())
    assert all(bool((drafting.state.keys[request, 0] != 0.5).any()) for request in range(3))


def test_a_prompt_that_fills_the_cache_is_drafted_from(
    spec: DraftSpec, weights: Weights, engine: Engine
) -> None:
    """Rows are padded to a power of two, but to no more than the cache has."""
    given = inputs(spec, accepted=[CAPACITY - 1], before=[0])
    drafted = engine().draft(*given, num_steps=2)
    truth = draft_chain(DraftModel(spec, weights, dtype=torch.float64), *row(given, 0), num_steps=2)
    assert drafted.tokens[0].tolist() == truth.tokens.tolist()


class TriedRun:
    """Runs the work as a capture does, and once more for each replay."""

    def __init__(self, run: Callable[[], None], **options: object) -> None:
        assert set(options) == {"device", "pool"}
        self._run = run
        for _ in range(4):
            run()

    def replay(self) -> None:
        self._run()


@prove
def test_capture_of_a_bucket_leaves_the_caches_of_running_requests_as_they_were(
    spec: DraftSpec, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drafter.engine.draft_engine.CapturedRun", TriedRun)
    first = inputs(spec, accepted=[4, 4], before=[0, 0])
    second = inputs(spec, accepted=[2, 2], before=[4, 4], seed=1)
    drafted: list[tuple[torch.Tensor, ...]] = []
    for uses_graphs in (True, False):
        drafting = engine(most_requests=2)
        drafting.uses_graphs = uses_graphs
        drafting.draft(*first, num_steps=2)
        tree = drafting.draft(*second, num_steps=3, topk=2, num_draft_tokens=5)
        drafted.append(tree)  # of another bucket, made between the rounds
        assert (drafting.run_of(next(iter(drafting._runs))).graph is not None) == uses_graphs
    for one, other in zip(*drafted, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"tokens": torch.zeros(2, dtype=torch.int64)}, "tokens"),
        ({"captured": torch.zeros(2, 3, 5)}, "captured"),
        ({"before": torch.zeros(3, dtype=torch.int32)}, "before"),
        ({"accepted": torch.zeros(2, dtype=torch.float32)}, "accepted"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(
    spec: DraftSpec, engine: Engine, change: dict[str, torch.Tensor], name: str
) -> None:
    given = inputs(spec, accepted=[3, 3], before=[0, 0])._replace(**change)
    with pytest.raises(ParameterError, match=name):
        engine(most_requests=2).draft(*given, num_steps=2)


def test_what_the_engine_has_no_room_for_is_refused(spec: DraftSpec, engine: Engine) -> None:
    with pytest.raises(ParameterError, match="batch_size must be between 1 and 2, got 4"):
        engine(most_requests=2).draft(*inputs(spec, [1] * 3, [0] * 3), num_steps=2)
    with pytest.raises(ParameterError, match="most_accepted"):
        engine().draft(*inputs(spec, [60], [0]), num_steps=2)
    with pytest.raises(ParameterError, match="num_draft_tokens"):
        engine().draft(*inputs(spec, [1], [0]), num_steps=2, topk=2)


def test_graphs_are_refused_without_a_cuda_device(spec: DraftSpec, weights: Weights) -> None:
    with pytest.raises(ParameterError, match="uses_graphs must be False without a CUDA device"):
        DraftEngine(spec, weights, device="cpu", uses_graphs=True)
