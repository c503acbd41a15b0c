"""EAGLE-3, Table 1: what a round costs belongs to target and method, not to the workload."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from specmodel import round_cost_from_throughput
from specmodel.speedup import speedup

GOLDEN = Path(__file__).parents[1] / "golden" / "cost_eagle3_table1.csv"
ROUNDING = 0.005 / 2  # half of the last printed digit over the smallest printed value


def table() -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Accept length and speed-up of each workload by target model and method."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["target_model"], row["method"]].append(
                (float(row["accept_length"]), float(row["speedup"]))
            )
    return found


def test_one_printed_row_is_impossible_and_no_other() -> None:
    """DeepSeek-R1-Distill with EAGLE-2: accept length 3.33 and speed-up 3.53, a round below a step."""
    impossible = [
        (*key, accept, gain)
        for key, rows in table().items()
        for accept, gain in rows
        if round_cost_from_throughput(accept, gain, 1.0) < 1.0 - 2 * ROUNDING
    ]
    assert impossible == [("DeepSeek-R1-Distill-Llama-8B", "EAGLE-2", 3.33, 3.53)]


def test_the_published_round_cost_of_eagle3_on_8b() -> None:
    """theory.md B1: the paper's own code has 1.39 on Llama-3.1-8B."""
    accept, gain = np.array(table()["Llama-3.1-8B-Instruct", "EAGLE-3"]).T
    assert np.median(round_cost_from_throughput(accept, gain, 1.0)) == pytest.approx(1.39, abs=0.02)


@pytest.mark.parametrize(
    ("target_model", "method"),
    [(key, method) for key, method in table() if method in {"EAGLE", "EAGLE-3", "HASS", "Medusa"}],
)
def test_one_workload_predicts_the_others(target_model: str, method: str) -> None:
    """Accept length varies by a third between workloads, the speed-up follows within a tenth."""
    rows = np.array(table()[target_model, method])
    for accept, gain in rows:
        cost = round_cost_from_throughput(accept, gain, 1.0)
        predicted = speedup(rows[:, 0], cost)
        assert np.max(np.abs(predicted / rows[:, 1] - 1)) < 0.16
        assert np.median(np.abs(predicted / rows[:, 1] - 1)) < 0.10
