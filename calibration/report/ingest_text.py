"""What files say, for people: a block for each group of files that belong together."""

from collections.abc import Mapping, Sequence

from calibration.points.reading import Ingested, IngestedGroup, filled_rows
from calibration.readers import Cell
from calibration.readers.acceptance_intervals import conditional_intervals
from calibration.report.as_json import file_names
from specmodel.errors import LeftOut
from specmodel.text_layout import WIDTH, labelled, number, table, wrapped

MOST_ROWS = 24
"""Rows of a group that are listed; the table and the JSON have all."""

_COLUMN = 10
_MOST_ACCURACIES = 6
_HEADINGS: Mapping[str, tuple[str, int]] = {
    "workload": ("workload", 0),
    "batch_size": ("batch", 0),
    "context_tokens": ("context", 0),
    "num_steps": ("steps", 0),
    "topk": ("topk", 0),
    "num_draft_tokens": ("tokens", 0),
    "accept_length": ("accept", 2),
    "output_tokens_per_s": ("tok/s", 1),
    "step_time_ms": ("round ms", 2),
    "round_cost": ("cost", 2),
    "speedup": ("speed-up", 2),
}
_LEAST_TELLING = ("num_draft_tokens", "context_tokens", "topk", "workload")
_MOST_TEXT = 14


def ingest_text(ingested: Ingested, output: str | None, *, explain: bool = False) -> str:
    """Return what files say as text; warnings are printed apart, unless everything is explained."""
    names = file_names([file for one in ingested.groups for file in one.group.files])
    blocks = []
    for one in ingested.groups:
        if one.group.error is not None:
            continue  # a warning says why
        title = wrapped(", ".join(names[file] for file in one.group.files[:8]), indent=2)
        if len(one.group.files) > 8:
            title += f" and {len(one.group.files) - 8} more"
        parts = [title, *_facts(one, explain=explain)]
        listing = _listing(one)
        blocks.append("\n".join(parts) + (f"\n\n{listing}" if listing else ""))
    points = ingested.points
    if output is not None and points is not None:
        blocks.append(
            labelled(
                "written",
                f"{output}: {len(points)} row{'s' if len(points) > 1 else ''}; "
                + _next_step(ingested, output),
                column=_COLUMN + 2,
            )
        )
    return "\n\n".join(blocks)


def _next_step(ingested: Ingested, output: str) -> str:
    """Return what can be done with the table that was written."""
    rows = filled_rows(ingested.points) if ingested.points is not None else ()
    if any({"output_tokens_per_s", "baseline_tokens_per_s"} <= row.keys() for row in rows):
        return f"fit them with `specmodel fit {output}`"
    return "to fit them, add a run with speculation and one without at the same load, both timed"


def _facts(one: IngestedGroup, *, explain: bool) -> list[str]:
    """Return the labelled lines of a group."""

    def line(label: str, text: str) -> str:
        return labelled(f"  {label}", text, column=_COLUMN + 2)

    def item(label: str, text: str) -> str:
        head = f"  {label}".ljust(_COLUMN + 2) + "- "
        return wrapped(text, first=head, indent=len(head))

    era = f", layout of {', '.join(one.era)}" if one.era else ""
    facts = [line("format", one.group.format + era)]
    if explain:
        facts += [
            item("means" if not place else "", said) for place, said in enumerate(one.conventions)
        ]
    facts.append(line("rows", _counted(one)))
    if one.dropped:
        counts = ", ".join(f"{count} {code}" for code, count in one.dropped.items())
        facts.append(line("dropped", counts))
    if not explain:
        return facts
    facts += [item("", f"{row.code}: {row.within_file}") for row in _dropped(one)]
    failed = [f"{warning.code}: {warning.message}" for warning in one.warnings]
    facts += [item("checks" if not place else "", said) for place, said in enumerate(failed)]
    return facts if failed else [*facts, line("checks", "none failed")]


def _dropped(one: IngestedGroup) -> list[LeftOut]:
    """Return one example of each reason for which something was left out."""
    first: dict[str, LeftOut] = {}
    for reading in one.group.readings:
        for row in reading.dropped:
            first.setdefault(row.code, row)
    for row in one.points.dropped if one.points is not None else ():
        first.setdefault(row.code, row)
    return list(first.values())


def _counted(one: IngestedGroup) -> str:
    """Return how many rows a group has, of which kind."""
    if one.cost_table:
        return f"none: a cost table with {len(one.cost_table)} probes"
    rows, num_pairs = one.rows, len(one.pairs)
    baselines = sum(row.get("num_steps") == 0 for row in rows)
    text = f"{len(rows) - baselines} with speculation, {baselines} without"
    return text + (f"; {num_pairs} paired" if num_pairs else "")


def _listing(one: IngestedGroup) -> str:
    """Return the rows of a group as a table."""
    rows = [_with_cost(row) for row in one.rows]
    blocks = []
    if rows:
        blocks.append(_fitting_table(rows[:MOST_ROWS]))
        if len(rows) > MOST_ROWS:
            blocks[-1] += f"\n... and {len(rows) - MOST_ROWS} more rows"
    blocks += _curves(rows)
    return "\n\n".join(blocks)


def _fitting_table(rows: Sequence[Mapping[str, Cell]]) -> str:
    """Return the columns that some row fills, without the least telling ones where they are too wide."""
    shown = [name for name in _HEADINGS if any(name in row for row in rows)]
    for left_out in (None, *_LEAST_TELLING):
        shown = [name for name in shown if name != left_out]
        lines = [[_HEADINGS[name][0] for name in shown]]
        lines += [[_cell(name, row.get(name)) for name in shown] for row in rows]
        text = table(lines, align="".join("l" if name == "workload" else "r" for name in shown))
        if max(map(len, text.splitlines())) <= WIDTH:
            break
    return text


def _with_cost(row: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return a row with its round cost and speed-up where it has a baseline."""
    found = dict(row)
    rate, baseline = row.get("output_tokens_per_s"), row.get("baseline_tokens_per_s")
    if isinstance(rate, float) and isinstance(baseline, float) and row.get("num_steps") != 0:
        found["speedup"] = rate / baseline
    time_ms, step_ms = row.get("step_time_ms"), row.get("baseline_step_time_ms")
    if isinstance(time_ms, float) and isinstance(step_ms, float):
        found["round_cost"] = time_ms / step_ms
    return found


def _curves(rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    """Return the accept curves of rows that have one, with intervals where rounds were counted."""
    lines = []
    for row in rows[:_MOST_ACCURACIES]:
        accuracy = row.get("full_accuracy")
        if not isinstance(accuracy, tuple):
            continue
        rounds = row.get("verify_rounds")
        counted = rounds if isinstance(rounds, float) else 0.0
        head = ["depth", "full", "conditional", "90 % interval"]
        body = [
            [
                str(depth),
                number(share, 3),
                number(value, 3),
                f"{number(low, 3)} to {number(high, 3)}" if counted else "-",
            ]
            for depth, (share, (value, (low, high))) in enumerate(
                zip(accuracy, conditional_intervals(accuracy, counted), strict=True), start=1
            )
        ]
        about = f"  ({counted:.0f} rounds)" if counted else ""
        lines.append(f"accept curve{about}\n" + table([head, *body], align="rrrr"))
    return lines


def _cell(name: str, cell: Cell | None) -> str:
    """Return a cell of the listing."""
    if isinstance(cell, float):
        digits = _HEADINGS[name][1]
        whole = not digits and not cell.is_integer()
        return number(cell, 1 if whole and cell < 100 else digits)
    text = str(cell) if cell is not None else "-"
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "\N{HORIZONTAL ELLIPSIS}"
