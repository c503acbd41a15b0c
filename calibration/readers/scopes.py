"""What a throughput is counted over, in any usual spelling."""

import re
from typing import Final

# What a throughput may be counted over.
SCOPES: Final = ("aggregate", "per_user", "per_gpu")

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
    """Return the scope that a text stands for, None where it stands for none."""
    text = re.sub(r"[\s-]+", "_", written.strip().strip("()[]").casefold())
    rate = _TOKEN_RATE.match(text)
    rest = text[rate.end() :] if rate else text
    between = _BETWEEN.match(rest)
    return _SPELLINGS.get(rest[between.end() :] if between else rest)
