"""Output of nccl-tests of every era, as launchers, terminals and people leave it."""

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.allreduce.curves import NoCurveError, curve_points
from calibration.allreduce.reading import read_collectives
from calibration.allreduce.runs import CollectiveReading, CollectiveRun, Half
from specmodel.errors import FormatError
from tests.calibration.allreduce.reading_summary import summary

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "nccl"
PLAIN = (FOLDER / "plain.txt").read_text(encoding="utf-8")
MODERN = (FOLDER / "nccl_info_mixed.txt").read_text(encoding="utf-8")


def read(tmp_path: Path, text: str | bytes, name: str = "log.txt") -> CollectiveReading:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_collectives(path)


def only(reading: CollectiveReading) -> CollectiveRun:
    assert len(reading.runs) == 1
    return reading.runs[0]


def refusal(run: CollectiveRun) -> str:
    with pytest.raises(NoCurveError) as caught:
        curve_points(run)
    return caught.value.code


def measured(run: CollectiveRun) -> list[tuple[int, Half | None, Half | None]]:
    return [(row.size_bytes, row.out_of_place, row.in_place) for row in run.rows]


# --- what is around the lines ---


@pytest.mark.parametrize(
    "change",
    [
        lambda line: f"> {line}",
        lambda line: f"    {line}",
        lambda line: f"[1,0]<stdout>:{line}",
        lambda line: f"[1,mpirank:0,algo-1]<stdout>:{line}",
        lambda line: f"[0] {line}",
        lambda line: f"0: {line}",
        lambda line: f"2026-03-14T10:22:31.123456789Z {line}",
        lambda line: f"2026-03-14T10:22:31.1Z stdout F {line}",
        lambda line: f"\x1b[0m{line}\x1b[0m",
        lambda line: f"{line}\r",
    ],
)
def test_what_a_launcher_or_a_quote_adds_changes_nothing(
    change: Callable[[str], str], tmp_path: Path
) -> None:
    changed = "\n".join(change(line) for line in PLAIN.splitlines())
    plain = only(read(tmp_path, PLAIN, "plain.txt"))
    assert measured(only(read(tmp_path, changed))) == measured(plain)
    assert only(read(tmp_path, changed)).warnings == plain.warnings


def test_compressed_and_utf16_logs_read_alike(tmp_path: Path) -> None:
    plain = only(read(tmp_path, PLAIN))
    assert only(read(tmp_path, gzip.compress(PLAIN.encode()), "log.txt.gz")) == plain
    assert only(read(tmp_path, PLAIN.encode("utf-16"))) == plain


def test_a_message_inside_a_row_is_cut_out_at_a_host_that_begins_with_a_digit(
    tmp_path: Path,
) -> None:
    text = MODERN.replace("host-b", "10-0-0-5")
    assert "-110-0-0-5:7328" in text  # the root and the host touch
    assert measured(only(read(tmp_path, text))) == measured(only(read(tmp_path, MODERN)))


def test_two_logs_in_one_file_are_two_runs(tmp_path: Path) -> None:
    reading = read(tmp_path, PLAIN + "\n" + MODERN)
    assert [len(run.rows) for run in reading.runs] == [15, 12]
    assert [run.library_version for run in reading.runs] == ["2.28.3", "2.28.9"]


# --- epochs ---

OLD = """# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  12 on  node device  0 [0x1a] Tesla V100
#   Rank  1 Pid  13 on  node device  1 [0x1b] Tesla V100
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    57.31   18.30   18.30  {error}    56.90   18.43   18.43  0e+00
     2097152        524288   float     sum    89.00   23.56   23.56  1e-07    88.10   23.80   23.80  0e+00
   134217728      33554432   float     sum  3.1e+03   43.30   43.30  1e-07   3089.2   43.45   43.45    N/A
# Out of bounds values : 0 OK
"""


def test_the_table_of_2019_has_an_error_and_no_root(tmp_path: Path) -> None:
    run = only(read(tmp_path, OLD.format(error="1e-07")))
    assert measured(run)[0] == (
        1048576,
        Half(time_us=57.31, num_wrong=0),
        Half(time_us=56.9, num_wrong=0),
    )
    assert measured(run)[2][1:] == (Half(time_us=3100.0, num_wrong=0), Half(time_us=3089.2))


def test_an_error_beyond_rounding_is_a_wrong_value(tmp_path: Path) -> None:
    assert refusal(only(read(tmp_path, OLD.format(error="5e+01")))) == "wrong_values"


def test_spread_columns_and_a_timestamp_are_understood(tmp_path: Path) -> None:
    half = "8.00 0.13 0.22 0 7.10 9.90 9.80 3.1 "
    text = f"1024 256 float sum -1 {half}{half}\n2048 512 float sum -1 {half}{half}\n"
    assert len(only(read(tmp_path, text)).rows) == 2
    stamped = "1024 256 float sum -1 8.0 0.13 0.22 0 7.9 0.13 0.23 0 2026-01-05 11:22:33\n"
    assert only(read(tmp_path, stamped)).rows[0].in_place == Half(time_us=7.9, num_wrong=0)


def test_a_table_of_2017_never_yields_a_curve(tmp_path: Path) -> None:
    text = """# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#      bytes         N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
        1024       256   float     sum    0.031   0.03   0.03    0e+00    0.031   0.03   0.03    0e+00
        2048       512   float     sum    0.031   0.07   0.07    0e+00    0.031   0.07   0.07    0e+00
        4096      1024   float     sum    0.031   0.13   0.13    0e+00    0.031   0.13   0.13    0e+00
# Out of bounds values : 0 OK
"""
    run = only(read(tmp_path, text))
    assert "legacy_layout" in run.warnings
    with pytest.raises(NoCurveError):
        curve_points(run, num_ranks=2)


def test_a_missing_half_is_blank(tmp_path: Path) -> None:
    lines = PLAIN.splitlines()
    place = next(i for i, line in enumerate(lines) if line.lstrip().startswith("4096 "))
    fields = list(re.finditer(r"\S+", lines[place]))
    begin, end = fields[4].end(), fields[8].end()
    lines[place] = lines[place][:begin] + " " * (end - begin) + lines[place][end:]
    found = {row.size_bytes: row for row in only(read(tmp_path, "\n".join(lines))).rows}
    whole = {row.size_bytes: row for row in only(read(tmp_path, PLAIN)).rows}
    assert found[4096].out_of_place is None
    assert found[4096].in_place == whole[4096].in_place


def test_columns_that_people_quote_are_enough(tmp_path: Path) -> None:
    text = "# size time algbw busbw\n" + "".join(
        f"{size:_} {time_us} {size / time_us / 1e3:.3f} {1.75 * size / time_us / 1e3:.3f}\n"
        for size, time_us in ((65536, 30.0), (131072, 45.0), (262144, 80.0))
    )
    run = only(read(tmp_path, text))
    assert [row.size_bytes for row in run.rows] == [65536, 131072, 262144]
    assert (run.num_ranks, run.collective) == (8, "all_reduce")
    assert curve_points(run).time_s.tolist() == pytest.approx([30e-6, 45e-6, 80e-6])


def test_a_head_without_its_hashes_and_decimal_commas_are_accepted(tmp_path: Path) -> None:
    text = PLAIN.replace("#", "").replace("Out of bounds", "# Out of bounds")
    assert len(only(read(tmp_path, text)).rows) == 15
    row = "     1024   256   float   sum   -1   23,85   0,04   0,08   0   24,54   0,04   0,07   0"
    assert only(read(tmp_path, row)).rows[0].out_of_place == Half(time_us=23.85, num_wrong=0)


def test_the_collective_follows_from_operation_and_count_where_nothing_names_it(
    tmp_path: Path,
) -> None:
    head = "# nThread 1 nGpus 1 minBytes 1 maxBytes 9 step: 2(factor) warmup iters: 1 iters: 2\n"
    tail = " 8.0 0.13 0.22 0 7.9 0.13 0.23 0\n"
    named = {
        "4096 1024 float sum -1": "all_reduce",
        "4096 128 float sum -1": "reduce_scatter",
        "4096 128 float none -1": "all_gather",
        "4096 1024 float sum 0": "reduce",
        "4096 1024 float none 0": "broadcast",
    }
    for row, collective in named.items():
        assert only(read(tmp_path, head + row + tail)).collective == collective


def test_rccl_tests_is_told_from_its_name_or_its_banner(tmp_path: Path) -> None:
    named = "# rccl-tests: Version develop:ae3e635\n" + MODERN.replace("NCCL version", "library")
    run = only(read(tmp_path, named))
    assert (run.library, run.library_version, len(run.rows)) == ("rccl", None, 12)
    banner = MODERN.replace("NCCL version 2.28.9+cuda13.0", "RCCL version : 2.22.3-HEAD:a1b2")
    run = only(read(tmp_path, banner))
    assert (run.library, run.library_version) == ("rccl", "2.22.3")


# --- what never yields a curve ---


def test_wrong_values_never_yield_a_curve(tmp_path: Path) -> None:
    lines = PLAIN.splitlines()
    place = next(i for i, line in enumerate(lines) if line.lstrip().startswith("65536 "))
    lines[place] = lines[place][:-1] + "3"
    assert refusal(only(read(tmp_path, "\n".join(lines)))) == "wrong_values"
    failed = PLAIN.replace("values : 0 OK", "values : 12 FAILED")
    assert failed != PLAIN
    assert refusal(only(read(tmp_path, failed))) == "wrong_values"


def test_a_run_that_hangs_never_yields_a_curve(tmp_path: Path) -> None:
    rows = PLAIN.splitlines()
    head = next(i for i, line in enumerate(rows) if line.lstrip().startswith("1024 "))
    assert refusal(only(read(tmp_path, "\n".join(rows[:head])))) == "no_rows"
    assert refusal(only(read(tmp_path, "\n".join(rows[: head + 6])))) == "incomplete"
    for cry in (
        "host-a: Test NCCL failure common.cu:958 'unhandled system error' ",
        "slurmstepd: error: *** JOB 12 CANCELLED AT 2026-03-14T10:22:31 DUE TO TIME LIMIT ***",
        "[E] Watchdog caught collective operation timeout",
    ):
        text = "\n".join([*rows[: head + 6], cry])
        assert refusal(only(read(tmp_path, text))) == "failed"
    run = only(read(tmp_path, "\n".join(rows[: head + 6])))
    assert curve_points(run, accept_incomplete=True).size_bytes.size == 6


def test_one_rank_and_ranks_on_one_gpu_never_yield_a_curve(tmp_path: Path) -> None:
    one = "\n".join(line for line in PLAIN.splitlines() if "Rank" not in line or "Rank  0" in line)
    assert refusal(only(read(tmp_path, one))) == "single_rank"
    lines = [
        line.replace(f"Rank  {rank} ", "Rank  0 ")
        for rank in range(8)
        for line in PLAIN.splitlines()
    ]
    for run in read(tmp_path, "\n".join(lines)).runs:
        if "independent_ranks" in run.warnings:
            assert refusal(run) == "single_rank"
    shared = MODERN.replace("device  1 [0000:2a:00]", "device  0 [0000:1a:00]")
    assert refusal(only(read(tmp_path, shared))) == "shared_gpu"


def test_ranks_that_nothing_tells_must_be_given_and_must_agree(tmp_path: Path) -> None:
    run = only(read(tmp_path, "size_bytes,time_us\n1024,7\n2048,8\n4096,9\n", "a.csv"))
    assert refusal(run) == "ranks_unknown"
    assert curve_points(run, num_ranks=4).num_ranks == 4
    with pytest.raises(NoCurveError, match="8 ranks in the file"):
        curve_points(only(read(tmp_path, MODERN)), num_ranks=4)


def test_the_smaller_half_of_a_row_counts(tmp_path: Path) -> None:
    points = curve_points(only(read(tmp_path, PLAIN)))
    expected = json.loads((FOLDER / "plain.expected.json").read_text(encoding="utf-8"))
    for row, time_s in zip(expected["runs"][0]["rows"], points.time_s, strict=True):
        halves = (row["out_of_place"]["time_us"], row["in_place"]["time_us"])
        assert time_s * 1e6 == pytest.approx(min(halves))
    assert any("more than 20 %" in note for note in points.notes)


# --- JSON ---

JSON = (FOLDER / "json_output.json").read_text(encoding="utf-8")


def test_json_with_wrong_values_or_without_an_end_never_yields_a_curve(tmp_path: Path) -> None:
    value = json.loads(JSON)
    value["out_of_bounds"] = {"count": 4, "okay": "false"}
    assert refusal(only(read(tmp_path, json.dumps(value)))) == "wrong_values"
    value = json.loads(JSON)
    del value["out_of_bounds"], value["average_bus_bandwidth"], value["end_time"]
    value["results"] = value["results"][:6]
    assert refusal(only(read(tmp_path, json.dumps(value)))) == "incomplete"
    with pytest.raises(FormatError, match="cut off"):
        read(tmp_path, JSON[: len(JSON) // 2])


def test_json_with_texts_for_numbers_reads_alike(tmp_path: Path) -> None:
    value = json.loads(JSON)
    value["nccl_version"] = "22902"
    for row in value["results"]:
        row["out_of_place"]["time"] = str(row["out_of_place"]["time"])
        row["in_place"]["cpu_time"] = row["in_place"].pop("time")
    changed, plain = only(read(tmp_path, json.dumps(value))), only(read(tmp_path, JSON))
    assert changed == plain
    value["results"][0]["out_of_place"] = None
    value["results"][1]["in_place"]["cpu_time"] = "nan"
    rows = only(read(tmp_path, json.dumps(value))).rows
    assert (rows[0].out_of_place, rows[1].in_place) == (None, None)


# --- plain tables ---


def test_a_table_of_several_ranks_is_a_run_for_each(tmp_path: Path) -> None:
    text = "num_gpus;size_kib;time_ms\n4;1;0.007\n4;2;0.008\n8;1;0.009\n"
    runs = read(tmp_path, text, "a.csv").runs
    assert [(run.num_ranks, len(run.rows)) for run in runs] == [(4, 2), (8, 1)]
    assert [row.halves[0].time_us for row in runs[0].rows] == pytest.approx([7.0, 8.0])


@pytest.mark.parametrize("cell", ["-1", "0", "nan", "inf", "abc", "", "1e400", "9" * 400])
def test_an_impossible_cell_of_a_table_is_one_line(cell: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        read(tmp_path, f"size_bytes,time_us\n1024,7\n2048,{cell}\n", "a.csv")
    assert caught.value.line == 3
    assert "\n" not in str(caught.value)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    for text in ("hello\n", "accept_length,throughput,baseline\n2,3,4\n", "{}", "[1, 2]", "\n\n"):
        with pytest.raises(FormatError):
            read(tmp_path, text)


# --- broken files ---


def test_no_broken_file_does_more_than_read_or_be_refused(tmp_path: Path) -> None:
    chance = random.Random(5)  # noqa: S311 - no secret
    seeds = [
        path.read_bytes() for path in sorted(FOLDER.glob("*.[tj]*")) if "expected" not in path.name
    ]
    for _ in range(300):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 8)):
            place = chance.randrange(len(data))
            piece = chance.choice(
                [b"9" * 30, b"-1", b"nan", b"\n", b"\xff", b"1e400", b":1:2 [3] NCCL INFO x"]
            )
            data[place : place + chance.randint(0, 40)] = piece
        try:
            reading = read(tmp_path, bytes(data))
        except FormatError:
            continue
        json.dumps(summary(reading), allow_nan=False)
        for run in reading.runs:
            try:
                points = curve_points(run, num_ranks=run.num_ranks or 8)
            except NoCurveError:
                continue
            assert (points.time_s > 0).all()


def test_a_long_log_of_messages_and_a_long_line_are_read_through(tmp_path: Path) -> None:
    noise = "host-b:7307:7391 [1] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM\n" * 20_000
    assert len(only(read(tmp_path, noise + MODERN + noise + "a" * 200_000)).rows) == 12
