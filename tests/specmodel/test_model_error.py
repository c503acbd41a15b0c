"""The covariance of what the physical form misses: its formula, and what any covariance must be."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.errors import ParameterError
from specmodel.model_error import Loads, ModelError, error_covariance

Array = NDArray[np.float64]
Load = tuple[Loads, int, float]

NONE = ModelError(level=0, rows=0, context=0, rounds=0, draft=0, tree=0, local=0)


def random_loads(count: int, seed: int) -> tuple[Loads, Array]:
    """Base steps, chains and trees of any load, some of them twice, with shares of the target."""
    rng = np.random.default_rng(seed)
    depth = rng.integers(0, 9, count).astype(float)
    topk = np.where(depth > 0, rng.integers(1, 5, count), 1).astype(float)
    loads = Loads.of(
        num_steps=depth,
        topk=topk,
        num_draft_tokens=np.where(topk > 1, rng.integers(2, 65, count), depth + 1),
        batch_size=rng.choice([1, 1.5, 2, 8, 64, 1000], count),
        context_tokens=rng.choice([0, 1, 4096, 131072, 1e6], count),
    )
    share = np.where(depth > 0, rng.uniform(0.2, 1.0, count), 1.0)
    again = rng.integers(0, count, count // 4)
    return Loads.concatenated(loads, loads.take(again)), np.concatenate([share, share[again]])


def by_hand(first: Load, second: Load, form: ModelError) -> float:
    """The formula of the documentation for one pair, term by term."""

    def facts(load: Load) -> tuple[float, float, float, float, bool, bool]:
        loads, at, share = load
        depth = float(loads.num_steps[at])
        rows = float(loads.batch_size[at]) * (float(loads.num_draft_tokens[at]) if depth else 1.0)
        octaves = math.log2(1 + float(loads.context_tokens[at]) / 4096)
        return share, depth, math.log2(rows), octaves, depth > 0, float(loads.topk[at]) > 1

    w, k, r, c, round_, tree = facts(first)
    v, k2, r2, c2, round2, tree2 = facts(second)
    found = w * v * (form.level**2 + form.rows**2 * min(r, r2))
    found += w * v * form.context**2 * math.exp(-abs(c - c2) / form.context_octaves)
    found += form.local**2 * math.exp(-abs(r - r2) - abs(c - c2) - abs(k - k2) / 2)
    if round_ and round2:
        found += form.rounds**2
        found += (1 - w) * (1 - v) * form.draft**2 * math.exp(-abs(k - k2) / 6)
        found += form.tree**2 if tree and tree2 else 0.0
    return found


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_formula_pair_by_pair(seed: int) -> None:
    (first, w), (second, v) = random_loads(8, seed), random_loads(5, seed + 100)
    found = error_covariance(first, w, second, v, ModelError())
    expected = [
        [by_hand((first, i, w[i]), (second, j, v[j]), ModelError()) for j in range(len(second))]
        for i in range(len(first))
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_covariance_whatever_the_loads(seed: int) -> None:
    loads, share = random_loads(40, seed)
    rng = np.random.default_rng(seed)
    form = ModelError(**{each.name: float(rng.uniform(0.01, 0.5)) for each in fields(ModelError)})
    found = error_covariance(loads, share, loads, share, form)
    np.testing.assert_allclose(found, found.T, rtol=1e-12)
    values = np.linalg.eigvalsh(found)
    assert values[0] > -1e-10 * values[-1]


def test_a_load_that_is_there_twice_has_one_error() -> None:
    loads, share = random_loads(30, 4)
    once = error_covariance(loads, share, loads, share, ModelError())
    twice, shares = Loads.concatenated(loads, loads), np.concatenate([share, share])
    found = error_covariance(twice, shares, twice, shares, ModelError())
    np.testing.assert_allclose(found, np.tile(once, (2, 2)), rtol=1e-12)


def test_the_error_of_rows_is_a_random_walk_in_octaves() -> None:
    form = replace(NONE, rows=0.1)
    batches = 2.0 ** np.arange(6)
    steps, share = Loads.of(num_steps=0, batch_size=batches), np.ones(6)
    found = error_covariance(steps, share, steps, share, form)
    np.testing.assert_allclose(np.diag(found), 0.01 * np.arange(6), atol=1e-15)
    increments = np.diff(np.eye(6), axis=0)
    np.testing.assert_allclose(increments @ found @ increments.T, 0.01 * np.eye(5), atol=1e-15)


def test_a_base_step_shares_the_error_of_the_pass_that_verifies_as_many_rows() -> None:
    form = replace(NONE, level=0.05, rows=0.1, context=0.07)
    step = Loads.of(num_steps=0, batch_size=32)
    verify = Loads.of(num_steps=3, batch_size=8)
    one = np.ones(1)
    found = error_covariance(step, one, verify, one, form)
    assert found == pytest.approx(error_covariance(step, one, step, one, form))


def test_what_rounds_miss_is_no_concern_of_base_steps() -> None:
    form = replace(NONE, rounds=0.1, draft=0.2, tree=0.3)
    steps = Loads.of(num_steps=0, batch_size=[1, 64])
    rounds = Loads.of(num_steps=[3, 5], topk=[1, 4], num_draft_tokens=[4, 16])
    share = np.array([0.6, 0.7])
    assert not error_covariance(steps, np.ones(2), rounds, share, form).any()
    found = error_covariance(rounds, share, rounds, share, form)
    assert found[1, 1] - 0.3**2 == pytest.approx(0.1**2 + 0.3**2 * 0.2**2)
    assert found[0, 1] == pytest.approx(0.1**2 + 0.4 * 0.3 * 0.2**2 * math.exp(-2 / 6))


def test_contexts_far_apart_share_nothing_of_their_own_error() -> None:
    form = replace(NONE, context=0.2, context_octaves=0.5)
    steps = Loads.of(num_steps=0, context_tokens=[0, 4096 * (2.0**20 - 1)])
    found = error_covariance(steps, np.ones(2), steps, np.ones(2), form)
    np.testing.assert_allclose(found, [[0.04, 0], [0, 0.04]], atol=1e-15)


@pytest.mark.parametrize("name", [each.name for each in fields(ModelError)])
@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf, 1e9])
def test_a_spread_that_none_has_is_refused(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=name):
        ModelError(**{name: value})


@pytest.mark.parametrize("name", ["noise", "context_octaves"])
def test_what_is_divided_by_is_not_nothing(name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        ModelError(**{name: 0.0})


def test_a_chain_verifies_one_row_more_than_it_drafts_and_a_step_one() -> None:
    loads = Loads.of(num_steps=[0, 3, 5], batch_size=[4, 4, 1], num_draft_tokens=None)
    assert loads.rows.tolist() == [4, 16, 6]
    assert loads.rounds.tolist() == [False, True, True]
    assert loads.base_steps().rows.tolist() == [4, 4, 1]


def test_loads_are_taken_and_put_together_in_their_order() -> None:
    loads, _ = random_loads(12, 9)
    parts = [loads.take(np.arange(0, 5)), loads.take(np.arange(5, len(loads)))]
    again = Loads.concatenated(*parts)
    for each in fields(Loads):
        assert np.array_equal(getattr(again, each.name), getattr(loads, each.name))


def test_loads_of_several_lengths_are_refused() -> None:
    with pytest.raises(ParameterError, match="loads"):
        Loads.of(num_steps=[1, 2], batch_size=[1, 2, 3])
    one = Loads.of(num_steps=1)
    with pytest.raises(ParameterError, match="share"):
        error_covariance(one, np.ones(2), one, np.ones(1), ModelError())
