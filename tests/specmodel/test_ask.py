"""Questions completed from the calibration."""

from dataclasses import replace

import numpy as np
import pytest

from specmodel.ask import (
    Ask,
    calibrated_depth,
    configurations,
    depth_unknown,
    points_depth,
    question_of,
    workload_of,
)
from specmodel.baselines import Baseline, Baselines
from specmodel.calibration import Calibration
from specmodel.errors import UnknownKeyError, UsageError
from specmodel.prediction import counted
from specmodel.question import AcceptLength, Configuration, longest_accept_length


def calibrated(*known: Configuration, baselines: tuple[Baseline, ...] = ()) -> Calibration:
    """A calibration that holds some configurations; its constants do not matter."""
    prior = Calibration.from_prior()
    size = prior.posterior.mean.size + len(known)
    covariance = 1e-4 * np.eye(size)
    covariance[: -len(known), : -len(known)] = prior.posterior.covariance
    return replace(
        prior,
        posterior=replace(
            prior.posterior,
            mean=np.append(prior.posterior.mean, np.zeros(len(known))),
            covariance=covariance,
            num_configurations=len(known),
        ),
        configurations=known,
        baselines=Baselines(entries=baselines),
        num_points=len(known),
    )


def baseline(workload: str, tokens_per_s: float, batch_size: float = np.nan) -> Baseline:
    return Baseline(
        workload=workload,
        batch_size=batch_size,
        context_tokens=np.nan,
        tokens_per_s=tokens_per_s,
        step_time_s=np.nan,
    )


CHAIN = Configuration(num_steps=3, batch_size=8)
DEEP = Configuration(num_steps=5, batch_size=8)
LIST = Ask(full_accuracy=(0.7, 0.5, 0.3, 0.2, 0.1))
TREE = Configuration(num_steps=5, topk=4, num_draft_tokens=16, batch_size=8)


def test_what_is_not_given_is_the_only_calibrated_configuration() -> None:
    assert configurations(calibrated(CHAIN), Ask()) == [CHAIN]
    assert configurations(calibrated(TREE), Ask()) == [TREE]
    assert configurations(calibrated(Configuration()), Ask()) == [Configuration()]


def test_a_given_depth_keeps_the_rest_of_the_calibration() -> None:
    found = configurations(calibrated(CHAIN), Ask(num_steps=(1, 2)))
    assert found == [
        Configuration(num_steps=1, batch_size=8),
        Configuration(num_steps=2, batch_size=8),
    ]


def test_the_length_of_a_list_is_the_depth_where_none_is_given() -> None:
    assert configurations(calibrated(CHAIN), LIST) == [DEEP]
    given = LIST._replace(num_steps=(2,))
    assert configurations(calibrated(CHAIN), given)[0].num_steps == 2
    (prior,) = configurations(Calibration.from_prior(), LIST)
    assert prior.num_steps == 5


@pytest.mark.parametrize(
    ("ask", "taken", "answered"),
    [
        (LIST, 5, [5]),
        (LIST._replace(num_steps=(1, 5)), 5, [1, 5]),
        (Ask(accept_length=2.75, accept_depth=5), 5, [5]),
        (Ask(accept_length=2.75, accept_depth=5, num_steps=(5,)), 5, [5]),
        (Ask(accept_length=2.75, accept_depth=5, num_steps=(3, 5)), 5, [3, 5]),
        (Ask(accept_length=2.75, num_steps=(5,)), 5, [5]),
        (Ask(accept_length=2.75), None, [None]),
        (Ask(target_speedup=1.3, num_steps=(3, 5)), None, [3, 5]),
    ],
)
def test_an_unstated_depth_is_that_of_the_acceptance(
    ask: Ask, taken: int | None, answered: list[int | None]
) -> None:
    unstated = calibrated(Configuration())
    assert depth_unknown(unstated)
    assert points_depth(unstated, ask) == taken
    found = configurations(unstated, ask)
    assert [one.num_steps for one in found] == answered
    assert points_depth(calibrated(CHAIN), ask) is None
    assert not depth_unknown(Calibration.from_prior())
    for one in found:
        question = question_of(unstated, ask, one, AcceptLength.exact(2.75))
        assert (counted(unstated, question) == Configuration()) == (one.num_steps == taken)


@pytest.mark.parametrize(
    ("known", "option"),
    [
        ((CHAIN, DEEP), "--depth"),
        ((CHAIN, replace(CHAIN, batch_size=16)), "--batch-size"),
        ((CHAIN, replace(CHAIN, context_tokens=9000)), "--context-tokens"),
        ((TREE, replace(TREE, topk=8)), "--topk"),
    ],
)
def test_several_values_are_asked_for_by_option(
    known: tuple[Configuration, ...], option: str
) -> None:
    with pytest.raises(UsageError, match=option):
        configurations(calibrated(*known), Ask())


def test_the_packaged_prior_needs_a_depth() -> None:
    with pytest.raises(UsageError, match="--depth"):
        configurations(Calibration.from_prior(), Ask())


def test_chains_are_meant_where_chains_and_trees_were_measured() -> None:
    found = configurations(calibrated(DEEP, TREE), Ask())
    assert found == [DEEP]


def test_verified_tokens_of_a_tree_are_those_measured_or_given() -> None:
    known = calibrated(DEEP, TREE)
    assert configurations(known, Ask(topk=4)) == [TREE]
    (given,) = configurations(known, Ask(topk=8, num_draft_tokens=32))
    assert given.num_draft_tokens == 32
    with pytest.raises(UsageError, match="--num-draft-tokens"):
        configurations(known, Ask(topk=8))


def test_the_calibrated_depth_is_the_only_one_stated() -> None:
    assert calibrated_depth(calibrated(CHAIN, replace(CHAIN, batch_size=1))) == 3
    assert calibrated_depth(calibrated(CHAIN, DEEP)) is None
    assert calibrated_depth(calibrated(Configuration())) is None


def test_a_workload_is_the_given_one_or_the_only_named_one_at_the_load() -> None:
    two = calibrated(CHAIN, baselines=(baseline("chat", 400, 8), baseline("code", 380, 8)))
    assert workload_of(two, CHAIN, Ask()) is None
    assert workload_of(two, CHAIN, Ask(workload="code")) == "code"
    one = calibrated(CHAIN, baselines=(baseline("chat", 400, 8), baseline("code", 700, 16)))
    assert workload_of(one, CHAIN, Ask()) == "chat"
    assert workload_of(one, replace(CHAIN, batch_size=32), Ask()) is None


def test_an_unknown_workload_needs_its_own_baseline() -> None:
    known = calibrated(CHAIN, baselines=(baseline("chat", 400, 8),))
    with pytest.raises(UnknownKeyError, match="known: chat"):
        workload_of(known, CHAIN, Ask(workload="maths"))
    ask = Ask(workload="maths", baseline_tokens_per_s=390)
    assert workload_of(known, CHAIN, ask) == "maths"


@pytest.mark.parametrize(
    ("configuration", "longest"),
    [
        (Configuration(num_steps=5), 6),
        (TREE, 6),
        (Configuration(num_steps=5, topk=4, num_draft_tokens=4), 4),
        (Configuration(num_steps=1, num_draft_tokens=8), 8),
        (Configuration(num_steps=1), 2),
        (Configuration(), None),
        (Configuration(num_draft_tokens=8), 8),
    ],
)
def test_the_longest_accept_length_is_the_path_or_the_block(
    configuration: Configuration, longest: float | None
) -> None:
    assert longest_accept_length(configuration) == longest
