"""`specmodel allreduce fit`: what it prints, writes and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from calibration.allreduce.fitting import load_all_reduces
from calibration.commands.other import allreduce
from specmodel.errors import FormatError, SpecModelError

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "nccl"


Invoke: TypeAlias = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(allreduce, ["fit", *map(str, arguments)])

    return invoke


def test_the_table_fits_into_80_columns_and_shows_the_tokens(run: Invoke) -> None:
    found = run(FOLDER / "plain.txt", "--tokens-bytes", 14336)
    assert found.exit_code == 0, found.output
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert [line.split()[0] for line in found.stdout.splitlines()[-5:]] == [
        "1",
        "2",
        "4",
        "8",
        "32",
    ]
    assert "floor" in found.stdout
    assert "one process drives several GPUs" in " ".join(found.stderr.split())


def test_the_written_file_loads_as_what_was_fitted(run: Invoke, tmp_path: Path) -> None:
    found = run(FOLDER / "plain.txt", FOLDER / "json_output.json", "--json", "-o", "a.json")
    assert found.exit_code == 0, found.output
    printed = json.loads(found.stdout)
    assert printed == json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert printed["schema_version"] == 1
    loaded = load_all_reduces(tmp_path / "a.json")
    assert [one.fit.num_ranks for one in loaded] == [8, 8]
    assert [one.in_graph for one in loaded] == [False, True]
    for one, curve in zip(loaded, printed["curves"], strict=True):
        law = one.fit.library_law
        assert law.floor_s * 1e6 == pytest.approx(curve["two_protocols"]["floor_us"], rel=1e-4)
    assert "must-not-be-stored" not in found.output


def test_the_floor_is_that_of_the_smallest_messages(run: Invoke) -> None:
    curve = json.loads(run(FOLDER / "plain.txt", "--json").stdout)["curves"][0]
    assert curve["two_protocols"]["floor_us"] == pytest.approx(curve["time_us"][0], rel=0.05)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("all_gather_reduce_scatter.txt", "all_gather is no all-reduce"),
        ("truncated.txt", "hung or cut off"),
    ],
)
def test_what_is_no_curve_is_refused_and_nothing_is_written(
    name: str, reason: str, run: Invoke, tmp_path: Path
) -> None:
    found = run(FOLDER / name)
    assert isinstance(found.exception, SpecModelError)
    assert reason in str(found.exception)
    assert "\n" not in str(found.exception)
    assert list(tmp_path.iterdir()) == []


def test_what_was_measured_before_the_end_can_be_taken(run: Invoke) -> None:
    found = run(FOLDER / "truncated.txt", "--accept-incomplete")
    assert found.exit_code == 0, found.output
    assert "line 21: truncated row" in " ".join(found.stderr.split())


def test_a_size_far_beyond_the_measured_ones_is_said(run: Invoke) -> None:
    near = run(FOLDER / "truncated.txt", "--accept-incomplete", "--tokens-bytes", 14336)
    far = run(FOLDER / "truncated.txt", "--accept-incomplete", "--tokens-bytes", 65536)
    assert "more than twice outside" not in near.stderr
    assert "more than twice outside" in " ".join(far.stderr.split())


def test_a_plain_table_needs_its_ranks(run: Invoke, tmp_path: Path) -> None:
    table = tmp_path / "oneshot.csv"
    table.write_text("size_bytes,time_us\n1024,7.5\n4096,7.6\n16384,8.1\n65536,11.0\n")
    assert "--ranks" in str(run(table).exception)
    found = run(table, "--ranks", 4, "--json")
    assert json.loads(found.stdout)["curves"][0]["num_ranks"] == 4


def test_a_picture_is_drawn(run: Invoke, tmp_path: Path) -> None:
    assert run(FOLDER / "plain.txt", "--plot", "a.png").exit_code == 0
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


def test_the_output_may_not_be_the_log(run: Invoke, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes((FOLDER / "plain.txt").read_bytes())
    assert isinstance(run(log, "-o", log).exception, SpecModelError)
    assert log.read_bytes() == (FOLDER / "plain.txt").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '{"kind": "all_reduce", "schema_version": 2, "curves": []}',
        '{"kind": "all_reduce", "schema_version": 1, "curves": [{}]}',
        '{"kind": "all_reduce", "schema_version": 1, "curves": [3]}',
        '{"kind": "all_reduce", "schema_version": 1, "curves": [{"num_ranks": 2}]}',
    ],
)
def test_a_file_of_something_else_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        load_all_reduces(path)
    assert "\n" not in str(caught.value)


def test_a_log_in_place_of_what_was_fitted_to_it_says_which_command_takes_it() -> None:
    with pytest.raises(FormatError, match="give that command logs") as caught:
        load_all_reduces(FOLDER / "plain.txt")
    assert caught.value.code == "wrong_kind"


def test_a_written_file_that_was_cut_says_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"kind": "all_reduce", "curves": [', encoding="utf-8")
    with pytest.raises(FormatError, match="is it cut off"):
        load_all_reduces(path)


def test_an_impossible_size_in_a_written_file_is_one_line(tmp_path: Path) -> None:
    curve = {"size_bytes": [1, 2, 0], "time_us": [1, 2, 3], "num_ranks": 2}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"kind": "all_reduce", "schema_version": 1, "curves": [curve]}))
    with pytest.raises(FormatError, match="curve 1"):
        load_all_reduces(path)


def test_a_floor_that_no_size_tells_is_not_measured(run: Invoke, tmp_path: Path) -> None:
    table = tmp_path / "large.csv"
    table.write_text("size_bytes,time_us\n4000000,2000\n8000000,4000\n16000000,8000\n")
    found = run(table, "--ranks", 2)
    assert "not measured" in found.stdout
    assert "2.0 µs" not in found.stdout
    law = json.loads(run(table, "--ranks", 2, "--json").stdout)["curves"][0]["two_protocols"]
    assert law["floor_us"] is None


def test_a_slow_row_is_named_on_the_terminal_and_in_the_file(run: Invoke, tmp_path: Path) -> None:
    sizes = [8192 * 2**i for i in range(11)]
    rows = [f"{size},{400 if size == 2**21 else 12 + 32 * size / 2**20}" for size in sizes]
    table = tmp_path / "slow.csv"
    table.write_text("\n".join(["size_bytes,time_us", *rows]))
    found = run(table, "--ranks", 2, "--json")
    said = "2 MiB took 400 µs where the other sizes give 76 µs"
    assert said in " ".join(found.stderr.split())
    assert any(said in note for note in json.loads(found.stdout)["curves"][0]["notes"])
