"""Logs of a vLLM server: windows, lives, settings, and what is somebody's data."""

from pathlib import Path

import pytest

from calibration.readers.log_file import LogFile
from calibration.readers.reading import Reading
from calibration.readers.vllm_log import read_log, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped

STAMP = "INFO 03-04 08:00:00 [metrics.py:86] "
START = "INFO 03-04 07:58:11 [api_server.py:1977] vLLM API server version 0.13.0"


def v1(mean: str, accepted: int, drafted: int, rates: str, stamp: str = STAMP) -> str:
    return (
        f"{stamp}SpecDecoding metrics: Mean acceptance length: {mean}, "
        "Accepted throughput: 6.84 tokens/s, Drafted throughput: 8.26 tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 82.7%"
    )


def early(mean: str, accepted: int, drafted: int, rates: str) -> str:
    return (
        f"{STAMP}SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: "
        f"{mean}, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}"
    )


def v0(num_steps: int, drafted: int, emitted: int) -> str:
    return (
        "INFO 01-21 09:14:48 metrics.py:483] Speculative metrics: Draft acceptance rate: 0.757, "
        f"System efficiency: 0.632, Number of speculative tokens: {num_steps}, Number of accepted "
        f"tokens: 115, Number of draft tokens: {drafted}, Number of emitted tokens: {emitted}."
    )


def args(options: str) -> str:
    return f"(APIServer pid=7) INFO 03-04 07:58:11 [utils.py:253] non-default args: {{{options}}}"


def read(tmp_path: Path, *lines: str, end: str = "\n") -> Reading:
    file = tmp_path / "server.log"
    file.write_bytes((end.join(lines) + end).encode())
    return read_log(LogFile(path=file))


def test_the_published_line_gives_its_rounds_and_its_accept_length(tmp_path: Path) -> None:
    """engine_formats.md 4.1: 620 / 5 = 124 rounds, 1 + 513 / 124 = 5.137."""
    reading = read(tmp_path, v1("5.14", 513, 620, "0.960, 0.863, 0.823, 0.782, 0.710"))
    row = reading.rows[0]
    assert row.cells["accept_length"] == pytest.approx(1 + 513 / 124)
    assert row.cells["verify_rounds"] == 124
    assert row.cells["full_accuracy"] == pytest.approx((0.960, 0.863, 0.823, 0.782, 0.710))
    assert (row.cells["num_steps"], row.cells["num_draft_tokens"]) == (5, 6)
    assert "output_tokens_per_s" not in row.cells
    assert "step_time_ms" not in row.cells
    assert reading.era == ("v1",)


def test_windows_are_added_up_by_counts_and_rates_by_rounds(tmp_path: Path) -> None:
    reading = read(
        tmp_path, v1("2.00", 100, 200, "0.600, 0.400"), v1("2.50", 450, 600, "0.900, 0.600")
    )
    row = reading.rows[0]
    assert row.cells["accept_length"] == pytest.approx(1 + 550 / 400)
    assert row.cells["full_accuracy"] == pytest.approx(
        ((100 * 0.6 + 300 * 0.9) / 400, (100 * 0.4 + 300 * 0.6) / 400)
    )
    assert row.details == {"lines": 2.0, "rounds": 400.0}


def test_the_early_layout_is_read_and_its_idle_windows_are_dropped(tmp_path: Path) -> None:
    reading = read(
        tmp_path, early("nan", 0, 0, "nan, nan"), early("2.00", 100, 200, "0.600, 0.400")
    )
    assert reading.rows[0].cells["accept_length"] == 2.0
    assert dropped(reading) == {"idle": 1}
    assert reading.era == ("v1_early",)


def test_a_window_of_fewer_than_ten_rounds_is_dropped(tmp_path: Path) -> None:
    reading = read(tmp_path, v1("3.00", 18, 18, "1.000, 1.000"), v1("3.00", 20, 20, "1.000, 1.000"))
    assert dropped(reading) == {"tiny_window": 1}
    assert reading.rows[0].cells["verify_rounds"] == 10


def test_a_mean_that_contradicts_the_depth_tells_that_the_drafts_varied(tmp_path: Path) -> None:
    reading = read(tmp_path, v1("3.00", 400, 500, "0.900, 0.700, 0.400"))
    assert reading.rows[0].cells["accept_length"] == 3.0
    assert reading.rows[0].cells["verify_rounds"] == 200
    assert "variable_draft_length" in codes(reading)


def test_ngram_is_said_to_draft_up_to_its_depth(tmp_path: Path) -> None:
    options = "'model': 'a/B', 'speculative_config': {'method': 'ngram', "
    options += "'num_speculative_tokens': 2, 'prompt_lookup_max': 4}"
    reading = read(tmp_path, args(options), v1("2.00", 100, 200, "0.600, 0.400"))
    assert codes(reading) == {"variable_draft_length", "accept_length_given_a_draft"}
    assert "draft_model" not in reading.rows[0].cells


@pytest.mark.parametrize(
    "line",
    [
        v1("2.00", 100, 200, "0.600, 0.400")[:-1],
        v1("2.00", 100, 200, "0.600, 0.400")[:-40],
        f"{STAMP}SpecDecoding metrics: Mean acceptance length: 2.00, Accepted thr",
        f"{STAMP}SpecDecoding metrics: ",
        early("2.00", 100, 200, "0.600, 0.4"),
        early("2.00", 100, 200, "0.600,"),
        early("2.00", 100, 200, "0.600"),
        (
            f"{STAMP}SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: 2.00, "
            "Accepted: 100 tokens, Drafted: 200 tokens"
        ),
        v0(4, 152, 120)[:-1],
    ],
)
def test_a_line_that_is_cut_off_is_dropped(tmp_path: Path, line: str) -> None:
    reading = read(tmp_path, v1("2.00", 100, 200, "0.600, 0.400"), line)
    assert dropped(reading) == {"malformed": 1}
    assert len(reading.rows) == 1


def test_each_depth_of_a_server_has_its_own_row(tmp_path: Path) -> None:
    first, second = v1("2.00", 100, 200, "0.600, 0.400"), v1("1.70", 70, 100, "0.700")
    reading = read(tmp_path, first, second, first, second)
    assert [row.cells["num_steps"] for row in reading.rows] == [2, 1]
    assert [row.details["lines"] for row in reading.rows] == [2, 2]
    assert codes(reading) == {"depth_changed"}


def test_a_restart_with_other_settings_begins_a_row_and_one_with_the_same_does_not(
    tmp_path: Path,
) -> None:
    window = v1("2.00", 100, 200, "0.600, 0.400")
    spec = "'speculative_config': {'method': 'eagle3', 'model': '%s', 'num_speculative_tokens': 2}"
    ours, other = (args(f"'model': 'a/B', {spec % name}") for name in ("a/One", "a/Two"))
    lines = [START, ours, window, START, ours, window, START, other, window]
    reading = read(tmp_path, *lines)
    assert [(r.cells["draft_model"], r.details["lines"]) for r in reading.rows] == [
        ("a/One", 2),
        ("a/Two", 1),
    ]


def test_two_containers_of_one_log_are_two_servers(tmp_path: Path) -> None:
    window = v1("2.00", 100, 200, "0.600, 0.400")
    reading = read(
        tmp_path,
        "vllm-a-1  | " + args("'model': 'a/One'"),
        "vllm-b-1  | " + args("'model': 'a/Two'"),
        "vllm-a-1  | " + window,
        "vllm-b-1  | " + window,
    )
    assert [row.cells["target_model"] for row in reading.rows] == ["a/One", "a/Two"]


def test_the_banner_gives_versions_models_and_ranks_and_no_path_or_key(tmp_path: Path) -> None:
    options = "'api_key': ['sk-planted'], 'model': '/home/ann/models/Tern-8B', "
    options += "'tensor_parallel_size': 2, 'enforce_eager': True, 'speculative_config': "
    options += "{'method': 'eagle3', 'model': '/home/ann/Tern-EAGLE3', 'num_speculative_tokens': 2,"
    options += " 'draft_tensor_parallel_size': 1}"
    reading = read(tmp_path, START, args(options), v1("2.00", 100, 200, "0.600, 0.400"))
    cells = reading.rows[0].cells
    found = [cells[key] for key in ("engine_version", "target_model", "draft_model", "tp_size")]
    assert found == ["0.13.0", "Tern-8B", "Tern-EAGLE3", 2]
    assert (cells["algorithm"], cells["variant"]) == ("eagle3", "eager")
    assert "ann" not in repr(reading.rows)
    assert "planted" not in repr(reading.rows)


def test_the_engine_banner_fills_what_the_options_do_not_say(tmp_path: Path) -> None:
    engine = "(EngineCore_DP0 pid=9) INFO 03-04 07:58:40 [core.py:77] Initializing a V1 LLM engine "
    engine += "(v0.11.0) with config: model='a/B', speculative_config=SpeculativeConfig("
    engine += "method='mtp', model='a/B', num_spec_tokens=2), tensor_parallel_size=4, seed=0"
    reading = read(tmp_path, engine, v1("2.00", 100, 200, "0.600, 0.400"))
    cells = reading.rows[0].cells
    assert (cells["engine_version"], cells["algorithm"], cells["tp_size"]) == ("0.11.0", "mtp", 4)
    assert "draft_model" not in cells  # the target's own layers


def test_the_launch_command_gives_the_speculation(tmp_path: Path) -> None:
    launch = "+ vllm serve a/B --tensor-parallel-size 2 --api-key sk-planted --speculative-config "
    launch += '\'{"method": "eagle3", "model": "a/Draft", "num_speculative_tokens": 2}\''
    reading = read(tmp_path, launch, START, v1("2.00", 100, 200, "0.600, 0.400"))
    cells = reading.rows[0].cells
    assert (cells["target_model"], cells["draft_model"], cells["tp_size"]) == ("a/B", "a/Draft", 2)
    assert cells["engine_version"] == "0.13.0"


def test_the_logo_gives_version_and_model(tmp_path: Path) -> None:
    logo = "(APIServer pid=1) INFO 03-04 08:00:00 [utils.py:325]  \u2584\u2584 \u2584\u2588 \u2588 "
    reading = read(
        tmp_path,
        logo + " version 0.14.0",
        logo + " model   a/B",
        v1("2.00", 100, 200, "0.600, 0.400"),
    )
    cells = reading.rows[0].cells
    assert (cells["engine_version"], cells["target_model"]) == ("0.14.0", "a/B")


@pytest.mark.parametrize(
    "extra",
    [
        "'rejection_sample_method': 'synthetic', 'synthetic_acceptance_length': 2.0",
        "'synthetic_acceptance_rates': [0.6, 0.4]",
    ],
)
def test_synthetic_acceptance_is_said(tmp_path: Path, extra: str) -> None:
    options = f"'speculative_config': {{'method': 'eagle3', 'num_speculative_tokens': 2, {extra}}}"
    reading = read(tmp_path, args(options), v1("2.00", 100, 200, "0.600, 0.400"))
    assert codes(reading) == {"synthetic_acceptance"}
    assert reading.rows[0].cells["notes"] == "synthetic acceptance"


def test_ordinary_sampling_is_not_synthetic(tmp_path: Path) -> None:
    options = "'speculative_config': {'method': 'eagle3', 'rejection_sample_method': 'standard', "
    options += "'synthetic_acceptance_rates': None}"
    reading = read(tmp_path, args(options), v1("2.00", 100, 200, "0.600, 0.400"))
    assert codes(reading) == set()


def test_a_drafter_of_blocks_runs_one_step(tmp_path: Path) -> None:
    options = "'speculative_config': {'method': 'dflash', 'num_speculative_tokens': 2}"
    cells = read(tmp_path, args(options), v1("2.00", 100, 200, "0.600, 0.400")).rows[0].cells
    assert (cells["num_steps"], cells["num_draft_tokens"]) == (1, 3)


def test_v0_counters_are_taken_from_the_last_line_of_each_life(tmp_path: Path) -> None:
    reading = read(tmp_path, v0(4, 152, 120), v0(4, 400, 250), v0(4, 80, 60), v0(4, 200, 140))
    assert reading.rows[0].cells["accept_length"] == pytest.approx((250 + 140) / (600 / 4))
    assert "full_accuracy" not in reading.rows[0].cells
    assert codes(reading) == {"lifetime_accept_length", "post_rejection_rate"}
    assert reading.era == ("v0",)


def test_a_v0_server_that_starts_again_above_its_old_counters_is_a_new_life(tmp_path: Path) -> None:
    start = "INFO 01-21 09:14:02 api_server.py:712] vLLM API server version 0.6.6"
    reading = read(tmp_path, start, v0(4, 400, 250), start, v0(4, 800, 500))
    assert reading.rows[0].cells["verify_rounds"] == 300


def test_v0_counters_at_zero_begin_a_new_life(tmp_path: Path) -> None:
    reading = read(tmp_path, v0(4, 400, 250), v0(4, 0, 0), v0(4, 800, 500))
    assert reading.rows[0].cells["accept_length"] == pytest.approx((250 + 500) / (1200 / 4))
    assert dropped(reading) == {"idle": 1}


def test_carriage_returns_alone_end_lines(tmp_path: Path) -> None:
    lines = [v1("2.00", 100, 200, "0.600, 0.400"), v1("2.50", 150, 200, "0.900, 0.600")]
    path = tmp_path / "server.log"
    path.write_bytes("\r".join(lines).encode())
    assert read_log(LogFile(path=path)).rows[0].cells["accept_length"] == 1 + 250 / 200


def test_the_oldest_v1_lines_need_the_depth_of_the_banner(tmp_path: Path) -> None:
    line = f"{STAMP}SpecDecoding metrics: Draft acceptance rate: 50.0%, Accepted: 100 tokens, "
    line += "Drafted: 200 tokens"
    options = args("'speculative_config': {'method': 'ngram_x', 'num_speculative_tokens': 4}")
    reading = read(tmp_path, options.replace("ngram_x", "eagle"), line)
    assert reading.rows[0].cells["accept_length"] == 3.0
    assert codes(reading) == {"assumed_drafts"}
    with pytest.raises(FormatError, match="no depth in the file"):
        read(tmp_path, line)


def test_without_rates_the_depth_follows_from_the_mean(tmp_path: Path) -> None:
    line = f"{STAMP}SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: "
    reading = read(tmp_path, line + "2.50, Accepted: 1500 tokens, Drafted: 3000 tokens")
    assert (reading.rows[0].cells["num_steps"], reading.rows[0].cells["accept_length"]) == (3, 2.5)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "vllm-1  | ",
        "2026-03-04T08:00:00.1Z stdout F ",
        "\x1b[0;36m(APIServer pid=2214)\x1b[0;0m ",
        "Capturing: 100%|####| 19/19 [00:03<00:00, 5.61it/s]\r",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_stands_around_a_line_does_not_matter(tmp_path: Path, before: str, end: str) -> None:
    line = before + v1("2.00", 100, 200, "0.600, 0.400")
    assert recognise(line + end)
    assert read(tmp_path, line, end=end).rows[0].cells["accept_length"] == 2.0


def test_a_quoted_line_is_somebodys_data(tmp_path: Path) -> None:
    quoted = v1("3.00", 200, 200, "1.000, 1.000")
    prompt = f"INFO 03-04 08:00:00 [logger.py:41] Received request: prompt: '{quoted}'"
    reply = '{"prompt": "' + quoted + '"}'
    reading = read(tmp_path, prompt, reply, v1("2.00", 100, 200, "0.600, 0.400"))
    assert reading.rows[0].cells["accept_length"] == 2.0
    assert not recognise(prompt)
    assert not recognise(reply)


def test_counts_that_cannot_be_are_dropped(tmp_path: Path) -> None:
    good = v1("2.00", 100, 200, "0.600, 0.400")
    bad = [
        v1("2.00", 300, 200, "0.600, 0.400"),
        v1("0.50", 100, 200, "0.600, 0.400"),
        v1("2.00", 100, 200, "6.000, 4.000"),
        v0(0, 200, 100),
        v0(99999999, 200, 100),
    ]
    assert dropped(read(tmp_path, good, *bad)) == {"impossible_counts": 5}


def test_rates_that_rise_or_do_not_add_up_are_said(tmp_path: Path) -> None:
    reading = read(tmp_path, v1("2.00", 100, 200, "0.400, 0.600"))
    assert codes(reading) == {"accuracy_increasing"}
    reading = read(tmp_path, v1("2.00", 100, 200, "0.300, 0.200"))
    assert codes(reading) == {"accuracy_sum_mismatch"}


def test_a_log_without_speculation_is_refused_in_words(tmp_path: Path) -> None:
    line = "INFO 03-04 08:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 1.0 tokens/s"
    assert recognise(f"{START}\n{line}\n")
    assert recognise(line)
    with pytest.raises(FormatError, match="without a line of acceptance metrics") as caught:
        read(tmp_path, START, line)
    assert caught.value.code == "no_points"


def test_a_log_of_nothing_but_idle_windows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nothing was drafted") as caught:
        read(tmp_path, early("nan", 0, 0, "nan, nan"))
    assert caught.value.code == "no_points"


def test_the_oldest_spelling_of_draft_tokens_is_read(tmp_path: Path) -> None:
    line = v0(4, 4000, 2250).replace("draft tokens:", "draft tokens tokens:")
    assert read(tmp_path, line).rows[0].cells["accept_length"] == pytest.approx(2250 / (4000 / 4))
