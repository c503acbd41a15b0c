"""Selection of a draft tree against a plain one in Python."""

from typing import Any

import pytest
import torch

from drafter.kernels.tree import Candidates, Frontier, Tree, tree_best, tree_level
from tests.extent import sample

INF = float("inf")


def levels_of(batch: int, topk: int, steps: int, seed: int, *, ties: bool) -> list[torch.Tensor]:
    """Log-probabilities of each level's guesses, best first; coarse ones are full of ties."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for level in range(steps):
        width = 1 if level == 0 else topk
        raw = -torch.rand(batch * width, topk, generator=generator) * 3
        raw = (raw * 2).round() / 2 if ties else raw
        made.append(raw.sort(dim=-1, descending=True).values)
    return made


@sample(3)
@pytest.mark.parametrize(
    ("topk", "steps", "nodes"), [(2, 4, 9), (3, 3, 16), (8, 3, 40), (4, 1, 5), (1, 4, 3)]
)
@pytest.mark.parametrize("ties", [False, True])
def test_levels_and_tree_are_those_of_a_plain_selection(
    guard: Any, topk: int, steps: int, nodes: int, ties: bool
) -> None:
    batch = 2
    count = topk + (steps - 1) * topk * topk
    candidates = Candidates(
        tokens=guard.space(batch, count, dtype=torch.int64),
        scores=guard.space(batch, count),
        parents=guard.space(batch, count, dtype=torch.int32),
    )
    starts = torch.tensor([10, 3], dtype=torch.int32)
    rows = torch.tensor([4, 7], dtype=torch.int32)
    fronts = [Frontier.empty(batch, topk, "cpu") for _ in range(steps - 1)]
    made = levels_of(batch, topk, steps, 5, ties=ties)
    for level, log_probs in enumerate(made):
        guesses = 1000 * level + torch.arange(log_probs.numel()).view(log_probs.shape)
        tree_level(
            guesses,
            log_probs,
            starts,
            candidates,
            level=level,
            before=fronts[level - 1] if level else None,
            following=fronts[level] if level + 1 < steps else None,
            rows=rows if level == 0 else None,
        )
    tree = Tree(
        *(guard.space(batch, nodes, dtype=like.dtype) for like in Tree.empty(batch, nodes, "cpu"))
    )
    roots, best = torch.tensor([50, 60]), guard.space(batch, count, dtype=torch.int32)
    tree_best(candidates, roots, torch.tensor([1, 0]), best, tree, num_steps=steps, topk=topk)

    for request in range(batch):
        # every node: (score, parent, level, token, slots of its ancestors, row that carries it)
        plain: list[tuple[float, int, int, int]] = []
        front: list[tuple[int, int]] = [(-1, 0)]  # node, bits
        for level, log_probs in enumerate(made):
            width, base = len(front), len(plain)
            for place, (node, _) in enumerate(front):
                for rank in range(topk):
                    line = request * width + place
                    before = 0.0 if node < 0 else plain[node][0]
                    score = float(torch.tensor(before) + log_probs[line, rank])
                    plain.append((score, node, level + 1, 1000 * level + line * topk + rank))
            order = sorted(range(base, len(plain)), key=lambda i: (-plain[i][0], i))[:topk]
            if level + 1 < steps:
                own = fronts[level]
                bits = [
                    front[(i - base) // topk][1] | 1 << (level * topk + r)
                    for r, i in enumerate(order)
                ]
                part = slice(request * topk, (request + 1) * topk)
                assert own.nodes[part].tolist() == order
                assert own.tokens[part].tolist() == [plain[i][3] for i in order]
                assert own.scores[part].tolist() == [plain[i][0] for i in order]
                assert own.ancestors[part].tolist() == bits
                start = int(starts[request])
                assert own.positions[part].tolist() == [start + level] * topk
                assert own.slots[part].tolist() == [start + level * topk + r for r in range(topk)]
                assert int(own.lengths[request]) == start + (level + 1) * topk
                carried = [request * width + (i - base) // topk for i in order]
                carried = [int(rows[request])] * topk if level == 0 else carried
                assert own.carry_rows[part].tolist() == carried
                front = list(zip(order, bits, strict=True))
        assert candidates.scores[request].tolist() == [node[0] for node in plain]
        assert candidates.parents[request].tolist() == [node[1] for node in plain]
        kept = sorted(sorted(range(count), key=lambda i: (-plain[i][0], i))[: nodes - 1])
        place_of = {-1: 0} | {node: 1 + place for place, node in enumerate(kept)}
        parents = [-1] + [place_of[plain[node][1]] for node in kept]
        lines = [1]
        for place, parent in enumerate(parents[1:], start=1):
            lines.append(lines[parent] | 1 << place)
        assert tree.tokens[request].tolist() == [int(roots[1 - request])] + [
            plain[i][3] for i in kept
        ]
        assert tree.scores[request].tolist() == [0.0] + [plain[i][0] for i in kept]
        assert tree.parents[request].tolist() == parents
        assert tree.levels[request].tolist() == [0] + [plain[i][2] for i in kept]
        assert tree.ancestors[request].tolist() == lines


def test_a_tree_of_sixty_four_nodes_uses_every_bit(guard: Any) -> None:
    topk, steps = 8, 2
    count = topk + topk * topk
    candidates = Candidates(
        tokens=torch.arange(count)[None],
        scores=-torch.arange(count, dtype=torch.float32)[None],
        parents=torch.cat([torch.full((8,), -1), torch.arange(8).repeat_interleave(8)])[None].int(),
    )
    tree = Tree.empty(1, 64, "cpu")
    one, best = torch.zeros(1).long(), guard.space(1, count, dtype=torch.int32)
    tree_best(candidates, one, one, best, tree, num_steps=steps, topk=topk)
    lines = [line & (2**64 - 1) for line in tree.ancestors[0].tolist()]
    assert lines[63] == 1 | 1 << int(tree.parents[0, 63]) | 1 << 63


def test_guesses_of_minus_infinity_lose_to_all_others(guard: Any) -> None:
    candidates = Candidates(
        tokens=guard.space(1, 6, dtype=torch.int64),
        scores=guard.space(1, 6),
        parents=guard.space(1, 6, dtype=torch.int32),
    )
    front = Frontier.empty(1, 2, "cpu")
    start = torch.zeros(1, dtype=torch.int32)
    first = torch.tensor([[-1.0, -INF]])
    tree_level(
        torch.tensor([[3, 4]]), first, start, candidates, level=0, before=None, following=front
    )
    assert front.tokens.tolist() == [3, 4]
    assert front.scores.tolist() == [-1.0, -INF]
    both = torch.tensor([[-INF, -INF], [-0.5, -2.0]])
    tree_level(
        torch.tensor([[5, 6], [7, 8]]),
        both,
        start,
        candidates,
        level=1,
        before=front,
        following=None,
    )
    assert candidates.scores.tolist() == [[-1.0, -INF, -INF, -INF, -INF, -INF]]
