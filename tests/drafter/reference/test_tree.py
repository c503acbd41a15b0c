import functools
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from drafter.reference import DraftModel, TreeDraft, draft_chain, draft_tree
from drafter.reference.drafts import Frontier
from specmodel.errors import ParameterError

Request = tuple[DraftModel, Tensor, Tensor, Tensor]
MakeRequest = Callable[..., Request]
Path = tuple[int, ...]


def forced_scores(request: Request, path: Path) -> Tensor:
    """Log-probabilities after each node of a path of draft ids, from chains with forced tokens."""
    model = request[0]
    tokens = model.target_ids(torch.tensor(path, dtype=torch.int64))
    chain = draft_chain(*request, num_steps=len(path) + 1, forced_tokens=tokens)
    return chain.logits.log_softmax(dim=-1)


def paths_of(tree: TreeDraft) -> list[Path]:
    """Draft ids from the root to each candidate."""
    paths: list[Path] = []
    for draft_id, parent in zip(
        tree.candidates.draft_ids.tolist(), tree.candidates.parents.tolist(), strict=True
    ):
        paths.append(() if parent < 0 else (*paths[parent], draft_id))
    return paths


def test_a_tree_with_one_branch_is_the_chain(any_request: Request) -> None:
    chain = draft_chain(*any_request, num_steps=4)
    tree = draft_tree(*any_request, num_steps=4, topk=1, num_draft_tokens=5)
    assert tree.tokens.tolist() == [int(any_request[1][-1]), *chain.tokens.tolist()]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 3]
    assert tree.levels.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(tree.mask, torch.ones(5, 5).tril().bool())
    assert torch.equal(torch.cat(tree.logits), chain.logits)
    torch.testing.assert_close(tree.scores[1:], chain.log_probs.cumsum(dim=0))
    assert len(tree.cache) == len(chain.cache)


def test_every_node_is_scored_by_the_chain_that_leads_to_it(any_request: Request) -> None:
    """A node that saw anything but its true ancestors would have other logits."""
    tree = draft_tree(*any_request, num_steps=4, topk=3, num_draft_tokens=8)
    paths = paths_of(tree)
    assert len(paths) == 1 + 3 + 3 * 9
    for frontier, logits in zip(tree.frontiers, tree.logits[1:], strict=True):
        for node, row in zip(frontier.tolist(), logits, strict=True):
            expected = forced_scores(any_request, paths[node])[-1]
            torch.testing.assert_close(row.log_softmax(dim=-1), expected)
    for path, score in zip(paths, tree.candidates.scores, strict=True):
        log_probs = forced_scores(any_request, path)
        total = sum(float(row[each]) for row, each in zip(log_probs, path, strict=False))
        assert float(score) == pytest.approx(total, abs=1e-10)


@pytest.mark.parametrize(("topk", "num_draft_tokens"), [(2, 7), (3, 10), (5, 12)])
def test_a_small_tree_is_that_of_all_paths_enumerated(
    topk: int, num_draft_tokens: int, make_request: MakeRequest
) -> None:
    request = make_request(target_vocab_size=11, draft_vocab_size=5)
    everything = {
        path: sum(
            float(row[each]) for row, each in zip(forced_scores(request, path), path, strict=False)
        )
        for depth in range(4)
        for path in itertools.product(range(5), repeat=depth)
    }
    kept: list[Path] = [()]
    going_on: list[Path] = [()]
    for _ in range(3):
        level = []
        for path in going_on:
            children = sorted(((*path, each) for each in range(5)), key=lambda c: -everything[c])
            level += children[:topk]
        kept += level
        going_on = sorted(level, key=lambda c: -everything[c])[:topk]
    chosen = sorted(kept, key=lambda c: -everything[c])[:num_draft_tokens]

    tree = draft_tree(*request, num_steps=3, topk=topk, num_draft_tokens=num_draft_tokens)
    model = request[0]
    found: list[Path] = []
    for row, (token, parent) in enumerate(
        zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True)
    ):
        if row == 0:
            found.append(())
            continue
        ids = model.target_ids(torch.arange(5)).tolist()
        found.append((*found[parent], ids.index(token)))
    assert set(found) == set(chosen)
    assert len(found) == len(set(found)) == num_draft_tokens
    order = [kept.index(path) for path in found]
    assert order == sorted(order)
    assert tree.scores.tolist() == pytest.approx([everything[path] for path in found], abs=1e-10)
    assert tree.levels.tolist() == [len(path) for path in found]
    for row, path in enumerate(found):
        seen = {found[column] for column in tree.mask[row].nonzero()[:, 0].tolist()}
        assert seen == {path[:depth] for depth in range(len(path) + 1)}


def test_the_verified_tree_is_a_tree_of_target_tokens(any_request: Request) -> None:
    tree = draft_tree(*any_request, num_steps=3, topk=4, num_draft_tokens=16)
    assert int(tree.tokens[0]) == int(any_request[1][-1])
    assert bool(any_request[0].weights["t2d"][tree.tokens[1:]].all())
    siblings = list(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))
    assert len(siblings) == len(set(siblings))
    assert tree.mask.sum(dim=1).tolist() == (tree.levels + 1).tolist()


def test_equal_scores_fall_to_the_lowest_index(make_request: MakeRequest) -> None:
    model, *rows = make_request()
    head = {"lm_head.weight": torch.zeros_like(model.weights["lm_head.weight"])}
    flat = DraftModel(model.spec, model.weights | head)
    tree = draft_tree(flat, *rows, num_steps=3, topk=2, num_draft_tokens=6)
    ids = tree.candidates.draft_ids.tolist()
    assert ids == [-1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert [frontier.tolist() for frontier in tree.frontiers] == [[1, 2], [3, 4]]
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 2]


def test_another_implementations_choices_can_be_followed(any_request: Request) -> None:
    model, tokens, states, positions = any_request
    root = Frontier.at_root(model.extend(tokens, states, positions))
    first = root.grown(model, torch.tensor([0, 0]), torch.tensor([7, 8]), positions[-1:] + 1)
    second = first.grown(
        model, torch.tensor([1, 1, 0]), torch.tensor([3, 4, 5]), positions[-1:] + 2
    )
    for row, path in enumerate(([8, 3], [8, 4], [7, 5])):
        chain = draft_chain(*any_request, num_steps=3, forced_tokens=torch.tensor(path))
        torch.testing.assert_close(second.logits[row], chain.logits[2])
        torch.testing.assert_close(second.carry[row], chain.carries[2])


def test_a_second_round_on_the_kept_cache_equals_a_fresh_request(any_request: Request) -> None:
    model, tokens, states, positions = any_request
    draft = functools.partial(draft_tree, num_steps=3, topk=2, num_draft_tokens=6)
    first = draft(model, tokens[:3], states[:3], positions[:3])
    second = draft(model, tokens[3:], states[3:], positions[3:], cache=first.cache)
    fresh = draft(*any_request)
    assert torch.equal(second.tokens, fresh.tokens)
    torch.testing.assert_close(second.scores, fresh.scores)


@pytest.mark.parametrize(
    ("num_steps", "topk", "num_draft_tokens", "message"),
    [
        (0, 1, 1, "num_steps must be at least 1, got 0"),
        (2, 0, 2, "topk must be from 1 to draft_vocab_size 29, got 0"),
        (2, 30, 2, "topk must be from 1 to draft_vocab_size 29, got 30"),
        (2, 2, 8, "num_draft_tokens must be from 1 to 7, .*got 8"),
        (2, 2, 0, "num_draft_tokens must be from 1 to 7, .*got 0"),
    ],
)
def test_sizes_that_make_no_tree_are_refused(
    num_steps: int, topk: int, num_draft_tokens: int, message: str, make_request: MakeRequest
) -> None:
    with pytest.raises(ParameterError, match=message):
        draft_tree(
            *make_request(), num_steps=num_steps, topk=topk, num_draft_tokens=num_draft_tokens
        )
