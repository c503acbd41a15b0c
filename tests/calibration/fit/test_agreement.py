"""A fit and its own rows: what they say of each other, asked by the path of `specmodel predict`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calibration import fit
from specmodel.calibration import Calibration
from specmodel.notes import calibration_notes
from tests.extent import extent

Fitted = Callable[[str], Calibration]


@pytest.fixture
def fitted(tmp_path: Path) -> Fitted:
    def of(text: str) -> Calibration:
        bench = tmp_path / "bench.csv"
        bench.write_text(text, encoding="utf-8")
        return fit(bench)

    return of


def test_rates_of_decoding_alone_beside_a_ttft_are_told_from_the_numbers(fitted: Fitted) -> None:
    """40 tokens at 210/s are 190 ms; less 150 ms they would be rounds of 0.6 steps."""
    found = fitted(
        "num_steps,batch_size,accept_length,throughput,baseline,ttft_ms,output_tokens\n"
        "2,1,2.4,200,111.1,150,40\n4,1,3.1,210,111.1,150,40\n"
    )
    for depth, accept, cost, rate in ((2, 2.4, 1.3332, 200.0), (4, 3.1, 1.6401, 210.0)):
        answer = found.predict(accept, depth=depth)
        assert answer.non_decode_share == 0.0
        assert answer.round_cost.low < cost < answer.round_cost.high
        assert float(answer.output_tokens_per_s or 0.0) == pytest.approx(rate, rel=0.03)
    assert found.decode_only
    assert not found.doubts


def test_end_to_end_rates_with_one_wrong_ttft_stay_end_to_end(fitted: Fitted) -> None:
    head = "num_steps,batch_size,accept_length,throughput,baseline,ttft_ms,output_tokens\n"
    good = "".join(f"{depth},1,{accept},{rate},100,100,50\n" for depth, accept, rate in GOOD)
    found = fitted(head + good + "7,1,3.4,190,100,300,50\n")
    assert not found.decode_only
    assert found.predict(3.0, depth=3).non_decode_share == pytest.approx(0.2)


GOOD = ((2, 2.4, 152.0), (3, 3.0, 167.0), (5, 3.2, 160.0))


def test_one_accept_length_is_said_where_the_fit_leaves_the_round_cost_by_hand(
    fitted: Fitted,
) -> None:
    found = fitted(
        "num_steps,accept_length,throughput,baseline\n5,3,120,100\n10,3,121,100\n20,3,119,100\n"
    )
    answer = found.predict(3.0, depth=5)
    inside = answer.round_cost.low <= 2.5 <= answer.round_cost.high
    assert inside or any("one accept length" in one for one in found.doubts)


def test_rows_that_the_answer_contradicts_are_named_and_the_doubt_goes_with_every_prediction(
    fitted: Fitted, tmp_path: Path
) -> None:
    rows = "".join(f"a,{mode},2,2.0,{rate},100\n" for mode, rate in (("x", 160), ("y", 80)) * 2)
    found = fitted(
        "workload,mode,num_steps,accept_length,throughput,baseline\n" + rows[: len(rows) // 2]
    )
    assert any("bench.csv, line" in one and "tokens/s" in one for one in found.doubts)
    found.save(tmp_path / "calibration.json")
    again = Calibration.load(tmp_path / "calibration.json")
    assert again.doubts == found.doubts
    assert [note.code for note in calibration_notes(again)] == ["contradicts_points"] * len(
        found.doubts
    )


def own_rows(fitted: Fitted, seed: int) -> tuple[int, int, int]:
    """Rows of a random table inside their own intervals, far off, and in all."""
    rng = np.random.default_rng(seed)
    batches = rng.choice([1, 2, 4, 8, 16, 32], rng.integers(1, 5), replace=False)
    depths = rng.choice([1, 2, 3, 5, 7], rng.integers(1, 4), replace=False)
    with_ttft, repeats = bool(rng.integers(2)), int(rng.integers(1, 3))
    names = ["a", "b", "c"][: rng.integers(1, 4)]
    fixed, step = 1.0 + 0.3 * rng.random(), 0.03 + 0.15 * rng.random()
    lines = ["workload,batch_size,num_steps,accept_length,throughput,baseline"]
    lines[0] += ",ttft_ms,output_tokens" if with_ttft else ""
    inside, far, count = 0, 0, 0
    rows = []
    for name in names:
        share, bent = 0.3 * rng.random(), 0.3 + 0.5 * rng.random()
        for batch in batches:
            step_s = 0.01 * (1 + 0.03 * batch)
            base = batch / step_s * (1 - share)
            for depth in depths:
                accept = round(1 + bent * (1 - bent**depth) / (1 - bent), 4)
                cost = fixed + step * depth
                for _ in range(repeats):
                    rate = base / (share + (1 - share) * cost / accept)
                    rate *= np.exp(0.015 * rng.standard_normal())
                    rows.append((name, batch, depth, accept, rate, base))
                    ttft = f",{1000 * share * 256 * batch / base:.3f},256" if with_ttft else ""
                    lines.append(f"{name},{batch},{depth},{accept:.4f},{rate:.3f},{base:.3f}{ttft}")
    found = fitted("\n".join(lines) + "\n")
    for name, batch, depth, accept, rate, base in rows:
        answer = found.predict(
            accept, depth=depth, batch_size=batch, workload=name, baseline_tokens_per_s=base
        )
        output = answer.output_tokens_per_s
        assert output is not None
        count += 1
        inside += output.low <= rate <= output.high
        far += abs(output.median / rate - 1) > 0.08
    return int(inside), int(far), count


def test_rows_lie_inside_their_own_intervals(fitted: Fitted) -> None:
    """One to four batches, one to three depths, workloads, repeats, with and without TTFT."""
    counted = [own_rows(fitted, seed) for seed in range(extent(test=8, prove=100))]
    inside, far, count = (sum(each) for each in zip(*counted, strict=True))
    assert inside >= 0.95 * count
    assert far == 0
