"""Predicting every row of a points file."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from calibration.predict.points import predict_points
from specmodel.calibration import Calibration
from specmodel.prediction import predict
from specmodel.question import AcceptLength, Configuration, Question

Run = Callable[..., Result]

ADDED = [
    *("predicted_output_tokens_per_s", "predicted_low_tokens_per_s"),
    *("predicted_high_tokens_per_s", "predicted_speedup", "warnings"),
]


def rows(run: Run, text: str, *arguments: str | Path) -> list[dict[str, str]]:
    """Rows of the table that the command prints."""
    Path("points.csv").write_text(text, encoding="utf-8")
    result = run("predict", "--points", "points.csv", *arguments)
    assert result.exit_code == 0, result.stderr
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_every_row_comes_back_in_order_with_five_columns_more(specmodel: Run, here: Path) -> None:
    text = "accept_length,baseline,operator\n2.75,90,ann\nabout 2,90,bob\n2.75,90,ann\n3.1,80,\n"
    found = rows(specmodel, text, "--calibration", here)
    assert list(found[0]) == ["accept_length", "baseline", "operator", *ADDED]
    assert [row["operator"] for row in found] == ["ann", "bob", "ann", ""]
    assert [row["accept_length"] for row in found] == ["2.75", "about 2", "2.75", "3.1"]
    assert found[0] == found[2]  # equal rows are rows


def test_a_row_is_predicted_as_a_question_is(specmodel: Run, here: Path) -> None:
    (row,) = rows(specmodel, "accept_length,baseline\n2.75,90\n")
    (answer,) = predict(
        Calibration.load(here),
        [
            Question(
                accept_length=AcceptLength.exact(2.75),
                configuration=Configuration(),
                baseline_tokens_per_s=90.0,
            )
        ],
    )
    assert answer.output_tokens_per_s is not None
    assert float(row[ADDED[0]]) == pytest.approx(answer.output_tokens_per_s.median, rel=1e-4)
    assert float(row[ADDED[1]]) == pytest.approx(answer.output_tokens_per_s.low, rel=1e-4)
    assert float(row[ADDED[2]]) == pytest.approx(answer.output_tokens_per_s.high, rel=1e-4)
    assert float(row[ADDED[3]]) == pytest.approx(answer.speedup.median, rel=1e-4)


@pytest.mark.usefixtures("here")
def test_a_measured_throughput_does_not_change_its_prediction(specmodel: Run) -> None:
    planned = rows(specmodel, "accept_length,baseline\n2.75,90\n")
    measured = rows(specmodel, "accept_length,baseline,throughput\n2.75,90,5\n")
    assert [row[name] for row in measured for name in ADDED] == [
        row[name] for row in planned for name in ADDED
    ]


@pytest.mark.usefixtures("here")
def test_a_row_that_cannot_be_used_says_why(specmodel: Run) -> None:
    text = "accept_length,num_steps,baseline\n9.9,3,90\nnan,3,90\n0.5,3,90\n2.1,3,90,extra\n,3,90\n"
    found = rows(specmodel, text)
    assert all(row[name] == "" for row in found for name in ADDED[:4])
    for row, said in zip(
        found,
        ["above num_steps + 1", "not a finite", "below 1", "4 cells", "no accept"],
        strict=True,
    ):
        assert said in row["warnings"]


@pytest.mark.usefixtures("here")
def test_a_row_without_speculation_is_its_own_baseline(specmodel: Run) -> None:
    text = "accept_length,num_steps,throughput,baseline\n,0,88,\n,0,,77\n"
    for row, rate in zip(rows(specmodel, text), (88.0, 77.0), strict=True):
        assert [float(row[name]) for name in ADDED[:4]] == [rate, rate, rate, 1.0]


@pytest.mark.usefixtures("here")
def test_baselines_are_matched_from_rows_without_speculation(specmodel: Run) -> None:
    text = (
        "accept_length,num_steps,throughput,workload\n,0,100,chat\n,0,50,code\n"
        "2.5,3,,chat\n2.5,3,,code\n"
    )
    found = rows(specmodel, text)[2:]
    rates = [float(row[ADDED[0]]) / float(row[ADDED[3]]) for row in found]
    assert rates == pytest.approx([100.0, 50.0], rel=1e-4)


@pytest.mark.usefixtures("here")
def test_a_row_without_any_baseline_has_a_speedup_only(specmodel: Run) -> None:
    (row,) = rows(specmodel, "accept_length,batch_size\n2.5,8\n")
    assert row[ADDED[0]] == ""
    assert float(row[ADDED[3]]) > 0
    assert "no_baseline" in row["warnings"]


@pytest.mark.usefixtures("here")
def test_a_speedup_column_gives_no_baseline_to_a_planned_row(specmodel: Run) -> None:
    (row,) = rows(specmodel, "accept_length,speedup,batch_size\n2.5,1.2,8\n")
    assert row[ADDED[0]] == ""


@pytest.mark.usefixtures("here")
def test_separators_decimal_commas_and_aliases_are_understood(specmodel: Run) -> None:
    plain = rows(specmodel, "accept_length,baseline\n2.75,90.5\n")
    other = rows(specmodel, "tau;no_spec_tok/s\n2,75;90,5\n")
    assert [other[0][name] for name in ADDED] == [plain[0][name] for name in ADDED]


@pytest.mark.usefixtures("here")
def test_predicting_the_output_again_replaces_the_columns(specmodel: Run) -> None:
    text = "accept_length,baseline\n2.75,90\n"
    Path("points.csv").write_text(text, encoding="utf-8")
    first = specmodel("predict", "--points", "points.csv").stdout
    Path("points.csv").write_text(first, encoding="utf-8")
    assert specmodel("predict", "--points", "points.csv").stdout == first


def test_a_row_of_another_system_is_warned_of(specmodel: Run, tmp_path: Path) -> None:
    (tmp_path / "bench.csv").write_text(
        "tau,tok/s,baseline,gpu,source_id\n2.1,82.3,90,H200,a\n", encoding="utf-8"
    )
    assert specmodel("fit", "bench.csv").exit_code == 0
    same, other = rows(specmodel, "tau,baseline,gpu,source_id\n2.1,90,H200,b\n2.1,90,A100,a\n")
    assert "other_system" not in same["warnings"]
    assert "another system: gpu A100 (calibrated: H200)" in other["warnings"]


def test_a_row_that_lacks_what_the_calibration_does_not_have_says_so(
    specmodel: Run, tmp_path: Path
) -> None:
    (tmp_path / "bench.csv").write_text(
        "tau,tok/s,baseline,k\n1.9,90,80,3\n2.1,92,80,5\n", encoding="utf-8"
    )
    assert specmodel("fit", "bench.csv").exit_code == 0
    without, with_depth = rows(specmodel, "tau,k\n2.0,\n2.0,3\n")
    assert "several values of num_steps (3, 5)" in without["warnings"]
    assert float(with_depth[ADDED[3]]) > 0


def test_a_workload_that_is_not_calibrated_is_named(specmodel: Run, tmp_path: Path) -> None:
    (tmp_path / "bench.csv").write_text(
        "workload,tau,tok/s,baseline,k\nchat,1.9,100,80,3\ncode,2.4,118,77,3\n", encoding="utf-8"
    )
    assert specmodel("fit", "bench.csv").exit_code == 0
    unknown, own, known = rows(specmodel, "workload,tau,baseline\nmaths,2,\nmaths,2,70\nchat,2,\n")
    assert "workload 'maths' is not in the calibration (chat, code)" in unknown["warnings"]
    assert "fill baseline_tokens_per_s" in unknown["warnings"]
    assert unknown[ADDED[0]] == ""
    assert float(unknown[ADDED[3]]) > 0
    for row in (own, known):
        assert float(row[ADDED[0]]) > 0
        assert "no_baseline" not in row["warnings"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("column", "cell"),
    [
        *(("num_steps", "200"), ("batch_size", "1e12"), ("context_tokens", "1e10")),
        *(("baseline", "1e-9"), ("baseline", "1e12"), ("num_draft_tokens", "1e6")),
    ],
)
def test_an_absurd_number_of_a_row_is_not_predicted(specmodel: Run, column: str, cell: str) -> None:
    (row,) = rows(specmodel, f"accept_length,{column}\n2.1,{cell}\n")
    assert all(row[name] == "" for name in ADDED[:4])
    assert row["warnings"]


@pytest.mark.usefixtures("here")
def test_a_row_cannot_accept_more_than_it_verifies(specmodel: Run) -> None:
    text = "accept_length,k,topk,num_draft_tokens,baseline\n3.5,5,4,3,90\n2.5,5,4,3,90\n"
    above, below = rows(specmodel, text)
    assert above[ADDED[3]] == ""
    assert "3" in above["warnings"]
    assert float(below[ADDED[3]]) > 0


def test_time_to_first_token_is_used_where_a_row_has_it(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(
        "accept_length,num_steps,baseline,batch_size,output_tokens,ttft_ms\n"
        "2.8,3,100,1,101,\n2.8,3,100,1,101,500\n",
        encoding="utf-8",
    )
    plain, slow = predict_points(Calibration.from_prior(), path).predictions
    assert plain.speedup is not None
    assert slow.speedup is not None
    assert slow.speedup.median < plain.speedup.median  # half of the baseline's time is not decoding
    assert slow.speedup.median < 1 / 0.49


@pytest.mark.usefixtures("here")
def test_json_has_the_same_rows(specmodel: Run) -> None:
    Path("points.csv").write_text("accept_length,baseline\n2.75,90\nx,90\n", encoding="utf-8")
    result = specmodel("predict", "--points", "points.csv", "--json")
    record = json.loads(result.stdout)
    assert record["schema_version"] == 1
    first, second = record["points"]
    assert first["row"] == {"accept_length": "2.75", "baseline": "90"}
    assert first["predicted_low_tokens_per_s"] < first["predicted_output_tokens_per_s"]
    assert second["predicted_speedup"] is None
    assert second["warnings"][0]["code"] == "not_a_number"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("accept_length,baseline\n", "no row below it"),
        ("name,colour\napple,red\n", "not a table of points"),
    ],
)
def test_a_file_without_rows_to_predict_is_refused(specmodel: Run, text: str, said: str) -> None:
    Path("points.csv").write_text(text, encoding="utf-8")
    result = specmodel("predict", "--points", "points.csv")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert said in result.stderr


def test_packaged_points_are_predicted_within_their_intervals_mostly(specmodel: Run) -> None:
    """Fitted rows: coverage can only be high."""
    assert specmodel("fit", "--data", "specbundle-llama31-8b").exit_code == 0
    from calibration.points.packaged import packaged_table

    result = specmodel("predict", "--points", packaged_table("specbundle-llama31-8b").path)
    found = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(found) == 70
    inside = [
        float(row[ADDED[1]]) <= float(row["output_tokens_per_s"]) <= float(row[ADDED[2]])
        for row in found
    ]
    assert sum(inside) >= 0.85 * len(inside)


def test_rows_of_a_load_with_a_measured_share_are_predicted_with_it(specmodel: Run) -> None:
    """f = .2/.5 = .4 and R = 1.5 give 142.9 tok/s, whether the row states its TTFT again or not."""
    header = "num_steps,batch_size,accept_length,throughput,baseline,ttft_ms,output_tokens\n"
    Path("bench.csv").write_text(header + "3,1,3.0,142.857,100,200,50\n", encoding="utf-8")
    assert specmodel("fit", "bench.csv").exit_code == 0
    found = rows(specmodel, header + "3,1,3.0,,100,200,50\n3,1,3.0,,100,,\n3,1,3.0,,,,\n")
    said = [float(row[ADDED[0]]) for row in found]
    assert said == pytest.approx([142.9] * 3, rel=0.02)
    result = specmodel("predict", "--accept", "3", "--json")
    assert json.loads(result.stdout)["output_tokens_per_s"]["median"] == pytest.approx(
        said[2], rel=1e-4
    )
