"""Accept lengths that the points measured at several depths: they are used, and never contradicted."""

import csv
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodel.accept_lengths import AcceptLengths, accept_lengths
from specmodel.acceptance.measured import of_one_drafter, through_measured
from specmodel.ask import Ask, MeasuredLengths
from specmodel.errors import UsageError
from specmodel.question import Configuration

GOLDEN = Path(__file__).parents[1] / "golden"
LADDER = {2: 1.70, 4: 2.40, 6: 3.00}


def asked(
    depths: list[int], *measured: Mapping[int, float], accept: tuple[float, int] | None = None
) -> AcceptLengths:
    configurations = [Configuration(num_steps=depth) for depth in depths]
    ask = Ask(num_steps=tuple(depths))
    if accept is not None:
        ask = ask._replace(accept_length=accept[0], accept_depth=accept[1])
    points = MeasuredLengths(tuple(dict(one) for one in measured))
    return accept_lengths(ask, configurations, measured=points)


def medians(found: AcceptLengths) -> list[float]:
    return [value.estimate.median for value in found.values]


def test_the_points_answer_where_nothing_else_is_said() -> None:
    found = asked([1, 2, 3, 4, 5, 6, 7, 8], LADDER)
    lengths = medians(found)
    assert [lengths[depth - 1] for depth in LADDER] == [*LADDER.values()]
    assert [found.values[depth - 1].log_sd for depth in LADDER] == [0.0, 0.0, 0.0]
    assert lengths == sorted(lengths)
    assert all(value.log_sd > 0 for value in found.values[::2])
    (note,) = found.notes
    assert note.code == "accept_length_measured"
    assert "depths 2, 4 and 6" in note.message
    assert "depths 1, 3, 5, 7 and 8" in note.message


def test_a_number_never_contradicts_what_was_measured_beside_it() -> None:
    found = asked([2, 3, 4, 5, 6], LADDER, accept=(3.0, 6))
    assert [medians(found)[depth - 2] for depth in LADDER] == [*LADDER.values()]


def test_a_number_at_a_depth_that_was_not_measured_is_one_more_point() -> None:
    assert medians(asked([2, 4, 6, 7], LADDER, accept=(3.2, 7))) == [1.7, 2.4, 3.0, 3.2]
    # Depth 2 accepts .7 of two tokens: no draft model accepts another 1.3 of four, and 2.3 even less.
    assert not of_one_drafter({2: 1.70, 6: 4.00})
    assert medians(asked([2], {2: 1.70, 3: 2.0}, accept=(4.0, 6)))[0] > 1.7


def test_another_height_is_carried_by_the_measured_shape_and_covers_the_plain_ratio() -> None:
    found = asked([2, 4, 6], LADDER, accept=(3.3, 6))
    for depth, value in zip((2, 4), found.values, strict=False):
        ratio = 1.0 + (LADDER[depth] - 1.0) * 2.3 / 2.0
        assert LADDER[depth] < value.estimate.median
        assert value.estimate.low < ratio < value.estimate.high
        assert value.estimate.median == pytest.approx(ratio, rel=0.03)
    assert medians(found)[2] == 3.3


def test_one_measured_depth_has_no_shape() -> None:
    plain = asked([2, 10], accept=(2.75, 5))
    assert asked([2, 10], {5: 2.6}, accept=(2.75, 5)) == plain


def test_workloads_that_are_not_named_are_averaged_and_their_spread_is_said() -> None:
    found = asked([3], {3: 2.4}, {3: 3.0})
    (value,) = found.values
    assert value.estimate.median == pytest.approx(2.7)
    assert value.estimate.low < 2.4
    assert value.estimate.high > 3.0


def test_nothing_measured_is_asked_for() -> None:
    with pytest.raises(UsageError, match="--accept"):
        asked([3])


chains = st.lists(st.floats(0.3, 0.95), min_size=9, max_size=9).map(
    lambda hazards: 1.0 + np.cumsum(np.cumprod(sorted(hazards, reverse=True)))
)


@settings(deadline=None, max_examples=60)
@given(chains, st.sets(st.integers(1, 8), min_size=1, max_size=5))
def test_any_curve_keeps_its_measured_depths_and_rises_between(
    truth: np.ndarray, depths: set[int]
) -> None:
    measured = {depth: float(truth[depth - 1]) for depth in depths}
    curve = through_measured(measured, np.arange(13))
    assert curve.value[0] == 1.0
    assert np.all(np.diff(curve.value) >= -1e-9)
    assert np.all(curve.value <= np.arange(13) + 1.0 + 1e-9)
    assert np.all((curve.low <= curve.value) & (curve.value <= curve.high))
    for depth, length in measured.items():
        assert curve.value[depth] == length
        assert curve.low[depth] == curve.high[depth]


@settings(deadline=None, max_examples=40)
@given(chains, st.sets(st.integers(1, 8), min_size=2, max_size=4), st.floats(0.8, 1.2))
def test_any_number_keeps_its_depth_and_the_order_of_depths(
    truth: np.ndarray, depths: set[int], times: float
) -> None:
    measured = {depth: float(truth[depth - 1]) for depth in sorted(depths)}
    start = max(measured)
    value = min(1.0 + times * (measured[start] - 1.0), start + 1.0)
    lengths = medians(asked([*range(1, 13)], measured, accept=(value, start)))
    assert lengths[start - 1] == pytest.approx(value)
    assert all(later >= before - 1e-6 for before, later in pairwise(lengths))
    assert all(length <= depth + 2.0 for depth, length in enumerate(lengths))


def sweeps() -> list[dict[int, float]]:
    """Accept length by served depth of published curves, one run a depth."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    with (GOLDEN / "acceptance_depth_curves.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["kind"] == "accept_length":
                found[row["curve"]][int(row["num_steps"])] = float(row["value"])
    return [one for one in found.values() if {*range(1, 8)} <= {*one}]


@pytest.mark.parametrize(
    ("known", "wanted", "most"), [((2, 6), (3, 4, 5), 1.5), ((3, 5), (1, 2, 4, 6, 7), 2.5)]
)
def test_published_sweeps_are_met_between_and_beyond_the_measured_depths(
    known: tuple[int, ...], wanted: tuple[int, ...], most: float
) -> None:
    errors, inside = [], []
    for sweep in sweeps():
        curve = through_measured({depth: sweep[depth] for depth in known}, wanted)
        truth = np.array([sweep[depth] for depth in wanted])
        errors.append(np.abs(curve.value / truth - 1.0))
        inside.append((curve.low - 0.005 <= truth) & (truth <= curve.high + 0.005))
    assert len(inside) >= 10
    assert 100.0 * np.mean(errors) < most
    assert np.mean(inside) > 0.82


def test_one_workload_is_carried_by_the_shape_of_another_better_than_by_the_plain_ratio() -> None:
    drafters: dict[str, list[dict[int, float]]] = defaultdict(list)
    with (GOLDEN / "acceptance_specbundle_chains.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            chain = {depth: float(row[f"accept_length_{depth}"]) for depth in (3, 5, 7)}
            drafters[row["target_model"] + row["draft_model"]].append(chain)
    errors, plain, inside = [], [], []
    for runs in drafters.values():
        for known, new in pairwise(runs):
            (value,) = asked([3], known, accept=(new[7], 7)).values
            by_ratio = 1.0 + (known[3] - 1.0) * (new[7] - 1.0) / (known[7] - 1.0)
            errors.append(abs(value.estimate.median / new[3] - 1.0))
            plain.append(abs(by_ratio / new[3] - 1.0))
            inside.append(value.estimate.low <= new[3] <= value.estimate.high)
    assert np.mean(errors) < 0.02
    assert np.mean(errors) < 0.5 * np.mean(plain)
    assert np.mean(inside) > 0.85
