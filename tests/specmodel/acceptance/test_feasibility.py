import numpy as np
import pytest

from specmodel.acceptance import accept_length_limit, check_accept_length
from specmodel.errors import ParameterError


def test_chain_emits_at_most_every_draft_token_and_the_bonus() -> None:
    assert accept_length_limit([0, 3, 7]).tolist() == [1, 4, 8]


def test_tree_path_is_bounded_by_steps_and_by_verified_tokens() -> None:
    assert accept_length_limit(5, [4, 6, 64]).tolist() == [4, 6, 6]


def test_block_drafter_is_bounded_by_its_block() -> None:
    assert int(accept_length_limit(1, 8, block_drafter=True)) == 8
    with pytest.raises(ParameterError, match="num_draft_tokens"):
        accept_length_limit(1, block_drafter=True)


def test_lawful_lengths_come_back() -> None:
    assert check_accept_length([1.0, 2.75, 6.0], 5).tolist() == [1.0, 2.75, 6.0]


def test_printed_rounding_is_not_refused() -> None:
    assert float(check_accept_length(4.004, 3)) == 4.004


def test_too_long_says_what_to_do() -> None:
    with pytest.raises(
        ParameterError, match=r"accept_length\[1\] must be between 1 and 3 .* depth"
    ):
        check_accept_length([2.5, 3.1], 2)


def test_below_one_suggests_the_bonus_token() -> None:
    with pytest.raises(ParameterError, match="bonus token is left out, add 1"):
        check_accept_length(0.9, 3)


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ParameterError, match="finite"):
        check_accept_length(np.nan, 3)
