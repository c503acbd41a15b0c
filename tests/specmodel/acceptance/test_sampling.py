from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import (
    TEMPERATURE_ONE_LOGIT_OFFSET,
    greedy_agreement,
    greedy_draft_acceptance,
    sampled_acceptance,
    shift_acceptance_rate,
    softmax,
)
from specmodel.errors import ParameterError

Rows = list[dict[str, str]]


def rejection_sample(
    target: list[float], draft: list[float], rounds: int, seed: int
) -> tuple[float, list[float]]:
    """Accept rate and emitted frequencies of the speculative sampler, one token at a time."""
    generator = np.random.default_rng(seed)
    size = len(target)
    residual = [max(t - d, 0.0) for t, d in zip(target, draft, strict=True)]
    accepted, counts = 0, [0] * size
    drawn = generator.choice(size, size=rounds, p=draft)
    coins = generator.random(rounds)
    total = sum(residual)
    fallback = [r / total for r in residual] if total > 0 else target
    replaced = generator.choice(size, size=rounds, p=fallback)
    for token, coin, other in zip(drawn, coins, replaced, strict=True):
        keep = coin < min(1.0, target[token] / draft[token])
        accepted += keep
        counts[token if keep else other] += 1
    return accepted / rounds, [count / rounds for count in counts]


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
        ([0.9, 0.05, 0.05], [0.6, 0.3, 0.1]),
        ([0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]),
    ],
)
def test_rejection_sampling_accepts_one_minus_total_variation(
    target: list[float], draft: list[float]
) -> None:
    rate, emitted = rejection_sample(target, draft, 40_000, seed=3)
    variation = 0.5 * sum(abs(t - d) for t, d in zip(target, draft, strict=True))
    expected = float(sampled_acceptance(target, draft))
    assert expected == pytest.approx(1.0 - variation)
    assert rate == pytest.approx(expected, abs=0.01)
    assert emitted == pytest.approx(target, abs=0.01)


def test_greedy_draft_is_a_one_hot_draft_distribution() -> None:
    generator = np.random.default_rng(5)
    target = generator.dirichlet(np.ones(8), size=50)
    draft = generator.dirichlet(np.ones(8), size=50)
    one_hot = np.eye(8)[draft.argmax(axis=-1)]
    expected = sampled_acceptance(target, one_hot)
    assert greedy_draft_acceptance(target, draft) == pytest.approx(expected)


def test_greedy_on_both_sides_is_top_one_agreement() -> None:
    generator = np.random.default_rng(6)
    target, draft = generator.normal(size=(2, 60, 5))
    at_zero = sampled_acceptance(softmax(target, 0.0), softmax(draft, 0.0))
    assert greedy_agreement(target, draft).tolist() == at_zero.tolist()


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=6), st.floats(0.05, 20.0))
def test_equal_models_are_always_accepted(logits: list[float], temperature: float) -> None:
    probs = softmax(logits, temperature)
    assert float(sampled_acceptance(probs, probs)) == pytest.approx(1.0)


def test_temperature_limits() -> None:
    logits = [0.3, 2.0, -1.0]
    assert softmax(logits, 0.0).tolist() == [0.0, 1.0, 0.0]
    assert softmax(logits, 1e-3) == pytest.approx([0.0, 1.0, 0.0])
    assert softmax(logits, 1e6) == pytest.approx([1 / 3] * 3, abs=1e-5)
    assert softmax([1000.0, 0.0]) == pytest.approx([1.0, 0.0])


def test_sampled_draft_loses_less_to_temperature_than_a_greedy_one() -> None:
    generator = np.random.default_rng(8)
    logits = generator.normal(size=(400, 20)) * 3.0
    noisy = logits + generator.normal(size=logits.shape)
    hot_target, hot_draft = softmax(logits, 1.0), softmax(noisy, 1.0)
    sampled = sampled_acceptance(hot_target, hot_draft).mean()
    greedy = greedy_draft_acceptance(hot_target, hot_draft).mean()
    assert greedy < sampled


def test_published_temperature_pairs_give_the_packaged_offset(
    golden: Callable[[str], Rows],
) -> None:
    rates = {
        (row["task"], row["draft_model"], row["temperature"]): float(row["acceptance_rate"])
        for row in golden("leviathan2023_t5")
    }
    offsets = [
        np.log(rates[task, draft, "1"] / (1 - rates[task, draft, "1"])) - np.log(rate / (1 - rate))
        for (task, draft, temperature), rate in rates.items()
        if temperature == "0"
    ]
    assert np.mean(offsets) == pytest.approx(TEMPERATURE_ONE_LOGIT_OFFSET, abs=5e-3)


@given(st.floats(0.0, 1.0), st.floats(-5.0, 5.0))
def test_logit_shift_is_undone_by_its_opposite(rate: float, offset: float) -> None:
    there = shift_acceptance_rate(rate, offset)
    assert float(shift_acceptance_rate(there, -offset)) == pytest.approx(rate, abs=1e-9)


def test_logit_shift_keeps_the_ends() -> None:
    assert shift_acceptance_rate([0.0, 1.0], -3.0).tolist() == [0.0, 1.0]


def test_unnormalised_distributions_are_refused() -> None:
    with pytest.raises(ParameterError, match="sum of draft_probs"):
        sampled_acceptance([0.5, 0.5], [0.5, 0.6])
    with pytest.raises(ParameterError, match="temperature"):
        softmax([0.0, 1.0], -1.0)
