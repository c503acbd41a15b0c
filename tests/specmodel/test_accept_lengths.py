"""From what a user knows of acceptance to an accept length at every depth."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.accept_lengths import AcceptLengths, accept_length_draws, accept_lengths
from specmodel.acceptance import TRANSFER_PRIOR
from specmodel.ask import Ask, MeasuredLengths
from specmodel.errors import ParameterError, UsageError
from specmodel.question import AcceptLength, Configuration, Estimate

FULL = (0.742, 0.47, 0.29, 0.15, 0.097)
CONDITIONAL = (0.77, 0.65, 0.60, 0.57, 0.53)


def at(*depths: int | None, topk: int = 1) -> list[Configuration]:
    return [
        Configuration(num_steps=depth, topk=topk, num_draft_tokens=16 if topk > 1 else None)
        for depth in depths
    ]


def medians(found: AcceptLengths) -> list[float]:
    return [value.estimate.median for value in found.values]


def codes(found: AcceptLengths) -> list[str]:
    return [note.code for note in found.notes]


falling = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=8).map(
    lambda values: tuple(sorted(values, reverse=True))
)


@given(falling, st.data())
def test_where_it_was_served_a_full_list_gives_its_own_sum(
    full: tuple[float, ...], data: st.DataObject
) -> None:
    depth = data.draw(st.integers(1, len(full)))
    shallow, there = accept_lengths(Ask(full_accuracy=full), at(depth, len(full))).values
    assert there == AcceptLength.exact(there.estimate.median)
    assert there.estimate.median == pytest.approx(1 + sum(full))
    assert 1 + sum(full[:depth]) <= shallow.estimate.median + 1e-9
    assert shallow.estimate.high <= there.estimate.median + 1e-9
    assert shallow.estimate.high <= depth + 1 + 1e-9
    # The positions of a training log are those of any depth.
    logged = accept_lengths(Ask(full_accuracy=full, from_training=True), at(depth))
    assert logged.as_logged is not None
    assert logged.as_logged[0].estimate.median == pytest.approx(1 + sum(full[:depth]))
    assert "accept_length_carried" not in codes(logged)


@given(falling, st.integers(0, 4), st.data())
def test_accept_lengths_of_a_list_rise_with_depth_and_stay_possible(
    full: tuple[float, ...], more: int, data: st.DataObject
) -> None:
    depths = sorted(data.draw(st.sets(st.integers(1, 12), min_size=2)))
    ask = Ask(full_accuracy=full, accept_depth=len(full) + more)
    found = accept_lengths(ask, at(*depths))
    for low, high in pairwise(found.values):
        assert low.estimate.median <= high.estimate.median + 1e-9
    for depth, value in zip(depths, found.values, strict=True):
        assert 1 <= value.estimate.low <= value.estimate.median <= value.estimate.high
        assert value.estimate.high <= depth + 1 + 1e-9


# First position on vLLM by served depth, and the list at depth 3 (cpu_proof.md, findings 7).
def test_a_list_is_carried_with_the_effect_of_the_depth_it_was_served_at() -> None:
    full = (0.6760, 0.4962, 0.3842)
    one, two = accept_lengths(Ask(full_accuracy=full), at(1, 2)).values
    assert one.estimate.low < 1.726 < one.estimate.high
    assert one.estimate.median == pytest.approx(1.726, abs=0.025)  # 1.676 before
    # The loop's first position: .560 of a list at depth 7 that has 2.904, 1.686 when served alone.
    loop = (0.560, 0.37, 0.259, 0.2, 0.18, 0.172, 0.163)
    (alone,) = accept_lengths(Ask(full_accuracy=loop), at(1)).values
    assert sum(loop) == pytest.approx(1.904)
    assert 1.56 < alone.estimate.low < 1.686 < alone.estimate.high
    # Two positions of a list that was served at depth 3 belong to depth 3.
    (short,) = accept_lengths(Ask(full_accuracy=full[:2], accept_depth=3), at(2)).values
    assert short.estimate.median == pytest.approx(two.estimate.median, rel=0.003)


def test_a_list_beside_measured_depths_of_the_same_height_keeps_them() -> None:
    full = (0.7, 0.45, 0.3, 0.2, 0.15)
    points = MeasuredLengths(({2: 2.25, 5: 2.8},))
    two, five = accept_lengths(Ask(full_accuracy=full), at(2, 5), measured=points).values
    assert two.estimate.median == pytest.approx(2.25)
    assert five.estimate.median == pytest.approx(2.8)
    other = MeasuredLengths(({2: 2.6, 5: 4.0},))  # another draft model
    (two,) = accept_lengths(Ask(full_accuracy=full), at(2), measured=other).values
    alone = accept_lengths(Ask(full_accuracy=full), at(2)).values[0]
    assert two.estimate.median == pytest.approx(alone.estimate.median, rel=0.01)


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=8).map(tuple))
def test_conditional_accuracies_multiply(conditional: tuple[float, ...]) -> None:
    found = accept_lengths(Ask(conditional_accuracy=conditional), at(len(conditional)))
    products = accumulate(conditional, lambda left, right: left * right)
    assert medians(found) == pytest.approx([1 + sum(products)])


def test_a_list_beyond_its_depth_rises_and_grows_less_sure() -> None:
    found = accept_lengths(Ask(full_accuracy=FULL), at(5, 7, 10, 16))
    assert medians(found) == sorted(medians(found))
    widths = [value.estimate.high - value.estimate.low for value in found.values]
    assert widths[0] == 0
    assert widths == sorted(widths)
    assert codes(found) == ["conditional_jump", "accept_length_carried"]
    assert found.measured_depth == 5
    assert found.curve is not None


def test_one_number_stands_for_the_depth_of_the_question() -> None:
    found = accept_lengths(Ask(accept_length=2.75), at(10), calibrated_depth=3)
    assert medians(found) == [2.75]
    assert codes(found) == []


def test_one_number_is_carried_from_the_depth_it_was_measured_at() -> None:
    asked = Ask(accept_length=2.75, accept_depth=5)
    found = accept_lengths(asked, at(1, 5, 10))
    assert medians(found)[1] == 2.75
    assert found.values[1].log_sd == 0
    assert medians(found)[0] < 2.0
    assert 2.80 <= medians(found)[2] <= 2.95
    assert codes(found) == ["accept_length_carried"]
    assert accept_lengths(asked, at(5)).notes == ()


def test_one_number_for_several_depths_belongs_to_the_calibrated_one() -> None:
    found = accept_lengths(Ask(accept_length=2.5), at(2, 3), calibrated_depth=3)
    assert medians(found)[1] == 2.5
    with pytest.raises(UsageError, match="--accept-depth"):
        accept_lengths(Ask(accept_length=2.5), at(2, 3))


def test_an_unstated_depth_takes_the_number_as_it_is() -> None:
    assert medians(accept_lengths(Ask(accept_length=7.5), at(None))) == [7.5]


def test_the_spread_of_a_measured_accept_length_is_carried_with_it() -> None:
    estimate = Estimate(median=2.75, low=2.5, high=3.0)
    asked = Ask(accept_length=AcceptLength(estimate=estimate, log_sd=0.06), accept_depth=5)
    there, deeper = accept_lengths(asked, at(5, 10)).values
    sure = accept_lengths(Ask(accept_length=2.75, accept_depth=5), at(10)).values[0]
    assert there == asked.accept_length
    assert deeper.log_sd > max(sure.log_sd, 0.06)
    assert deeper.estimate.low < sure.estimate.low


@pytest.mark.parametrize(
    ("value", "configuration", "allowed"),
    [
        (0.99, Configuration(num_steps=3), False),
        (1.0, Configuration(num_steps=3), True),
        (4.0, Configuration(num_steps=3), True),
        (4.004, Configuration(num_steps=3), True),  # printed with two decimals
        (4.1, Configuration(num_steps=3), False),
        (4.1, Configuration(num_steps=3, topk=4, num_draft_tokens=16), False),
        (3.5, Configuration(num_steps=5, topk=4, num_draft_tokens=3), False),
        (7.9, Configuration(num_steps=1, num_draft_tokens=8), True),  # a block drafter
        (8.1, Configuration(num_steps=1, num_draft_tokens=8), False),
        (99.0, Configuration(), True),
        (float("nan"), Configuration(), False),
        (float("inf"), Configuration(), False),
    ],
)
def test_accept_lengths_are_held_to_the_longest_path(
    value: float, configuration: Configuration, *, allowed: bool
) -> None:
    asked = Ask(accept_length=value)
    if allowed:
        assert medians(accept_lengths(asked, [configuration])) == [value]
    else:
        with pytest.raises(ParameterError, match="accept length"):
            accept_lengths(asked, [configuration])


def test_the_acceptance_of_a_chain_is_not_that_of_a_tree() -> None:
    found = accept_lengths(Ask(full_accuracy=FULL), at(5, topk=4))
    assert "chain_acceptance_for_a_tree" in codes(found)
    carried = Ask(accept_length=2.5, accept_depth=3)
    assert "chain_acceptance_for_a_tree" in codes(accept_lengths(carried, at(5, topk=4)))


def test_training_values_are_transferred_and_kept_as_logged() -> None:
    asked = Ask(full_accuracy=FULL, from_training=True, matched_prompts=True)
    found = accept_lengths(asked, at(5))
    assert found.as_logged is not None
    assert found.as_logged[0].estimate.median == pytest.approx(2.749)
    (served,) = found.values
    factors = TRANSFER_PRIOR.median * np.exp(
        1.6448536 * TRANSFER_PRIOR.total_sd * np.array([-1, 0, 1])
    )
    low, median, high = 1.0 + factors * 1.749
    assert served.estimate.median == pytest.approx(median)
    assert served.estimate.low == pytest.approx(low, rel=1e-6)
    assert served.estimate.high == pytest.approx(high, rel=1e-6)
    assert "transfer" in codes(found)


def test_a_served_accept_length_stays_below_the_longest_path() -> None:
    asked = Ask(accept_length=3.95, from_training=True)
    (served,) = accept_lengths(asked, at(3)).values
    assert served.estimate.high == 4.0
    nothing = accept_lengths(Ask(accept_length=1.0, from_training=True), at(3))
    assert medians(nothing) == [1.0]


def test_draws_have_the_spread_of_the_accept_lengths() -> None:
    asked = Ask(full_accuracy=FULL, from_training=True, matched_prompts=True)
    depths = [3, 5, 10]
    found = accept_lengths(asked, at(*depths))
    drawn = accept_length_draws(found, depths, num_draws=20_000, rng=np.random.default_rng(0))
    low, median, high = np.quantile(drawn, [0.05, 0.5, 0.95], axis=0)
    assert median == pytest.approx([v.estimate.median for v in found.values], rel=0.01)
    assert low == pytest.approx([v.estimate.low for v in found.values], rel=0.02)
    assert high == pytest.approx([v.estimate.high for v in found.values], rel=0.02)
    assert np.all(drawn >= 1)
    assert np.all(drawn <= np.array(depths) + 1)


def test_a_curve_higher_beyond_its_measured_depth_is_lower_before_it() -> None:
    asked = Ask(accept_length=2.75, accept_depth=5)
    depths = [2, 5, 10]
    found = accept_lengths(asked, at(*depths))
    drawn = accept_length_draws(found, depths, num_draws=2000, rng=np.random.default_rng(0))
    assert np.ptp(drawn[:, 1]) == 0
    assert np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1] < -0.99


def test_nothing_known_is_asked_for() -> None:
    with pytest.raises(UsageError, match="--accept"):
        accept_lengths(Ask(), at(3))
    with pytest.raises(UsageError, match="depth 5"):
        accept_lengths(Ask(full_accuracy=FULL, accept_depth=3), at(3))
