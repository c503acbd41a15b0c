"""`specmodel fit` and `specmodel data`: what they print, write and leave alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from calibration.points.packaged import packaged_tables
from specmodel.calibration import Calibration

Run = Callable[..., Result]

BENCH = "accept_length,throughput,baseline\n2.1,82.3,90.0\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def fitted(run: Run, *arguments: str | Path) -> dict[str, Any]:
    result = run("fit", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_calibration_is_written_where_it_is_asked(specmodel: Run, tmp_path: Path) -> None:
    written(tmp_path, "bench.csv", BENCH)
    assert specmodel("fit", "bench.csv").exit_code == 0
    assert Calibration.load(tmp_path / "calibration.json").num_points == 1
    assert specmodel("fit", "bench.csv", "-o", "other.json").exit_code == 0
    assert Calibration.load(tmp_path / "other.json").num_points == 1


def test_dropped_rows_are_listed_with_line_and_reason(specmodel: Run, tmp_path: Path) -> None:
    written(tmp_path, "bench.csv", BENCH + "about 2,80,90\n2.1,82.3,90.0\n")
    result = specmodel("fit", "bench.csv")
    said = " ".join(result.stdout.split())
    assert "3 rows read, 2 dropped, 1 fitted" in said
    assert "line 3, column accept_length: 'about 2' is not a number" in said
    assert "line 4: equal to line 2" in said
    found = fitted(specmodel, "bench.csv")
    assert [row["line"] for row in found["dropped"]] == [3, 4]


def test_several_files_of_one_system_are_pooled(specmodel: Run, tmp_path: Path) -> None:
    head = "tau,tok/s,baseline,k\n"
    written(tmp_path, "a.csv", head + "1.9,100,80,3\n")
    written(tmp_path, "b.csv", head + "2.2,104,80,6\n")
    found = fitted(specmodel, "a.csv", "b.csv")
    assert found["num_points"] == 2
    assert [one["num_steps"] for one in found["observations"]] == [3, 6]
    assert not any(one["constants"] == ["fixed_cost", "step_cost"] for one in found["not_told"])


def test_break_even_is_told_by_batch_context_topk_and_depth(specmodel: Run, tmp_path: Path) -> None:
    rows = [(8, 0, 1, 5), (1, 4096, 1, 3), (8, 0, 1, 3), (1, 0, 4, 3), (1, 0, 1, 7), (1, 0, 1, 3)]
    lines = [
        f"2.1,{100 * batch},{80 * batch},{batch},{context},{topk},{depth},{depth + 1}"
        for batch, context, topk, depth in rows
    ]
    header = "tau,tok/s,baseline,bs,ctx,topk,k,num_draft_tokens"
    written(tmp_path, "bench.csv", "\n".join([header, *lines]) + "\n")
    names = ("batch_size", "context_tokens", "topk", "num_steps")
    told = [
        tuple(one[name] for name in names) for one in fitted(specmodel, "bench.csv")["observations"]
    ]
    assert told == sorted(rows)
    shown = [
        line for line in specmodel("fit", "bench.csv").stdout.splitlines() if line[:6] == "depth "
    ]
    assert [line.split()[1].rstrip(",") for line in shown] == [
        str(depth) for *_, depth in sorted(rows)
    ]


def test_one_of_two_systems_is_chosen_by_its_label(specmodel: Run, tmp_path: Path) -> None:
    written(tmp_path, "two.csv", "tau,tok/s,baseline,gpu\n2.1,82,90,H200\n2.1,160,100,A100\n")
    found = fitted(specmodel, "two.csv", "--system", "a100")
    assert found["system"] == "A100"
    assert found["rows_of_other_systems"] == 1


def test_a_broken_baseline_is_set_aside_and_named(specmodel: Run, tmp_path: Path) -> None:
    rows = "chat,2.1,100,80,3\nmaths,2.2,104,80,3\ncode,1.2,190,80,3\n"
    written(tmp_path, "bench.csv", "workload,tau,tok/s,baseline,k\n" + rows)
    result = specmodel("fit", "bench.csv")
    assert result.exit_code == 0
    assert "the baseline of code is broken" in " ".join(result.stderr.split())
    assert "3 rows read, 0 dropped, 2 fitted" in result.stdout


def test_unsound_baselines_are_refused_unless_forced(specmodel: Run, tmp_path: Path) -> None:
    written(tmp_path, "bench.csv", "tau,tok/s,baseline,k\n1.2,190,80,3\n")
    result = specmodel("fit", "bench.csv")
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert not (tmp_path / "calibration.json").exists()
    assert specmodel("fit", "bench.csv", "--force").exit_code == 0


def test_the_packaged_prior_leaves_out_the_packaged_target(specmodel: Run) -> None:
    found = fitted(specmodel, "--data", "specbundle-llama31-8b")
    assert "without Llama-3.1-8B" in found["prior"]["name"]
    assert not any("llama31-8b" in name for name in found["prior"]["learned_from"])
    assert found["num_points"] == 70


def test_seventy_rows_tell_fixed_cost_from_the_cost_of_a_step(specmodel: Run) -> None:
    found = fitted(specmodel, "--data", "specbundle-llama31-8b")
    by_name = {one["name"]: one for one in found["constants"]}
    for name in ("fixed_cost", "step_cost", "tree_cost"):
        assert by_name[name]["in_play"]
        assert not by_name[name]["sum_only"]
    assert by_name["fixed_cost"]["share_learned"] > 0.3
    assert by_name["fixed_cost"]["median"] == pytest.approx(1.136, rel=0.06)  # theory.md B1
    assert not by_name["kv_row_share"]["in_play"]
    assert found["residuals"]["rms"] < 0.02
    assert found["diagnosis"] is None


def test_the_text_of_a_large_fit_fits_80_columns(specmodel: Run) -> None:
    for name in ("specbundle-llama31-8b", "rtx6kpro-kimi-k26-dcp4"):
        result = specmodel("fit", "--data", name, "--force")
        assert max(map(len, result.stdout.splitlines())) <= 80, name


def test_constants_out_of_play_are_not_called_learned(specmodel: Run, tmp_path: Path) -> None:
    written(tmp_path, "bench.csv", BENCH)
    said = " ".join(specmodel("fit", "bench.csv").stdout.split())
    assert "Not in play at these points, so not learned: c_tree (tree_cost)" in said


def test_a_picture_of_the_fit_is_drawn(specmodel: Run, tmp_path: Path) -> None:
    written(tmp_path, "bench.csv", BENCH)
    result = specmodel("fit", "bench.csv", "--plot", "fit.png")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "fit.png").read_bytes()[1:4] == b"PNG"


def test_an_interrupted_write_leaves_the_old_calibration_whole(
    specmodel: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "bench.csv", BENCH)
    assert specmodel("fit", "bench.csv").exit_code == 0
    before = (tmp_path / "calibration.json").read_bytes()
    written(tmp_path, "bench.csv", BENCH.replace("82.3", "85.5"))

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specmodel.files.os.fsync", interrupted)
    result = specmodel("fit", "bench.csv")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "Error: interrupted"
    assert (tmp_path / "calibration.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.csv", "calibration.json"]


def test_fit_needs_points_from_one_place(specmodel: Run, tmp_path: Path) -> None:
    written(tmp_path, "bench.csv", BENCH)
    assert specmodel("fit").exit_code == 2
    assert specmodel("fit", "bench.csv", "--data", "specbundle-llama31-8b").exit_code == 2
    unknown = specmodel("fit", "--data", "specbundle-llama31")
    assert unknown.exit_code == 2
    assert "specbundle-llama31-8b" in unknown.stderr


# --- data ---


def test_data_lists_every_packaged_system_with_rows_and_source(specmodel: Run) -> None:
    result = specmodel("data")
    assert result.exit_code == 0
    for table in packaged_tables():
        assert table.name in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    listed = json.loads(specmodel("data", "--json").stdout)["systems"]
    assert [one["name"] for one in listed] == [table.name for table in packaged_tables()]
    assert all(one["source_keys"] and one["url"] and one["rows"] for one in listed)


def test_data_says_what_varies(specmodel: Run) -> None:
    listed = json.loads(specmodel("data", "--json").stdout)["systems"]
    llama = next(one for one in listed if one["name"] == "specbundle-llama31-8b")
    varies = {one["column"]: one for one in llama["varies"]}
    assert (varies["num_steps"]["low"], varies["num_steps"]["high"]) == (3, 7)
    assert varies["workload"]["num_values"] == 7
    assert "batch_size" not in varies
