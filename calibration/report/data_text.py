"""The packaged systems and measured all-reduces as text."""

import math
from collections.abc import Sequence

from calibration.allreduce.fitting import MeasuredAllReduce
from calibration.points.packaged import PackagedTable, Varying, varying_columns
from specmodel.cost.allreduce import MOST_BEYOND, size_words
from specmodel.text_layout import WIDTH, labelled, number, percent, table, wrapped
from specmodel.units import GIGA, KIBI, MICRO

_MOST_VARIES = 34
_WORDS = {
    "num_steps": "depth",
    "topk": "topk",
    "num_draft_tokens": "tokens",
    "batch_size": "batch",
    "context_tokens": "context",
    "workload": "workloads",
    "draft_model": "drafters",
    "algorithm": "algorithms",
    "target_model": "targets",
}


def packaged_text(tables: tuple[PackagedTable, ...]) -> str:
    """Return the packaged systems, three facts and the source of each."""
    rows = [["name", "class", "rows", "varies"]]
    rows += [
        [one.name, one.system_class, str(one.num_rows), _varies(varying_columns(one))]
        for one in tables
    ]
    lines = table(rows, align="llrl").splitlines()
    text = [lines[0]]
    for line, one in zip(lines[1:], tables, strict=True):
        source = f"  {', '.join(one.source_keys)}: {one.url.removeprefix('https://')}"
        text += [line, source if len(source) <= WIDTH else source[: WIDTH - 3] + "..."]
        if not one.sound:
            text.append(wrapped(f"not sound: {one.sound_reason}", first="  ", indent=2))
    count = sum(one.num_rows for one in tables)
    text += [
        "",
        wrapped(
            f"{len(tables)} tables, {count} rows. `specmodel fit --data NAME` fits one; "
            "`specmodel data --json` has sources in full, what the numbers include and what was "
            "left out."
        ),
    ]
    return "\n".join(text)


def _varies(columns: tuple[Varying, ...]) -> str:
    """What varies, in a few words."""
    parts = []
    for column in columns:
        word = _WORDS[column.column]
        if column.low is None or column.high is None:
            parts.append(f"{column.num_values} {word}")
        elif column.column != "num_draft_tokens":  # follows from depth and topk
            parts.append(f"{word} {_short(column.low)}-{_short(column.high)}")
    text = ", ".join(parts) or "one configuration"
    while len(text) > _MOST_VARIES:
        parts.pop()
        text = ", ".join([*parts, "..."])
    return text


def _short(value: float) -> str:
    """A count, in thousands where it is large."""
    return f"{value:g}" if value < 10_000 else f"{value / KIBI:.0f}k"


TOKENS = (1, 2, 4, 8, 32)
"""Tokens of a step for which the time is shown."""


def all_reduces_text(measured: Sequence[MeasuredAllReduce], token_bytes: int | None) -> str:
    """Return all-reduces as text for a terminal.

    Examples
    --------
    >>> all_reduces_text([], None)
    ''
    """
    return "\n\n".join(_one(each, token_bytes) for each in measured)


def tokens_beyond(measured: Sequence[MeasuredAllReduce], token_bytes: int | None) -> list[str]:
    """Return a warning for each all-reduce that is asked beyond twice its measured range.

    Examples
    --------
    >>> tokens_beyond([], 14336)
    []
    """
    if token_bytes is None:
        return []
    found = []
    for each in measured:
        curve = each.fit.curve
        sizes = [count * token_bytes for count in TOKENS]
        outside = [size for size in sizes if float(curve.beyond(size)) > MOST_BEYOND]
        if outside:
            low, high = float(curve.size_bytes[0]), float(curve.size_bytes[-1])
            found.append(
                f"{each.file}: {size_words(outside[-1])} is more than twice outside the measured "
                f"{size_words(low)} to {size_words(high)}; measure that size"
            )
    return found


def _one(each: MeasuredAllReduce, token_bytes: int | None) -> str:
    """Return one all-reduce as text."""
    fit = each.fit
    law, curve = fit.library_law, fit.curve
    worst = max(abs(fit.library_residuals), key=float)
    lines = [
        wrapped(_title(each), indent=2),
        labelled(
            "read",
            f"{each.file}: {curve.size_bytes.size} sizes, {size_words(curve.size_bytes[0])} to "
            f"{size_words(curve.size_bytes[-1])}",
        ),
        labelled("floor", _floor(law.floor_s, known=fit.has_floor)),
        labelled("bus bandwidth", _bandwidths(each)),
    ]
    if math.isfinite(law.switch_bytes):
        step = number(law.step_s / MICRO, 1)
        later = f", where the start is {step} µs later" if float(step) else ""
        lines.append(labelled("switch", f"at {size_words(law.switch_bytes)}{later}"))
    lines.append(
        labelled(
            "residuals",
            f"two protocols: median {percent(fit.library_median_error, 1)}, worst "
            f"{percent(float(worst), 1)}; curve with a size left out: median "
            f"{_percent_or_none(fit.left_out_median_error)}",
        )
    )
    lines.append(labelled("one shot", _one_shot(each)))
    if token_bytes is not None:
        lines += ["", _tokens(each, token_bytes)]
    return "\n".join(lines)


def _title(each: MeasuredAllReduce) -> str:
    """Return what was measured."""
    parts = [f"{each.library} {each.library_version or ''}".strip(), f"{each.fit.num_ranks} ranks"]
    if each.num_nodes is not None:
        parts[-1] += f" on {each.num_nodes} node{'s' if each.num_nodes > 1 else ''}"
    if each.gpu:
        parts.append(each.gpu)
    if each.in_graph is not None:
        parts.append("CUDA graph" if each.in_graph else "no CUDA graph")
    return "All-reduce: " + ", ".join(parts)


def _bandwidths(each: MeasuredAllReduce) -> str:
    """Return the bandwidths of both protocols."""
    law = each.fit.library_law
    small = _rate(law.small_bytes_per_s)
    if math.isinf(law.switch_bytes):
        return small
    return f"{small} below the switch, {_rate(law.large_bytes_per_s)} above"


def _one_shot(each: MeasuredAllReduce) -> str:
    """Return the one-shot law and its window."""
    law, errors = each.fit.one_shot_law, abs(each.fit.one_shot_residuals)
    median = sorted(errors)[len(errors) // 2]
    floor = _floor(law.one_shot_floor_s, known=each.fit.has_one_shot_floor)
    return (
        f"{floor if each.fit.has_one_shot_floor else f'floor {floor}'} + (ranks - 1) bytes / "
        f"{_rate(law.one_shot_bytes_per_s)}, up to {size_words(each.fit.one_shot_largest_bytes)} "
        f"within {percent(float(median), 1)}"
    )


def _tokens(each: MeasuredAllReduce, token_bytes: int) -> str:
    """Return the table of tokens."""
    curve = each.fit.curve
    rows = [["tokens", "message", "time µs", "two protocols µs"]]
    for count in TOKENS:
        size = count * token_bytes
        mark = " *" if float(curve.beyond(size)) > MOST_BEYOND else ""
        rows.append(
            [
                str(count),
                size_words(size),
                number(float(curve.at(size)) / MICRO, 1) + mark,
                number(float(each.fit.library_law.at(size)) / MICRO, 1),
            ]
        )
    return table(rows, align="rrrr")


def _floor(time_s: float, *, known: bool) -> str:
    """Return the time of the smallest messages, where the sizes tell it."""
    return f"{number(time_s / MICRO, 1)} µs" if known else "not measured"


def _rate(bytes_per_s: float) -> str:
    """Return a bandwidth."""
    if math.isinf(bytes_per_s):
        return "no limit seen"
    rate = bytes_per_s / GIGA
    return f"{number(rate, 1 if rate < 100 else 0)} GB/s"


def _percent_or_none(share: float) -> str:
    """Return a share in per cent; a dash where there is none."""
    return "-" if math.isnan(share) else percent(share, 1)
