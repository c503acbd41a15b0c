"""A draft model for a reader: what it is, what a step reads, and its floor on devices."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from drafter.floors import Floor, gpu_label
from drafter.report.floor_table import SCHEMA_VERSION, floor_json
from drafter.report.layout import labelled, microseconds, noted, table
from drafter.spec import DraftSpec, Rope
from drafter.step_work import StepWeights, step_weights
from drafter.subject import SWITCHES, Subject
from specmodel.units import GIGA, MEGA, TERA

FLOOR_NOTE = "a floor is a bound from bytes and bandwidth; nothing was measured here"
"""Said in every report."""


def inspection_text(
    subject: Subject, floors: Sequence[Floor], context_tokens: int, batch_size: int
) -> str:
    """Return a draft model as text for a terminal.

    Parameters
    ----------
    subject : Subject
        The draft model.
    floors : sequence of Floor
        One for each device.
    context_tokens, batch_size : int
        The load they hold for.

    Returns
    -------
    str
        80 columns wide.
    """
    notes = [noted(note) for note in (*subject.notes, FLOOR_NOTE)]
    pieces = [
        "\n".join(_facts(subject)),
        _weights(step_weights(subject.spec)),
        _load(floors[0], context_tokens, batch_size) + "\n" + _floors(floors),
        "\n".join(["Notes", *notes]),
    ]
    return "\n\n".join(pieces)


def _facts(subject: Subject) -> list[str]:
    """What it is, in labelled lines."""
    spec = subject.spec
    lines = [
        labelled("draft model", f"{subject.name} ({subject.kind})"),
        labelled("layout", subject.layout),
        labelled("target model", subject.target_model or "not stated"),
        labelled("widths", _widths(spec)),
        labelled("attention", _attention(spec)),
        labelled("rope", _rope(spec.rope)),
        labelled(
            "vocabulary",
            f"{spec.draft_vocab_size} of {spec.target_vocab_size} tokens{_map(subject)}",
        ),
        labelled("fed with", _states(subject)),
        labelled("switches", ", ".join(_switches_on(spec)) or "none"),
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


def _map(subject: Subject) -> str:
    """The map between the vocabularies in words; a shape has none."""
    return f"; map: {subject.vocabulary_map}" if subject.num_tensors else ""


def _widths(spec: DraftSpec) -> str:
    """Widths in words."""
    target = (
        "as the target"
        if spec.hidden_size == spec.target_hidden_size
        else f"target {spec.target_hidden_size}"
    )
    return f"hidden {spec.hidden_size} ({target}), MLP {spec.mlp_width}, 1 layer"


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


def _switches_on(spec: DraftSpec) -> list[str]:
    """Names of the switches that are not at their usual side."""
    on = [name for name in SWITCHES if name != "use_aux_hidden_state" and getattr(spec, name)]
    return on if spec.use_aux_hidden_state else [*on, "use_aux_hidden_state off"]


def _weights(weights: StepWeights) -> str:
    """Parameters of a step, by part."""
    parts = {
        "queries, keys, values": weights.attention_inputs,
        "attention output": weights.attention_output,
        "MLP": weights.mlp,
        "head": weights.head,
    }
    rows = [["weights of a step", "parameters", "MB (bf16)", "share"]]
    rows += [
        [name, f"{count / MEGA:.1f} M", f"{2 * count / MEGA:.1f}", f"{count / weights.step:.0%}"]
        for name, count in (*parts.items(), ("all", weights.step))
    ]
    rows.append(
        [
            "fusion (extend only)",
            f"{weights.fusion / MEGA:.1f} M",
            f"{2 * weights.fusion / MEGA:.1f}",
            "",
        ]
    )
    return table(rows, align="lrrr")


def _load(floor: Floor, context_tokens: int, batch_size: int) -> str:
    """What a step moves and computes at the load."""
    work = floor.work
    return labelled(
        "a step",
        f"batch {batch_size}, context {context_tokens} tokens: {work.weight_bytes / MEGA:.1f} MB weights + "
        f"{work.cache_bytes / MEGA:.1f} MB cache, {work.flop / GIGA:.2f} GFLOP",
    )


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
    """Return a draft model for machines.

    Parameters
    ----------
    subject : Subject
        The draft model.
    floors : sequence of Floor
        One for each device.
    context_tokens, batch_size : int
        The load they hold for.

    Returns
    -------
    dict
        With ``schema_version``.
    """
    weights, work = step_weights(subject.spec), floors[0].work
    return {
        "schema_version": SCHEMA_VERSION,
        "name": subject.name,
        "kind": subject.kind,
        "layout": subject.layout,
        "target_model": subject.target_model,
        "spec": dataclasses.asdict(subject.spec),
        "aux_layer_ids": None if subject.aux_layer_ids is None else list(subject.aux_layer_ids),
        "stored_bytes": subject.stored_bytes,
        "num_tensors": subject.num_tensors,
        "vocabulary_map": subject.vocabulary_map,
        "replaced": subject.replaced,
        "parameters": {**dataclasses.asdict(weights), "step": weights.step},
        "context_tokens": context_tokens,
        "batch_size": batch_size,
        "weight_bytes": work.weight_bytes,
        "cache_bytes": work.cache_bytes,
        "extend_bytes": work.extend_bytes,
        "flop": work.flop,
        "measured": False,
        "floors": [floor_json(floor) for floor in floors],
        "sources": list(subject.sources),
        "notes": list(subject.notes),
    }
