"""Responses of llama.cpp's server: the ``timings`` of one or of many."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from calibration.readers.findings import Findings
from calibration.readers.json_text import JsonRecord, json_keys, json_objects, number_at, text_at
from calibration.readers.llamacpp_pool import (
    CONVENTIONS,
    POOL_MESSAGES,
    Request,
    RequestPool,
    Served,
)
from calibration.readers.model_names import model_name
from calibration.readers.reading import Reading, SourceText
from specmodel.units import MILLI

FORMAT: Final = "llamacpp_timings"

_TIMES = frozenset({"predicted_ms", "predicted_per_second"})
_CLOCK_S = 1.0  # a response is stamped in whole seconds
_DEPTHS = (
    ("generation_settings", "speculative.n_max"),
    ("generation_settings", "speculative", "n_max"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """One response that has timings."""

    request: Request
    model: str | None
    depth: float | None
    stamped_s: float | None
    took_s: float


def recognise(head: str) -> bool:
    """Return whether a text has responses of llama.cpp's server, or their timings alone."""
    keys = json_keys(head)
    return "predicted_n" in keys and bool(keys & _TIMES)


def read(source: SourceText) -> Reading:
    r"""Return the row of all responses of a model together.

    .. math:: R = \sum (N - A), \qquad \mathrm{AL} = \frac{\sum N}{R}, \qquad T = \frac{\sum t}{R}

    with the tokens :math:`N` of a response after the one of its prefill, its accepted drafts
    :math:`A` and the time :math:`t` of its generation.
    """
    findings = Findings(source.path, POOL_MESSAGES)
    answers = _answers(findings, json_objects(source, findings))
    pools: dict[tuple[str | None, float | None], RequestPool] = {}
    for answer in sorted(
        answers, key=lambda one: not one.request.drafted
    ):  # those with drafts first
        depth = answer.depth if answer.request.drafted else None
        key = next((k for k in pools if k[0] == answer.model), None)
        if key is None or answer.request.drafted:
            key = (answer.model, depth)
        pools.setdefault(key, RequestPool(depth)).add(answer.request)
    concurrent = _overlap(answers)
    for (model, _), pool in pools.items():
        served = Served(
            batch_size=1.0 if concurrent is False else None,
            concurrent=concurrent is True,
            cells={"target_model": model},
        )
        pool.keep(findings, served)
    return findings.reading(FORMAT, "no response with timings", conventions=CONVENTIONS)


def _answers(findings: Findings, records: Iterable[JsonRecord]) -> list[_Answer]:
    """Return the responses that have timings; of the pieces of a stream the last one."""
    answers: dict[object, _Answer] = {}
    for number, record in enumerate(records):
        fields = record.fields
        timings = fields["timings"] if isinstance(fields.get("timings"), dict) else fields
        predicted, predicted_ms = number_at(timings, "predicted_n"), _predicted_ms(timings)
        if predicted is None or predicted_ms is None:
            findings.drop("no_timings", record.line, "responses left out: no timings in them")
            continue
        request = Request(
            line=record.line,
            predicted=predicted,
            predicted_ms=predicted_ms,
            drafted=number_at(timings, "draft_n"),
            accepted=number_at(timings, "draft_n_accepted"),
        )
        piece = (text_at(fields, "object") or "").endswith(".chunk") and text_at(fields, "id")
        name = model_name(text_at(fields, "model"))
        answers[piece or number] = _Answer(
            request=request,
            model=None if name is None or name.casefold().startswith("gpt-3.5") else name,
            depth=next((n for n in (number_at(fields, *keys) for keys in _DEPTHS) if n), None),
            stamped_s=number_at(fields, "created"),
            took_s=((number_at(timings, "prompt_ms") or 0.0) + predicted_ms) * MILLI,
        )
    return list(answers.values())


def _predicted_ms(timings: Mapping[str, Any]) -> float | None:
    """Return the time of the generation, [ms]."""
    predicted_ms = number_at(timings, "predicted_ms")
    predicted, per_second = (
        number_at(timings, "predicted_n"),
        number_at(timings, "predicted_per_second"),
    )
    if predicted_ms is None and predicted is not None and per_second is not None and per_second > 0:
        return predicted / per_second / MILLI
    return predicted_ms


def _overlap(answers: Sequence[_Answer]) -> bool | None:
    """Return whether requests ran together, None where the file does not tell.

    A response is stamped when it ends or, by some builds, when it begins: they ran one after the
    other if either reading allows it.
    """
    if len(answers) <= 1:
        return False
    stamps = [answer.stamped_s for answer in answers]
    times = [(s, a.took_s) for s, a in zip(stamps, answers, strict=True) if s is not None]
    if len(times) < len(answers):
        return None
    times.sort()
    ends_apart = all(b - took >= a - _CLOCK_S for (a, _), (b, took) in pairwise(times))
    begins_apart = all(b >= a + took - _CLOCK_S for (a, took), (b, _) in pairwise(times))
    return not (ends_apart or begins_apart)
