"""Accept lengths against a simulated accept/reject process that shares no code with them."""

from collections.abc import Callable

import numpy as np
import pytest

from specmodel.acceptance import (
    ConditionalAccuracy,
    best_tree,
    geometric_accept_length,
    heterogeneous_full_accuracy,
    sampled_acceptance,
    throughput_accept_length,
    tree_from_paths,
)

ROUNDS = 60_000
Coin = Callable[[int], float]


def mean_emitted(conditional: list[float], seed: int) -> float:
    """Tokens per round of a chain: flip until the first rejection, then one bonus token."""
    generator = np.random.default_rng(seed)
    emitted = 0
    for flips in generator.random((ROUNDS, len(conditional))):
        for flip, chance in zip(flips, conditional, strict=True):
            if flip >= chance:
                break
            emitted += 1
        emitted += 1
    return emitted / ROUNDS


@pytest.mark.parametrize(
    "conditional", [[0.742, 0.633, 0.617, 0.517, 0.647], [0.5] * 4, [0.9, 0.95, 0.99], [0.0, 1.0]]
)
def test_chain(conditional: list[float]) -> None:
    expected = ConditionalAccuracy(conditional).accept_length()
    assert mean_emitted(conditional, seed=11) == pytest.approx(expected, abs=0.02)


def test_chain_of_equal_depths() -> None:
    found = mean_emitted([0.8] * 5, seed=12)
    assert found == pytest.approx(float(geometric_accept_length(0.8, 5)), abs=0.03)


def test_chain_of_rejection_sampled_tokens() -> None:
    generator = np.random.default_rng(13)
    target = generator.dirichlet(np.ones(6), size=4)
    draft = generator.dirichlet(np.ones(6), size=4)
    emitted = 0
    for _ in range(8000):
        for t, d in zip(target, draft, strict=True):
            token = generator.choice(6, p=d)
            if generator.random() >= t[token] / d[token]:
                break
            emitted += 1
        emitted += 1
    expected = ConditionalAccuracy(sampled_acceptance(target, draft)).accept_length()
    assert emitted / 8000 == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("nodes", [1, 4, 9, 16])
def test_tree(nodes: int) -> None:
    rates = [0.55, 0.2, 0.1]
    tree = best_tree(rates, nodes)
    inside = set(tree.paths)
    generator = np.random.default_rng(14)
    emitted = 0
    for right in generator.choice(4, size=(ROUNDS, nodes), p=[*rates, 1.0 - sum(rates)]):
        path: tuple[int, ...] = ()
        for rank in right.tolist():
            if (*path, rank) not in inside:
                break
            path = (*path, rank)
        emitted += len(path) + 1
    assert emitted / ROUNDS == pytest.approx(tree.accept_length, abs=0.025)


def test_tree_with_rates_by_depth() -> None:
    rates = [[0.6, 0.2], [0.4, 0.3], [0.7, 0.1]]
    tree = tree_from_paths(((0,), (1,), (0, 0), (0, 1), (0, 1, 0)), rates)
    generator = np.random.default_rng(15)
    inside = set(tree.paths)
    emitted = 0
    for flips in generator.random((ROUNDS, 3)).tolist():
        path: tuple[int, ...] = ()
        for flip, (first, second) in zip(flips, rates, strict=True):
            rank = 0 if flip < first else 1 if flip < first + second else 2
            if (*path, rank) not in inside:
                break
            path = (*path, rank)
        emitted += len(path) + 1
    assert emitted / ROUNDS == pytest.approx(tree.accept_length, abs=0.02)


def test_requests_that_differ_and_decay_with_depth() -> None:
    decay = [1.0, 0.95, 0.9, 0.85]
    generator = np.random.default_rng(16)
    rates = generator.beta(0.7 * 9.0, 0.3 * 9.0, size=ROUNDS)
    emitted = 0
    for rate, flips in zip(rates.tolist(), generator.random((ROUNDS, 4)).tolist(), strict=True):
        for flip, share in zip(flips, decay, strict=True):
            if flip >= rate * share:
                break
            emitted += 1
        emitted += 1
    expected = heterogeneous_full_accuracy(0.7, 0.1, decay).accept_length()
    assert emitted / ROUNDS == pytest.approx(expected, abs=0.025)


def test_load_of_equal_outputs_sees_the_harmonic_mean() -> None:
    generator = np.random.default_rng(17)
    tokens, lengths, rounds = 4000, [], 0
    for rate in (0.9, 0.6, 0.3):
        done = used = 0
        while done < tokens:
            done += 1 + int(np.argmin(np.append(generator.random(3) < rate, [False])))
            used += 1
        lengths.append(done / used)
        rounds += used
    assert throughput_accept_length(lengths) == pytest.approx(3 * tokens / rounds, rel=2e-3)
