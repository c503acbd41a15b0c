import pytest

from calibration.training.records import (
    MOST_ROWS,
    Kind,
    Layout,
    RawLog,
    Split,
    TrainingRecord,
    UniformRows,
)

LINES = Layout(format="F4", split=Split.TRAIN, columns=("step", "marginal_0"), hints=frozenset("r"))
BARS = Layout(format="F3", split=Split.TRAIN, columns=("step", "mean_marginal"))


@pytest.mark.parametrize("number", [1, MOST_ROWS - 1, MOST_ROWS, 2 * MOST_ROWS + 3])
def test_layouts_that_alternate_stay_in_their_order(number: int) -> None:
    raw = RawLog()
    rows = UniformRows(raw, "specforge")
    for step in range(number):
        rows.add(BARS, step, "a", (step, 0.25), total_steps=step)
        rows.add(LINES, step, "b", (step, 0.5), rounding=0.125)
    rows.flush()
    table = raw.table("specforge", Split.TRAIN)
    assert table.column("step").tolist() == [float(n) for n in range(number) for _ in range(2)]
    assert [table.labels[int(n)] for n in table.column("stream")] == ["a", "b"] * number
    assert [table.labels[int(n)] for n in table.column("format")] == ["F3", "F4"] * number
    nan = float("nan")
    assert table.column("marginal_0").tolist() == pytest.approx([nan, 0.5] * number, nan_ok=True)
    assert table.column("mean_marginal").tolist() == pytest.approx(
        [0.25, nan] * number, nan_ok=True
    )
    assert (table.hints, table.rounding, table.total_steps) == ({"r"}, 0.125, number - 1)


def test_records_of_other_layouts_stay_in_their_order() -> None:
    raw = RawLog()
    rows = UniformRows(raw, "specforge")
    for step in range(4):
        rows.add(LINES, step, "", (step, 0.5))
        rows.add_record(
            TrainingRecord(
                format="F4",
                split=Split.TRAIN,
                line=step,
                step=10 + step,
                accuracies={Kind.MARGINAL: (0.25, 0.125)},
            )
        )
    rows.flush()
    table = raw.table("specforge", Split.TRAIN)
    assert table.column("step").tolist() == [0, 10, 1, 11, 2, 12, 3, 13]
    assert table.column("marginal_0").tolist() == [0.5, 0.25] * 4


def test_flushing_twice_adds_nothing() -> None:
    raw = RawLog()
    rows = UniformRows(raw, "specforge")
    rows.add(LINES, 1, "", (1, 0.5))
    rows.flush()
    rows.flush()
    assert raw.num_records == {"specforge": 1}
