"""Server logs with known constants: counted and read back, whatever happens to their bytes."""

import math
import random
import re
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TypeAlias

import pytest

from calibration.readers import sglang_server_log
from calibration.readers.log_file import LogFile
from calibration.readers.reading import Cell
from calibration.readers.sglang_server_log import read_log
from specmodel.errors import FormatError
from specmodel.units import MEGA
from tests.calibration.readers.sglang_log_generator import (
    MANY_BATCHES,
    LogPlan,
    generate_log,
    write_large_log,
)
from tests.extent import PROVES, extent


def whole(cell: Cell) -> int:
    assert isinstance(cell, float)
    return int(cell)


def test_a_generated_log_is_counted_line_by_line(tmp_path: Path) -> None:
    text, truth = generate_log(LogPlan(dp_size=2, tp_ranks=2))
    path = tmp_path / "server.log"
    path.write_text(text)
    reading = read_log(LogFile(path=path))
    assert {drop.code: drop.count for drop in reading.dropped} == dict(truth.dropped)
    found: Counter[tuple[int, str, int]] = Counter()
    for row in reading.rows:  # several context bands of one batch
        batch = whole(row.cells["batch_size"])
        key = (whole(row.cells["num_steps"]), str(row.details["rank"]), batch)
        found[key] += whole(row.details["lines"])
    assert found == truth.kept
    assert [warning.code for warning in reading.warnings] == ["per_rank"]
    assert "PLANTED" not in repr(reading)
    assert "/data/private" not in repr(reading)


def test_a_generated_log_gives_back_its_constants(tmp_path: Path) -> None:
    plan = LogPlan(visits=6, lines_per_visit=60)
    text, truth = generate_log(plan)
    path = tmp_path / "server.log"
    path.write_text(text)
    for row in read_log(LogFile(path=path)).rows:
        depth, batch = (whole(row.cells["num_steps"]), whole(row.cells["batch_size"]))
        lines = whole(row.details["lines"])
        expected = (
            truth.round_time_ms[depth, batch] if depth else truth.baseline_step_time_ms[batch]
        )
        tolerance = 4 * 1.26 * math.hypot(plan.noise, 0.01) / math.sqrt(lines)
        assert row.cells["step_time_ms"] == pytest.approx(expected, rel=tolerance)
        if depth:
            drawn = 4 * 1.26 * depth / 2 / math.sqrt(40 * batch * lines)
            assert row.cells["accept_length"] == pytest.approx(
                truth.accept_length[depth], abs=0.006 + drawn
            )


Key: TypeAlias = tuple[int, str, int, int]


def oracle(text: str, *, banded: bool = False) -> dict[Key, tuple[float, float, float, int]]:
    """Medians of a generated log by section, rank, batch and power of four of the context."""
    section, groups = -1, defaultdict(list)
    state: dict[str, tuple[int, bool]] = {}
    pattern = re.compile(
        r"\[[^\] ]+ [^\] ]+ ?([^\]]*)\] Decode batch, #running-req: (\d+), #token: (\d+),"
        r"(?:.* accept len: ([\d.]+),)?.* gen throughput \(token/s\): ([\d.]+), #queue-req: \d"
    )
    for line in text.splitlines():
        if "ServerArgs(" in line:
            section, state = section + 1, {}
        elif "] Prefill" in line:
            rank = line.partition("]")[0][21:]
            state[rank] = (state.get(rank, (-1, False))[0], True)
        elif found := pattern.match(line):
            rank, running, tokens = found[1], int(found[2]), int(found[3])
            before = state.get(rank)
            state[rank] = (running, False)
            rate = float(found[5])
            if running and rate and before == (running, False):
                accept = float(found[4] or 1)
                context = tokens / running
                band = int(math.log(context, 4)) if banded else 0
                line_values = (accept, 1000 * running * accept / rate, context)
                groups[section, rank, running, band].append(line_values)
    result = {}
    for key, lines in groups.items():
        usual = median(line[1] for line in lines)
        steady = [line for line in lines if line[1] < 6 * usual]
        middle = [median(line[place] for line in steady) for place in range(3)]
        result[key] = (middle[0], middle[1], middle[2], len(steady))
    return result


def test_every_row_is_that_of_a_plain_reading_of_the_lines(tmp_path: Path) -> None:
    text, _ = generate_log(LogPlan(dp_size=3, first_context=3000, seed=5))
    path = tmp_path / "server.log"
    path.write_text(text)
    expected = oracle(text)
    rows = read_log(LogFile(path=path)).rows
    assert len(rows) == len(expected)
    for row in rows:
        key = (
            whole(row.details["section"]),
            str(row.details["rank"]),
            whole(row.cells["batch_size"]),
            0,
        )
        cells = (row.cells["accept_length"], row.cells["step_time_ms"], row.cells["context_tokens"])
        assert (*cells, row.details["lines"]) == pytest.approx(expected[key], rel=1e-8)


def test_rows_of_a_long_log_have_its_medians(tmp_path: Path) -> None:
    """Two batches of more lines than are kept apart, or the many of a server's day."""
    path = tmp_path / "server.log"
    num_bytes = extent(test=18, prove=100) * int(MEGA)
    write_large_log(path, num_bytes, batches=MANY_BATCHES if PROVES else (1, 8))
    expected = oracle(path.read_text("utf-8"), banded=True)
    rows = read_log(LogFile(path=path)).rows
    assert len(rows) == len(expected)
    assert max(lines for *_, lines in expected.values()) > extent(test=33_000, prove=9_000)
    for row in rows:
        batch, context = whole(row.cells["batch_size"]), row.cells["context_tokens"]
        assert isinstance(context, float)
        accept_length, *others = expected[0, "", batch, int(math.log(context, 4))]
        assert row.cells["accept_length"] == accept_length
        found = [row.cells["step_time_ms"], context, row.details["lines"]]
        assert found == pytest.approx(others, rel=1e-5)


def test_where_a_block_ends_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _ = generate_log(LogPlan(visits=1, lines_per_visit=8, dp_size=2))
    path = tmp_path / "server.log"
    path.write_text(text)
    whole = read_log(LogFile(path=path))
    for size in (97, 1000, 4099):
        monkeypatch.setattr(sglang_server_log, "_BLOCK_BYTES", size)
        assert read_log(LogFile(path=path)) == whole


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_log_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secrets
    text, _ = generate_log(LogPlan(visits=1, lines_per_visit=6, dp_size=2, seed=seed))
    data = bytearray(text.encode())
    for _ in range(400):
        place = chance.randrange(len(data))
        piece = chance.choice([b"\x00", b"\n", b"\r", b"\xff", b", ", b"9" * 30, b"\x1b[31m", b"["])
        data[place : place + chance.randrange(12)] = piece
    path = tmp_path / "server.log"
    path.write_bytes(bytes(data))
    with suppress(FormatError):
        rows = read_log(LogFile(path=path)).rows
        values = [value for row in rows for value in row.cells.values() if isinstance(value, float)]
        assert all(math.isfinite(value) and value >= 0 for value in values)
