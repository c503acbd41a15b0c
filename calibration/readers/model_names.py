"""Names of models as files give them, without the paths and keys around them."""

import re

_CACHE = re.compile(r"models--([^/\\]+?)--([^/\\]+)")
_OWNER_AND_NAME = re.compile(r"[\w.+-]+/[\w.+:-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_MOST_CHARACTERS = 120


def model_name(written: str | None) -> str | None:
    """Return the name of a model without where it lies."""
    if written is None:
        return None
    text = _CONTROL.sub(" ", written).strip()
    cached = _CACHE.search(text)
    if cached:
        return f"{cached[1]}/{cached[2]}"[:_MOST_CHARACTERS]
    if not _OWNER_AND_NAME.fullmatch(text) or text.startswith(("./", "../", "~")):
        parts = [
            part for part in re.split(r"[/\\]+", text.split("?")[0]) if part not in {"", ".", "~"}
        ]
        text = parts[-1] if parts else ""
    return text[:_MOST_CHARACTERS] or None


def plain_name(written: str | None) -> str | None:
    """Return a word of a file (a dataset, an algorithm, a backend), cut to what a name can be."""
    if written is None:
        return None
    parts = [part for part in re.split(r"[/\\]+", _CONTROL.sub(" ", written)) if part.strip()]
    return parts[-1].strip()[:_MOST_CHARACTERS] or None if parts else None
