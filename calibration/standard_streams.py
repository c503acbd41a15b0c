"""Standard output and error of the command line: any character passes, a closed pipe is no error."""

import contextlib
import io
import os
import sys
from typing import TextIO


def accept_any_character() -> None:
    """Let the standard streams write what their encoding lacks with a backslash, not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(*streams: TextIO | None) -> None:
    """Send what is still to be written nowhere, so that the interpreter leaves in peace.

    Parameters
    ----------
    *streams : file or None
        Standard streams; those without a descriptor of their own are left alone.
    """
    for stream in streams:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            descriptor = stream.fileno()  # type: ignore[union-attr]
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
