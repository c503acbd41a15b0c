"""Broken files made from sound ones: what a disk, a copy, a crash or a stranger does to them."""

import gzip
import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

Mutation: TypeAlias = Callable[[bytes, random.Random], bytes]

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_KEY = re.compile(rb'"[A-Za-z_]\w*"\s*:')
_GIANTS = (
    *(b"1e308", b"-1e308", b"1e400", b"9" * 40, b"9" * 6000, b"-1", b"0", b"NaN", b"Infinity"),
    *(b"-Infinity", b"1e-320", b"true", b"null", b'"text"', b"[]", b"{}", b"0x10", b"1_000"),
    *(b"4294967296", b"1" + b"0" * 18, "\N{ARABIC-INDIC DIGIT THREE}".encode()),
)
_FOREIGN = (
    *("caf\xe9".encode("latin-1"), "Größe".encode("utf-16"), b"\xff\xfe", b"\xef\xbb\xbf"),
    *(b"\x00", b"\x1b[31m", b"\x80\x81", "\N{RIGHT-TO-LEFT OVERRIDE}".encode(), b"\r", b"\x0c"),
)
_LONGEST_BYTES: Final = 400_000


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail where something takes longer on a core, however busy the machine is."""

    def too_long(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def flip_bits(data: bytes, chance: random.Random) -> bytes:
    """Flip a few bits."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 12)):
        if found:
            found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def cut_tail(data: bytes, chance: random.Random) -> bytes:
    """Stop anywhere."""
    return data[: chance.randint(0, len(data))]


def cut_head(data: bytes, chance: random.Random) -> bytes:
    """Begin anywhere."""
    return data[chance.randint(0, len(data)) :]


def shuffle_lines(data: bytes, chance: random.Random) -> bytes:
    """Put the lines in another order."""
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def repeat_lines(data: bytes, chance: random.Random) -> bytes:
    """Write some lines again, elsewhere."""
    lines = data.splitlines(keepends=True)
    for _ in range(chance.randint(1, 20)):
        if lines:
            lines.insert(chance.randint(0, len(lines)), chance.choice(lines))
    return b"".join(lines)


def drop_lines(data: bytes, chance: random.Random) -> bytes:
    """Lose some lines."""
    keep = chance.random()
    return b"".join(line for line in data.splitlines(keepends=True) if chance.random() < keep)


def change_numbers(data: bytes, chance: random.Random) -> bytes:
    """Put something else where numbers are."""
    rate = chance.choice([0.02, 0.2, 1.0])

    def changed(match: re.Match[bytes]) -> bytes:
        return chance.choice(_GIANTS) if chance.random() < rate else match[0]

    return _NUMBER.sub(changed, data)[:_LONGEST_BYTES]


def rename_keys(data: bytes, chance: random.Random) -> bytes:
    """Lose the names of some fields."""
    rate = chance.choice([0.02, 0.2])

    def renamed(match: re.Match[bytes]) -> bytes:
        return b'"x":' if chance.random() < rate else match[0]

    return _KEY.sub(renamed, data)


def nest_deeply(data: bytes, chance: random.Random) -> bytes:
    """Put a very deep value where another one was."""
    depth = chance.choice([50, 2_000, 100_000])
    deep = chance.choice([b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1"])
    match = _NUMBER.search(data, chance.randint(0, len(data)))
    if match is None:
        return deep + data
    return data[: match.start()] + deep + data[match.end() :]


def join_lines(data: bytes, chance: random.Random) -> bytes:
    """Make one huge line."""
    separator = chance.choice([b"", b" ", b"\x00"])
    return separator.join(data.splitlines() * chance.choice([1, 20]))[:_LONGEST_BYTES]


def insert_foreign(data: bytes, chance: random.Random) -> bytes:
    """Insert bytes of other encodings, controls and NUL."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place = chance.randint(0, len(found))
        found[place:place] = chance.choice(_FOREIGN) * chance.choice([1, 1, 1, 50])
    return bytes(found)


def recode(data: bytes, chance: random.Random) -> bytes:
    """Write the file in another encoding."""
    text = data.decode("utf-8", "replace")
    return text.encode(chance.choice(["utf-16", "utf-16-le", "utf-8-sig", "utf-32"]), "replace")


def pack(data: bytes, chance: random.Random) -> bytes:
    """Compress, and perhaps break it."""
    packed = gzip.compress(data, mtime=0)
    return chance.choice([packed, cut_tail(packed, chance), flip_bits(packed, chance)])


def swap_pieces(data: bytes, chance: random.Random) -> bytes:
    """Exchange two pieces of the file."""
    first, second, third = sorted(chance.randint(0, len(data)) for _ in range(3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


MUTATIONS: Final[tuple[Mutation, ...]] = (
    *(flip_bits, cut_tail, cut_head, shuffle_lines, repeat_lines, drop_lines, change_numbers),
    *(change_numbers, rename_keys, nest_deeply, join_lines, insert_foreign, recode, pack),
    swap_pieces,
)
"""Every way to break a file; the most telling one twice."""


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a file after one to three mutations."""
    for _ in range(chance.randint(1, 3)):
        data = chance.choice(MUTATIONS)(data, chance)
    return data
