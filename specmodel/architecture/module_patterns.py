"""Which modules a quantised checkpoint leaves alone: patterns of names, matched in bounded time.

Configurations name modules literally, with ``*``, or as regular expressions after ``re:``. The
expressions come from a file that a user gives, so none is handed to a regular-expression engine:
what they are made of in practice (literals, ``.*``, one level of alternatives) is read here, and
anything else is taken as a wildcard.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

MOST_PATTERNS: Final = 20_000
"""A checkpoint that lists each of its modules stays below it (judgement)."""

_MOST_EXPANSIONS = 64
_MOST_CHARACTERS = 300
_ALTERNATIVES = re.compile(r"\((?:\?:)?([^()]{0,200})\)")
_WILDCARD = re.compile(r"(?:\.\*|\.\+|\\d\+|\[[^\]]{0,40}\][+*]?|[*+?^$()|]|\\.)+")


def any_matches(patterns: Iterable[str], module: str) -> bool:
    r"""Whether a pattern names a module or a module that it is in.

    .. math:: \exists\, p: p \text{ matches a prefix of the path}

    Parameters
    ----------
    patterns : iterable of str
        Names, names with ``*``, or ``re:`` and a simple expression; at most 20000 are read.
    module : str
        Path of a module, as ``model.layers.3.self_attn.o_proj``.

    Returns
    -------
    bool

    Notes
    -----
    A name without wildcard matches whole parts of a path, as ``lm_head`` or ``mlp.gate``; where it
    begins and ends in the path does not matter.

    Examples
    --------
    >>> any_matches(["lm_head", "re:.*self_attn.*"], "model.layers.3.self_attn.o_proj")
    True
    >>> any_matches([r"re:.*mlp\.(gate|up)_proj.*"], "model.layers.3.mlp.experts.0.up_proj")
    False
    """
    for count, pattern in enumerate(patterns):
        if count >= MOST_PATTERNS:
            return False
        shortened = pattern[:_MOST_CHARACTERS]
        if not shortened.startswith("re:") and "*" not in shortened:
            if shortened.strip(".") and f".{shortened.strip('.')}." in f".{module}.":
                return True
        elif any(_glob(pieces, module) for pieces in _expanded(shortened)):
            return True
    return False


def _expanded(pattern: str) -> Iterator[list[str]]:
    """Literal pieces between wildcards, for each choice of alternatives."""
    if not pattern.startswith("re:"):
        if pattern.strip("*."):
            yield re.split(r"\*+", pattern)
        return
    body = pattern[3:].replace("\\.", "\0")
    parts = _ALTERNATIVES.split(body)  # text, alternatives, text, alternatives, ...
    choices = [part.split("|") if position % 2 else [part] for position, part in enumerate(parts)]
    for number, chosen in enumerate(product(*choices)):
        if number >= _MOST_EXPANSIONS:
            return
        text = "".join(chosen)
        yield [piece.replace("\0", ".") for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    """Literals between wildcards; an anchor at the start keeps the first piece at the start."""
    anchored = not text.startswith((".*", "^.*"))
    pieces = _WILDCARD.split(text.removeprefix("^"))
    return [*pieces, ""] if anchored else ["", *pieces, ""]


def _glob(pieces: list[str], module: str) -> bool:
    """Whether the pieces occur in that order, the first one at the start."""
    if not module.startswith(pieces[0]):
        return False
    place = len(pieces[0])
    for piece in pieces[1:]:
        found = module.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return True
