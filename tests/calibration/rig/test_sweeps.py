"""Batch and context sweeps from their small batches, through points, fit and prediction.

The packaged tables of GLM-5.1 and Kimi-K2.6 on 8 RTX PRO 6000 are fitted to a few cells at the shortest
context, and the physical form prices all others; the relative form answers the same question beside it.
A round cost is accept length x baseline / throughput, on both sides. Then tables that publish speed-ups
against the batch and nothing else.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.rig.draft import DraftChoice
from calibration.rig.from_points import AskedRig
from calibration.rig.prediction import changed_rig, rig_prediction
from specmodel.prediction import Prediction, predict
from specmodel.question import AcceptLength, Configuration, Question
from tests.calibration.rig.fitted_rigs import change_of, fitted, inside, say, words
from tests.extent import sample

POINTS = Path(__file__).parents[3] / "calibration" / "data" / "points"

Row = dict[str, str]


class Sweep(NamedTuple):
    """A table, what its page says of the rig, and the ranks that share the tokens of a request."""

    table: str
    context_parallel: int
    interconnect: str
    draft: DraftChoice


KIMI_K26 = tuple(
    Sweep(
        f"rtx6kpro-kimi-k26-dcp{size}",
        size,
        "PCIe 5.0, custom all-reduce: p2p custom",
        DraftChoice(kind="eagle3", vocab_size=163_840),
    )
    for size in (1, 4, 8)
)
GLM_51 = tuple(
    Sweep(f"rtx6kpro-glm51-dcp{size}", size, "PCIe 5.0", DraftChoice(kind="mtp"))
    for size in (1, 2, 8)
)
FAMILIES = {"kimi-k26": KIMI_K26, "glm51": GLM_51}


class Cells(NamedTuple):
    """Relative errors of the round cost of one form, and whether each is inside its interval."""

    error: NDArray[np.float64]
    inside: NDArray[np.bool_]

    def __str__(self) -> str:
        return (
            f"median error {np.median(np.abs(self.error)):5.1%}, bias {np.median(self.error):+6.1%}, "
            f"{np.mean(self.inside):4.0%} inside"
        )


def rows_of(table: str) -> list[Row]:
    with (POINTS / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["num_steps"] != "0"]


def question(row: Row) -> Question:
    configuration = Configuration(
        num_steps=float(row["num_steps"]),
        topk=float(row["topk"]),
        num_draft_tokens=float(row["num_draft_tokens"]),
        batch_size=float(row["batch_size"]),
        context_tokens=float(row["context_tokens"]),
    )
    accept = AcceptLength.exact(float(row["accept_length"]))
    return Question(accept_length=accept, configuration=configuration)


def cells(rows: list[Row], found: tuple[Prediction, ...]) -> Cells:
    """Predicted over measured round cost, minus 1; a speed-up is inside where its round cost is."""
    measured = np.array(
        [float(row["output_tokens_per_s"]) / float(row["baseline_tokens_per_s"]) for row in rows]
    )
    gains = [one.speedup for one in found]
    return Cells(
        measured / np.array([gain.median for gain in gains]) - 1,
        np.array([inside(value, gain) for value, gain in zip(measured, gains, strict=True)]),
    )


def sweep(one: Sweep, most_batch: int) -> tuple[Cells, Cells]:
    """Errors of the physical and of the relative form on all cells that were not fitted."""
    rows = rows_of(one.table)
    shortest = min(float(row["context_tokens"]) for row in rows)
    known = [
        row
        for row in rows
        if float(row["batch_size"]) <= most_batch and float(row["context_tokens"]) == shortest
    ]
    asked = [row for row in rows if row not in known]
    stated = {"variant": f"DCP{one.context_parallel}", "interconnect": one.interconnect}
    calibration = fitted([row | stated for row in known], AskedRig(draft=one.draft))
    assert calibration.physical is not None
    assert calibration.physical.rig["context_parallel"] == one.context_parallel
    questions = [question(row) for row in asked]
    # the caches of these servers hold fp8, which makes no difference at the shortest context
    rig = changed_rig(calibration, [("kv_dtype", "fp8")])
    physical = cells(asked, tuple(rig_prediction(rig, one) for one in questions))
    relative = cells(asked, predict(calibration, questions))
    label = f"{one.table}, fitted to batch <= {most_batch}, {len(asked)} cells"
    say(f"{label}\n    physical: {physical}\n    relative: {relative}")
    return physical, relative


@cache
def family(name: str, most_batch: int) -> tuple[Cells, Cells]:
    """All tables of a family together."""
    found = [sweep(one, most_batch) for one in FAMILIES[name]]
    physical, relative = (
        Cells(*(np.concatenate(column) for column in zip(*form, strict=True)))
        for form in zip(*found, strict=True)
    )
    say(
        f"{name}, fitted to batch <= {most_batch}\n    physical: {physical}\n    relative: {relative}"
    )
    return physical, relative


STEP_OF_32_ROWS = (
    "From batch 4 to 8 the verified rows cross 32 and the measured round doubles, as the base step does "
    "from batch 16 to 32, by a cause that the source does not know: 10 of 41 cells, all at batch 8 and 16, "
    "cost 3.1 to 3.7 steps where no cell of batch <= 4 costs more than 2"
)


@pytest.mark.parametrize(
    ("name", "most_batch"),
    [
        ("kimi-k26", 4),
        ("kimi-k26", 8),
        pytest.param("glm51", 4, marks=pytest.mark.xfail(reason=STEP_OF_32_ROWS)),
        ("glm51", 8),
    ],
)
def test_nine_tenths_of_a_sweep_are_inside_the_intervals(name: str, most_batch: int) -> None:
    physical, _ = family(name, most_batch)
    assert np.mean(physical.inside) >= 0.90


@pytest.mark.parametrize(("most_batch", "least"), [(4, 0.85), (8, 0.90)])
def test_families_together_are_covered(most_batch: int, least: float) -> None:
    """Families count once."""
    covered = [float(np.mean(family(name, most_batch)[0].inside)) for name in FAMILIES]
    say(f"fitted to batch <= {most_batch}: mean of {len(covered)} families {np.mean(covered):.1%}")
    assert np.mean(covered) >= least


@pytest.mark.parametrize("name", list(FAMILIES))
def test_from_batch_4_the_physical_form_finds_the_larger_batches(name: str) -> None:
    """It was nearer than the relative one, which is as near since its effects go over loads."""
    physical, _ = family(name, 4)
    assert np.median(np.abs(physical.error)) <= 0.20


EAGLE3_SGLANG = {
    2: 1.81, 4: 1.82, 8: 1.62, 16: 1.48, 24: 1.39, 32: 1.32, 48: 1.38, 56: 1.34, 64: 1.38,
}  # fmt: skip
EAGLE3_VLLM = {2: 1.75, 4: 1.68, 8: 1.58, 16: 1.49, 24: 1.42, 32: 1.36, 48: 1.21, 56: 1.01}
"""EAGLE-3 paper (source eagle3 of the paper tables, arXiv 2503.01840), Llama-3.1-8B on MT-Bench: speed-up
against the batch, SGLang on an H100 with chains of 3 and vLLM on an A100, whose depth is not stated
here. SGLang's curve is not monotone."""

MTBENCH_TOKENS = 500
"""Context of such a request (judgement). [tokens]"""


class Published(NamedTuple):
    """A table of speed-ups, and what is held fixed."""

    engine: str
    card: str
    speedups: dict[int, float]
    request_tokens_per_s: float


SGLANG = Published("sglang", "H100", EAGLE3_SGLANG, 158.34)
"""Its baseline is that of one request in the paper's other table."""

VLLM = Published("vllm", "A100", EAGLE3_VLLM, 90.0)
"""Its baseline is not stated; this is near what an A100 can read."""


@sample(3)
@pytest.mark.parametrize(
    ("table", "depth", "accept_length"),
    [
        (SGLANG, 3, 2.6),
        (SGLANG, 3, 3.0),
        (VLLM, 2, 2.2),
        (VLLM, 2, 2.6),
        (VLLM, 3, 2.6),
        (VLLM._replace(request_tokens_per_s=100.0), 2, 2.2),
    ],
)
def test_eagle3_gains_less_at_large_batches_as_measured(
    table: Published, depth: int, accept_length: float
) -> None:
    """Fitted to batch 2 alone."""
    rate = 2 * table.request_tokens_per_s
    point = {
        "accept_length": accept_length,
        "output_tokens_per_s": rate * table.speedups[2],
        "baseline_tokens_per_s": rate,
        "batch_size": 2,
        "num_steps": depth,
        "context_tokens": MTBENCH_TOKENS,
        "target_model": "Llama-3.1-8B",
        "algorithm": "EAGLE3",
        "engine": table.engine,
        "gpu": table.card,
        "tp_size": 1,
    }
    calibration = fitted([point])
    covered, last = [], 1.0
    for batch, gain in list(table.speedups.items())[1:]:
        found = change_of(
            calibration,
            ("batch_size", str(batch)),
            depth=depth,
            rows=depth + 1,
            accept_length=accept_length,
            batch_size=2,
            context_tokens=MTBENCH_TOKENS,
        )
        ratio = gain / table.speedups[2]
        covered.append(inside(ratio, found.speedup))
        last = found.speedup.median
        say(
            f"EAGLE-3 {table.engine} on {table.card}, depth {depth}, accept {accept_length}, "
            f"batch 2 -> {batch}: speed-up {words(ratio, found.speedup)}"
        )
    assert np.mean(covered) >= 0.90
    assert last < 1
