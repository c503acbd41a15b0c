"""Logs of llama.cpp's server."""

import gzip
import tempfile
from pathlib import Path

import pytest

from calibration.readers.llamacpp_server_log import read_log, recognise
from calibration.readers.log_file import LogFile
from calibration.readers.reading import Reading, Row
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped

LAUNCH = "$ llama-server -m /srv/models/wren-8b.gguf -md /srv/tern.gguf --api-key not-a-real-key"


def begin(slot: int = 0, task: int = 0) -> str:
    return f"slot launch_slot_: id  {slot} | task {task} | processing task\n"


def end(slot: int = 0, task: int = 0) -> str:
    return f"slot      release: id  {slot} | task {task} | stop processing: n_past = 9, truncated = 0\n"


def timing(decoded: int, ms: float, *, slot: int = 0, task: int = 0) -> str:
    """Timings of a request: the engine counts the prefill's token among those of the eval time."""
    return (
        f"slot print_timing: id  {slot} | task {task} | \n"
        "prompt eval time =      84.91 ms /    77 tokens (    1.10 ms per token,   906.84 tokens per second)\n"
        f"       eval time = {ms:10.2f} ms / {decoded + 1:5d} tokens (    6.27 ms per token,   159.44 tokens per second)\n"
        f"      total time = {ms + 84.91:10.2f} ms / {decoded + 78:5d} tokens\n"
    )


def old(accepted: int, drafted: int) -> str:
    return f"draft acceptance rate = {accepted / drafted:.5f} ({accepted:5d} accepted / {drafted:5d} generated)\n"


def new(accepted: int, drafted: int, mean: float) -> str:
    return (
        f"draft acceptance = {accepted / drafted:.5f} ({accepted:5d} accepted / {drafted:5d} generated), "
        f"mean len = {mean:5.2f}\n"
    )


def request(decoded: int, ms: float, drafts: str, slot: int = 0, task: int = 0) -> str:
    return begin(slot, task) + timing(decoded, ms, slot=slot, task=task) + drafts + end(slot, task)


# 40 rounds of 3 drafts, 40 rounds of 3 drafts
TWO = request(100, 1000, old(60, 120)) + request(50, 1000, old(10, 120), task=9)


def read(text: str) -> Reading:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "server.log"
        file.write_text(text, encoding="utf-8", newline="")
        return read_log(LogFile(path=file))


def only(reading: Reading) -> Row:
    (row,) = reading.rows
    return row


def test_requests_are_summed_before_anything_is_divided() -> None:
    reading = read(TWO)
    cells = only(reading).cells
    assert cells["accept_length"] == 150 / 80
    assert cells["step_time_ms"] == 2000 / 80
    assert cells["output_tokens_per_s"] == 75
    assert (cells["num_steps"], cells["batch_size"]) == (3, 1)
    assert reading.era == ("old",)
    assert codes(reading) == set()


def test_the_mean_length_of_rounds_with_a_draft_is_not_used() -> None:
    reading = read(request(100, 1000, new(60, 90, 3.0)))  # 30 rounds drafted, 10 did not
    assert only(reading).cells["accept_length"] == 2.5
    assert reading.era == ("new",)
    assert codes(reading) == {
        "rounds_without_draft",
        "variable_draft_length",
        "no_speculation_flags",
    }


def test_a_mean_length_that_agrees_says_nothing() -> None:
    assert codes(read(request(100, 1000, new(60, 120, 2.5)))) == set()


def test_the_token_of_the_prefill_is_in_no_round_and_in_no_time() -> None:
    text = timing(100, 1000) + new(60, 120, 2.5)
    assert "  101 tokens" in text  # its first token came before the 40 rounds
    cells = only(read(begin() + text + end())).cells
    assert (cells["accept_length"], cells["num_steps"]) == (2.5, 3)
    assert (cells["step_time_ms"], cells["output_tokens_per_s"]) == (25, 100)
    assert cells["output_tokens"] == 101
    assert codes(read(text)) == set()


def test_a_request_of_one_token_has_no_round() -> None:
    reading = read(request(0, 0.01, "") + TWO)
    assert dropped(reading) == {"no_verify_rounds": 1}
    assert only(reading).cells["accept_length"] == 150 / 80


SETTINGS = (
    "0.00.249 I spec common_specu: adding speculative implementation 'draft-eagle3'\n"
    "0.00.250 I spec common_specu: - n_max={}, n_min=0, p_min={}\n"
)


def test_the_depth_is_what_the_server_says_when_it_starts() -> None:
    cells = only(read(SETTINGS.format(4, "0.000000") + TWO)).cells
    assert (cells["num_steps"], cells["algorithm"]) == (4, "draft-eagle3")
    assert "notes" not in cells


def test_a_gate_is_read_where_the_server_says_it() -> None:
    reading = read(SETTINGS.format(4, "0.700000") + TWO)
    assert "0.7" in str(only(reading).cells["notes"])
    assert codes(reading) == {"variable_draft_length"}


def test_what_the_server_says_goes_before_its_command() -> None:
    command = f"{LAUNCH} --spec-draft-n-max 5 --spec-draft-p-min 0.7\n"
    cells = only(read(command + SETTINGS.format(4, "0.000000") + TWO)).cells
    assert (cells["num_steps"], cells["target_model"]) == (4, "wren-8b.gguf")
    assert "notes" not in cells


def test_a_server_that_starts_again_with_another_depth_is_another_row() -> None:
    text = SETTINGS.format(3, "0.0") + TWO + SETTINGS.format(5, "0.0") + TWO
    assert [row.cells["num_steps"] for row in read(text).rows] == [3, 5]


def test_the_positions_of_a_request_are_the_depth_where_nothing_else_says_it() -> None:
    text = request(100, 1000, new(60, 110, 2.5) + "     acc per pos = (0.818, 0.606, 0.455, 0.2)\n")
    assert only(read(text)).cells["num_steps"] == 4


def test_the_end_of_a_request_cuts_its_last_drafts() -> None:
    """Requests of a real server at depth 3: 95 tokens after the prefill, accepted of drafted."""
    real = [(62, 99), (61, 100), (62, 98), (63, 93), (60, 104), (59, 104), (62, 97), (63, 96)]
    reading = read("".join(request(95, 850, old(*counts)) for counts in real))
    cells = only(reading).cells
    assert cells["num_steps"] == 3
    assert cells["accept_length"] == pytest.approx(760 / 268)
    assert codes(reading) == set()


def test_calls_without_a_draft_are_rounds_without_one() -> None:
    statistics = (
        "statistics draft-mtp: #calls = 40, #gen drafts = 31, #acc drafts = 25, #gen tokens = 120, "
        "#acc tokens = 60, dur(b,g,a) = 0.004, 437.100, 0.021 ms\n"
    )
    reading = read(
        LAUNCH + " --spec-draft-n-max 3\n" + request(100, 1000, old(60, 120) + statistics)
    )
    assert codes(reading) == {"rounds_without_draft"}


@pytest.mark.parametrize(
    "flags",
    [
        "--spec-draft-n-max 4",
        "--draft-max 4",
        "--draft-max=4",
        "--draft 4 -ngl 99",
        "\\\n  -ngl 99 \\\n  --draft-n 4",
    ],
)
def test_the_depth_of_the_command_is_the_most_that_a_round_drafts(flags: str) -> None:
    reading = read(f"{LAUNCH} {flags}\n{TWO}")
    cells = only(reading).cells
    assert (cells["num_steps"], cells["num_draft_tokens"], cells["topk"]) == (4, 5, 1)
    assert codes(reading) == {"variable_draft_length"}  # 3 a round


def test_names_are_taken_from_the_command_and_nothing_else() -> None:
    reading = read(f"{LAUNCH} --spec-type draft-eagle3 --spec-draft-p-min 0.7\n{TWO}")
    cells = only(reading).cells
    assert (cells["target_model"], cells["draft_model"]) == ("wren-8b.gguf", "tern.gguf")
    assert cells["algorithm"] == "draft-eagle3"
    assert "0.7" in str(cells["notes"])
    assert "not-a-real-key" not in repr(reading)
    assert "/srv" not in repr(reading)


def test_slots_that_are_busy_together_leave_no_time() -> None:
    text = begin(0, 1) + begin(1, 2) + timing(100, 1000, slot=0, task=1) + old(60, 120) + end(0, 1)
    text += timing(50, 1000, slot=1, task=2) + old(10, 120) + end(1, 2)
    reading = read(text)
    cells = only(reading).cells
    assert cells["accept_length"] == 150 / 80
    assert not {"step_time_ms", "output_tokens_per_s", "batch_size"} & cells.keys()
    assert codes(reading) == {"concurrent_slots"}


def test_slots_that_take_turns_are_a_batch_of_one() -> None:
    text = request(100, 1000, old(60, 120), 0, 1) + request(50, 1000, old(10, 120), 1, 2)
    assert only(read(text)).cells["batch_size"] == 1


def test_several_slots_that_nobody_watched_have_no_batch_size() -> None:
    text = timing(100, 1000, slot=0, task=1) + old(60, 120)
    text += timing(50, 1000, slot=1, task=2) + old(10, 120)
    reading = read(text)
    assert "batch_size" not in only(reading).cells
    assert codes(reading) == {"load_unknown"}


def test_a_request_without_draft_figures_is_left_out_where_others_have_them() -> None:
    reading = read(request(30, 500, "") + TWO)
    assert dropped(reading) == {"no_speculation": 1}
    assert only(reading).cells["accept_length"] == 150 / 80


def test_a_log_without_draft_figures_is_a_baseline() -> None:
    reading = read("$ llama-server -m /srv/wren-8b.gguf\n" + request(40, 1000, ""))
    row = only(reading)
    assert (row.cells["num_steps"], row.cells["step_time_ms"]) == (0, 25)
    assert codes(reading) == {"baseline_inferred"}
    assert row.load == only(read(LAUNCH + "\n" + TWO)).load


def test_a_server_told_to_draft_is_no_baseline() -> None:
    with pytest.raises(FormatError) as error:
        read(LAUNCH + "\n" + request(40, 1000, ""))
    assert error.value.code == "no_points"


def test_two_depths_in_one_log_are_two_rows() -> None:
    reading = read(f"{LAUNCH} --draft-max 3\n{TWO}{LAUNCH} --draft-max 5\n{TWO}")
    assert [row.cells["num_steps"] for row in reading.rows] == [3, 5]
    assert "depth_changed" in codes(reading)


def test_a_restart_with_equal_settings_is_one_row_and_frees_its_slots() -> None:
    reading = read(f"{LAUNCH}\n{TWO}{begin(0, 3)}{LAUNCH}\n{request(100, 900, old(60, 120), 1, 4)}")
    assert only(reading).cells["accept_length"] == 250 / 120
    assert "concurrent_slots" not in codes(reading)


def test_every_line_may_carry_its_request_and_a_prefix() -> None:
    lines = [
        "slot print_timing: id  3 | task 7 | prompt eval time =  84.91 ms /    77 tokens",
        "slot print_timing: id  3 | task 7 |        eval time =  1000.00 ms /   101 tokens",
        "slot print_timing: id  3 | task 7 |       total time =  1084.91 ms /   177 tokens",
        "slot print_timing: id  3 | task 7 | draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  2.50",
        "slot      release: id  3 | task 7 | stop processing: n_tokens = 177, truncated = 0",
    ]
    text = "".join(f"llama-1  | \x1b[32m0.12.345 I \x1b[0m{line}\r\n" for line in lines)
    assert recognise(text)
    reading = read(text)
    assert only(reading).cells["accept_length"] == 2.5
    assert not reading.dropped


def test_lines_that_were_picked_out_are_enough() -> None:
    text = "\n".join(line for line in TWO.splitlines() if "eval time" in line or "draft" in line)
    assert only(read(text + "\n")).cells == only(read(TWO)).cells


@pytest.mark.parametrize(
    "cut",
    [
        "eval time =    10",
        "ms /    51 tok",
        "accepted /   120 gen",
        "draft acceptance rate = 0.08333 (",
    ],
)
def test_a_request_that_is_cut_off_is_counted_as_malformed(cut: str) -> None:
    last = begin(0, 5) + timing(50, 1000, task=5) + old(10, 120)
    reading = read(TWO + last[: last.index(cut) + len(cut)])
    assert dropped(reading) == {"malformed": 1}
    assert only(reading).cells["accept_length"] == 150 / 80


def test_figures_without_their_time_are_malformed() -> None:
    assert dropped(read(TWO + old(60, 120))) == {"malformed": 1}


def test_figures_that_cannot_be_are_left_out() -> None:
    reading = read(TWO + request(60, 1000, old(60, 120)) + request(60, 1000, old(50, 40)))
    assert dropped(reading) == {"impossible_counts": 2}


def test_a_quoted_line_is_somebodys_text() -> None:
    quoted = f'srv  log: {{"content": "{old(60, 120).strip()} and llama-server --draft-max 9"}}\n'
    assert not recognise(quoted)
    assert only(read(TWO + quoted)).cells == only(read(TWO)).cells


def test_timings_of_the_library_count_calls_and_are_not_taken() -> None:
    library = "llama_perf_context_print:        eval time =    2577.72 ms /   410 runs\n"
    assert only(read(TWO + library)).cells == only(read(TWO)).cells
    assert not read(TWO + library).dropped


def test_a_summary_of_the_command_line_example_gives_a_row() -> None:
    text = """decoded  100 tokens in    2.000 seconds, speed:   50.000 t/s

n_draft   = 3
n_predict = 100
n_drafted = 120
n_accept  = 60
accept    = 50.000%
"""
    reading = read(text)
    cells = only(reading).cells
    assert recognise(text)
    assert (cells["accept_length"], cells["num_steps"]) == (2.5, 3)
    assert (cells["step_time_ms"], cells["output_tokens_per_s"]) == (50, 50)
    assert codes(reading) == set()


def test_statistics_alone_give_the_acceptance() -> None:
    line = "statistics draft-eagle3: #calls = {}, #gen drafts = {}, #acc drafts = 1, #gen tokens = {}, #acc tokens = {}, "
    text = "".join(
        line.format(n, n, 3 * n, a) + "dur(b,g,a) = 0, 4, 0 ms\n" for n, a in ((10, 9), (40, 60))
    )
    assert recognise(text)
    cells = only(read(text)).cells  # they grow: the last one has all of it
    assert (cells["accept_length"], cells["num_steps"]) == (2.5, 3)
    assert "output_tokens_per_s" not in cells


def test_both_layouts_in_one_log_are_named_in_order() -> None:
    assert read(request(100, 1000, new(60, 120, 2.5)) + TWO).era == ("new", "old")


def test_a_packed_log_in_utf16_reads_the_same(tmp_path: Path) -> None:
    packed = tmp_path / "log"
    packed.write_bytes(gzip.compress(TWO.encode("utf-16")))
    assert only(read_log(LogFile(path=packed))).cells == only(read(TWO)).cells


@pytest.mark.parametrize(
    "text", ["", "\n\n", "slot print_timing: id  0 | task 0 | \n", "\x00eval time = "]
)
def test_a_log_without_a_finished_request_is_refused(text: str) -> None:
    with pytest.raises(FormatError) as error:
        read(text)
    assert error.value.code == "no_points"


def test_words_behind_the_counts_do_not_cost_the_record(tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "fixtures" / "engines" / "other" / "llamacpp_server_new.log"
    path = tmp_path / "server.log"
    path.write_text(log.read_text("utf-8").replace("generated)", "generated), seen 2 drafters"))
    bare, worded = (read_log(LogFile(path=one)) for one in (log, path))
    assert [row.cells for row in worded.rows] == [row.cells for row in bare.rows]
    assert worded.dropped == bare.dropped
