"""The packaged systems as a list for people and as JSON."""

from calibration.points.packaged import PackagedTable, Varying, varying_columns
from calibration.report.layout import WIDTH, table, wrapped
from specmodel.units import KIBI

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
    """Return the packaged systems, three facts and the source of each.

    Parameters
    ----------
    tables : tuple of PackagedTable
        What to list.

    Returns
    -------
    str
        Lines of at most 80 characters.
    """
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
