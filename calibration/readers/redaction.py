"""What is shown of a file that is not understood: never a key, a token or a path."""

import re

_NAMED = re.compile(
    r"(?i)\b[\w-]*(?:key|token|secret|passw(?:or)?d|credential|auth\w*|bearer)\b\W{0,4}[^\s,;&]*"
)
_LONG = re.compile(r"(?=[\w+/=.-]*\d)(?=[\w+/=.-]*[A-Za-z])[\w+=.-]{16,}")
_PATH = re.compile(r"(?:[A-Za-z]:\\|~?/)[^\s,;'\"]*")
_MARK = "\N{HORIZONTAL ELLIPSIS}"


def redacted(text: str) -> str:
    """Return a text without what looks like a key, a token or a path."""
    for pattern in (_NAMED, _PATH, _LONG):
        text = pattern.sub(_MARK, text)
    return text
