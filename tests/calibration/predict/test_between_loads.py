"""Answers at loads between measured ones are between theirs."""

from pathlib import Path

import pytest

from calibration import fit
from calibration.predict.points import predict_points
from specmodel.calibration import Calibration

BATCHES = (1, 2, 4, 8, 16)


def speedup(batch: float) -> float:
    """2 b / (33 + 3 b) over b / (30 + b) tokens a millisecond, at accept length 2."""
    return 2 * (30 + batch) / (33 + 3 * batch)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    rows = [
        f"w,{batch},845,2,2,{2000 * batch / (33 + 3 * batch)},{1000 * batch / (30 + batch)}"
        for batch in BATCHES
    ]
    header = "workload,batch_size,context_tokens,num_steps,accept_length,throughput,baseline"
    bench = tmp_path_factory.mktemp("swept") / "bench.csv"
    bench.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return fit(bench)


@pytest.mark.parametrize("batch", [3, 6, 12])
def test_a_batch_between_two_measured_ones_is_between_them(
    swept: Calibration, batch: float
) -> None:
    below, above = max(b for b in BATCHES if b < batch), min(b for b in BATCHES if b > batch)
    ends = [swept.predict(2.0, batch_size=at, workload="w").speedup for at in (below, above)]
    found = swept.predict(2.0, batch_size=batch, workload="w", baseline_tokens_per_s=300.0).speedup
    assert ends[0].median > found.median > ends[1].median
    assert found.median == pytest.approx(speedup(batch), rel=0.02)
    assert found.low < speedup(batch) < found.high


def test_a_context_of_846_is_the_load_of_845(swept: Calibration, tmp_path: Path) -> None:
    """By the command's way and by that of a file of points."""
    found = [
        swept.predict(2.0, batch_size=8, context_tokens=context, workload="w")
        for context in (844, 845, 846)
    ]
    assert len({one.speedup.median for one in found}) == 1
    assert found[0].output_tokens_per_s is not None
    planned = tmp_path / "planned.csv"
    planned.write_text(
        "workload,batch_size,context_tokens,num_steps,accept_length\nw,8,846,2,2\n",
        encoding="utf-8",
    )
    (row,) = predict_points(swept, planned).predictions
    assert row.speedup is not None
    assert row.speedup.median == pytest.approx(found[0].speedup.median, rel=1e-9)
    assert row.speedup.high == pytest.approx(found[0].speedup.high, rel=1e-9)


@pytest.mark.filterwarnings("ignore::specmodel.errors.ExtrapolationWarning")
def test_two_rows_are_not_less_sure_than_one(tmp_path: Path) -> None:
    """A second batch is more to know: of the batches between them and of the others."""
    lines = [
        f"w,{batch},2,2,{2000 * batch / (33 + 3 * batch)},{1000 * batch / (30 + batch)}"
        for batch in (1, 4)
    ]
    widths, errors = [], []
    for count in (1, 2):
        bench = tmp_path / f"{count}.csv"
        header = "workload,batch_size,num_steps,accept_length,throughput,baseline"
        bench.write_text("\n".join([header, *lines[:count]]) + "\n", encoding="utf-8")
        found = (
            fit(bench)
            .predict(2.0, num_steps=2, batch_size=16, workload="w", baseline_tokens_per_s=340.0)
            .speedup
        )
        widths.append(found.high / found.low)
        errors.append(abs(found.median / speedup(16) - 1))
        assert found.low < speedup(16) < found.high
    assert widths[1] < 1.1 * widths[0]
    assert errors[1] < errors[0]
