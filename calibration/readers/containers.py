"""Logs of containers: lines wrapped in JSON, and lines of several containers in one log."""

import json
import re
from collections import Counter
from typing import Final

# How containers, clusters and their collectors wrap a line: the key of what was written.
_TEXTS: Final = ("log", "message", "msg", "MESSAGE", "line")
_BESIDE: Final = frozenset(
    {
        *("stream", "time", "timestamp", "@timestamp", "ts", "date", "level", "kubernetes"),
        *("container_name", "container", "labels", "tag", "asctime"),
    }
)
_NAMES: Final = ("container_name", "container", "pod_name", "pod")
_NAMED = re.compile(
    rb"[ \t]*(?:\x1b\[[0-9;]{0,10}m)?(?:(?P<compose>[\w.@/-]{1,120})[ \t]{0,40}\|(?:\x1b\[[0-9;]{0,10}m)?[ \t]"
    rb"|\[(?P<pod>[a-z][\w.-]{0,60}/[\w./-]{1,150})\][ ])"
)
# A line that begins with the name of a container.
NAMED_LINE: Final = re.compile(b"^" + _NAMED.pattern, re.MULTILINE)
_MOST_NAMED = 64  # containers of one log
_MOST_OTHERS = 0.05  # of the lines of a log of several containers that name none


def is_wrapped(head: bytes) -> bool:
    """Return whether the lines of a log are JSON with the line inside."""
    lines = [line for line in head.split(b"\n", 8)[:8] if line.strip()]
    return bool(lines) and all(_inside(line) is not None for line in lines[:-1] or lines)


def unwrapped(block: bytes) -> bytes:
    """Return the lines inside of JSON lines, with the name of the container in front where one is given."""
    texts = []
    for line in block.split(b"\n"):
        text = _inside(line)
        texts.append(line if text is None else text.encode("utf-8", "replace"))
    return b"\n".join(texts)


def container_names(head: bytes, *, least: int = 2) -> tuple[str, ...]:
    """Return the names of the containers whose lines are mixed in a log; none where they are fewer."""
    lines = [line for line in head.split(b"\n") if line.strip()]
    found = [one for one in map(_NAMED.match, lines) if one]
    counts = Counter(one["compose"] or one["pod"] for one in found)
    named = len(found) >= (1 - _MOST_OTHERS) * len(lines)
    several = least <= len(counts) <= _MOST_NAMED
    return (
        tuple(sorted(name.decode("utf-8", "replace") for name in counts))
        if named and several
        else ()
    )


def only(block: bytes, container: str) -> bytes:
    """Return a block with the lines of one container without its name, the others blank."""
    name = container.encode()
    lines = []
    for line in block.split(b"\n"):
        found = _NAMED.match(line)
        of_it = found is not None and (found["compose"] or found["pod"]) == name
        lines.append(line[found.end() :] if found is not None and of_it else b"")
    return b"\n".join(lines)


def _inside(line: bytes) -> str | None:
    """Return the line inside of a JSON line, None where it is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or _BESIDE.isdisjoint(value):
        return None
    text = next((value[key] for key in _TEXTS if isinstance(value.get(key), str)), None)
    if text is None:
        return None
    where = value.get("kubernetes")
    named = {**(where if isinstance(where, dict) else {}), **value}
    name = next((named[key] for key in _NAMES if isinstance(named.get(key), str)), "")
    name = re.sub(r"[^\w.@/-]", "", name)
    text = text.rstrip("\n").replace("\n", " ")
    return f"{name} | {text}" if name else text
