"""Depths by batch: the best one, what it assumes and where it stops."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from calibration.fit.fit import fit
from calibration.points.packaged import EXAMPLES, packaged_table
from calibration.tune.depth_by_batch import (
    TIE,
    batches_to_choose_for,
    depth_schedule,
    loaded_overhead_at,
    overhead_note,
    schedule_text,
)
from specmodel.acceptance import FullAccuracy
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.question import Configuration

MakeSystem = Callable[..., Calibration]

LENGTHS = {1: 1.70, 2: 2.15, 3: 2.40, 4: 2.50}


def round_cost(batch_size: int, num_steps: int) -> float:
    """The hand-worked cost of `flat_then_linear`."""
    verify = max(1.0, (num_steps + 1) * batch_size / 8) / max(1.0, batch_size / 8)
    return verify + 0.1 * num_steps


def test_the_hand_worked_schedule(flat_then_linear: Calibration) -> None:
    # batch 1: 1.70/1.1 = 1.55, 2.15/1.2 = 1.79, 2.40/1.3 = 1.85, 2.50/1.4 = 1.79: depth 3
    # batch 3: 1.70/1.1 = 1.55, 2.15/1.325 = 1.62, 2.40/1.8 = 1.33: depth 2
    # batch 7: 1.70/1.85 = 0.919 against 1/1.107 = 0.903 of the loaded server at 0: depth 1
    # batch 8: 1.70/2.1 = 0.81 against 1/1.112 = 0.90: depth 0
    schedule = depth_schedule(flat_then_linear, LENGTHS)
    assert schedule.as_lists() == [[1, 2, 3], [3, 3, 2], [4, 7, 1], [8, 16, 0]]


def test_every_relative_throughput_is_accept_length_over_round_cost(
    flat_then_linear: Calibration,
) -> None:
    schedule = depth_schedule(flat_then_linear, LENGTHS)
    assert [choice.batch_size for choice in schedule.choices] == list(range(1, 17))
    for choice in schedule.choices:
        for num_steps, length in LENGTHS.items():
            expected = length / round_cost(choice.batch_size, num_steps)
            assert choice.at(num_steps) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("overhead", "first_of_zero"),
    [(0.0, 7), (0.25, None), ({1.0: 0.0, 16.0: 0.5}, None), ({7.0: 0.0, 8.0: 0.2}, 7)],
)
def test_depth_0_competes_with_the_loaded_server(
    flat_then_linear: Calibration, overhead: float | dict[float, float], first_of_zero: int | None
) -> None:
    # depth 1 gives 0.919 at 7 and 0.8095 from 8 on; 1/1.25 = 0.8 is below 0.99 of that. Shares by the
    # logarithm of the batch: 0.375 at batch 8 of 1 to 16, so depth 0 never wins there either.
    schedule = depth_schedule(flat_then_linear, LENGTHS, loaded_overhead=overhead)
    zero = [one.first_batch_size for one in schedule.ranges if one.num_steps == 0]
    assert zero[:1] == ([] if first_of_zero is None else [first_of_zero])


def test_where_no_draft_model_would_be_faster_is_said(flat_then_linear: Calibration) -> None:
    notes = depth_schedule(flat_then_linear, LENGTHS).notes
    assert "a server without a draft model is faster than any depth at batch 7 to 16" in notes
    assert any("49548" in note and "another system" in note for note in notes)


def test_a_tie_goes_to_the_smaller_depth(make_system: MakeSystem) -> None:
    # no curve: round cost 1.1 and 1.2 at every batch
    system = make_system(depths=(1.0, 2.0), batches=(1.0, 4.0))
    equal = 1.1 * 2.0 / 1.2
    nearly, clearly = (1 - 0.9 * TIE) * equal, (1 - 1.1 * TIE) * equal
    assert depth_schedule(system, {1: nearly, 2: 2.0}).as_lists() == [[1, 4, 1]]
    assert depth_schedule(system, {1: clearly, 2: 2.0}).as_lists() == [[1, 4, 2]]


def test_a_range_equal_to_both_its_neighbours_is_theirs(make_system: MakeSystem) -> None:
    # Depth 2 is 1.5 % ahead of depth 1, but 0.5 % at batch 4, whose 12 rows meet a bump of the
    # baseline: alone, batch 4 would take depth 1.
    bump = {1.0: 0.01, 4.0: 0.01, 8.0: 0.01, 11.0: 0.01, 12.0: 0.01012, 13.0: 0.01, 64.0: 0.01}
    system = make_system(bump, depths=(1.0, 2.0), batches=(1.0, 6.0))
    better = {1: 1.1 * 2.0 / 1.2 * 0.985, 2: 2.0}
    schedule = depth_schedule(system, better)
    choice = schedule.choice_at(4)
    assert 1 - TIE < choice.at(1) / choice.at(2) < 1
    assert schedule.as_lists() == [[1, 6, 2]]


def test_it_never_leaves_the_points(flat_then_linear: Calibration) -> None:
    schedule = depth_schedule(flat_then_linear, LENGTHS | {6: 2.6})
    assert (schedule.first_batch_size, schedule.last_batch_size) == (1, 16)
    assert [depth for depth, _ in schedule.accept_lengths] == [1, 2, 3, 4]
    assert any("no point has them: depth 6" in note for note in schedule.notes)
    with pytest.raises(ParameterError, match="from 1 to 16, as in the points"):
        schedule.choice_at(17)
    with pytest.raises(ParameterError, match="max_batch_size must be from 1 to 16"):
        depth_schedule(flat_then_linear, LENGTHS, max_batch_size=17)
    cut = depth_schedule(flat_then_linear, LENGTHS, max_batch_size=5)
    assert cut.as_lists() == [[1, 2, 3], [3, 3, 2], [4, 5, 1]]


def test_a_curve_is_its_accept_lengths(flat_then_linear: Calibration) -> None:
    curve = FullAccuracy([0.70, 0.45, 0.25, 0.10])
    assert (
        depth_schedule(flat_then_linear, curve).as_lists()
        == depth_schedule(flat_then_linear, LENGTHS).as_lists()
    )


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({2: 3.5}, "accept length at depth 2 must be from 1 to 3"),
        ({1: 0.9}, "accept length at depth 1 must be from 1 to 2"),
        ({1: 1.9, 2: 1.8}, "at least 1.9, that of the depth before it"),
        ({1: float("nan")}, "accept length at depth 1"),
        ({0: 1.0}, "given for depths 1, 2"),
        ({-1: 1.0}, "given for depths 1, 2"),
        ({9: 3.0}, "for a depth from 1 to 4, as in the points"),
    ],
)
def test_impossible_accept_lengths_are_refused(
    flat_then_linear: Calibration, lengths: dict[int, float], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        depth_schedule(flat_then_linear, lengths)


def test_points_that_do_not_state_batch_or_depth_are_refused(reference: Path) -> None:
    calibration = Calibration.load(reference)
    with pytest.raises(ParameterError, match="num_steps"):
        depth_schedule(calibration, LENGTHS)
    with pytest.raises(ParameterError, match="num_steps"):
        depth_schedule(Calibration.from_prior(), LENGTHS)


def test_points_that_state_a_depth_and_no_batch_are_refused(reference_at_depth_3: Path) -> None:
    with pytest.raises(ParameterError, match="add the column batch_size"):
        depth_schedule(Calibration.load(reference_at_depth_3), {3: 2.1})


def test_several_contexts_need_one_to_be_named() -> None:
    calibration = fit(packaged_table("rtx6kpro-glm51-dcp1").path, profile=False)
    with pytest.raises(ParameterError, match="several contexts"):
        depth_schedule(calibration, {3: 2.4})
    with pytest.raises(ParameterError, match="context_tokens must be from 0 to 65536"):
        depth_schedule(calibration, {3: 2.4}, context_tokens=1e6)
    schedule = depth_schedule(calibration, {3: 2.4}, context_tokens=0)
    assert schedule.context_tokens == 0
    assert any("for a context of 0 tokens" in note for note in schedule.notes)


def test_batches_above_64_are_looked_at_more_coarsely_and_none_is_left_out(
    make_system: MakeSystem,
) -> None:
    system = make_system(depths=(1.0, 2.0), batches=(1.0, 301.0, 1000.0))
    batches, last = batches_to_choose_for(system)
    assert batches[:64] == list(range(1, 65))
    assert last == 1000
    assert {301, 1000} <= set(batches)
    assert max(after / before for before, after in pairwise(batches[63:])) < 1.04
    schedule = depth_schedule(system, {1: 1.5, 2: 2.0})
    covered = [
        one
        for choice in schedule.choices
        for one in range(choice.batch_size, choice.last_batch_size + 1)
    ]
    assert covered == list(range(1, 1001))


def test_the_text_holds_what_was_assumed(flat_then_linear: Calibration) -> None:
    schedule = depth_schedule(flat_then_linear, LENGTHS)
    text = schedule_text(schedule)
    assert "batch 3 to 3: depth 2, accept length 2.15" in text
    assert "1.7 at depth 1, 2.15 at depth 2" in text
    assert "the points reach batch 1 to 16" in text


def test_depths_of_trees_are_not_depths_of_chains(make_system: MakeSystem) -> None:
    system = make_system(depths=(1.0, 2.0))
    tree = Configuration(num_steps=7.0, topk=4.0, num_draft_tokens=32.0)
    both = replace(
        system,
        configurations=(*system.configurations[:-1], tree),
        hull=system.hull | {"num_steps": (1.0, 7.0)},
    )
    schedule = depth_schedule(both, {1: 1.5, 2: 2.0, 7: 8.0})
    assert [depth for depth, _ in schedule.accept_lengths] == [1, 2]
    with pytest.raises(ParameterError, match="of trees or blocks only"):
        depth_schedule(
            replace(system, configurations=(tree,) * len(system.configurations)), {7: 4.0}
        )


def test_a_calibration_of_server_logs_has_one_context() -> None:
    """Its contexts were measured, so that no two of them are equal; they stand for one load."""
    logs = EXAMPLES
    calibration = fit([logs / "sglang_eagle3.log", logs / "sglang_baseline.log"])
    schedule = depth_schedule(calibration, FullAccuracy([0.78, 0.54, 0.34]))
    assert schedule.as_lists()[0][0] == 1
    assert schedule.as_lists()[-1][1] <= 32


def test_the_two_published_shares_come_back() -> None:
    assert loaded_overhead_at(2) == 0.066
    assert loaded_overhead_at(189) == 0.216


def test_between_them_it_is_linear_in_the_logarithm_and_outside_constant() -> None:
    assert loaded_overhead_at(math.sqrt(2 * 189)) == pytest.approx((0.066 + 0.216) / 2)
    assert loaded_overhead_at(1) == 0.066
    assert loaded_overhead_at(1000) == 0.216


@pytest.mark.parametrize("overhead", [-0.1, float("nan"), {}, {0.0: 0.1}, {4.0: -1.0}])
def test_impossible_shares_are_refused(overhead: float | dict[float, float]) -> None:
    with pytest.raises(ParameterError, match="loaded_overhead"):
        loaded_overhead_at(4, overhead)


def test_the_default_is_called_an_assumption() -> None:
    assert "measured on another system" in overhead_note()
    assert overhead_note(0.066).endswith("by 6.6 %, as given")
    assert overhead_note(0.1).endswith("by 10 %, as given")
    assert overhead_note({4.0: 0.1}).endswith("as given")
