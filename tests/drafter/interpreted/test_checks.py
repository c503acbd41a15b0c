"""A check passes sound kernels and fails broken ones, whatever is broken about them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from drafter import checks as checking
from drafter.check_cases import CheckCase, CheckResult, check_cases
from drafter.checks import check_against_reference
from drafter.kernels.draft_steps import DraftSteps
from drafter.random_weights import random_weights

CHAIN = check_cases()[0]
TREE = next(case for case in check_cases() if case.topk > 1)
LATENT = next(case for case in check_cases() if case.spec.latent is not None)
Damage = Callable[[DraftSteps], object]


def checked(case: CheckCase) -> CheckResult:
    weights = random_weights(case.spec, seed=0, dtype=torch.float32)
    return check_against_reference(case, weights, device=torch.device("cpu"))


@pytest.mark.parametrize("case", [CHAIN, TREE, LATENT], ids=["chain", "tree", "latent"])
def test_sound_kernels_pass(case: CheckCase) -> None:
    result = checked(case)
    assert result.passed
    assert 0.0 < result.error <= 1e-5
    assert result.tokens == result.equal_tokens > 0


def halve_down(steps: DraftSteps) -> None:
    steps.weights.down.mul_(0.5)


def swap_head_rows(steps: DraftSteps) -> None:
    steps.weights.head.copy_(steps.weights.head.flip(0))


def one_not_a_number(steps: DraftSteps) -> None:
    steps.weights.head[3, 3] = float("nan")


@pytest.mark.parametrize("damage", [halve_down, swap_head_rows, one_not_a_number])
@pytest.mark.parametrize("case", [CHAIN, TREE], ids=["chain", "tree"])
def test_broken_kernels_fail(
    case: CheckCase, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = checking._kernels

    def broken(*arguments: object) -> DraftSteps:
        steps = made(*arguments)  # type: ignore[arg-type]
        owned = {name: getattr(steps.weights, name).clone() for name in ("down", "head")}
        steps.weights = replace(steps.weights, **owned)
        damage(steps)
        return steps

    monkeypatch.setattr(checking, "_kernels", broken)
    result = checked(case)
    assert not result.passed
    assert result.error > 100 * case.limit


@pytest.mark.parametrize("case", [CHAIN, TREE], ids=["chain", "tree"])
def test_a_wrong_map_of_the_vocabulary_fails_by_its_tokens(
    case: CheckCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference follows the tokens that were fed, so the logits agree all the same."""
    made = checking._kernels

    def shifted(*arguments: object) -> DraftSteps:
        steps = made(*arguments)  # type: ignore[arg-type]
        steps.weights = replace(steps.weights, offsets=steps.weights.offsets - 1)
        return steps

    monkeypatch.setattr(checking, "_kernels", shifted)
    result = checked(case)
    assert result.error <= case.limit
    assert result.equal_tokens == 0 < result.tokens
    assert not result.passed


def test_bf16_weights_in_place_of_fp32_ones_fail_the_limit_of_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = checking._kernels

    def rounded(*arguments: object) -> DraftSteps:
        steps = made(*arguments)  # type: ignore[arg-type]
        steps.weights = replace(
            steps.weights, down=steps.weights.down.to(torch.bfloat16).to(torch.float32)
        )
        return steps

    monkeypatch.setattr(checking, "_kernels", rounded)
    result = checked(CHAIN)
    assert 1e-5 < result.error < 1e-2
    assert not result.passed
