r"""A log of any length: complete lines in blocks, decompressed and decoded in bounded memory."""

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Final

from calibration.readers.containers import only, unwrapped
from specmodel.errors import FormatError
from specmodel.units import GIBI, MEBI

# Most content that is taken out of a compressed log, [bytes]; beyond it, it is no log.
MAX_UNPACKED_BYTES: Final = 16 * GIBI

# Most bytes out of one compressed byte once a file is large; logs have about 10. [-]
MOST_UNPACKED_RATIO: Final = 60

# What containers, clusters and terminals put before a line. No quotes: a quoted line is data.
# Possessive throughout: what was read as a prefix is not read in another way.
# Pattern, in verbose form, of what may stand before a line.
LINE_PREFIX: Final = rb"""[ \t]*+(?:(?>
        [\w.@/-]{1,120}[ \t]{0,40}\|(?=[ \t])                          # compose, swarm
      | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?=[ \t])  # docker -t
      | (?:stdout|stderr)[ ][FP](?=[ ])                                # kubelet
      | \[[A-Za-z][\w./-]{0,150}\]:?(?=[ ])                            # [pod/name], [rank0]:
      | [A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ][\w.-]{1,80}[ ][\w./-]{1,80}(?:\[\d+\])?:(?=[ ])
      | \([\w.:=,\ -]{1,120}\)(?=[ ])                                  # ray
      | \d{1,6}:(?=[ ])                                                # srun -l
      | [\w./-]{1,120}:(?:\d+:)?(?=\[\d)                               # grep
      | [a-z0-9][a-z0-9.]{0,60}-[a-z0-9.-]{1,120}[ ][a-z0-9-]{1,60}(?=[ ]\[)  # stern
    )[ \t]*+){0,6}+"""

# What tells a terminal colours and places.
ESCAPES: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_]))+"
)
_ESCAPES_IN_TEXT = re.compile(ESCAPES.pattern.decode("ascii"))

_LARGE_BYTES = 256 * MEBI
_BLOCK_BYTES = 4 * MEBI
_LONGEST_LINE_BYTES = 16 * MEBI
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One log, opened when it is read."""

    path: Path  # the file; plain or gzip, UTF-8 or UTF-16 with a byte order mark
    # told how many bytes of the file have been read since it was told last
    progress: Callable[[int], None] | None = None
    wrapped: bool = False  # whether its lines are JSON with the line inside
    container: str = ""  # whose lines alone are read; empty for all

    def blocks(self, size: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the content as UTF-8, in blocks that end with a line; the last one may not.

        A line longer than 16 MiB is no line of a log: it is cut.
        """
        rest = b""
        for piece in chain(self._pieces(size), (b"",)):  # the empty one is the end
            end = piece.rfind(b"\n") + 1
            block, rest = (rest + piece[:end], piece[end:]) if end else (b"", rest + piece)
            if not piece:
                block, rest = rest, b""
            elif len(rest) > _LONGEST_LINE_BYTES:
                block, rest = block + rest + b"\n", b""
            if block:
                bare = unwrapped(block) if self.wrapped else block
                yield only(bare, self.container) if self.container else bare

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield number and text of every line; bytes that are no UTF-8 become U+FFFD."""
        number = 0
        for block in self.blocks():
            lines = block.split(b"\n")
            if lines[-1] == b"":
                lines.pop()
            for line in lines:
                number += 1
                yield number, line.decode("utf-8", "replace").rstrip("\r")

    def _pieces(self, size: int) -> Iterator[bytes]:
        """Yield the content in pieces of about a size, as UTF-8 in which line feeds end the lines."""
        raw = self._raw(size)
        first = next(raw, b"")
        pieces: Iterable[bytes] = chain((first.removeprefix(codecs.BOM_UTF8),), raw)
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
            pieces = (decoder.decode(one).encode("utf-8", "replace") for one in pieces)
        returns_alone: bool | None = None  # beside line feeds they stay
        for piece in pieces:
            if returns_alone is None:
                returns_alone = b"\n" not in piece and b"\r" in piece
            yield piece.replace(b"\r", b"\n") if returns_alone else piece

    def _raw(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of the content, decompressed."""
        total = 0
        try:
            with self.path.open("rb") as file:
                packed = file.peek(2).startswith(_GZIP)
                content: IO[bytes] = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
                told = 0
                with closing(content):
                    while piece := content.read(size):
                        total += len(piece)
                        if packed and total > _allowed_bytes(file.tell()):
                            raise FormatError(
                                self.path,
                                f"{total // MEBI} MiB and more come out of {file.tell()} compressed "
                                "bytes, which is no log; decompress it, or cut it into smaller files",
                                code="too_large",
                            )
                        if self.progress is not None:
                            place = file.tell()
                            self.progress(place - told)
                            told = place
                        yield piece
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(
                self.path, f"broken gzip file ({error}); compress it again", code="not_text"
            ) from None
        except OSError as error:
            raise FormatError(
                self.path, f"cannot be read: {error.strerror or error}", code="unreadable"
            ) from None


def _allowed_bytes(num_packed: int) -> int:
    """Return how much may come out of a number of compressed bytes."""
    return min(MAX_UNPACKED_BYTES, max(_LARGE_BYTES, MOST_UNPACKED_RATIO * num_packed))


def without_escapes(line: str) -> str:
    """Return a line without what tells a terminal colours."""
    return _ESCAPES_IN_TEXT.sub("", line) if "\x1b" in line else line
