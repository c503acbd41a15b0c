from collections.abc import Callable

import numpy as np
import pytest

from specmodel.errors import ParameterError
from specmodel.speedup import textbook_speedup

Table = list[dict[str, str]]


def test_published_speedups_with_a_draft_cost(cost_table: Callable[[str], Table]) -> None:
    rows = cost_table("leviathan2023")
    assert len(rows) == 12
    for row in rows:
        rate, depth = float(row["acceptance_rate"]), int(row["num_steps"])
        tokens = (1 - rate ** (depth + 1)) / (1 - rate)
        found = textbook_speedup(tokens, depth, float(row["draft_cost_ratio"]))
        assert float(found) == pytest.approx(float(row["speedup_from_formula"]), abs=6e-5)


def test_the_textbook_is_far_off_on_its_own_measurements(
    cost_table: Callable[[str], Table],
) -> None:
    rows = cost_table("leviathan2023")
    formula = np.array([float(row["speedup_from_formula"]) for row in rows])
    measured = np.array([float(row["speedup_measured"]) for row in rows])
    assert np.mean(np.abs(formula / measured - 1)) == pytest.approx(0.177, abs=0.001)


def test_scalars_and_arrays_agree() -> None:
    assert float(textbook_speedup(1.0, 0, 0.1)) == 1.0
    assert textbook_speedup(np.ones((2, 1)), [[1, 2, 3]], 0.1).shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.9, 3.0, 0.1), "accept_length"),
        ((2.0, -1.0, 0.1), "num_steps"),
        ((2.0, 3.0, -0.1), "draft_cost_ratio"),
        ((np.nan, 3.0, 0.1), "accept_length"),
        ((2.0, 3.0, [0.1, np.inf]), "draft_cost_ratio"),
    ],
)
def test_an_impossible_argument_is_refused_by_name(
    arguments: tuple[float, float, float], name: str
) -> None:
    with pytest.raises(ParameterError, match=name):
        textbook_speedup(*arguments)
