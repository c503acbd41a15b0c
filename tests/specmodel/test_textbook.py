from collections.abc import Callable

import numpy as np
import pytest

from specmodel.errors import ParameterError
from specmodel.textbook import textbook_speedup

Table = list[dict[str, str]]


def test_published_speedups_with_a_draft_cost(cost_table: Callable[[str], Table]) -> None:
    rows = cost_table("leviathan2023")
    assert len(rows) == 12
    for row in rows:
        depth = int(row["num_steps"])
        tokens = sum(float(row["acceptance_rate"]) ** i for i in range(depth + 1))
        found = textbook_speedup(tokens, depth, float(row["draft_cost_ratio"]))
        assert float(found) == pytest.approx(float(row["speedup_from_formula"]), abs=6e-5)


def test_the_textbook_is_far_off_on_its_own_measurements(
    cost_table: Callable[[str], Table],
) -> None:
    rows = cost_table("leviathan2023")
    formula = np.array([float(row["speedup_from_formula"]) for row in rows])
    measured = np.array([float(row["speedup_measured"]) for row in rows])
    assert np.mean(np.abs(formula / measured - 1)) == pytest.approx(0.177, abs=0.001)


def test_speedup_is_one_without_draft_tokens() -> None:
    assert float(textbook_speedup(1.0, 0, 0.1)) == 1.0


def test_scalars_and_arrays_agree() -> None:
    assert textbook_speedup(np.ones((2, 1)), [[1, 2, 3]], 0.1).shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.9, 3.0, 0.1), "accept_length"),
        ((np.nan, 3.0, 0.1), "accept_length"),
        ((2.0, -1.0, 0.1), "num_steps"),
        ((2.0, 3.0, -0.1), "draft_cost_ratio"),
        ((2.0, 3.0, np.inf), "draft_cost_ratio"),
    ],
)
def test_impossible_arguments_are_refused(arguments: tuple[float, float, float], name: str) -> None:
    with pytest.raises(ParameterError) as refused:
        textbook_speedup(*arguments)
    assert refused.value.name == name
