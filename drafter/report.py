"""What is inspected, bounded, checked and measured, as text and for machines."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from drafter.check_cases import GRAPH, MOST_ALLOWED, OVERLAP, TORCH_ERRORS, CheckResult
from drafter.floors import Floor, StepWeights, gpu_label, step_weights
from drafter.public_models import SWITCHES, Subject
from drafter.spec import DraftSpec, Rope
from specmodel.measurement import Clocks, DraftRecord, DraftTiming, StepTiming, comparisons
from specmodel.measurement.draft_record import DRY
from specmodel.text_layout import WIDTH, labelled, microseconds, noted, table
from specmodel.units import GIGA, MEGA, MICRO, PERCENT, TERA

SCHEMA_VERSION: Final = 1
"""Layout of the JSON; it rises when a key changes its meaning."""

_FLOOR_NOTE: Final = "a floor is a bound from bytes and bandwidth; nothing was measured here"
_FLOOR_TABLE_NOTE: Final = (
    "Least time of a draft step, from its bytes and the datasheet's bandwidth (and the bf16 rate where that is "
    "slower). Nothing here was measured; kernels and launches come on top. MB: weights that a step reads "
    "(bf16)."
)
_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def inspection_text(
    subject: Subject, floors: Sequence[Floor], context_tokens: int, batch_size: int
) -> str:
    """Return a draft model as text for a terminal."""
    work = floors[0].work
    load = labelled(
        "a step",
        f"batch {batch_size}, context {context_tokens} tokens: {work.weight_bytes / MEGA:.1f} MB weights + "
        f"{work.cache_bytes / MEGA:.1f} MB cache, {work.flop / GIGA:.2f} GFLOP",
    )
    notes = [noted(note) for note in (*subject.notes, _FLOOR_NOTE)]
    pieces = [
        "\n".join(_facts(subject)),
        _weights(step_weights(subject.spec)),
        f"{load}\n{_floors(floors)}",
        "\n".join(["Notes", *notes]),
    ]
    return "\n\n".join(pieces)


def _facts(subject: Subject) -> list[str]:
    """What it is, in labelled lines."""
    spec = subject.spec
    same_width = spec.hidden_size == spec.target_hidden_size
    target = "as the target" if same_width else f"target {spec.target_hidden_size}"
    vocabulary = f"{spec.draft_vocab_size} of {spec.target_vocab_size} tokens"
    if subject.num_tensors:
        vocabulary += f"; map: {subject.vocabulary_map}"
    switches = [name for name in SWITCHES if name != "use_aux_hidden_state" and getattr(spec, name)]
    if not spec.use_aux_hidden_state:
        switches.append("use_aux_hidden_state off")
    lines = [
        labelled("draft model", f"{subject.name} ({subject.kind})"),
        labelled("layout", subject.layout),
        labelled("target model", subject.target_model or "not stated"),
        labelled("widths", f"hidden {spec.hidden_size} ({target}), MLP {spec.mlp_width}, 1 layer"),
        labelled("attention", _attention(spec)),
        labelled("rope", _rope(spec.rope)),
        labelled("vocabulary", vocabulary),
        labelled("fed with", _states(subject)),
        labelled("switches", ", ".join(switches) or "none"),
    ]
    if subject.num_tensors:
        stored = ", ".join(
            f"{size / MEGA:.1f} MB {dtype}" for dtype, size in subject.stored_bytes.items()
        )
        lines.append(labelled("files", f"{subject.num_tensors} tensors: {stored}"))
    lines += [
        labelled("not in files", f"{name}; {text} is used")
        for name, text in subject.replaced.items()
    ]
    lines += [labelled("source", each) for each in subject.sources]
    return lines


def _attention(spec: DraftSpec) -> str:
    """Attention in words."""
    window = "" if spec.sliding_window is None else f", window {spec.sliding_window} tokens"
    if spec.latent is None:
        return f"{spec.num_heads} heads, {spec.num_kv_heads} for keys and values, of {spec.head_dim}{window}"
    heads = spec.latent
    return (
        f"latent (MLA): {spec.num_heads} heads, ranks {heads.query_rank} and {heads.kv_rank}, head "
        f"{heads.nope_dim} + {heads.rope_dim} with position, value {heads.value_dim}"
    )


def _rope(rope: Rope) -> str:
    """Rotation in words."""
    text = f"{rope.kind}, theta {rope.theta:.10g}"
    if rope.kind != "default":
        text += f", factor {rope.factor:g}"
    if rope.original_max_positions is not None:
        text += f" from {rope.original_max_positions} positions"
    return text


def _states(subject: Subject) -> str:
    """Captured states in words."""
    spec = subject.spec
    if not spec.use_aux_hidden_state:
        return "the final state of the target, without fusion"
    ids = subject.aux_layer_ids
    where = "layers not listed" if ids is None else f"layer ids {', '.join(map(str, ids))}"
    return f"{spec.num_aux_states} states of the target; {where}"


def _weights(weights: StepWeights) -> str:
    """Parameters of a step, by part."""
    parts = {
        "queries, keys, values": weights.attention_inputs,
        "attention output": weights.attention_output,
        "MLP": weights.mlp,
        "head": weights.head,
    }
    rows = [["weights of a step", "parameters", "MB (bf16)", "share"]]
    for name, count in (
        *parts.items(),
        ("all", weights.step),
        ("fusion (extend only)", weights.fusion),
    ):
        share = "" if name.startswith("fusion") else f"{count / weights.step:.0%}"
        rows.append([name, f"{count / MEGA:.1f} M", f"{2 * count / MEGA:.1f}", share])
    return table(rows, align="lrrr")


def _floors(floors: Sequence[Floor]) -> str:
    """Floor on each device, at both bandwidths."""
    rows = [["GPU", "TB/s", "floor us", "measured TB/s", "floor us", "extend adds us"]]
    for floor in floors:
        read = floor.gpu.measured_read_bandwidth_bytes_per_s
        rows.append(
            [
                gpu_label(floor.gpu),
                f"{floor.gpu.bandwidth_bytes_per_s() / TERA:.2f}",
                microseconds(floor.datasheet_s) + (" (compute)" if floor.compute_bound else ""),
                "-" if read is None else f"{read / TERA:.2f}",
                "-" if floor.measured_s is None else microseconds(floor.measured_s),
                f"+{microseconds(floor.extend_adds_s)}",
            ]
        )
    return table(rows, align="lrrrrr")


def inspection_json(
    subject: Subject, floors: Sequence[Floor], context_tokens: int, batch_size: int
) -> dict[str, Any]:
    """Return a draft model for machines."""
    weights, facts = step_weights(subject.spec), dataclasses.asdict(subject)
    last = {name: facts.pop(name) for name in ("sources", "notes")}
    return {
        "schema_version": SCHEMA_VERSION,
        **facts,
        "parameters": {**dataclasses.asdict(weights), "step": weights.step},
        "context_tokens": context_tokens,
        "batch_size": batch_size,
        **dataclasses.asdict(floors[0].work),
        "measured": False,
        "floors": [floor_json(floor) for floor in floors],
        **last,
    }


def floors_text(floors: Mapping[str, Sequence[Floor]], context_tokens: int, batch_size: int) -> str:
    """Return a table of floors."""
    title = f"Floor of a draft step: batch {batch_size}, context {context_tokens} tokens"
    count = len(next(iter(floors.values())))
    tables: list[str] = []
    start = 0
    while start < count:
        end = count
        while end > start + 1 and max(map(len, _table(floors, start, end).splitlines())) > WIDTH:
            end -= 1
        tables.append(_table(floors, start, end))
        start = end
    return "\n\n".join([title, *tables, noted(_FLOOR_TABLE_NOTE)])


def _table(floors: Mapping[str, Sequence[Floor]], start: int, end: int) -> str:
    """Some of the devices side by side."""
    first = next(iter(floors.values()))[start:end]
    head = ["draft model", "MB", *(gpu_label(floor.gpu) for floor in first), "extend adds"]
    units = ["", "", *("us" for _ in first), f"us, {gpu_label(first[0].gpu)}"]
    rows = [
        [
            name,
            f"{each[0].work.weight_bytes / MEGA:.0f}",
            *(microseconds(floor.datasheet_s) for floor in each[start:end]),
            f"+{microseconds(each[start].extend_adds_s)}",
        ]
        for name, each in floors.items()
    ]
    return table([head, units, *rows], align="lr" + "r" * len(first) + "r")


def floors_json(
    floors: Mapping[str, Sequence[Floor]], context_tokens: int, batch_size: int
) -> dict[str, Any]:
    """Return floors for machines."""
    return {
        "schema_version": SCHEMA_VERSION,
        "context_tokens": context_tokens,
        "batch_size": batch_size,
        "measured": False,
        "draft_models": [
            {
                "name": name,
                **dataclasses.asdict(each[0].work),
                "floors": [floor_json(floor) for floor in each],
            }
            for name, each in floors.items()
        ],
    }


def floor_json(floor: Floor) -> dict[str, Any]:
    """Return one floor for machines; times in microseconds."""
    measured = floor.measured_s
    return {
        "gpu": floor.gpu.name,
        "bandwidth_bytes_per_s": floor.gpu.memory_bandwidth_bytes_per_s,
        "floor_us": floor.datasheet_s / MICRO,
        "measured_read_bandwidth_bytes_per_s": floor.gpu.measured_read_bandwidth_bytes_per_s,
        "floor_at_measured_bandwidth_us": None if measured is None else measured / MICRO,
        "extend_adds_us": floor.extend_adds_s / MICRO,
        "compute_bound": floor.compute_bound,
    }


def checks_text(results: Sequence[CheckResult], where: str) -> str:
    """Return a table of checks."""
    rows = [["draft", "type", "compared", "error", "torch", "allowed", "tokens", ""]]
    rows += [
        [
            each.name,
            _SHORT[each.dtype],
            each.quantity,
            f"{each.error:.1e}",
            "-" if each.torch_error is None else f"{each.torch_error:.1e}",
            f"{each.limit:.1e}",
            f"{each.equal_tokens}/{each.tokens}" if each.tokens else "-",
            "ok" if each.passed else "FAILED",
        ]
        for each in results
    ]
    failed = sum(not each.passed for each in results)
    note = (
        "Relative error of the norm of a row of logits against fp64 torch, the largest of a draft; "
        "torch: that of the same draft in plain torch, in the same type; allowed: the limit of the type; "
        f"for a checkpoint twice what torch loses where that is more, up to {MOST_ALLOWED:g}; tokens: "
        "best guesses that agree, of those whose margin is large enough to tell."
    )
    notes = [note]
    if any(each.quantity in {GRAPH, OVERLAP} for each in results):
        notes.append(
            "graph = eager: 0 where every bit is that of launches in turn, else 1; overlap ~ eager: "
            "the largest relative error of scores and cache against launches in turn; tokens: every "
            "integer of the draft."
        )
    coarse = {
        _SHORT[each.dtype]
        for each in results
        if not each.passed
        and each.torch_error is not None
        and not TORCH_ERRORS * each.torch_error <= MOST_ALLOWED
    }
    if coarse:
        notes.append(
            f"in {', '.join(sorted(coarse))} torch itself loses more "
            "than a check can tell from wrong kernels; check these weights with --dtype float32"
        )
    verdict = f"{failed} of {len(results)} failed" if failed else f"all {len(results)} passed"
    title = f"Kernels on {where}"
    return "\n\n".join(
        [title, table(rows, align="lllrrrrl"), "\n".join(map(noted, notes)), verdict]
    )


def checks_json(results: Sequence[CheckResult], where: str) -> dict[str, Any]:
    """Return checks for machines."""
    return {
        "schema_version": SCHEMA_VERSION,
        "device": where,
        "passed": all(each.passed for each in results),
        "checks": [
            {
                "name": each.name,
                "dtype": each.dtype,
                "compared": each.quantity,
                # JSON has no infinity
                "error": min(each.error, 1e308),
                "torch_error": None if each.torch_error is None else min(each.torch_error, 1e308),
                "allowed": each.limit,
                "tokens": each.tokens,
                "equal_tokens": each.equal_tokens,
                "passed": each.passed,
            }
            for each in results
        ],
    }


_ABSENT: Final = "-"
_MOST_KERNELS: Final = 12
_LONGEST_NAME: Final = 44


def record_text(record: DraftRecord) -> str:
    """Return a record for a terminal of 80 columns."""
    parts = [_head(record), _steps(record)]
    if record.kind != DRY:
        parts.append(baseline_table(record))
    parts += [_extends(record), _drafts(record)]
    if record.kernels:
        parts.append(_kernels(record))
    parts.append("\n".join(noted(each) for each in record.notes))
    return "\n\n".join(filter(None, parts))


def _head(record: DraftRecord) -> str:
    """What was measured on what."""
    driver = "" if record.driver is None else f"driver {record.driver}"
    device = ", ".join(filter(None, (record.device, driver, record.device_state)))
    lines = [
        labelled("draft model", f"{record.draft_model}, {record.layout}, {record.dtype}"),
        labelled("device", device),
        labelled(
            "bandwidth",
            f"{record.read_bandwidth_bytes_per_s / TERA:.3g} TB/s by a kernel that reads",
        ),
        labelled("clocks", f"{_clocks(record.clocks_before)} -> {_clocks(record.clocks_after)}"),
        labelled("software", f"torch {record.torch_version}, triton {record.triton_version}"),
        labelled("spread", f"{record.spread / PERCENT:.1f} % at most between two identical runs"),
    ]
    if record.substituted:
        lines.append(labelled("substituted", "; ".join(record.substituted)))
    if record.kind == DRY:
        lines.insert(0, "DRY RUN: every time is of Triton's interpreter; no device was measured.")
    return "\n".join(lines)


def _clocks(clocks: Clocks | None) -> str:
    """Clocks in a few words."""
    if clocks is None:
        return "unknown"
    return f"{clocks.multiprocessor_hz / GIGA:.2f}, memory {clocks.memory_hz / GIGA:.2f} GHz"


def _time(time_s: float | None) -> str:
    """A time, or that there is none."""
    return _ABSENT if time_s is None else microseconds(time_s)


def _load(row: StepTiming | DraftTiming) -> list[str]:
    """Load of a row."""
    return [str(row.batch_size), str(row.context_tokens), str(row.topk)]


def _steps(record: DraftRecord) -> str:
    """Steps, floors, baselines."""
    rows = [["batch", "context", "topk", "step us", "floor us", "ratio", "cold", "hot", "torch us"]]
    for row in record.steps:
        others = map(_time, (row.cold_time_s, row.hot_time_s, row.baseline_s))
        ratio = f"{row.ratio:.2f}"
        rows.append([*_load(row), _time(row.time_s), _time(row.floor_s), ratio, *others])
    return f"A draft step\n{table(rows, align='rrrrrrrrr')}"


def baseline_table(record: DraftRecord) -> str:
    """Return steps beside the baseline, with ratio, its range and verdict."""
    found = comparisons(record)
    if not found:
        return ""
    rows = [["batch", "context", "topk", "step us", "torch us", "ratio", "range", ""]]
    for each in found:
        row, span = each.row, f"{each.low:.2f}-{each.high:.2f}"
        times = (_time(row.time_s), _time(row.baseline_s or 0.0))
        rows.append([*_load(row), *times, f"{each.ratio:.2f}", span, each.verdict])
    return f"Against torch + cuBLAS (ratio: torch over step)\n{table(rows, align='rrrrrrrl')}"


def _extends(record: DraftRecord) -> str:
    """Extend passes, a column a width."""
    widths = sorted({row.tokens for row in record.extends})
    loads = sorted({(row.batch_size, row.context_tokens) for row in record.extends})
    times = {(row.batch_size, row.context_tokens, row.tokens): row.time_s for row in record.extends}
    rows = [["batch", "context", *(f"{width} tokens" for width in widths)]]
    rows += [
        [str(batch), str(context), *(_time(times.get((batch, context, width))) for width in widths)]
        for batch, context in loads
    ]
    return f"An extend pass, us\n{table(rows, align='rr' + 'r' * len(widths))}"


def _drafts(record: DraftRecord) -> str:
    """Whole drafts."""
    rows = [
        ["batch", "context", "topk", "steps", "tokens", "graph us", "nodes", "select", "torch us"]
    ]
    for row in record.drafts:
        counts = (str(row.num_steps), str(row.num_draft_tokens))
        nodes = _ABSENT if row.graph_nodes is None else str(row.graph_nodes)
        others = map(_time, (row.selection_s, row.baseline_s))
        rows.append([*_load(row), *counts, _time(row.graph_s), nodes, *others])
    return f"A whole draft\n{table(rows, align='rrrrrrrrr')}"


def _kernels(record: DraftRecord) -> str:
    """Kernels that take most."""
    rows = [["kernel", "launches", "us each", "us in all"]]
    for row in record.kernels[:_MOST_KERNELS]:
        times = (_time(row.time_s), _time(row.calls * row.time_s))
        rows.append([row.name[:_LONGEST_NAME], str(row.calls), *times])
    return f"Kernels ({record.kernels_of})\n{table(rows, align='lrrr')}"


def record_json(record: DraftRecord) -> dict[str, Any]:
    """Return a record for machines: what the file holds, and each step against its baseline."""
    compared = [
        {
            "batch_size": each.row.batch_size,
            "context_tokens": each.row.context_tokens,
            "topk": each.row.topk,
            "step_us": each.row.time_s / MICRO,
            "baseline_us": (each.row.baseline_s or 0.0) / MICRO,
            "ratio": each.ratio,
            "low": each.low,
            "high": each.high,
            "verdict": each.verdict,
        }
        for each in comparisons(record)
    ]
    return {"schema_version": SCHEMA_VERSION, "comparisons": compared, **dataclasses.asdict(record)}
