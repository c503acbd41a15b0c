"""The server log: which lines count, what their rows say, and that no log breaks the reader."""

from pathlib import Path

import pytest

from calibration.readers import sglang_server_log
from calibration.readers.log_file import LogFile
from calibration.readers.reading import Cell, Reading, Row
from calibration.readers.sglang_server_log import read_log, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes

BANNER = (
    "[2026-01-14 10:00:00] server_args=ServerArgs(model_path='acme/Wren-8B', tp_size=2, "
    "speculative_algorithm='EAGLE3', speculative_num_steps=3, speculative_eagle_topk=1, "
    "speculative_num_draft_tokens=4, decode_log_interval=40)"
)
BASELINE_BANNER = (
    "[2026-01-14 10:00:00] server_args=ServerArgs(model_path='acme/Wren-8B', tp_size=2, "
    "speculative_algorithm=None)"
)


def decode(
    *,
    running: int = 2,
    accept: float | None = 2.5,
    rate: float = 500.0,
    tokens: int | None = 2000,
    rank: str = "",
    graph: str = "cuda graph: True, ",
) -> str:
    """A decode line; by default a round of 1000 x 2 x 2.5 / 500 = 10 ms."""
    return (
        f"[2026-01-14 10:00:01{rank}] Decode batch, #running-req: {running}, "
        + (f"#token: {tokens}, token usage: 0.01, " if tokens is not None else "")
        + (f"accept len: {accept:.2f}, accept rate: 0.50, " if accept is not None else "")
        + f"{graph}gen throughput (token/s): {rate:.2f}, #queue-req: 0, "
    )


def prefill(rank: str = "") -> str:
    return f"[2026-01-14 10:00:01{rank}] Prefill batch, #new-seq: 1, #new-token: 9, #queue-req: 0, "


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> "ReadLines":
    return ReadLines(tmp_path / "server.log")


class ReadLines:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, *lines: str) -> Reading:
        self.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return read_log(LogFile(path=self.path))


def dropped(reading: Reading) -> dict[str, int]:
    return {drop.code: drop.count for drop in reading.dropped}


def whole(cell: Cell) -> int:
    assert isinstance(cell, float)
    return int(cell)


def only_row(reading: Reading) -> Row:
    (row,) = reading.rows
    return row


def test_a_round_lasts_as_long_as_its_tokens_take(read: ReadLines) -> None:
    row = only_row(read(BANNER, decode(rate=90.0), *[decode()] * 3))
    assert row.cells["step_time_ms"] == pytest.approx(1000 * 2 * 2.5 / 500.0, rel=1e-9)
    assert row.cells["output_tokens_per_s"] == pytest.approx(500.0, rel=1e-9)
    assert row.cells["context_tokens"] == 1000.0
    assert row.cells["accept_length"] == 2.5
    assert row.cells["verify_rounds"] == 3 * 40 * 2
    assert row.cells["throughput_origin"] == "step_time"
    assert (row.line, row.details["lines"]) == (3, 3.0)


def test_an_even_number_of_lines_has_the_mean_of_the_middle_two(read: ReadLines) -> None:
    rates = (400.0, 500.0, 625.0, 800.0)
    row = only_row(read(BANNER, decode(), *[decode(rate=rate) for rate in rates]))
    assert row.cells["step_time_ms"] == pytest.approx((1000 * 5 / 500 + 1000 * 5 / 625) / 2)


def test_a_line_without_accept_len_is_a_plain_step(read: ReadLines) -> None:
    row = only_row(read(BASELINE_BANNER, *[decode(accept=None, rate=250.0)] * 3))
    assert row.cells["num_steps"] == 0
    assert row.cells["accept_length"] == 1
    assert row.cells["step_time_ms"] == pytest.approx(1000 * 2 / 250)
    assert "verify_rounds" not in row.cells


def test_a_plain_step_of_a_server_that_speculates_is_no_baseline(read: ReadLines) -> None:
    reading = read(BANNER, *[decode()] * 3, *[decode(accept=None)] * 2)
    assert len(reading.rows) == 1
    assert dropped(reading) == {"warmup": 1, "missing_accept_length": 2}


def test_depth_zero_of_an_adaptive_server_is_no_baseline(read: ReadLines) -> None:
    banner = BANNER.replace("decode_log", "speculative_adaptive=True, decode_log")
    for accept in (1.0, None):
        reading = read(banner, *[decode(accept=accept)] * 3)
        assert only_row(reading).cells["accept_length"] == 1
        assert "num_steps" not in only_row(reading).cells
        assert codes(reading) == {"adaptive_steps"}


def test_without_a_banner_the_depth_is_unknown(read: ReadLines) -> None:
    reading = read(*[decode()] * 3)
    assert "num_steps" not in only_row(reading).cells
    assert codes(reading) == {"depth_unknown"}


def test_each_reason_is_counted_once_and_in_order(read: ReadLines) -> None:
    reading = read(
        BANNER,
        decode(running=0, rate=0.0),  # idle before warm-up
        prefill(),
        decode(),  # a prefill and another batch: the prefill is named
        decode(),
        decode(running=3),  # another batch
        decode(running=3, rate=0.0),  # no throughput
        decode(running=3),
        decode(running=3, accept=0.5),  # below the bonus token
        decode(running=3).partition("gen")[0],  # cut
        decode(running=3),
    )
    assert dropped(reading) == {
        "truncated_line": 1,
        "idle": 2,
        "prefill_mixed": 1,
        "batch_changed": 1,
        "accept_length_out_of_range": 1,
    }
    assert [row.details["lines"] for row in reading.rows] == [1, 2]


def test_the_batch_is_compared_with_the_last_line_kept_or_not(read: ReadLines) -> None:
    reading = read(BANNER, decode(), decode(running=3), decode(), decode())
    assert dropped(reading) == {"warmup": 1, "batch_changed": 2}
    assert only_row(reading).line == 5


@pytest.mark.parametrize(
    "cut",
    ["Decode bat", "Decode batch, ", "Decode batch, #running-r", "#token: 20", "accept len: 2"],
)
def test_a_line_that_was_cut_is_no_measurement(read: ReadLines, cut: str) -> None:
    line = decode()
    reading = read(BANNER, decode(), decode(), line[: line.index(cut) + len(cut)])
    expected = {"warmup": 1} | ({"truncated_line": 1} if cut != "Decode bat" else {})
    assert dropped(reading) == expected


def test_a_line_written_into_another_is_no_measurement(read: ReadLines) -> None:
    glued = decode().partition(", accept rate")[0] + decode(accept=None)
    reading = read(BANNER, decode(), decode(), glued)
    assert dropped(reading) == {"warmup": 1, "truncated_line": 1}


@pytest.mark.parametrize("number", ["nan", "inf", "-3.0", "1e9", "123456789012.00", ""])
def test_a_throughput_that_is_no_number_is_no_measurement(read: ReadLines, number: str) -> None:
    line = decode().replace("500.00", number)
    assert dropped(read(BANNER, decode(), decode(), line))["truncated_line"] == 1


def test_a_gap_is_left_out_even_when_it_is_alone_in_its_batch(read: ReadLines) -> None:
    reading = read(
        BANNER,
        *[decode(running=4, rate=1000.0)] * 5,
        decode(running=4, rate=40.0),  # 25 times as long
        decode(),
        decode(rate=20.0),
    )
    assert dropped(reading) == {"warmup": 1, "batch_changed": 1, "idle": 2}


def test_slow_lines_up_to_four_times_the_usual_are_kept(read: ReadLines) -> None:
    reading = read(BANNER, decode(), *[decode()] * 4, decode(rate=130.0))
    assert only_row(reading).details["lines"] == 5


def test_of_the_ranks_of_one_group_the_lowest_counts_wherever_it_comes(read: ReadLines) -> None:
    lines = [decode(rank=" TP1", rate=400.0), decode(rank=" TP0")] * 3
    reading = read(BANNER, *lines, decode(rank=" TP1").partition("gen")[0])
    assert dropped(reading) == {"warmup": 1, "duplicate_rank": 3, "truncated_line": 1}
    assert only_row(reading).details["rank"] == "TP0"
    assert only_row(reading).cells["output_tokens_per_s"] == pytest.approx(500.0)


def test_ranks_of_ten_and_more_and_pipeline_ranks_are_told_apart(read: ReadLines) -> None:
    labels = (" DP2 PP0 TP8", " DP2 PP1 TP9", " DP10 PP0 TP40")
    reading = read(BANNER, *[decode(rank=label) for _ in range(3) for label in labels])
    assert [row.details["rank"] for row in reading.rows] == ["DP2 PP0 TP8", "DP10 PP0 TP40"]
    assert dropped(reading) == {"warmup": 2, "duplicate_rank": 3}
    assert codes(reading) == {"per_rank"}


def test_a_prefill_of_one_rank_does_not_disturb_another(read: ReadLines) -> None:
    one, two = " DP0 TP0", " DP1 TP1"
    reading = read(
        BANNER, decode(rank=one), decode(rank=two), prefill(two), decode(rank=one), decode(rank=two)
    )
    assert dropped(reading) == {"warmup": 2, "prefill_mixed": 1}


def test_steps_without_a_graph_are_rows_of_their_own(read: ReadLines) -> None:
    eager = decode(graph="npu graph: False, ", rate=250.0)
    reading = read(BANNER, *[decode()] * 3, *[eager] * 2)
    assert [row.cells.get("variant") for row in reading.rows] == [None, "eager"]
    assert [row.cells["step_time_ms"] for row in reading.rows] == [10.0, 20.0]
    assert codes(reading) == {"eager_decode"}
    assert reading.rows[0].load != reading.rows[1].load


def test_every_server_of_a_log_has_its_own_flags_and_warm_up(read: ReadLines) -> None:
    other = BANNER.replace("num_steps=3", "num_steps=2")
    plain = [decode(accept=None)] * 3
    reading = read(BANNER, *[decode()] * 3, other, *[decode()] * 3, BASELINE_BANNER, *plain)
    assert [row.cells["num_steps"] for row in reading.rows] == [3, 2, 0]
    assert [row.details["section"] for row in reading.rows] == [0, 1, 2]
    assert dropped(reading) == {"warmup": 3}
    assert len({row.load for row in reading.rows}) == 1  # of which the last is the baseline


def test_lines_before_the_first_banner_are_a_server_of_their_own(read: ReadLines) -> None:
    reading = read(*[decode()] * 3, BANNER, *[decode()] * 3)
    assert [row.details["section"] for row in reading.rows] == [0, 1]
    assert [row.cells.get("target_model") for row in reading.rows] == [None, "acme/Wren-8B"]


def test_a_pinned_accept_length_is_said_of_the_next_server_only(read: ReadLines) -> None:
    launch = "+ HF_TOKEN=PLANTED SGLANG_SIMULATE_ACC_LEN=3 python -m sglang.launch_server"
    reading = read(
        BANNER, *[decode()] * 3, launch, BANNER, *[decode()] * 3, BANNER, *[decode()] * 3
    )
    assert [w.lines for w in reading.warnings if w.code == "synthetic_acceptance"] == [(8,)]
    assert [row.cells.get("notes") for row in reading.rows] == [None, "synthetic acceptance", None]
    assert "verify_rounds" not in reading.rows[1].cells
    assert "PLANTED" not in repr(reading)


@pytest.mark.parametrize(
    ("launch", "pinned"),
    [
        ("SGLANG_SIMULATE_ACC_LEN=2.5 python -m sglang.launch_server", True),
        ('docker run -e SGLANG_SIMULATE_ACC_LEN="3" sglang', True),
        ("SGLANG_SIMULATE_ACC_LEN=0 python", False),
        ("SGLANG_SIMULATE_ACC_LEN=-1 python", False),
        ("SGLANG_SIMULATE_ACC_METHOD=match-expected python", False),
    ],
)
def test_an_accept_length_is_pinned_by_a_positive_setting(
    read: ReadLines, launch: str, pinned: bool
) -> None:
    assert ("synthetic_acceptance" in codes(read(launch, BANNER, *[decode()] * 3))) is pinned


def test_a_setting_in_a_prompt_pins_nothing(read: ReadLines) -> None:
    quoted = "[2026-01-14 10:00:00] Receive: text='SGLANG_SIMULATE_ACC_LEN=3'"
    unset = "export SGLANG_SIMULATE_ACC_LEN=-1"
    assert codes(read(quoted, unset, BANNER, *[decode()] * 3)) == set()


def test_a_server_capped_at_48_requests_is_named(read: ReadLines) -> None:
    banner = BANNER.replace("tp_size=2", "tp_size=2, max_running_requests=48")
    assert codes(read(banner, *[decode()] * 3)) == {"max_running_requests_48"}


def test_an_accept_length_above_the_depth_is_refused(read: ReadLines) -> None:
    reading = read(BANNER, *[decode()] * 3, *[decode(running=4, accept=4.5)] * 4)
    assert dropped(reading) == {"warmup": 1, "batch_changed": 1, "accept_length_above_depth": 1}
    (drop,) = [drop for drop in reading.dropped if drop.code == "accept_length_above_depth"]
    assert (drop.line, drop.column) == (6, "accept_length")


@pytest.mark.parametrize(("cap", "said"), [("2.10", True), ("3.00", False)])
def test_a_cap_below_the_depth_is_said(read: ReadLines, cap: str, said: bool) -> None:
    line = decode().replace("cuda graph", f"cap len: {cap}, cuda graph")
    reading = read(BANNER, *[line] * 3)
    assert codes(reading) == ({"capped_rounds"} if said else set())
    assert reading.era == ("0.5.16",)


START, ACCEPT = "#running-req: 2, #token: 9, token usage: 0.01, ", "accept len: 2.50, "
END = "gen throughput (token/s): 500.00, #queue-req: 0, "
GRAPH, RATE = "cuda graph: True, ", "accept rate: 0.5, "
HYBRID = "#running-req: 2, #full token: 9, full token usage: 0.01, #swa token: 7, "


@pytest.mark.parametrize(
    ("line", "era"),
    [
        (f". {START}{ACCEPT}{END.replace('#', 'largest-len: 7, #')}", "0.4.3"),
        (f". {START}{ACCEPT}{GRAPH}{END[:-2]}", "0.4.6"),
        (f". {START}{ACCEPT}{RATE}{GRAPH}{END}", "0.5.4"),
        (f", {START}{ACCEPT}{RATE}{GRAPH}{END}", "0.5.6"),
        (f" [120], {HYBRID}{ACCEPT}{RATE}{GRAPH}{END}", "0.5.6"),
        (f", {START}{ACCEPT}{RATE}{GRAPH}{END}est. decode TFLOPS/s (per GPU): 3.1", "0.5.16"),
        (f", {START}{ACCEPT}{RATE}{GRAPH}{END}fwd occupancy: 92.4%", "0.5.16"),
    ],
)
def test_every_era_is_read_and_named(read: ReadLines, line: str, era: str) -> None:
    reading = read(BANNER, *[f"[2025-02-11 14:21:03] Decode batch{line}"] * 3)
    assert reading.era == (era,)
    assert only_row(reading).cells["step_time_ms"] == pytest.approx(10.0)
    assert only_row(reading).cells["context_tokens"] == 4.5


def test_servers_of_several_releases_are_named(read: ReadLines) -> None:
    old = decode().replace("batch,", "batch.")
    reading = read(BANNER, *[old] * 3, BANNER, *[decode()] * 3)
    assert reading.era == ("0.5.4", "0.5.6")
    assert codes(reading) == {"mixed_eras"}


def test_a_suffix_on_some_lines_makes_no_second_era(read: ReadLines) -> None:
    suffixed = decode() + "fwd occupancy: 92.4%"
    assert read(BANNER, *[decode(), suffixed] * 3).era == ("0.5.16",)


def test_contexts_within_a_factor_of_three_are_one_row(read: ReadLines) -> None:
    tokens = (2000, 4000, 6000)
    reading = read(BANNER, decode(), *[decode(tokens=count) for count in tokens])
    assert only_row(reading).cells["context_tokens"] == 2000.0


def test_wider_contexts_are_a_row_for_each_power_of_four(read: ReadLines) -> None:
    contexts = [300, 500, 1000, 1100, 4000, 5000, 60000]  # 4^4 = 256, 4^5 = 1024, 4^6 = 4096
    reading = read(BANNER, decode(), *[decode(tokens=2 * context) for context in contexts])
    assert [row.cells["context_tokens"] for row in reading.rows] == [500, 2550, 5000, 60000]
    assert [row.details["lines"] for row in reading.rows] == [3, 2, 1, 1]


def test_rows_pair_whatever_their_contexts(read: ReadLines) -> None:
    """Which of several contexts a baseline is for is decided where rows are paired."""
    plain = [decode(accept=None, tokens=1900)] * 3
    reading = read(BASELINE_BANNER, *plain, BANNER, *[decode(tokens=2200)] * 3)
    assert reading.rows[0].load == reading.rows[1].load


def test_a_line_without_a_token_count_has_no_context(read: ReadLines) -> None:
    assert "context_tokens" not in only_row(read(BANNER, *[decode(tokens=None)] * 3)).cells


def test_a_log_without_a_usable_line_is_refused(read: ReadLines) -> None:
    for lines in ([BANNER, prefill()], [BANNER, decode()], [""]):
        with pytest.raises(FormatError) as raised:
            read(*lines)
        assert raised.value.code == "no_rows"


@pytest.mark.parametrize(
    "head",
    [
        BANNER,
        prefill(),
        "ready\n" + decode(rank=" TP0")[:60],
        "  0%| |\r 50%|#|\r\x1b[36mserver-1  |\x1b[0m " + decode(),
        decode().replace("\n", "\r\n"),
    ],
)
def test_a_server_log_is_recognised(head: str) -> None:
    assert recognise(head)


@pytest.mark.parametrize(
    "head",
    [
        "",
        '{"log": "' + decode() + '"}',
        '["' + decode() + '",\n "' + decode() + '"]',
        "[2026-01-14 10:00:00] Receive: text='" + decode() + "'",
        "[2026-01-14 10:00:00] Decode batch size: 4",
        "accept_length,throughput\n2.5,300\n",
        "Decode batch, #running-req: 2" * 50_000,
    ],
)
def test_other_texts_are_not_recognised(head: str) -> None:
    assert not recognise(head)


def test_a_rank_stays_itself_when_longer_labels_come(
    read: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang_server_log, "_BLOCK_BYTES", 300)
    lines = [decode(rank=" DP1 TP2")] * 4 + [decode(rank=" DP3 PP0 TP2 EP1")] * 3
    reading = read(BANNER, *lines, *lines)
    assert [row.details["lines"] for row in reading.rows] == [7, 5]
    assert dropped(reading) == {"warmup": 2}


def test_a_server_that_crashes_without_end_is_read_in_bounded_memory(
    read: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang_server_log, "_MOST_SERVERS", 5)
    reading = read(*[BANNER, *[decode()] * 3] * 8)
    assert len(reading.rows) == 5
    assert dropped(reading) == {"warmup": 5, "too_many_groups": 9}


@pytest.mark.parametrize(("old", "new"), [("0.4.6", "0.5.4"), ("0.5.6", "0.5.16")])
def test_a_baseline_section_is_of_the_release_of_the_others(
    read: ReadLines, old: str, new: str
) -> None:
    """Its lines lack the items that came with speculation; they are no older layout."""
    plain, drafted = decode(accept=None), decode()
    if new == "0.5.4":
        plain, drafted = (line.replace("batch,", "batch.") for line in (plain, drafted))
    else:
        drafted = drafted.replace("accept rate", "cap len: 3.0, accept rate")
    reading = read(BASELINE_BANNER, *[plain] * 3, BANNER, *[drafted] * 3)
    assert reading.era == (new,)
    assert "mixed_eras" not in codes(reading)
    assert read(BASELINE_BANNER, *[plain] * 3).era == (old,)


def test_a_gap_that_is_the_only_line_of_the_largest_batch_is_no_row(read: ReadLines) -> None:
    steady = [decode(running=4, rate=1000.0)] * 5
    gap = decode(running=8, rate=1000.0 * 2 / 25)  # 25 times the round of batch 4
    reading = read(BANNER, *steady, decode(running=8, rate=1.0), gap)
    assert [row.cells["batch_size"] for row in reading.rows] == [4.0]
    assert dropped(reading)["idle"] == 1


def test_a_single_line_of_a_fragment_is_kept_and_said(read: ReadLines) -> None:
    """Two ranks, one line each, as somebody pastes them."""
    reading = read(decode(rank=" DP0 TP0"), decode(rank=" DP1 TP0", rate=400.0))
    assert [row.cells["step_time_ms"] for row in reading.rows] == [10.0, 12.5]
    assert codes(reading) == {"depth_unknown", "per_rank", "single_window"}
    assert dropped(reading) == {}


def test_a_single_line_beside_others_or_after_a_start_is_not(read: ReadLines) -> None:
    assert "single_window" not in codes(read(*[decode()] * 3))
    assert "single_window" not in codes(read(BANNER, decode(), *[decode(running=4)] * 2))
    with pytest.raises(FormatError):
        read(prefill(), decode())
