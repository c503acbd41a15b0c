"""Keys that come again; expected rows follow from the rules of training_logs.md section 4.1."""

import numpy as np
import pytest

from calibration.training.normalise import (
    Verdict,
    settled_epochs,
    settled_first,
    settled_rates,
    settled_steps,
)
from calibration.training.records import Array


def steps(*values: float) -> Array:
    return np.array(values, dtype=np.float64)


def test_of_a_restart_the_later_record_of_a_step_counts() -> None:
    found = settled_steps(steps(700, 701, 702, 703, 702, 703, 704))
    assert found.rows.tolist() == [0, 1, 4, 5, 6]
    assert (found.verdict, found.places.tolist()) == (Verdict.RESTART, [4])


def test_of_several_processes_the_first_copy_of_a_step_counts() -> None:
    found = settled_steps(steps(900, 900, 900, 901, 901, 901, 902, 902, 902))
    assert found.rows.tolist() == [0, 3, 6]
    assert (found.verdict, len(found.places)) == (Verdict.SEVERAL_PROCESSES, 6)


def test_of_several_processes_the_lowest_rank_counts_whoever_was_first() -> None:
    ranks = steps(1, 0, 1, 0, 0, 1)
    found = settled_steps(steps(1, 1, 2, 2, 3, 3), priority=ranks)
    assert found.rows.tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((5, 5), Verdict.RESTART),  # 1 non-advance, 1 repeat: 1 <= max(1, 0.5)
        ((5, 5, 6, 6), Verdict.SEVERAL_PROCESSES),  # 2 > max(1, 1)
        ((5, 6, 5, 6, 7, 8, 7, 8), Verdict.RESTART),  # 2 <= 4 / 2
        ((5, 6, 5, 6, 7, 6), Verdict.SEVERAL_PROCESSES),  # 2 > 3 / 2
    ],
)
def test_restarts_are_told_from_processes_by_half_the_repeats(
    values: tuple[float, ...], verdict: Verdict
) -> None:
    assert settled_steps(steps(*values)).verdict is verdict


def test_records_out_of_order_that_repeat_nothing_are_sorted_in_silence() -> None:
    found = settled_steps(steps(1, 3, 2, 4))
    assert (found.rows.tolist(), found.verdict) == ([0, 2, 1, 3], Verdict.NONE)


def test_a_restart_between_the_logged_steps_is_seen_although_no_step_repeats() -> None:
    found = settled_steps(steps(10, 20, 30, 40, 25, 35, 45))
    assert (len(found.rows), found.verdict) == (7, Verdict.RESTART)
    assert found.places.tolist() == [4]


def test_an_epoch_that_comes_again_drops_what_followed_it() -> None:
    found = settled_epochs(steps(0, 1, 2, 3, 1, 2))
    assert (found.rows.tolist(), found.places.tolist()) == ([0, 4, 5], [4])


def test_epochs_that_come_again_many_times_leave_the_last_of_each() -> None:
    found = settled_epochs(steps(0, 1, 0, 1, 2, 0, 1))
    assert found.rows.tolist() == [5, 6]


def test_records_without_a_key_all_count() -> None:
    none = float("nan")
    assert settled_epochs(steps(none, none, none)).rows.tolist() == [0, 1, 2]
    assert settled_first(steps(none, 1, none, 1)).rows.tolist() == [0, 1, 2]


def test_no_records_are_settled() -> None:
    nothing = np.empty(0)
    assert len(settled_steps(nothing).rows) == len(settled_epochs(nothing).rows) == 0
    assert len(settled_rates(nothing, nothing).rows) == len(settled_first(nothing).rows) == 0


WARM_UP = [1e-6, 2e-6, 3e-6, 4e-6, 5e-6]


def rows_of(rates: list[float], epochs: list[float] | None = None) -> list[int]:
    epoch = np.zeros(len(rates)) if epochs is None else np.array(epochs)
    return [int(row) for row in settled_rates(epoch, np.array(rates)).rows]


def test_a_rate_that_returns_in_warm_up_drops_everything_from_there_on() -> None:
    assert rows_of([*WARM_UP, 3e-6, 4e-6, 5e-6, 6e-6]) == [0, 1, 5, 6, 7, 8]


def test_a_rate_that_returns_in_decay_drops_everything_from_there_on() -> None:
    decay = [5e-5, 4e-5, 3e-5, 2e-5]
    assert rows_of([*decay, 4e-5, 3e-5, 2e-5, 1e-5]) == [0, 4, 5, 6, 7]


def test_the_turn_from_warm_up_to_decay_is_no_restart() -> None:
    rates = [*WARM_UP, 4e-6, 3e-6, 2e-6, 1e-6]
    assert rows_of(rates) == list(range(9))
    for end in range(2, 9):
        assert rows_of(rates[:end]) == list(range(end))


def test_rates_that_are_printed_many_times_are_one_value() -> None:
    rates = [1e-4] * 5 + [9e-5] * 5 + [8e-5] * 5
    assert rows_of(rates) == list(range(15))
    assert rows_of([*rates, 9e-5, 8e-5, 7e-5]) == [*range(5), 15, 16, 17]


def test_a_restart_from_decay_into_warm_up_is_seen() -> None:
    rates = [*WARM_UP, 4.5e-6, 3.5e-6]
    assert rows_of([*rates, *WARM_UP]) == [7, 8, 9, 10, 11]


def test_a_rate_seen_in_warm_up_and_decay_returns_to_where_it_goes_on_alike() -> None:
    rates = [1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.5]
    assert rows_of([*rates, 3.0, 2.0, 1.5, 1.0]) == [0, 1, 2, 3, 7, 8, 9, 10]


def test_an_epoch_that_falls_is_a_restart_even_at_a_constant_rate() -> None:
    epochs = [0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0]
    assert rows_of([1e-4] * 8, epochs) == [0, 1, 6, 7]


def test_an_epoch_that_falls_to_one_that_was_never_seen_drops_what_is_above() -> None:
    assert rows_of([1e-4, 9e-5, 8e-5], [2.0, 4.0, 3.0]) == [0, 2]


def test_half_a_million_runs_and_restarts_take_seconds() -> None:
    number = np.arange(500_000)
    rates = np.asarray(1.0 + (number % 700) * 1e-3 + (number // 7000), dtype=np.float64)
    assert len(settled_rates(np.zeros(len(number)), rates).rows) < len(number)
    falling = np.tile(np.arange(1000.0), 500)
    assert len(settled_epochs(falling).rows) == 1000
    assert len(settled_steps(falling).rows) == 1000
