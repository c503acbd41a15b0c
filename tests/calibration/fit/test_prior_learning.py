"""The packaged prior is what learning makes of the packaged systems, and learning finds the truth."""

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.fit.prior_learning import (
    LearningSystem,
    PublicSystem,
    for_other_rigs,
    learn_prior,
    public_systems,
)
from specmodel.constants import NAMES, NUM_CONSTANTS, to_internal, to_natural
from specmodel.cost import round_terms
from specmodel.posterior import Rows
from specmodel.prior import family_of, load_prior
from specmodel.speedup import speedup
from tests.extent import extent

LEARNED = ("fixed_cost", "step_cost", "tree_cost")


@pytest.fixture(scope="module")
def teachers() -> list[PublicSystem]:
    return [one for one in public_systems() if one.teaches]


def test_learning_again_gives_the_packaged_prior(teachers: list[PublicSystem]) -> None:
    """Twenty rounds are within 0.2 % of where the packaged one was taken, after forty."""
    systems = [
        LearningSystem(
            name=one.name,
            target_model=one.target_model,
            rows=one.rows.rows,
            log_speedup=one.rows.log_speedup,
            curve=one.rows.curve,
        )
        for one in teachers
        if family_of(one.engine) == "sglang"
    ]
    learned = for_other_rigs(learn_prior(systems, name="again", rounds=20), "sglang")
    packaged = load_prior(experts_known=True, engine="sglang")
    assert set(learned.learned_from) == set(packaged.learned_from)
    np.testing.assert_allclose(learned.mean, packaged.mean, atol=0.01)
    np.testing.assert_allclose(
        np.sqrt(np.diag(learned.covariance)), np.sqrt(np.diag(packaged.covariance)), rtol=0.01
    )
    assert learned.noise.row_log_sd == pytest.approx(packaged.noise.row_log_sd, rel=0.02)


def test_every_target_has_a_prior_without_it(teachers: list[PublicSystem]) -> None:
    for system in teachers:
        prior = load_prior(
            experts_known=True, engine=system.engine, without_target=system.target_model
        )
        assert system.name not in prior.learned_from
        assert prior.learned_from


def made_up(
    index: int, generator: np.random.Generator
) -> tuple[LearningSystem, NDArray[np.float64]]:
    """A dense system with known constants: two depths more than needed, chains and trees."""
    centre = to_internal(np.array([1.2, 0.08, 0.15, 0.05, 0.05, 0.5, 0.9, 0.5, 0.9]))
    truth = centre + np.array([0.1, 0.3, 0.3, 0, 0, 0, 0, 0, 0]) * generator.standard_normal(9)
    steps = np.tile([1.0, 3.0, 5.0, 7.0], 8)
    topk = np.repeat([1.0, 4.0], 16)
    accept = 1.0 + steps * np.tile(np.repeat([0.25, 0.7], 4), 4)
    c0, c1, c_tree, _, share, *_ = to_natural(truth)
    cost = c0 + c1 * steps + c_tree * (topk > 1)
    measured = np.log(speedup(accept, cost, share)) + 0.01 * generator.standard_normal(32)
    rows = Rows(
        terms=round_terms(num_steps=steps, topk=topk),
        accept_length=accept,
        baseline_deficit=np.zeros(32),
        measured_share=np.full(32, np.nan),
        configuration=np.tile(np.arange(8), 4) % 4 + 4 * (topk > 1).astype(np.intp),
        run=(topk > 1).astype(np.intp),
    )
    return (
        LearningSystem(name=f"s{index}", target_model=f"t{index}", rows=rows, log_speedup=measured),
        truth,
    )


def test_the_spread_between_systems_is_found() -> None:
    """Twenty made-up systems: centre and spread of what their rows tell."""
    generator = np.random.default_rng(12)
    pairs = [made_up(index, generator) for index in range(20)]
    truths = np.array([truth for _, truth in pairs])
    prior = learn_prior(
        [system for system, _ in pairs], name="made up", rounds=extent(test=10, prove=25)
    )
    assert prior.mean.size == NUM_CONSTANTS
    for name in LEARNED:
        at = NAMES.index(name)
        spread = truths[:, at].std()
        assert prior.mean[at] == pytest.approx(truths[:, at].mean(), abs=0.5 * spread)
        assert np.sqrt(prior.covariance[at, at]) == pytest.approx(spread, rel=0.4)
