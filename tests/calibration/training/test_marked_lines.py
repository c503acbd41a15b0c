"""Lines that are passed over change nothing: a log says what it says when each line is read."""

import random
from pathlib import Path

import pytest

from calibration.training.alike_blocks import AlikeBlocks
from calibration.training.line_readers import LineReaders, line_groups
from calibration.training.records import RawLog
from tests.calibration.training.test_speculators_blocks import as_text, blocks_of, generated
from tests.extent import extent

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
FOREIGN = (
    b'[08:00:01] INFO     HTTP Request: POST http://n:8000/v1 "HTTP/1.1 200 OK"    _client.py:1025\n',
    b"[08:00:01] WARNING  Retrying in 0.5 seconds        a.py:7\n",
    b"INFO 05-02 10:11:12 [loggers.py:111] Engine 000: Running: 3 reqs\n",
    b"Generating:  12%|#         | 12/90 [00:12<10:11, 9.31it/s]\rGenerating:  13%|#   |\n",
    b"(Engine pid=7) WARNING something took long\n",
    b"[rank1]: at line 7\n",
    b"worker-1  |     return next(self)\n",
    b"    return next(self)\n",
    b"                    0.5, epochs left\n",
    b"                    34\n",
    b"Traceback (most recent call last):\n",
    b"\n",
    b"INFO     t\n",
    b"[08:00:01] INFO     tra                             a.py:7\n",
    b"\xff\xfe not UTF-8\n",
    b"saving to /tmp/val/checkpoint, 5 epochs of 20 steps\n",
    b"INFO     some of our own words\n     and more of them\n",
)
DICTIONARY = "step {}: {{'acc_0': {:.4}, 'ploss_0': {:.4}, 'loss': {:.4}, 'lr': 1e-05}}\n"
PIECES = (
    b"\r",
    b"\n",
    b" ",
    b"    ",
    b"{",
    b"}",
    b"nan",
    b"=",
    b",",
    b"9",
    b".",
    b"acc",
    b"\x1b[1m",
)


def slowly(content: bytes, size: int) -> RawLog:
    """Return what is found where each line that no block of speculators takes is read."""
    raw = RawLog()
    readers = LineReaders(raw)
    blocks = AlikeBlocks(readers._speculators.learnt)
    number = 1
    for block in blocks_of(content, size):
        for line, rest in blocks.rest(number, block):
            readers._feed_lines(line, rest)
        number += block.count(b"\n")
    readers.finish()
    return raw


def quickly(content: bytes, size: int) -> RawLog:
    """Return what is found where lines are passed over."""
    raw = RawLog()
    readers = LineReaders(raw)
    for block in blocks_of(content, size):
        readers.feed(block)
    assert readers.num_lines == content.count(b"\n")
    readers.finish()
    return raw


def mostly_foreign(chance: random.Random, *, columns: int | None, prefix: bytes = b"") -> bytes:
    """Return a log in which some records stand between lines of other programs."""
    records = generated(60, columns=columns).splitlines(keepends=True)
    dictionaries = [
        DICTIONARY.format(step, chance.random(), 3 * chance.random(), 9 * chance.random()).encode()
        for step in range(60)
    ]
    own = chance.choice((records, dictionaries, records + dictionaries))
    lines = []
    for line in own:
        if chance.random() < 0.3:
            lines += [chance.choice(FOREIGN) for _ in range(chance.choice((1, 1, 3, 40)))]
        lines.append((prefix if chance.random() < 0.9 else b"") + line)
    return b"".join(lines)


def mutated(content: bytes, chance: random.Random) -> bytes:
    broken = bytearray(content)
    for _ in range(chance.randint(1, 12)):
        start = chance.randrange(len(broken))
        broken[start : start + chance.choice((0, 1, 7, 60))] = chance.choice(PIECES)
    return bytes(broken)


@pytest.mark.parametrize("columns", [None, 60, 120])
@pytest.mark.parametrize("prefix", [b"", b"[rank1]: ", b"worker-1  | "])
def test_what_is_passed_over_changes_nothing(columns: int | None, prefix: bytes) -> None:
    chance = random.Random(f"{columns} {prefix!r}")  # noqa: S311 - the same in every run
    for _ in range(extent(test=4, prove=12)):
        content = mostly_foreign(chance, columns=columns, prefix=prefix)
        if chance.random() < 0.8:
            content = mutated(content, chance)
        size = chance.choice((900, 1 << 22))
        assert as_text(quickly(content, size)) == as_text(slowly(content, size))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.log")), ids=lambda path: path.name)
def test_a_fixture_between_lines_of_other_programs_says_the_same(path: Path) -> None:
    chance = random.Random(path.name)  # noqa: S311
    for _ in range(4):
        lines = path.read_bytes()[:100_000].split(b"\n")
        for place in sorted(chance.choices(range(len(lines)), k=5), reverse=True):
            lines[place:place] = chance.choices(
                [line.rstrip(b"\n") for line in FOREIGN], k=chance.choice((1, 50))
            )
        content = b"\n".join(lines)
        assert as_text(quickly(content, 1 << 22)) == as_text(slowly(content, 1 << 22))


def test_groups_are_the_block_with_its_line_numbers() -> None:
    chance = random.Random(3)  # noqa: S311
    content = b"".join(mostly_foreign(chance, columns=120) for _ in range(20)) + b"the last one"
    for is_open in (False, True):
        groups = list(line_groups(5, content, is_open=is_open))
        assert b"".join(group.text for group in groups) == content
        number = 5
        for group in groups:
            assert group.line == number
            number += group.text.count(b"\n")
        assert groups[-1].is_marked  # it may be cut


def test_nearly_all_of_a_log_of_other_programs_is_passed_over() -> None:
    dull = [line for line in FOREIGN[:6] if b"epochs" not in line]
    block = b"".join(dull) * 2000 + b"step 5: {'acc_0': 0.5}\n" + b"".join(dull) * 2000
    groups = line_groups(1, block, is_open=True)
    assert sum(len(group.text) for group in groups if group.is_marked) < 100
