"""`specmodel ingest` as a user meets it: tables, folders, refusals, and what never leaves a file."""

import gzip
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from calibration.points.reading import read_points
from tests.calibration.conftest import RunCommand

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
SGLANG, OTHER = ENGINES / "sglang", ENGINES / "other"
SERVER_LOG, BASELINE_LOG = SGLANG / "server_log_0.5.6.log", SGLANG / "server_log_0.5.6_baseline.log"


def groups_of(text: str) -> list[dict[str, Any]]:
    """Return the groups of a JSON answer."""
    answer = json.loads(text)
    assert answer["schema_version"] == 1
    groups: list[dict[str, Any]] = answer["groups"]
    return groups


def test_a_log_and_its_baseline_become_paired_points(specmodel: RunCommand, tmp_path: Path) -> None:
    run = specmodel("ingest", SERVER_LOG, BASELINE_LOG, "-o", "bench.csv")
    assert run.exit_code == 0, run.output
    frame = read_points(tmp_path / "bench.csv").frame
    paired = frame[frame["baseline_tokens_per_s"].notna()]
    assert sorted(paired["batch_size"]) == [1, 2, 4, 8, 16]  # 24 and 32 have no partner
    assert len(frame) == 12


def test_a_table_of_ingested_points_says_what_the_files_said(
    specmodel: RunCommand, tmp_path: Path
) -> None:
    assert specmodel("ingest", SERVER_LOG, BASELINE_LOG, "-o", "bench.csv").exit_code == 0
    direct, table = read_points([SERVER_LOG, BASELINE_LOG]), read_points(tmp_path / "bench.csv")
    columns = ["accept_length", "output_tokens_per_s", "baseline_tokens_per_s", "step_time_ms"]
    assert table.frame[columns].equals(direct.frame[columns])


def test_fit_takes_the_same_files_directly(specmodel: RunCommand) -> None:
    assert specmodel("ingest", SERVER_LOG, BASELINE_LOG, "-o", "bench.csv").exit_code == 0
    runs = [
        specmodel("fit", *files, "-o", name, "--json")
        for files, name in (((SERVER_LOG, BASELINE_LOG), "a.json"), (("bench.csv",), "b.json"))
    ]
    assert [run.exit_code for run in runs] == [0, 0], runs[0].output
    constants = [json.loads(run.stdout)["constants"] for run in runs]
    assert constants[0] == constants[1]


def test_a_log_is_predicted_at_the_loads_that_it_was_fitted_at(specmodel: RunCommand) -> None:
    assert specmodel("fit", SERVER_LOG, BASELINE_LOG).exit_code == 0
    assert specmodel("ingest", SERVER_LOG, BASELINE_LOG, "-o", "bench.csv").exit_code == 0
    speedups = []
    for file in (SERVER_LOG, "bench.csv"):
        answer = json.loads(specmodel("predict", "--points", file, "--json").stdout)
        points = answer["points"][:5]  # those with a baseline
        assert "extrapolation" not in json.dumps(points)
        speedups.append([point["predicted_speedup"] for point in points])
    assert speedups[0] == speedups[1]


def test_predict_and_evaluate_take_the_same_files(specmodel: RunCommand) -> None:
    assert specmodel("fit", SERVER_LOG, BASELINE_LOG).exit_code == 0
    predicted = specmodel("predict", "--points", SERVER_LOG, "--json")
    assert predicted.exit_code == 0, predicted.output
    assert len(json.loads(predicted.stdout)["points"]) == 6
    evaluated = specmodel("evaluate", SERVER_LOG, BASELINE_LOG, "--split", "row", "--json")
    assert evaluated.exit_code == 0, evaluated.output


def test_a_folder_is_read_whole_and_what_is_foreign_is_named(
    specmodel: RunCommand, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    (folder / "old").mkdir(parents=True)
    shutil.copy(SGLANG / "bench_speculative.jsonl", folder)
    shutil.copy(OTHER / "vllm_v1.log", folder / "old" / "server.txt")
    (folder / "README.md").write_text("how these were made\n")
    run = specmodel("ingest", folder, "--json")
    assert run.exit_code == 0, run.output
    groups = {group["format"]: group for group in groups_of(run.stdout)}
    assert set(groups) == {"sglang_bench_speculative", "vllm_log", None}
    assert groups[None]["error"] == "unknown_format"
    assert "README.md" in run.stderr


def test_an_empty_folder_is_said(specmodel: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = specmodel("ingest", "empty")
    assert run.exit_code == 1
    assert run.stderr.count("\n") == 1
    assert "no file in this folder" in run.stderr


@pytest.mark.parametrize("name", ["server_log_0.5.6.log", "bench_speculative.jsonl"])
def test_a_compressed_file_reads_like_the_file(
    specmodel: RunCommand, tmp_path: Path, name: str
) -> None:
    (tmp_path / "packed").write_bytes(gzip.compress((SGLANG / name).read_bytes()))
    packed = groups_of(specmodel("ingest", "packed", "--json").stdout)[0]
    plain = groups_of(specmodel("ingest", SGLANG / name, "--json").stdout)[0]
    assert packed["rows"] == plain["rows"]
    assert packed["dropped"] == plain["dropped"]


def test_the_name_of_a_file_does_not_matter(specmodel: RunCommand, tmp_path: Path) -> None:
    shutil.copy(SERVER_LOG, tmp_path / "spreadsheet.csv")
    group = groups_of(specmodel("ingest", "spreadsheet.csv", "--json").stdout)[0]
    assert group["format"] == "sglang_server_log"


def test_a_refused_file_is_one_line_and_an_error_in_json(specmodel: RunCommand) -> None:
    run = specmodel("ingest", SGLANG / "server_info_truncated.json", "--json", "-o", "bench.csv")
    assert run.exit_code == 1
    assert groups_of(run.stdout)[0]["error"] == "bad_json"
    assert run.stderr.startswith("Error: ")
    assert run.stderr.count("\n") == 1
    assert not Path("bench.csv").exists()


def test_one_bad_file_among_good_ones_is_said_and_the_rest_is_read(specmodel: RunCommand) -> None:
    run = specmodel("ingest", SERVER_LOG, SGLANG / "unknown.json", "-o", "bench.csv")
    assert run.exit_code == 0, run.output
    assert "unknown.json" in run.stderr
    assert Path("bench.csv").exists()


@pytest.mark.parametrize("option", [(), ("--explain",)])
def test_a_file_that_is_refused_is_named_once(
    specmodel: RunCommand, option: tuple[str, ...]
) -> None:
    run = specmodel("ingest", SERVER_LOG, SGLANG / "unknown.json", *option)
    assert run.stdout.count("unknown.json") + run.stderr.count("unknown.json") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_read_once_and_whole_or_refused(specmodel: RunCommand, tmp_path: Path) -> None:
    table = b"accept_length,throughput,baseline\n2.1,82.3,90.0\n"
    runs: list[Any] = []
    for content in (table, SERVER_LOG.read_bytes()):
        pipe = tmp_path / f"pipe{len(runs)}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True)
        writer.start()
        runs.append(specmodel("ingest", pipe, "--json"))
        writer.join(10)
    assert groups_of(runs[0].stdout)[0]["rows"][0]["output_tokens_per_s"] == 82.3
    assert "save it to a file" in runs[1].stderr


def test_a_table_that_cannot_be_fitted_says_what_is_missing(specmodel: RunCommand) -> None:
    run = specmodel("ingest", BASELINE_LOG, "-o", "bench.csv")
    assert "specmodel fit" not in run.stdout
    assert "add a run with speculation" in run.stdout


def test_fit_refuses_a_bad_file_that_was_named(specmodel: RunCommand) -> None:
    run = specmodel("fit", SERVER_LOG, BASELINE_LOG, SGLANG / "unknown.json")
    assert run.exit_code == 1
    assert "unknown.json" in run.stderr
    assert not Path("calibration.json").exists()


def test_a_cost_table_has_no_rows_to_write(specmodel: RunCommand) -> None:
    run = specmodel("ingest", SGLANG / "dspark_steps_per_sec.json", "-o", "bench.csv")
    assert run.exit_code == 0, run.output
    assert "no row to write" in run.stderr
    assert not Path("bench.csv").exists()


def test_explain_says_what_numbers_mean_and_which_checks_failed(specmodel: RunCommand) -> None:
    run = specmodel("ingest", "--explain", SERVER_LOG)
    assert run.exit_code == 0, run.output
    for said in ("sglang_server_log", "0.5.6", "bonus", "batch_changed", "max_running_requests_48"):
        assert said in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80


def test_nothing_named_is_bad_usage(specmodel: RunCommand) -> None:
    assert specmodel("ingest").exit_code == 2


def test_the_table_cannot_be_one_of_the_files(specmodel: RunCommand, tmp_path: Path) -> None:
    shutil.copy(SERVER_LOG, tmp_path / "server.log")
    run = specmodel("ingest", "server.log", "-o", "server.log")
    assert run.exit_code == 1
    assert (tmp_path / "server.log").read_bytes() == SERVER_LOG.read_bytes()


def test_a_path_that_does_not_exist_stops_everything(specmodel: RunCommand) -> None:
    run = specmodel("ingest", SERVER_LOG, "no-such.log", "-o", "bench.csv", "--json")
    assert run.exit_code == 1
    assert run.stderr.count("\n") == 1
    assert "no-such.log: no such file" in run.stderr
    assert not Path("bench.csv").exists()
