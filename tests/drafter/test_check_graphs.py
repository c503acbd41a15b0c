"""Graphs have to give every bit of launches in turn, overlapping launches every integer and near numbers."""

from collections.abc import Callable

import pytest
import torch

from drafter import checks
from drafter.check_cases import GRAPH, OVERLAP, CheckResult, check_cases
from drafter.checks import check_graphs
from drafter.report import checks_text

CASE = next(each for each in check_cases() if each.dtype == "bfloat16")
TOKENS = torch.tensor([[5, 7, 11]])
SCORES = torch.tensor([[-0.25, -1.5, -2.75]])
KEYS = torch.linspace(-3.0, 3.0, 64).reshape(2, 32).to(torch.bfloat16)
VALUES = torch.zeros(2, 0, dtype=torch.bfloat16)
Drafted = list[torch.Tensor]
Compare = Callable[..., dict[str, CheckResult]]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Results of drafts whose numbers the test writes; an engine is not made."""

    def run(
        *, graph: Drafted | None = None, overlap: Drafted | None = None, capability: int = 9
    ) -> dict[str, CheckResult]:
        def drafted(*_: object, uses_graphs: bool, is_programmatic: bool) -> Drafted:
            other = overlap if is_programmatic else graph if uses_graphs else None
            return [TOKENS, SCORES, KEYS, VALUES] if other is None else other

        monkeypatch.setattr(checks, "_drafted", drafted)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (capability, 0))
        found = check_graphs(CASE, {}, device=torch.device("cpu"))
        return {each.quantity: each for each in found}

    return run


def one_ulp_off() -> Drafted:
    """The smallest change of one number of the cache and of one score."""
    keys, scores = KEYS.clone(), SCORES.clone()
    keys.view(torch.int16)[1, 3] += 1
    scores.view(torch.int32)[0, 1] += 1
    assert not torch.equal(keys, KEYS)
    assert not torch.equal(scores, SCORES)
    return [TOKENS, scores, keys, VALUES]


def test_what_is_equal_passes_with_no_error(compare: Compare) -> None:
    results = compare()
    assert list(results) == [GRAPH, OVERLAP]
    assert all(each.passed and each.error == 0.0 for each in results.values())
    assert (results[OVERLAP].tokens, results[OVERLAP].equal_tokens) == (3, 3)


def test_one_ulp_fails_a_graph_and_passes_what_is_compiled_apart(compare: Compare) -> None:
    results = compare(graph=one_ulp_off(), overlap=one_ulp_off())
    assert not results[GRAPH].passed
    overlap = results[OVERLAP]
    # one number of 64 by 2^-8 of itself, and less
    assert 0.0 < overlap.error < 2.0**-8
    assert overlap.passed


@pytest.mark.parametrize(
    "other",
    [
        [torch.tensor([[5, 7, 12]]), SCORES, KEYS, VALUES],
        [TOKENS, SCORES * 1.02, KEYS, VALUES],
        [TOKENS, SCORES, KEYS.roll(1), VALUES],
        [TOKENS, SCORES, KEYS * float("nan"), VALUES],
        [TOKENS, SCORES * 0.0, KEYS, VALUES],
    ],
    ids=["token", "score", "cache", "not a number", "zeros"],
)
def test_overlapping_launches_that_go_wrong_fail(other: Drafted, compare: Compare) -> None:
    results = compare(overlap=other)
    assert results[GRAPH].passed
    assert not results[OVERLAP].passed
    assert results[OVERLAP].limit == CASE.limit == 1.5e-2


def test_the_error_is_the_relative_norm_of_the_worst_part(compare: Compare) -> None:
    overlap = compare(overlap=[TOKENS, SCORES * 1.01, KEYS, VALUES])[OVERLAP]
    assert overlap.error == pytest.approx(0.01, rel=1e-5)


def test_before_sm_90_no_launch_overlaps(compare: Compare) -> None:
    assert list(compare(capability=8)) == [GRAPH]


def test_the_table_says_what_was_compared_with_launches_in_turn(compare: Compare) -> None:
    text = checks_text(list(compare(overlap=one_ulp_off()).values()), "a GPU")
    assert "overlap ~ eager: the largest relative error" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
