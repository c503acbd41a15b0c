"""What an SGLang log says of how its server was started: the banner and the command before it."""

import re
from typing import Final

_BANNER = re.compile(r"ServerArgs\(")
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.)*+' | "(?:[^"\\]|\\.)*+" | [(\[{] | [)\]}] | , | [^'"()\[\]{},]++ | ['"]""",
    re.VERBOSE,
)
_NAME = re.compile(r"\s*([A-Za-z_]\w{0,80})=")
_PINNED = re.compile(r"SGLANG_SIMULATE_ACC_LEN=[\"']?(\d{1,6}(?:\.\d{0,6})?)")
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_ESCAPED = re.compile(r"\\([\\'\"])")
_CONSTANTS: Final = {"None": None, "True": True, "False": False}
_LONGEST_BANNER = 1 << 18  # [characters]
_LONGEST_VALUE = 1000

# In `notes` of rows whose accept length was set, not measured.
PINNED_NOTE: Final = "synthetic acceptance"


def server_arguments(banner: str) -> dict[str, object]:
    """Return the arguments in a ``ServerArgs(...)`` banner."""
    found = _BANNER.search(banner[:_LONGEST_BANNER])
    if found is None:
        return {}
    arguments: dict[str, object] = {}
    depth = 1
    value: list[str] = []
    for piece in _PIECE.finditer(banner[:_LONGEST_BANNER], found.end()):
        text = piece[0]
        if text in "([{":
            depth += 1
        elif text in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and text == ","):
            _put(arguments, "".join(value))
            value = []
            if depth == 0:
                break
        else:
            value.append(text)
    return arguments


def pinned_accept_length(launch: str) -> bool:
    """Return whether a command sets the accept length that SGLang is to pretend."""
    found = _PINNED.search(launch)
    return found is not None and float(found[1]) > 0


def _put(arguments: dict[str, object], item: str) -> None:
    """Add ``name=value`` to the arguments; a value that was cut off is none."""
    found = _NAME.match(item)
    if found is None:
        return
    written = item[found.end() :].strip()
    if len(written) > _LONGEST_VALUE:
        return
    arguments[found[1]] = _value(written)


def _value(written: str) -> object:
    """Return what a Python literal means; lists and everything unknown as it is written."""
    if written in _CONSTANTS:
        return _CONSTANTS[written]
    if len(written) >= 2 and written[0] == written[-1] and written[0] in "'\"":
        return _ESCAPED.sub(r"\1", written[1:-1])
    try:
        return int(written) if _WHOLE.fullmatch(written) else float(written)
    except ValueError:
        return written
