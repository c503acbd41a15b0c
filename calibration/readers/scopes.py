"""What a throughput is counted over, in any usual spelling."""

import re
from typing import Final

SCOPES: Final = ("aggregate", "per_user", "per_gpu")
"""What a throughput may be counted over."""

_SPELLINGS: Final = {
    **dict.fromkeys(("", "total", "aggregate", "aggregated", "sum", "all", "overall"), "aggregate"),
    **dict.fromkeys(("system", "server", "batch", "whole", "whole_batch"), "aggregate"),
    **dict.fromkeys(("user", "users", "request", "req", "sequence", "stream"), "per_user"),
    **dict.fromkeys(("gpu", "gpus", "device", "accelerator", "card"), "per_gpu"),
}
_TOKEN_RATE = re.compile(
    r"(?:(?:total|output|aggregate)_)*(?:tps|(?:k?tok|k?tokens?)(?:/|_per_|_)s(?:ec(?:ond)?)?)"
)
_BETWEEN = re.compile(r"[_/]*(?:per_)?")


def scope_of(written: str) -> str | None:
    """Return the scope that a text stands for, None where it stands for none.

    Parameters
    ----------
    written : str
        A scope (``per user``) or a unit with one (``tok/s/user``), in any case.

    Returns
    -------
    str or None
        One of `SCOPES`. A unit that names no scope is that of the whole.

    Examples
    --------
    >>> [scope_of(text) for text in ("Per-User", "tok/s/gpu", "total", "tok/s", "per banana")]
    ['per_user', 'per_gpu', 'aggregate', 'aggregate', None]
    """
    text = re.sub(r"[\s-]+", "_", written.strip().strip("()[]").casefold())
    rate = _TOKEN_RATE.match(text)
    rest = text[rate.end() :] if rate else text
    between = _BETWEEN.match(rest)
    return _SPELLINGS.get(rest[between.end() :] if between else rest)
