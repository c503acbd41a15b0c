"""What public curves say of the tails, the effect of the served depth, and their widths; writes nothing.

Settings were chosen by the interval score on half of the draft models of each table (every second name) and are
reported on all of them and on the others. Run it from the root of the repository:

    .venv/bin/python scripts/learn_acceptance.py [SWEEPS.csv TRACES.jsonl.gz ...]

SWEEPS are accept lengths by `curve_id`, `mode` and `num_speculative_tokens`; TRACES hold `accept_len_<drafter>`,
what a round that starts at each output token would emit, from which any depth can be replayed. Without them the
published tables of the tests are read.
"""

import csv
import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specmodel.acceptance import FullAccuracy, carry_accept_length, tail_spread
from specmodel.acceptance.served_depth import served_at_depths

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
DEEPEST = 8
MISSED = 20.0  # weight of what lies outside a 90 % interval in its score, 2 / .1
PRINTED = 5e-3  # half a unit of two decimals

Lists = dict[int, np.ndarray]  # full accuracies by served depth


class Case(NamedTuple):
    """One carried accept length beside the measured one."""

    drafter: str
    value: float
    low: float
    high: float
    truth: float


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def sweeps(files: list[Path]) -> dict[tuple[str, str], dict[int, float]]:
    """Accept length by served depth, by draft model and curve."""
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows(GOLDEN / "acceptance_depth_curves.csv"):
        if row["kind"] == "accept_length":
            found[row["drafter"], row["curve"]][int(row["num_steps"])] = float(row["value"])
    for row in rows(GOLDEN / "acceptance_specbundle_chains.csv"):
        chain = {depth: float(row[f"accept_length_{depth}"]) for depth in (3, 5, 7)}
        found[row["target_model"] + row["draft_model"], row["workload"]] = chain
    for row in (row for path in files for row in rows(path)):
        key = (row["curve_id"], f"{row['curve_id']} {row['mode']}")
        found[key][int(row["num_speculative_tokens"])] = float(row["accept_length"])
    return found


def replayed(path: Path, key: str, depth: int) -> np.ndarray:
    """Full accuracies of rounds of a depth over the texts of a trace."""
    accepted, rounds = np.zeros(depth), 0
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            emitted, at = json.loads(line)[key], 0
            while at + depth < len(emitted):
                tokens = min(emitted[at], depth + 1)
                accepted[: tokens - 1] += 1.0
                rounds, at = rounds + 1, at + tokens
    return accepted / rounds


def lists(files: list[Path]) -> dict[tuple[str, str], Lists]:
    """Full accuracies of one draft model and workload at several served depths."""
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows(GOLDEN / "acceptance_vllm_32628.csv"):
        key = ("EAGLE-3 on vLLM", row["benchmark"])
        found[key][int(row["max_steps"])].append(float(row["full_accuracy"]))
    known = {key: {d: np.array(one) for d, one in each.items()} for key, each in found.items()}
    for path in files:
        for drafter in ("eagle", "ngram"):
            column = f"accept_len_{drafter}"
            several = {depth: replayed(path, column, depth) for depth in range(1, DEEPEST + 1)}
            known[drafter, path.name.partition(".")[0]] = several
    return known


def report(name: str, cases: list[Case]) -> None:
    """Error, bias, coverage, half width and interval score, every draft model weighing the same."""
    if not cases:
        return
    drafters = [case.drafter for case in cases]
    weight = np.array([1.0 / drafters.count(one) for one in drafters])
    value, low, high, truth = (
        np.array([getattr(case, field) for case in cases]) for field in Case._fields[1:]
    )
    below = np.maximum(low - PRINTED - truth, 0.0)
    above = np.maximum(truth - high - PRINTED, 0.0)
    columns = {
        "error": np.abs(value / truth - 1.0),
        "bias": value / truth - 1.0,
        "coverage": (below == 0.0) & (above == 0.0),
        "half width": (high - low) / (2.0 * value),
        "score": (high - low + MISSED * (below + above)) / truth,
    }
    said = [
        f"{word} {100.0 * float(weight @ each / weight.sum()):.1f}"
        for word, each in columns.items()
    ]
    print(f"{name:44} {len(cases):5d} cases  {', '.join(said)}")


def halves(name: str, cases: list[Case]) -> None:
    names = sorted({case.drafter for case in cases})
    for half, word in ((names, "all"), (names[::2], "chosen on"), (names[1::2], "others")):
        report(f"{name}, {word}", [case for case in cases if case.drafter in half])


def numbers(curves: dict[tuple[str, str], dict[int, float]]) -> list[Case]:
    """One number carried to every other depth of its sweep."""
    found = []
    for (drafter, _), curve in curves.items():
        for start, length in curve.items():
            others = [depth for depth in curve if depth != start]
            carried = carry_accept_length(min(length, start + 1.0), start, others)
            each = zip(carried.value, carried.low, carried.high, others, strict=True)
            found += [
                Case(drafter, float(one[0]), float(one[1]), float(one[2]), curve[one[3]])
                for one in each
            ]
    return found


def cut(known: dict[tuple[str, str], list[float]]) -> list[Case]:
    """Lists cut short, and continued at the same served depth."""
    found = []
    for (drafter, _), values in known.items():
        for length in range(2, len(values)):
            if values[length - 1] > 0.0:
                deeper = list(range(length + 1, len(values) + 1))
                spread = tail_spread(FullAccuracy(values[:length]), deeper)
                each = zip(spread.value, spread.low, spread.high, deeper, strict=True)
                found += [
                    Case(
                        drafter,
                        float(one[0]),
                        float(one[1]),
                        float(one[2]),
                        1.0 + sum(values[: one[3]]),
                    )
                    for one in each
                ]
    return found


def carried_lists(known: dict[tuple[str, str], Lists], *, deeper: bool) -> list[Case]:
    """Lists at each depth carried to each other one, where that was served, too."""
    found = []
    for (drafter, workload), by_depth in known.items():
        for served, values in by_depth.items():
            others = [depth for depth in by_depth if depth != served and (depth > served) == deeper]
            if others:
                carried = served_at_depths(FullAccuracy(values), served, others)
                each = zip(carried.value, carried.low, carried.high, others, strict=True)
                found += [
                    Case(
                        f"{drafter} {workload}",
                        float(one[0]),
                        float(one[1]),
                        float(one[2]),
                        1.0 + by_depth[one[3]].sum(),
                    )
                    for one in each
                ]
    return found


def exponents(known: dict[tuple[str, str], Lists]) -> None:
    """The exponent of the effect by draft model and workload, beside the rise of conditionals."""
    for (drafter, workload), by_depth in known.items():
        served, values = max(by_depth.items())
        found = [
            float(np.log(by_depth[depth].sum() / values[:depth].sum()) / np.log(served / depth))
            for depth in by_depth
            if depth < served
        ]
        first, second = values[0], values[1] / values[0]
        rise = np.log(second / (1.0 - second)) - np.log(first / (1.0 - first))
        print(f"{drafter} {workload}: exponent {np.mean(found):.3f}, rise {rise:.2f}")


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]]
    known = lists([path for path in files if path.suffix == ".gz"])
    exponents(known)
    halves("a number carried", numbers(sweeps([path for path in files if path.suffix == ".csv"])))
    whole: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows(GOLDEN / "acceptance_depth_curves.csv"):
        if row["kind"] == "full_accuracy":
            whole[row["drafter"], row["curve"]].append(float(row["value"]))
    halves("a list continued", cut(whole))
    for deeper, word in ((False, "shallower"), (True, "deeper")):
        for one in ("eagle", "EAGLE-3", "ngram"):
            chosen = {key: each for key, each in known.items() if one in key[0]}
            report(f"{one} lists carried {word}", carried_lists(chosen, deeper=deeper))


if __name__ == "__main__":
    main()
