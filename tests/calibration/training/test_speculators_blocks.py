"""Records taken many at a time are those that are read line by line."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from calibration.training.alike_blocks import AlikeBlocks
from calibration.training.lines import physical_lines
from calibration.training.records import RawLog, Split
from calibration.training.speculators_log import SpeculatorsLines
from tests.extent import sample

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
INDENT = " " * 20


def blocks_of(content: bytes, size: int) -> Iterator[bytes]:
    """Yield whole lines of about a size."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start + size) + 1 or len(content)
        yield content[start:end]
        start = end


def read_lines(content: bytes) -> RawLog:
    raw = RawLog()
    lines = SpeculatorsLines(raw)
    for number, stream, text in physical_lines([content]):
        lines.feed(number, stream, text)
    lines.finish()
    return raw


def read_blocks(content: bytes, size: int) -> tuple[RawLog, int]:
    """Return the log and how many bytes were read line by line."""
    raw = RawLog()
    lines = SpeculatorsLines(raw)
    blocks = AlikeBlocks(lines.learnt)
    number, rest_bytes = 1, 0
    for block in blocks_of(content, size):
        for line, rest in blocks.rest(number, block):
            rest_bytes += len(rest)
            for at, stream, text in physical_lines([rest], first_line=line):
                lines.feed(at, stream, text)
        number += block.count(b"\n")
    lines.finish()
    return raw, rest_bytes


def as_text(raw: RawLog) -> dict[str, object]:
    """Return everything in a log, labels by their names, streams one after the other."""
    found: dict[str, object] = {"warnings": raw.warnings}
    for family, tables in raw.tables.items():
        for split, table in tables.items():
            rows = []
            names = sorted(table.columns)
            for values in zip(*(table.column(name).tolist() for name in names), strict=True):
                row = dict(zip(names, values, strict=True))
                for name in ("stream", "format"):
                    row[name] = table.labels[int(row[name])]
                rows.append(str(row))
            facts = (table.hints, table.first_position, table.rounding, table.total_steps)
            found[f"{family} {split}"] = (rows, facts)
    return found


def generated(num_records: int, *, columns: int | None, damage: bool = False) -> bytes:
    """Return a log of speculators, wide or wrapped at commas, possibly with noise in it."""
    generator = np.random.default_rng(7)
    lines = []
    for step in range(1, num_records + 1):
        accuracies = np.cumprod(generator.uniform(0.02, 0.9, 4))
        pairs = [f"train/loss_{k}={generator.uniform(0, 12):.3f}" for k in range(4)]
        pairs += [
            f"train/full_acc_{k}=" + (f"{a:.3f}" if a >= 0.001 else f"{a:.2e}")
            for k, a in enumerate(accuracies)
        ]
        pairs += [
            "train/extra=None",
            f"epoch={step // 100}",
            f"lr={1e-4 / step:.2e}",
            f"global_step={step}",
        ]
        if step % 50 == 0:
            pairs = [f"val/full_acc_{k}_epoch=0.{9 - k}01" for k in range(4)] + [
                f"epoch={step // 50}"
            ]
        time = f"[08:{step // 60 % 60:02}:{step % 60:02}]" if step % 3 else " " * 10
        pieces = [""]
        for pair in pairs:
            word = pair if pair is pairs[-1] else f"{pair},"
            if columns and pieces[-1] and len(pieces[-1]) + len(word) + 36 > columns:
                pieces.append(word)
            else:
                pieces[-1] = f"{pieces[-1]} {word}".lstrip()
        width = columns - 35 if columns else 0
        lines.append(f"{time} INFO     {pieces[0]:{width}} trainer.py:220")
        lines += [f"{INDENT}{piece:{width}}" for piece in pieces[1:]]
        if damage and step % 17 == 0:
            lines[-1:] = [
                "a bar 3/9 [1it/s]\r" + lines[-1],
                "[08:00:00] WARNING  of another library    x.py:1",
                lines[-1].replace("0.", "1.2.", 1),
                lines[-1].replace("global_step", "global\x1b[1m_step"),
                f"[rank1]: {lines[-1]}",
                lines[-1][: len(lines[-1]) // 2],
            ]
    return ("\n".join(lines) + "\n").encode()


@sample(6)
@pytest.mark.parametrize("size", [600, 9_000, 1 << 22])
@pytest.mark.parametrize("columns", [None, 100, 160])
@pytest.mark.parametrize("damage", [False, True])
def test_blocks_give_the_records_of_the_lines(size: int, columns: int | None, damage: bool) -> None:
    content = generated(400, columns=columns, damage=damage)
    assert as_text(read_blocks(content, size)[0]) == as_text(read_lines(content))


@pytest.mark.parametrize("size", [1, 1_500, 2_000, 2_700, 4_000])
def test_a_record_that_goes_on_is_read_line_by_line(size: int) -> None:
    lines = generated(60, columns=None).splitlines(keepends=True)
    lines[40:40] = [f"{INDENT}train/loss_9=1.0\n".encode()]
    content = b"".join(lines)
    raw, _ = read_blocks(content, size)
    assert as_text(raw) == as_text(read_lines(content))
    assert raw.warnings == {"hard-wrap": [40], "truncated-record": [40]}


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.log*")), ids=lambda path: path.name)
def test_blocks_of_a_fixture_give_the_records_of_its_lines(path: Path) -> None:
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)[:300_000]
    for size in (700, 1 << 22):
        assert as_text(read_blocks(content, size)[0]) == as_text(read_lines(content))


@pytest.mark.parametrize("columns", [None, 160])
def test_nearly_all_of_a_long_log_is_taken_in_blocks(columns: int | None) -> None:
    content = generated(6_000, columns=columns)
    raw, rest_bytes = read_blocks(content, 1 << 20)
    assert rest_bytes < len(content) / 5
    assert len(raw.table("speculators-eagle3", Split.TRAIN)) == 6_000 - 120


def test_following_a_log_reads_what_is_new_only() -> None:
    content = generated(2_000, columns=None)
    _, rest_bytes = read_blocks(content, 8_000)
    assert rest_bytes < len(content) / 3


def test_colours_prefixes_and_windows_line_ends_are_taken_in_blocks_too() -> None:
    plain = generated(2_000, columns=None)
    for changed in (
        plain.replace(b"INFO", b"\x1b[34mINFO\x1b[0m"),
        b"".join(b"[rank0]: " + line + b"\n" for line in plain.splitlines()),
        plain.replace(b"\n", b"\r\n"),
    ):
        raw, rest_bytes = read_blocks(changed, 1 << 20)
        assert rest_bytes < len(changed) / 4
        assert as_text(raw) == as_text(read_lines(changed))
