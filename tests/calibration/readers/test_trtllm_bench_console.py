"""Console text of trtllm-bench."""

from pathlib import Path

import pytest

from calibration.readers.reading import Reading, Row, SourceText
from calibration.readers.trtllm_bench_console import read, recognise
from specmodel.errors import FormatError

BAR = "=" * 59


def section(title: str, *lines: str) -> str:
    return "\n".join((BAR, f"= {title}", BAR, *lines, ""))


HEAD = section(
    "PYTORCH BACKEND",
    "Model:                  acme/Otter-32B",
    "Model Path:             /srv/secret/Otter-32B",
    "TensorRT LLM Version:   1.2.0",
    "Dtype:                  bfloat16",
    "Quantization:           FP8",
)
LOAD = section(
    "REQUEST DETAILS ",
    "Number of requests:             64",
    "Number of concurrent requests:  7.8125",
    "Average Input Length (tokens):  512.0000",
    "Average Output Length (tokens): 256.0000",
) + section(
    "WORLD + RUNTIME INFORMATION ", "TP Size:                2", "EP Size:                None"
)
SPEED = section(
    "PERFORMANCE OVERVIEW ",
    "Request Throughput (req/sec):                     1.8123",
    "Total Output Throughput (tokens/sec):             463.9488",
    "Total Token Throughput (tokens/sec):              1391.8464",
    "Per User Output Throughput [w/ ctx] (tps/user):   61.9055",
    "Per GPU Output Throughput (tps/gpu):              231.9744",
    "Average time-to-first-token [TTFT] (ms):          55.5000",
    "Average time-per-output-token [TPOT] (ms):        14.0000",
)


def statistics(*blocks: tuple[str, str, str], mode: str = "EAGLE") -> str:
    lines = []
    for heading, tag, average in blocks:
        lines += [f"-- {heading} Details --------------------------------", ""]
        lines += [
            f"[{tag}] MINIMUM: 0.01",
            f"[{tag}] AVERAGE: {average}",
            f"[{tag}] P50    : 9.99",
            "",
        ]
    return section(f"DECODING STATISTICS ({mode})", *lines, BAR)


NEW = statistics(
    ("Number of Draft Tokens", "DT", "311.00"),
    ("Number of Accepted Draft Tokens", "ADT", "150.00"),
    ("Draft Acceptance Rate", "DAR", "0.48"),
    ("Acceptance Length", "AL", "2.45"),
)
OLD = statistics(("Acceptance Rate", "AR", "1.86"))


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("bench.txt"), text=text, encoding="utf-8"))


def only(text: str) -> Row:
    (row,) = read_text(text).rows
    return row


def codes(text: str) -> set[str]:
    return {warning.code for warning in read_text(text).warnings}


def test_the_new_labels_give_length_and_depth() -> None:
    cells = only(HEAD + LOAD + SPEED + NEW).cells
    assert cells["accept_length"] == 2.45
    assert cells["num_steps"] == 3  # 1.445 / 0.485 = 2.98 to 1.455 / 0.475 = 3.06
    assert codes(HEAD + LOAD + SPEED + NEW) == {"mean_of_ratios", "first_token_counted"}


def test_figures_of_the_system_are_taken_and_not_those_beside_them() -> None:
    cells = only(HEAD + LOAD + SPEED + NEW).cells
    assert cells["output_tokens_per_s"] == 463.9488
    assert cells["step_time_ms"] == pytest.approx(14.0 * 2.45)
    assert (cells["ttft_ms"], cells["batch_size"], cells["tp_size"]) == (55.5, 7.8125, 2)
    assert (cells["context_tokens"], cells["output_tokens"]) == (512, 256)
    assert (cells["target_model"], cells["engine_version"]) == ("acme/Otter-32B", "1.2.0")
    assert "secret" not in repr(read_text(HEAD + SPEED + NEW))


def test_a_value_above_one_under_a_rate_is_a_length() -> None:
    row = only(HEAD + SPEED + OLD)
    assert row.cells["accept_length"] == 1.86
    assert "num_steps" not in row.cells
    assert {"length_labelled_rate", "no_speculation_flags"} <= codes(HEAD + SPEED + OLD)


def test_a_rate_alone_gives_no_length() -> None:
    with pytest.raises(FormatError) as error:
        read_text(statistics(("Acceptance Rate", "AR", "0.62")))
    assert error.value.code == "no_points"


def test_rounded_figures_that_allow_two_depths_give_none() -> None:
    coarse = statistics(("Draft Acceptance Rate", "DAR", "0.1"), ("Acceptance Length", "AL", "1.5"))
    assert "num_steps" not in only(coarse).cells
    assert "variable_draft_length" not in codes(coarse)


def test_no_decoding_statistics_is_a_baseline_of_the_same_load() -> None:
    baseline, speculative = only(HEAD + LOAD + SPEED), only(HEAD + LOAD + SPEED + NEW)
    assert (baseline.cells["num_steps"], baseline.cells["step_time_ms"]) == (0, 14.0)
    assert baseline.load == speculative.load is not None


def test_a_section_that_comes_again_begins_another_run() -> None:
    reading = read_text(HEAD + SPEED + HEAD + SPEED + NEW)
    assert [row.cells.get("num_steps") for row in reading.rows] == [0, 3]


def test_a_prefix_of_a_container_and_windows_line_ends_do_not_matter() -> None:
    text = "".join(f"worker-0 | {line}\r\n" for line in (HEAD + SPEED + NEW).splitlines())
    assert recognise(text)
    assert only(text).cells == only(HEAD + SPEED + NEW).cells


def test_a_number_that_may_be_cut_is_not_read() -> None:
    whole = statistics(("Acceptance Length", "AL", "2.45"))
    with pytest.raises(FormatError):
        read_text(whole[: whole.index("2.45") + 3])


def test_sections_quoted_in_json_are_no_console_text() -> None:
    assert recognise(SPEED)
    assert not recognise('{"log": "= PERFORMANCE OVERVIEW", "x": "[AL] AVERAGE: 2.4"}')
