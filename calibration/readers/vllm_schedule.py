"""Schedules of a vLLM server: how many tokens to draft at which batch. They hold no points."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from calibration.readers.json_text import MALFORMED_JSON, json_value
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import FormatError, ParameterError

FORMAT: Final = "vllm_k_schedule"

_KEY = "num_speculative_tokens_per_batch_size"
_TRIPLE = re.compile(r"\s*\[\s*\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]\s*(?:[,\]]|$)", re.ASCII)
_RANGE = r"[\[(]?\s*(\d{1,9})\s*(?:-|\.\.|:|,|\N{EN DASH}|to)\s*(\d{1,9})\s*[\])]?"
_MAPPING = re.compile(rf'\s*\{{\s*"{_RANGE}"\s*:\s*\d+\s*(?:[,}}]|$)', re.ASCII)
_WRAPPED = re.compile(rf'\s*\{{\s*"{_KEY}"\s*:\s*[\[{{]', re.ASCII)
_MOST_RANGES = 100_000
_MOST = 10**9


def recognise(head: str) -> bool:
    """Return whether a text is a schedule."""
    return any(form.match(head) for form in (_TRIPLE, _MAPPING, _WRAPPED))


def read(source: SourceText) -> Reading:
    """Refuse a schedule: it says what to do, and nothing that was measured."""
    value = json_value(source, code=MALFORMED_JSON)
    try:
        schedule = parse_schedule(value)
    except ParameterError as error:
        raise FormatError(
            source.path, f"looks like a schedule of draft lengths, but {error}", code="no_points"
        ) from None
    depths = [num_steps for _, _, num_steps in schedule]
    raise FormatError(
        source.path,
        f"a schedule of draft lengths ({min(depths)} to {max(depths)} for batches of "
        f"{schedule[0][0]} to {schedule[-1][1]}), which has neither times nor acceptance, so no "
        "points; read the results of `vllm bench serve` that it was made from",
        code="no_points",
    )


def parse_schedule(value: object) -> tuple[tuple[int, int, int], ...]:
    """Return the ranges of a schedule: first batch, last batch, depth."""
    if isinstance(value, Mapping) and _KEY in value:
        value = value[_KEY]
    if isinstance(value, Mapping):
        ranges = sorted(_from_mapping(key, depth) for key, depth in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        ranges = [_from_list(element) for element in value]
    else:
        raise _no_schedule(value)
    if not 0 < len(ranges) <= _MOST_RANGES:
        raise ParameterError("number of ranges in a schedule", len(ranges), f"1 to {_MOST_RANGES}")
    for first, last, num_steps in ranges:
        if not 0 < first <= last <= _MOST or not 0 <= num_steps <= _MOST:
            raise _no_schedule([first, last, num_steps])
    for (_, last, _), (first, _, _) in pairwise(ranges):
        if first != last + 1:
            raise ParameterError(
                "first batch of a range",
                first,
                f"{last + 1}, one above the last of the range before",
            )
    return tuple(ranges)


def _from_list(element: object) -> tuple[int, int, int]:
    """Return the range that a list of three numbers is."""
    if not isinstance(element, Sequence) or isinstance(element, str | bytes) or len(element) != 3:
        raise _no_schedule(element)
    first, last, num_steps = (_whole(number) for number in element)
    return first, last, num_steps


def _from_mapping(key: object, num_steps: object) -> tuple[int, int, int]:
    """Return the range that a key and its value are."""
    found = re.fullmatch(_RANGE, key.strip(), re.ASCII) if isinstance(key, str) else None
    if found is None:
        single = _whole(int(key)) if isinstance(key, str) and _is_single(key) else None
        if single is None:
            raise _no_schedule(key)
        return single, single, _whole(num_steps)
    return int(found[1]), int(found[2]), _whole(num_steps)


def _is_single(key: str) -> bool:
    """Return whether a key names one batch."""
    return bool(re.fullmatch(r"\d{1,9}", key.strip(), re.ASCII))


def _whole(number: object) -> int:
    """Return a whole number."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise _no_schedule(number)
    return number


def _no_schedule(value: object) -> ParameterError:
    """Return the error of what is no range of a schedule."""
    return ParameterError(
        "range of a schedule", repr(value)[:40], "first batch, last batch and depth, whole numbers"
    )
