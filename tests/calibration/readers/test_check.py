"""What the numbers of a row must satisfy together."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers import Cell
from calibration.readers.check import CheckedRow, check_row
from specmodel.errors import LeftOut


def accepted(**cells: Cell) -> Mapping[str, Cell]:
    checked = check_row(cells)
    assert isinstance(checked, CheckedRow)
    return checked.cells


def refused(**cells: Cell) -> str:
    checked = check_row(cells)
    assert isinstance(checked, LeftOut)
    return checked.code


def notes(**cells: Cell) -> tuple[str, ...]:
    checked = check_row(cells)
    assert isinstance(checked, CheckedRow)
    return checked.notes


@given(num_steps=st.integers(1, 64))
def test_a_round_emits_at_least_the_bonus_and_at_most_its_path_and_the_bonus(
    num_steps: int,
) -> None:
    depth = float(num_steps)
    for accept_length in (1.0, depth + 1):
        accepted(accept_length=accept_length, num_steps=depth)
    for accept_length in (0.99, depth + 1.01):
        assert refused(accept_length=accept_length, num_steps=depth) == "accept_length_out_of_range"


def test_without_speculation_a_round_emits_one_token() -> None:
    accepted(accept_length=1.0, num_steps=0.0)
    assert refused(accept_length=1.2, num_steps=0.0) == "accept_length_out_of_range"


def test_a_tree_is_bounded_by_its_depth_not_by_its_nodes() -> None:
    tree = {"num_steps": 3.0, "topk": 4.0, "num_draft_tokens": 16.0}
    accepted(accept_length=4.0, **tree)
    assert refused(accept_length=4.1, **tree) == "accept_length_out_of_range"


def test_no_round_emits_more_than_it_verifies() -> None:
    tree: dict[str, Cell] = {"num_steps": 7.0, "topk": 4.0, "num_draft_tokens": 3.0}
    accepted(accept_length=3.0, **tree)
    assert refused(accept_length=3.1, **tree) == "accept_length_out_of_range"
    assert accepted(full_accuracy=(0.8, 0.6, 0.5), **tree)["accept_length"] == pytest.approx(2.4)


def test_no_token_goes_to_more_experts_than_there_are() -> None:
    row: dict[str, Cell] = {"accept_length": 2.0, "experts_per_token": 8.0}
    accepted(**row)
    accepted(**row, num_experts=8.0)
    assert refused(**row, num_experts=4.0) == "out_of_range"


@pytest.mark.parametrize("algorithm", ["DFLASH", "dspark", "p-eagle", "P_EAGLE"])
def test_a_block_drafter_is_bounded_by_what_is_verified(algorithm: str) -> None:
    block: dict[str, Cell] = {"num_steps": 1.0, "num_draft_tokens": 8.0, "algorithm": algorithm}
    accepted(accept_length=8.0, **block)
    assert refused(accept_length=8.1, **block) == "accept_length_out_of_range"


def test_one_step_that_verifies_many_in_a_chain_is_a_block() -> None:
    accepted(accept_length=5.0, num_steps=1.0, topk=1.0, num_draft_tokens=8.0)


def test_without_a_depth_what_is_verified_is_the_bound() -> None:
    accepted(accept_length=7.9)
    assert refused(accept_length=7.9, num_draft_tokens=4.0) == "accept_length_out_of_range"


def test_accept_length_follows_from_full_accuracy() -> None:
    cells = accepted(full_accuracy=(0.75, 0.488, 0.317), num_steps=3.0)
    assert cells["accept_length"] == pytest.approx(2.555)
    assert "accept_length_from_accuracy" in notes(full_accuracy=(0.75,))


def test_only_depths_that_are_drafted_count() -> None:
    cells = accepted(full_accuracy=(0.75, 0.5, 0.25), num_steps=2.0)
    assert cells["accept_length"] == pytest.approx(2.25)


def test_a_list_shorter_than_the_depth_gives_no_accept_length() -> None:
    assert refused(full_accuracy=(0.75,), num_steps=3.0) == "missing_accept_length"
    assert notes(full_accuracy=(0.75,), num_steps=3.0, accept_length=2.4) == ()


def test_only_a_run_without_speculation_may_lack_an_accept_length() -> None:
    assert refused(num_steps=3.0) == "missing_accept_length"
    assert refused() == "missing_accept_length"
    accepted(num_steps=0.0)


@pytest.mark.parametrize(("accept_length", "said"), [(2.67, False), (2.9, True), (2.4, True)])
def test_sum_is_compared_on_a_chain(accept_length: float, said: bool) -> None:
    row: dict[str, Cell] = {"full_accuracy": (0.78, 0.53, 0.36), "num_steps": 3.0}
    row["accept_length"] = accept_length
    assert ("accuracy_sum_mismatch" in notes(**row)) is said
    assert "accuracy_sum_mismatch" not in notes(**row, topk=4.0)


def test_rising_full_accuracy_is_refused() -> None:
    assert refused(full_accuracy=(0.6, 0.7), accept_length=2.0) == "accuracy_increasing"
    accepted(full_accuracy=(0.6, 0.6, 0.0), accept_length=2.2)


@pytest.mark.parametrize(
    ("accept_length", "fits"), [(2.671, True), (2.7, True), (2.8, False), (None, False)]
)
def test_percent_is_suggested_only_where_it_fits(accept_length: float | None, fits: bool) -> None:
    cells: dict[str, Cell] = {"full_accuracy": (78.0, 53.0, 36.1), "num_steps": 3.0}
    if accept_length is not None:
        cells["accept_length"] = accept_length
    checked = check_row(cells)
    assert isinstance(checked, LeftOut)
    assert checked.code == "accuracy_above_one"
    assert checked.looks_like_percent is fits


def test_root_is_added_to_a_chain_that_left_it_out() -> None:
    row: dict[str, Cell] = {"accept_length": 2.0, "num_steps": 3.0, "num_draft_tokens": 3.0}
    assert accepted(**row, engine="vllm")["num_draft_tokens"] == 4
    assert "root_added" in notes(**row)
    assert accepted(**row, topk=2.0)["num_draft_tokens"] == 3
    assert accepted(**row, engine="sglang", topk=1.0)["num_draft_tokens"] == 3


def test_a_chain_that_verifies_another_number_is_said() -> None:
    assert "draft_tokens_not_a_chain" in notes(
        accept_length=2.0, num_steps=3.0, topk=1.0, num_draft_tokens=16.0
    )


@pytest.mark.parametrize("name", ["topk", "num_draft_tokens"])
def test_only_a_run_without_speculation_may_draft_nothing(name: str) -> None:
    row: dict[str, Cell] = {name: 0.0}
    assert refused(accept_length=2.0, num_steps=3.0, **row) == "not_positive"
    accepted(num_steps=0.0, **row)
