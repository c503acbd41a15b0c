"""Layouts of log lines: what stands in front of them, and that numbers are found where they are."""

import numpy as np
import pytest

from calibration.readers.alike_lines import AlikeLines, Columns
from calibration.readers.sglang_server_log import line_layout
from tests.calibration.readers.sglang_log_generator import LogPlan, generate_log

LINE = (
    "[2026-01-14 10:00:55{rank}] Decode batch, #running-req: 12, #token: 34567, token usage: 0.01, "
    "accept len: 2.54, cuda graph: True, gen throughput (token/s): 12345.67, #queue-req: 3, "
)


FACTS = ("kind", "graph", "speculative", "era")
NUMBERS = ("running", "throughput", "accept_length", "tokens")


def kind(line: str) -> int:
    layout = line_layout(line.encode())
    return layout.facts[0] if layout else 0


def scanned(data: bytes, *, most: int = 16384) -> Columns:
    lines = AlikeLines(line_layout, facts=FACTS, numbers=NUMBERS, texts=("rank",), most=most)
    return lines.columns(data)


PREFIXES = (
    "",
    "server-1  | ",
    "stack_sglang.1.k3j2@node-7    | ",
    "2026-01-14T10:00:55.123456789Z ",
    "2026-01-14T10:00:55.123456789Z stdout F ",
    "2026-01-14T10:00:55+02:00 ",
    "[pod/sglang-0/server] ",
    "[rank0]: ",
    "Jan 14 10:00:55 node7 python3[4711]: ",
    "(SglangActor pid=4711, ip=10.0.0.7) ",
    "3: ",
    "logs/server.log:",
    "server.log:4711:",
    "sglang-7d9f-abcde server ",
    "\x1b[36mserver-1  |\x1b[0m \x1b[32m",
    "  0%|          | 0/2 [00:00<?, ?it/s]\r100%|##| 2/2 [00:02<00:00,  1.11s/it]\r",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("rank", ["", " TP0", " DP3 TP12"])
def test_numbers_are_found_behind_any_prefix(prefix: str, rank: str) -> None:
    lines = scanned((prefix + LINE.format(rank=rank)).encode())
    assert lines["running"].tolist() == [12]
    assert lines["tokens"].tolist() == [34567]
    assert lines["accept_length"].tolist() == [2.54]
    assert lines["throughput"].tolist() == [12345.67]


@pytest.mark.parametrize(
    "prefix",
    ['"', "'", "> ", "text='", '{"log": "', "[2026-01-14 10:00:00] Receive: ", "echo: ", "- "],
)
def test_a_quoted_line_is_none(prefix: str) -> None:
    assert kind(prefix + LINE.format(rank="")) == 0


def test_colours_inside_a_line_change_nothing() -> None:
    coloured = LINE.format(rank="").replace("2.54", "\x1b[1;33m2.54\x1b[0m") + "\x1b[K\r"
    lines = scanned(coloured.encode())
    assert lines["accept_length"].tolist() == [2.54]
    assert lines["throughput"].tolist() == [12345.67]


@pytest.mark.parametrize("digits", range(1, 9))
def test_numbers_of_any_length_are_read_exactly(digits: int) -> None:
    generator = np.random.default_rng(digits)
    for number in generator.integers(10 ** (digits - 1), 10**digits, size=20).tolist():
        line = (
            LINE.format(rank="").replace("34567", str(number)).replace("12345.67", f"{number}.05")
        )
        lines = scanned(line.encode())
        assert lines["tokens"].tolist() == [number]
        assert lines["throughput"].tolist() == [float(f"{number}.05")]


def test_a_fraction_of_many_digits_is_rounded_not_refused() -> None:
    line = LINE.format(rank="").replace("2.54", "2.5399999618530273")
    lines = scanned(line.encode())
    assert lines["accept_length"].tolist() == pytest.approx([2.5399999618530273], rel=1e-8)


def test_remembering_layouts_changes_nothing() -> None:
    text, _ = generate_log(LogPlan(dp_size=2, tp_ranks=2, visits=1, lines_per_visit=10))
    noise = "\nnoise\n" + "\n".join(prefix + LINE.format(rank="") for prefix in PREFIXES) + "\n"
    blocks = [(line + "\n").encode() for line in (text + noise).split("\n")]
    remembering = AlikeLines(line_layout, facts=FACTS, numbers=NUMBERS, texts=("rank",))
    forgetful = AlikeLines(line_layout, facts=FACTS, numbers=NUMBERS, texts=("rank",), most=1)
    for block in blocks:
        one, other = remembering.columns(block), forgetful.columns(block)
        for name, column in one.items():
            np.testing.assert_array_equal(column, other[name])


def test_a_very_long_line_costs_no_more_than_its_length() -> None:
    long = " " * 4000 + "Decode batch " * 200
    assert kind(long) == 0
    assert kind("a-" * 2000 + "Decode batch, #running-req: 1") == 0
    assert kind("[" + "0:" * 2000 + "] Decode batch") == 0
