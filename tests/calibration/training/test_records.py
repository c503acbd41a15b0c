"""Records of several layouts in one table, in the order of the file."""

import pytest

from calibration.training.records import RawLog, Split


@pytest.mark.parametrize("number", [1, 255, 256, 257, 1027])
def test_layouts_that_alternate_stay_in_their_order(number: int) -> None:
    raw = RawLog()
    for step in range(number):
        values = {"step": step, "mean_marginal": 0.25}
        raw.add("specforge", Split.TRAIN, "F3", step, "a", values, total_steps=step)
        values = {"step": step, "marginal_0": 0.5}
        raw.add("specforge", Split.TRAIN, "F4", step, "b", values, hints="r", rounding=0.125)
    table = raw.table("specforge", Split.TRAIN)
    assert raw.num_records == {"specforge": 2 * number}
    assert table.column("step").tolist() == [float(n) for n in range(number) for _ in range(2)]
    assert [table.labels[int(n)] for n in table.column("stream")] == ["a", "b"] * number
    assert [table.labels[int(n)] for n in table.column("format")] == ["F3", "F4"] * number
    nan = float("nan")
    assert table.column("marginal_0").tolist() == pytest.approx([nan, 0.5] * number, nan_ok=True)
    means = table.column("mean_marginal").tolist()
    assert means == pytest.approx([0.25, nan] * number, nan_ok=True)
    assert (table.hints, table.rounding, table.total_steps) == ({"r"}, 0.125, number - 1)


def test_columns_that_are_added_at_once_stay_in_their_order() -> None:
    raw = RawLog()
    for step in range(4):
        raw.add("specforge", Split.TRAIN, "F4", step, "", {"step": step, "marginal_0": 0.5})
        columns = {"line": [float(step)], "step": [10.0 + step], "marginal_0": [0.25]}
        raw.extend("specforge", Split.TRAIN, "F4", columns, [""])
    table = raw.table("specforge", Split.TRAIN)
    assert table.column("step").tolist() == [0, 10, 1, 11, 2, 12, 3, 13]
    assert table.column("marginal_0").tolist() == [0.5, 0.25] * 4
