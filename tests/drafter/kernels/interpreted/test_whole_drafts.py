"""Whole chains and trees from the kernels against the fp64 reference, over two rounds of a batch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from drafter.checkpoint import random_weights
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.reference.draft_model import DraftModel
from drafter.reference.drafts import Frontier, draft_chain
from drafter.reference.layer import KvCache
from drafter.spec import DraftSpec, LatentHeads, Rope
from tests.extent import extent, prove, sample

SPEC = DraftSpec(
    hidden_size=96,
    target_hidden_size=80,
    num_aux_states=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=20,
    mlp_width=150,
    target_vocab_size=211,
    draft_vocab_size=131,
)
LATENT = LatentHeads(query_rank=37, kv_rank=41, nope_dim=13, rope_dim=6, value_dim=11)
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True, "attention_bias": True},
    "fc_norm": {"fc_norm": True, "norm_output": True, "fc_bias": True},
    "norm_before_fc": {"norm_before_fc": True, "qk_norm": True},
    "llama3": {
        "rope": Rope(kind="llama3", theta=5e5, factor=8.0, original_max_positions=64),
        "sliding_window": 5,
    },
    "no_fusion": {
        "use_aux_hidden_state": False,
        "target_hidden_size": 96,
        "rope": Rope(kind="yarn", factor=4.0, original_max_positions=64),
    },
    "latent": {
        "latent": LATENT,
        "rope": Rope(kind="yarn", factor=4.0, original_max_positions=64, mscale_all_dim=0.8),
    },
    "latent_window": {
        "latent": LATENT,
        "sliding_window": 5,
        "norm_output": True,
        "norm_before_residual": True,
    },
}
TYPES = [torch.float32, torch.bfloat16, torch.float16]
STEPS, BATCH, MOST = extent(test=3, prove=4), 2, 5


class Round(NamedTuple):
    tokens: torch.Tensor
    captured: torch.Tensor
    before: torch.Tensor
    accepted: torch.Tensor


def rounds_of(spec: DraftSpec, dtype: torch.dtype) -> list[Round]:
    generator = torch.Generator().manual_seed(21)
    states = spec.num_aux_states if spec.use_aux_hidden_state else 1
    made, before = [], torch.zeros(BATCH, dtype=torch.int32)
    for accepted in ([5, 3], [1, 4]):
        count = torch.tensor(accepted, dtype=torch.int32)
        made.append(
            Round(
                torch.randint(0, spec.target_vocab_size, (BATCH, MOST), generator=generator),
                torch.randn(BATCH, MOST, states * spec.target_hidden_size, generator=generator).to(
                    dtype
                ),
                before,
                count,
            )
        )
        before = before + count
    return made


def model_of(
    spec: DraftSpec, dtype: torch.dtype, shape: DraftShape
) -> tuple[DraftSteps, DraftModel]:
    weights = random_weights(spec, seed=3, dtype=dtype)
    steps = DraftSteps.alone(spec, weights, shape, dtype=dtype, device="cpu")
    return steps, DraftModel(spec, weights)


def of_request(one: Round, request: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    count, before = int(one.accepted[request]), int(one.before[request])
    positions = torch.arange(before, before + count)
    return one.tokens[request, :count], one.captured[request, :count].double(), positions


def check_choice(
    spec: DraftSpec, token: int, model: DraftModel, truth: torch.Tensor, limit: float
) -> None:
    """The token is the best of fp64 wherever its lead is clear."""
    best = truth.sort(descending=True)
    if float(best.values[0] - best.values[1]) > 4 * limit * float(truth.abs().max()):
        assert token == int(model.target_ids(best.indices[:1]))
    assert 0 <= token < spec.target_vocab_size


IN_FP32 = [(name, torch.float32) for name in VARIANTS]
CHAINS = [
    *((*case, True) for case in IN_FP32),
    *(("plain", dtype, True) for dtype in TYPES[1:]),
    ("latent", torch.float16, True),
    ("fc_norm", torch.bfloat16, True),
    ("plain", torch.float32, False),
    ("norm_before_fc", torch.bfloat16, False),
]
TREES = [
    *((*case, 2) for case in IN_FP32),
    *(("plain", dtype, 2) for dtype in TYPES[1:]),
    ("plain", torch.float32, 5),  # more than eight rows: tensor cores
    ("fc_norm", torch.bfloat16, 5),
    ("latent", torch.bfloat16, 5),
]


@sample(1)
@pytest.mark.parametrize(("name", "dtype", "is_fused"), CHAINS)
def test_a_chain_is_that_of_the_reference(
    check_close: Callable[..., None],
    limits: dict[torch.dtype, float],
    name: str,
    dtype: torch.dtype,
    is_fused: bool,
) -> None:
    spec = replace(SPEC, **VARIANTS[name])
    shape = DraftShape(
        batch_size=BATCH,
        num_steps=STEPS,
        most_accepted=MOST,
        capacity=20,
        num_splits=2,
        is_fused=is_fused,
        keeps_logits=True,
    )
    steps, model = model_of(spec, dtype, shape)
    assert steps.logits is not None
    caches: list[KvCache | None] = [None] * BATCH
    for one in rounds_of(spec, dtype):
        steps.load(*one)
        steps.logits.fill_(float("nan"))
        steps.run()
        for request in range(BATCH):
            drafted = steps.chain.drafted[request]
            truth = draft_chain(
                model,
                *of_request(one, request),
                num_steps=STEPS,
                cache=caches[request],
                forced_tokens=drafted[:-1],
            )
            caches[request] = truth.cache
            check_close(steps.logits[:, request], truth.logits, dtype)
            scores = truth.logits.log_softmax(-1)
            for step in range(STEPS):
                check_choice(spec, int(drafted[step]), model, truth.logits[step], limits[dtype])
            ids = [
                model.target_ids(torch.arange(spec.draft_vocab_size)).tolist().index(int(t))
                for t in drafted
            ]
            path = scores[torch.arange(STEPS), ids].cumsum(0)
            check_close(steps.chain.scores[request], path, dtype)


@sample(1)
@pytest.mark.parametrize(("name", "dtype", "topk"), TREES)
def test_a_tree_is_that_of_the_reference_along_its_own_branches(
    check_close: Callable[..., None],
    limits: dict[torch.dtype, float],
    name: str,
    dtype: torch.dtype,
    topk: int,
) -> None:
    spec = replace(SPEC, **VARIANTS[name])
    shape = DraftShape(
        batch_size=BATCH,
        num_steps=STEPS - 1,
        topk=topk,
        num_draft_tokens=7,
        most_accepted=MOST,
        capacity=30,
        num_splits=2,
        keeps_logits=True,
    )
    steps, model = model_of(spec, dtype, shape)
    assert steps.logits is not None
    caches: list[KvCache | None] = [None] * BATCH
    for one in rounds_of(spec, dtype):
        steps.load(*one)
        steps.logits.fill_(float("nan"))
        steps.run()
        for request in range(BATCH):
            tokens, states, positions = of_request(one, request)
            extended = model.extend(tokens, states, positions, caches[request])
            caches[request] = extended.cache
            nodes = Frontier.at_root(extended)
            check_close(steps.logits[0, request : request + 1], nodes.logits, dtype)
            part = slice(request * topk, (request + 1) * topk)
            before: list[int] = [-1]
            parents_of = steps.candidates.parents[request].tolist()
            for step, front in enumerate(steps.frontiers, start=1):
                chosen = front.nodes[part].tolist()
                parents = torch.tensor([before.index(parents_of[node]) for node in chosen])
                nodes = nodes.grown(model, parents, front.tokens[part], positions[-1:] + step)
                check_close(steps.logits[step, part], nodes.logits, dtype)
                before = chosen
            first = steps.candidates.tokens[request, 0]
            check_choice(spec, int(first), model, extended.last().logits[0], limits[dtype])
            tree = steps.tree
            assert int(tree.tokens[request, 0]) == int(tokens[-1])
            levels = tree.levels[request].tolist()
            assert all(
                levels[place] == levels[parent] + 1
                for place, parent in enumerate(tree.parents[request].tolist())
                if parent >= 0
            )


@prove
def test_a_second_run_gives_the_same_bits() -> None:
    for topk in (1, 3):
        shape = DraftShape(
            batch_size=BATCH,
            num_steps=2,
            topk=topk,
            num_draft_tokens=6,
            most_accepted=MOST,
            capacity=20,
        )
        steps, _ = model_of(SPEC, torch.bfloat16, shape)
        one = rounds_of(SPEC, torch.bfloat16)[0]
        steps.load(*one)
        steps.run()
        results = (*steps.chain[3:], *steps.tree) if topk == 1 else (*steps.tree, *steps.candidates)
        first = [tensor.clone() for tensor in results]
        steps.run()
        for tensor, again in zip(first, results, strict=True):
            assert torch.equal(tensor, again)


@prove
def test_requests_of_a_batch_do_not_see_each_other() -> None:
    spec, dtype = SPEC, torch.float32
    shape = DraftShape(batch_size=BATCH, num_steps=3, most_accepted=MOST, capacity=20)
    both, _ = model_of(spec, dtype, shape)
    alone, _ = model_of(spec, dtype, replace(shape, batch_size=1))
    one = rounds_of(spec, dtype)[0]
    both.load(*one)
    both.run()
    for request in range(BATCH):
        part = slice(request, request + 1)
        alone.load(*(tensor[part] for tensor in one))
        alone.run()
        assert torch.equal(alone.chain.drafted[0], both.chain.drafted[request])
        torch.testing.assert_close(alone.chain.scores[0], both.chain.scores[request])
