"""Which of two is faster, and by which factor."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from calibration import read_points
from calibration.tune.compare import Comparison, ComparisonError, compare, split_by
from specmodel.errors import UnknownKeyError

Compared = Callable[[str, str], Comparison]
HEAD = "num_steps,batch_size,accept_length,throughput\n"


@pytest.fixture
def compared(tmp_path: Path) -> Compared:
    def of(first: str, second: str) -> Comparison:
        (tmp_path / "a.csv").write_text(first, encoding="utf-8")
        (tmp_path / "b.csv").write_text(second, encoding="utf-8")
        return compare(
            read_points(tmp_path / "a.csv"), read_points(tmp_path / "b.csv"), ("a.csv", "b.csv")
        )

    return of


def test_accept_3_00_to_2_60_and_rounds_24_0_to_23_2_ms(compared: Compared) -> None:
    """.897 = .867 x 1.034: the accept length costs more than the round gives."""
    found = compared(f"{HEAD}3,1,3.00,125.0\n", f"{HEAD}3,1,2.60,112.069\n")
    (one,) = found.pairs
    assert one.accept is not None
    assert one.round is not None
    assert one.speed.ratio.median == pytest.approx(0.897, abs=1e-3)
    assert one.accept.ratio.median == pytest.approx(0.867, abs=1e-3)
    assert one.round.ratio.median == pytest.approx(1.034, abs=1e-3)
    assert (one.a.round_s, one.b.round_s) == pytest.approx((0.024, 0.0232), rel=1e-3)
    assert one.accept.moved
    assert not one.round.moved  # 3 % of one run each is noise
    assert one.speed.moved
    assert found.probability_b_faster < 0.01


def test_a_switch_is_not_credited_with_an_accept_length_that_rose(compared: Compared) -> None:
    """Rounds 24 ms on both sides; accept length 2.5 to 2.9."""
    found = compared(f"{HEAD}3,1,2.5,{2500 / 24:.3f}\n", f"{HEAD}3,1,2.9,{2900 / 24:.3f}\n")
    (one,) = found.pairs
    assert one.round is not None
    assert one.round.ratio.median == pytest.approx(1.0, abs=1e-4)
    assert not one.round.moved
    assert one.speed.moved


@pytest.mark.parametrize("seed", range(30))
def test_the_factors_of_random_servers_come_back(compared: Compared, seed: int) -> None:
    """Per token: idle time + round time / accept length; the three factors multiply to the speed."""
    rng = np.random.default_rng(seed)
    head = "num_steps,batch_size,accept_length,throughput,ttft_ms,output_tokens\n"
    truth, text = [], []
    for _ in range(2):
        accept, round_s, ttft_s = 1.5 + 2 * rng.random(), 0.01 + 0.04 * rng.random(), rng.random()
        batch, tokens = 8, 300
        rate = batch / (ttft_s / tokens + round_s / accept)
        truth.append((accept, round_s, rate))
        text.append(f"{head}4,{batch},{accept:.9f},{rate:.9f},{1000 * ttft_s:.9f},{tokens}\n")
    (one,) = compared(*text).pairs
    assert one.accept is not None
    assert one.round is not None
    assert one.outside is not None
    (tau_a, t_a, y_a), (tau_b, t_b, y_b) = truth
    assert one.accept.ratio.median == pytest.approx(tau_b / tau_a)
    assert one.round.ratio.median == pytest.approx(t_a / t_b)
    assert one.speed.ratio.median == pytest.approx(y_b / y_a)
    product = one.accept.ratio.median * one.round.ratio.median * one.outside.ratio.median
    assert product == pytest.approx(one.speed.ratio.median)


def test_intervals_of_repeats_cover(compared: Compared) -> None:
    rng, inside = np.random.default_rng(3), 0
    for _ in range(60):
        rates = 100 * np.exp(0.03 * rng.standard_normal((2, 4)))
        texts = [
            HEAD + "".join(f"3,1,{2.5 + 0.001 * run},{rate:.4f}\n" for run, rate in enumerate(side))
            for side in rates
        ]
        ratio = compared(*texts).pairs[0].speed.ratio
        inside += ratio.low <= 1.0 <= ratio.high
    assert 48 <= inside <= 60


def test_only_like_is_compared_with_like(compared: Compared) -> None:
    head = "workload,num_steps,batch_size,accept_length,throughput\n"
    a = f"{head}chat,0,8,1,400\nchat,3,8,2.5,700\nchat,3,64,2.5,2000\n"
    b = f"{head}chat,3,8.3,2.5,720\ncode,3,64,2.5,2000\n"
    found = compared(a, b)
    assert [(one.a.batch_size, one.b.batch_size) for one in found.pairs] == [(8.0, 8.3)]
    said = " ".join(found.left_out)
    assert "speculation" in said
    assert "workload" in said
    with pytest.raises(ComparisonError, match=r"decoding batch \(8 and 64\)"):
        compared(f"{HEAD}3,8,2.5,700\n", f"{HEAD}3,64,2.5,2000\n")


def test_a_batch_that_is_not_stated_is_one_request(compared: Compared) -> None:
    a = f"{HEAD}3,1,2.4,100\n3,4,2.4,380\n"
    found = compared(a, "num_steps,accept_length,throughput\n3,2.4,90\n")
    assert [one.a.batch_size for one in found.pairs] == [1.0]
    assert "decoding batch (4 and 1)" in " ".join(found.left_out)


def test_other_depths_stand_for_a_load_only_where_none_is_common(compared: Compared) -> None:
    a = f"{HEAD}3,1,2.4,100\n5,1,2.8,104\n"
    same = compared(a, f"{HEAD}5,1,2.8,110\n7,1,3.0,112\n")
    assert [(one.a.num_steps, one.b.num_steps) for one in same.pairs] == [(5, 5)]
    other = compared(a, f"{HEAD}1,1,1.7,90\n2,1,2.0,96\n")
    assert [(one.a.num_steps, one.b.num_steps) for one in other.pairs] == [(5, 2)]  # the fastest


def test_the_faster_side_changes_with_the_batch(compared: Compared) -> None:
    """Ratios 1.2 and 1/1.2 at batches 4 and 16: even at 8."""
    a = f"{HEAD}3,4,2.5,400\n3,16,2.5,1000\n"
    b = f"{HEAD}3,4,2.5,480\n3,16,2.5,{1000 / 1.2:.4f}\n"
    found = compared(a, b)
    assert found.crossover_batch == pytest.approx(8.0, rel=1e-3)
    assert compared(a, a).crossover_batch is None


def test_without_accept_lengths_the_speed_alone_is_told(compared: Compared) -> None:
    found = compared("num_steps,throughput\n0,80\n", "num_steps,throughput\n0,90\n")
    (one,) = found.pairs
    assert one.accept is None
    assert one.speed.ratio.median == pytest.approx(1.125)
    assert one.round is not None  # steps without speculation


def test_the_values_of_a_column_are_sides(tmp_path: Path, specmodel: Callable[..., Result]) -> None:
    (tmp_path / "bench.csv").write_text(
        "mode,workload,num_steps,accept_length,throughput\n"
        "eager,a,3,2.4,80\neager,b,3,2.4,90\ngraph,a,3,2.4,100\ngraph,b,3,2.4,85\n",
        encoding="utf-8",
    )
    a, b, names = split_by(read_points(tmp_path / "bench.csv"), "mode")
    found = compare(a, b, names)
    assert names == ("mode eager", "mode graph")
    assert [one.speed.ratio.median > 1 for one in found.workloads] == [True, False]  # it flips
    with pytest.raises(UnknownKeyError, match="mode"):
        split_by(read_points(tmp_path / "bench.csv"), "_details")
    shown = specmodel("compare", "bench.csv", "--by", "mode")
    assert shown.exit_code == 0
    assert "by workload" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    record = json.loads(specmodel("compare", "bench.csv", "--by", "mode", "--json").stdout)
    assert record["pairs"][0]["speed"]["ratio"]["median"] == pytest.approx(1.25)
    for arguments, said in (
        (("bench.csv",), "two sides"),
        (("bench.csv", "--by", "workloads"), "unknown column"),
        (("bench.csv", "none.csv"), "none.csv"),
    ):
        refused = specmodel("compare", *arguments)
        assert refused.exit_code in {1, 2}
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
