"""What published depth sweeps say about the tail families and their constants."""

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.acceptance import FullAccuracy, carry_accept_length, tail_spread
from specmodel.acceptance.tails import TAILS, fit_tail
from tests.specmodel.acceptance.depth_sweep import (
    accept_length_of,
    fit_tail_to_accept_lengths,
    geometric_accept_length,
    geometric_acceptance_rate,
)

Rows = list[dict[str, str]]
Read = Callable[[str], Rows]

FloatArray = NDArray[np.float64]


@pytest.fixture(scope="module")
def chains(golden: Read) -> FloatArray:
    rows = golden("specbundle_chains")
    return np.array([[float(row[f"accept_length_{k}"]) for k in (3, 5, 7)] for row in rows])


@pytest.fixture(scope="module")
def depth_seven(chains: FloatArray) -> dict[str, FloatArray]:
    """Relative error of every family at depth 7, fitted on depths 3 and 5."""
    return {
        name: np.array(
            [
                accept_length_of(fit_tail_to_accept_lengths([3, 5], c[:2], tail), 7) / c[2] - 1
                for c in chains
            ]
        )
        for name, tail in TAILS.items()
    }


def percent(errors: FloatArray) -> tuple[float, float]:
    return 100 * float(np.abs(errors).mean()), 100 * float(errors.mean())


def test_there_are_74_chains_of_eight_targets(golden: Read) -> None:
    rows = golden("specbundle_chains")
    assert len(rows) == 74
    assert len({row["target_model"] for row in rows}) == 8


@pytest.mark.parametrize(
    ("name", "published_error", "published_bias"),
    [
        ("exponential", 0.71, 0.03),
        ("weibull", 0.74, -0.19),
        ("power-law", 0.75, -0.18),
        ("first-then-constant", 0.79, 0.35),
        ("geometric-decay", 0.96, -0.62),
    ],
)
def test_depths_three_and_five_predict_seven_as_published_for_88_chains(
    depth_seven: dict[str, FloatArray], name: str, published_error: float, published_bias: float
) -> None:
    error, bias = percent(depth_seven[name])
    assert error == pytest.approx(published_error, abs=0.1)
    assert bias == pytest.approx(published_bias, abs=0.15)


def test_beta_geometric_is_optimistic_by_three_percent(depth_seven: dict[str, FloatArray]) -> None:
    _, bias = percent(depth_seven["beta-geometric"])
    assert bias == pytest.approx(2.84, abs=0.5)


def test_constant_hazard_is_optimistic_at_twice_the_depth(chains: FloatArray) -> None:
    rate = geometric_acceptance_rate(chains[:, 0], 3)
    assert percent(geometric_accept_length(rate, 5) / chains[:, 1] - 1) == pytest.approx(
        (3.03, 2.80), abs=0.15
    )
    assert percent(geometric_accept_length(rate, 7) / chains[:, 2] - 1) == pytest.approx(
        (5.72, 5.45), abs=0.15
    )


def test_family_weights_are_the_inverse_mean_square_errors(
    depth_seven: dict[str, FloatArray],
) -> None:
    inverse = {name: 1.0 / float((errors**2).mean()) for name, errors in depth_seven.items()}
    total = sum(inverse.values())
    for name, tail in TAILS.items():
        assert tail.weight == pytest.approx(inverse[name] / total, abs=0.015)


def test_single_numbers_carry_the_measured_increments(chains: FloatArray) -> None:
    three = chains[:, 0]
    five, seven = (carry_accept_length(three, 3, depth).value for depth in (5, 7))
    carried = np.quantile((seven - five) / (five - three), [0.1, 0.5, 0.9])
    measured = (chains[:, 2] - chains[:, 1]) / (chains[:, 1] - chains[:, 0])
    assert carried == pytest.approx(np.quantile(measured, [0.1, 0.5, 0.9]), abs=0.06)


@pytest.mark.parametrize(
    ("start", "end", "error"), [(0, 1, 1.5), (0, 2, 2.5), (1, 2, 1.2), (2, 0, 1.5)]
)
def test_one_number_is_carried_without_bias(
    chains: FloatArray, start: int, end: int, error: float
) -> None:
    depths = (3, 5, 7)
    carried = carry_accept_length(chains[:, start], depths[start], depths[end])
    absolute, bias = percent(carried.value / chains[:, end] - 1)
    assert absolute < error
    assert abs(bias) < 0.5
    inside = (carried.low <= chains[:, end]) & (chains[:, end] <= carried.high)
    assert np.mean(inside) > 0.85


def served_lists(golden: Read) -> list[list[float]]:
    curves: dict[str, list[float]] = defaultdict(list)
    for row in golden("depth_curves"):
        if row["kind"] == "full_accuracy":
            curves[row["curve"]].append(float(row["value"]))
    return list(curves.values())


@pytest.mark.parametrize(("measured", "asked"), [(2, 3), (3, 5), (5, 7)])
def test_served_lists_cut_short_are_continued_inside_the_spread(
    golden: Read, measured: int, asked: int
) -> None:
    inside, errors = [], []
    for values in served_lists(golden):
        if len(values) >= asked:
            truth = 1.0 + sum(values[:asked])
            spread = tail_spread(FullAccuracy(values[:measured]), asked)
            inside.append(spread.low[0] <= truth <= spread.high[0])
            errors.append(abs(spread.value[0] / truth - 1.0))
    assert len(inside) >= 9
    assert np.mean(inside) > 0.7
    assert np.mean(errors) < 0.02


def test_shape_priors_are_what_the_served_curves_teach(golden: Read) -> None:
    """One step of the learning from the packaged priors stays at the packaged priors."""
    curves: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    for row in golden("depth_curves"):
        key = (row["drafter"], row["curve"], row["kind"])
        curves[key].append((int(row["num_steps"]), float(row["value"])))
    for row in golden("specbundle_chains"):
        key = (row["target_model"] + row["draft_model"], row["workload"], "chain")
        curves[key] = [(k, float(row[f"accept_length_{k}"])) for k in (3, 5, 7)]
    per_drafter = Counter(drafter for drafter, _, _ in curves)
    share = np.array([1.0 / per_drafter[drafter] for drafter, _, _ in curves])
    share /= share.sum()
    for name in ("exponential", "first-then-constant", "weibull"):
        tail = TAILS[name]
        draws = []
        for (_, _, kind), points in curves.items():
            depths, values = zip(*points, strict=True)
            if kind == "full_accuracy":
                fit = fit_tail(FullAccuracy(values), tail)
            else:
                noise = 0.005 if kind == "chain" else 0.02
                fit = fit_tail_to_accept_lengths(depths, values, tail, relative_noise=noise)
            draws.append(fit.draws[:, 1:])
        every = np.stack(draws)
        mean = np.einsum("c,cdn->n", share, every) / every.shape[1]
        sd = np.sqrt(np.einsum("c,cdn->n", share, (every - mean) ** 2) / every.shape[1])
        assert mean == pytest.approx(np.array(tail.shape_mean), abs=0.1)
        assert sd == pytest.approx(np.array(tail.shape_sd), rel=0.15)


def test_survival_hardly_depends_on_the_draft_depth(golden: Read) -> None:
    first: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in golden("vllm_32628"):
        first[row["benchmark"], row["depth"]].append(float(row["full_accuracy"]))
    assert max(max(values) - min(values) for values in first.values()) < 0.045


@pytest.mark.parametrize("steps", [3, 4, 5, 6, 7, 8])
def test_published_lists_are_lawful(golden: Read, steps: int) -> None:
    values = [
        float(row["full_accuracy"])
        for row in golden("vllm_32628")
        if row["benchmark"] == "HumanEval" and int(row["max_steps"]) == steps
    ]
    full = FullAccuracy(values)
    assert full.num_steps == steps
    assert all(later <= earlier for earlier, later in pairwise(full))


def test_published_conditionals_of_eight_steps(golden: Read) -> None:
    values = [
        float(row["full_accuracy"])
        for row in golden("vllm_32628")
        if row["benchmark"] == "HumanEval" and row["max_steps"] == "8"
    ]
    printed = [0.71, 0.69, 0.65, 0.66, 0.67, 0.64, 0.56, 0.60]
    assert FullAccuracy(values).to_conditional().values == pytest.approx(printed, abs=0.0051)


def test_counter_and_per_position_rates_agree_on_the_unprinted_sixth_depth() -> None:
    # 63,669 accepted of 43,221 drafts at depth 6 [vllm-project-vllm-24243]; five rates printed.
    accept_length = 1.0 + 63669 / 43221
    printed = FullAccuracy([0.58, 0.34, 0.22, 0.15, 0.11])
    sixth = accept_length - printed.accept_length()
    spread = tail_spread(printed, 6)
    assert 0.0 < sixth < 0.11
    assert spread.low[0] - 0.025 <= accept_length <= spread.high[0] + 0.025


def test_constant_hazard_from_depth_three_is_wrong_on_vllm_sweeps() -> None:
    # Accept length by depth 3 and 7 [vllm-project-vllm-20780]: EAGLE-1, EAGLE-3.
    three, seven = np.array([2.29, 2.79]), np.array([2.47, 3.54])
    constant = geometric_accept_length(geometric_acceptance_rate(three, 3), 7)
    assert 100 * (constant / seven - 1) == pytest.approx([7.7, 5.5], abs=0.15)
    carried = carry_accept_length(three, 3, 7)
    assert np.all(np.abs(carried.value / seven - 1) < np.abs(constant / seven - 1))
    assert np.all((carried.low < seven) & (seven < carried.high))


def test_mean_of_positions_falls_short_of_the_reported_average() -> None:
    # MiniMax-M3 prints .76 .56 .43 and an average of 2.80 over domains [vllm-blog-202607].
    assert FullAccuracy([0.76, 0.56, 0.43]).accept_length() == pytest.approx(2.75)
