"""Results of SpecForge's ``bench_eagle3.py``: one JSON object, whatever the name of the file."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import (
    CUT_OFF,
    JsonRecord,
    broken_json,
    json_keys,
    json_records,
    number_at,
    text_at,
)
from calibration.readers.model_names import model_name, plain_name
from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_bench_speculative import sweep_cells, sweep_refusal
from calibration.readers.sglang_flags import NOTE_MESSAGES

FORMAT: Final = "specforge_bench_eagle3"

_KEYS = frozenset({"steps", "topk", "metrics", "output_throughput"})
_MESSAGES: Final[Mapping[str, str]] = {
    "depth_unknown": "steps is null: the server was started by hand and the file does not say its "
    "depth; num_steps is left empty",
    "draft_tokens_forced": NOTE_MESSAGES["draft_tokens_forced"],
    "speculation_unknown": "steps is null and no accept length was measured: whether the server "
    "speculated is not known, accept_length and num_steps are left empty",
}
_CONVENTIONS: Final = conventions("specforge_bench_eagle3")


def recognise(head: str) -> bool:
    """Return whether a text is a result of ``bench_eagle3.py``."""
    return json_keys(head) >= _KEYS


def read(source: SourceText) -> Reading:
    """Return a row for each entry of ``metrics``."""
    found = json_records(source)
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    settings = [
        (record.line, model, benchmark, setting)
        for record in found.records
        for model, benchmark, setting in _settings(record)
    ]
    if found.broken and not settings:
        raise broken_json(source, found.broken[0], "no complete object")
    findings.drop_cut_off(found.broken, CUT_OFF)
    for line, model, benchmark, setting in settings:
        metrics = setting.get("metrics")
        for measured in metrics if isinstance(metrics, list) else [metrics]:
            _read_metrics(line, (model, benchmark), setting, measured, findings)
    return findings.reading(FORMAT, conventions=_CONVENTIONS)


def _settings(record: JsonRecord) -> Iterator[tuple[str | None, str, Mapping[str, Any]]]:
    """Yield model, benchmark and setting of everything that was measured."""
    model = model_name(text_at(record.value, "model"))
    for benchmark, settings in record.fields.items():
        for setting in settings if isinstance(settings, list) else []:
            if isinstance(setting, dict) and "metrics" in setting:
                yield model, benchmark, setting


def _read_metrics(
    line: int,
    names: tuple[str | None, str],
    setting: Mapping[str, Any],
    measured: object,
    findings: Findings,
) -> None:
    """Add the row of one entry of ``metrics``, or why there is none."""
    model, benchmark = names
    workload = plain_name(benchmark)
    throughput = number_at(measured, "output_throughput")
    questions = number_at(measured, "num_questions")
    batch_size = number_at(setting, "batch_size")
    accept_length = number_at(measured, "accept_length")
    if questions is not None and questions <= 0:
        findings.drop("no_completed_requests", line, f"{workload}: no question was answered")
        return
    if throughput is None or throughput <= 0:
        findings.drop(
            "missing_throughput", line, f"{workload}: no throughput", column="output_throughput"
        )
        return
    unknown = number_at(setting, "steps") is None and (accept_length is None or accept_length == 1)
    cells, notes = sweep_cells(setting, accept_length=None if unknown else accept_length)
    refusal = None if unknown else sweep_refusal(cells)
    if refusal is not None:
        findings.refuse(line, refusal)
        return
    cells |= {
        "workload": workload,
        "batch_size": batch_size,
        "output_tokens_per_s": throughput,
        "target_model": model,
    }
    row = measured_row(
        line,
        cells,
        load=None if unknown else (workload, batch_size, model),
        details={"requests": questions},
    )
    findings.keep(line, row, ["speculation_unknown"] if unknown else notes)
