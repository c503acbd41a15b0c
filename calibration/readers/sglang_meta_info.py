"""Replies of SGLang with acceptance in them: ``meta_info``, or the details of the OpenAI endpoint."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibration.readers.acceptance_counts import AcceptHistogram, pooled
from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.json_text import (
    CUT_OFF,
    JsonRecord,
    at,
    json_keys,
    json_records,
    json_records_or_refuse,
    number_at,
    text_at,
)
from calibration.readers.model_names import model_name
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import FormatError, ParameterError

FORMAT: Final = "sglang_meta_info"

_ROUNDS = "spec_verify_ct"
_HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")  # newest name first
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_NEW_NAMES = ("spec_num_correct_drafts", "spec_num_proposed_drafts", _HISTOGRAMS[0])
_OLD_NAMES = ("spec_accepted_drafts", "spec_proposed_drafts", _HISTOGRAMS[1])
_CAPS = ("spec_cap_length", "spec_block_accept_length", "spec_cap_lens_histogram")
_ERAS: Final = (  # after those with the newest names: the first of which a name is there
    ("0.5.11", _OLD_NAMES[:2]),
    ("0.5.9", (_HISTOGRAMS[1],)),
    ("0.5.6", ("spec_draft_token_num", "spec_accept_token_num")),
    ("0.5.4", ("spec_accept_length", "spec_accept_rate")),
)
_OLDEST = "0.4.6"
_OTHER_FORMATS = frozenset({"internal_states", "server_info", "timings", "speculative_decoding"})
_MOST_COUNT = 1e15
_ROUNDING = 1e-6
_ROUNDS_TOLERANCE = 0.01  # between two counts of the rounds of a reply; the last may be in one only
_MESSAGES: Final = messages("sglang_meta_info")
_CONVENTIONS: Final = conventions("sglang_meta_info")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """What one reply says about acceptance."""

    line: int
    era: str
    model: str | None
    rounds: int
    completion_tokens: float | None
    histogram: AcceptHistogram | None
    proposed: float | None
    cap: float | None  # the smallest that acted, [drafts]

    @property
    def accepted(self) -> float | None:
        """Drafts that were accepted; None where neither histogram nor tokens say so."""
        if self.histogram is not None:
            return float(self.histogram.num_accepted)
        if self.completion_tokens is None:
            return None
        return self.completion_tokens - 1 - self.rounds  # one by prefill, one bonus a round

    @property
    def counted_rounds(self) -> int:
        """Rounds behind `accepted`."""
        return self.rounds if self.histogram is None else self.histogram.num_rounds


def recognise(head: str) -> bool:
    """Return whether a text holds replies of SGLang."""
    keys = json_keys(head)
    if keys & _OTHER_FORMATS:
        return False
    plain = {"meta_info", "completion_tokens"} <= keys
    return _ROUNDS in keys or "spec_tokens_details" in keys or plain


def read(source: SourceText) -> Reading:
    """Return one row for all replies of a model; native replies name none and are one."""
    found = json_records(source)
    if found.broken and not found.records:
        json_records_or_refuse(source)
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    findings.drop_cut_off(found.broken, CUT_OFF)
    by_model: dict[str | None, list[_Reply]] = {}
    for reply in _replies(found.records, source, findings):
        by_model.setdefault(reply.model, []).append(reply)
    eras: dict[str, None] = {}
    for replies in by_model.values():
        if _add_row(replies, findings):
            eras |= dict.fromkeys(reply.era for reply in replies)
    return findings.reading(FORMAT, era=tuple(eras), conventions=_CONVENTIONS)


def _replies(
    records: Iterable[JsonRecord], source: SourceText, findings: Findings
) -> Iterator[_Reply]:
    """Yield the replies with a verify round; count the others."""
    for record, fields, model in _finished(records, findings):
        rounds = _count(fields, _ROUNDS, record.line, source)
        histogram = _histogram(fields, record.line, source)
        if not rounds and histogram is not None:
            rounds = histogram.num_rounds
        if not rounds:
            findings.drop(
                "no_rounds", record.line, "no verify round: nothing was speculated for this reply"
            )
            continue
        counts = (_count(fields, name, record.line, source) for name in _PROPOSED)
        reply = _Reply(
            line=record.line,
            era=_era(fields),
            model=model,
            rounds=rounds,
            completion_tokens=_completion_tokens(fields, rounds, record.line, source),
            histogram=histogram,
            proposed=next((float(count) for count in counts if count), None),
            cap=_cap(fields),
        )
        if reply.accepted is None:
            findings.drop(
                "missing_tokens", record.line, "neither a histogram nor completion tokens"
            )
            continue
        gap = 0 if histogram is None else abs(histogram.num_rounds - rounds)
        if gap > max(1, _ROUNDS_TOLERANCE * rounds):
            findings.warn("histogram_rounds_mismatch", record.line)
        yield reply


def _finished(
    records: Iterable[JsonRecord], findings: Findings
) -> Iterator[tuple[JsonRecord, Mapping[str, Any], str | None]]:
    """Yield the fields of each reply and its model, without the parts of a stream.

    A stream repeats the counts of a request as they grow, under one id; the last part has them all.
    """
    kept: dict[int, tuple[JsonRecord, Mapping[str, Any], str | None]] = {}
    unfinished: dict[str, int] = {}
    for place, (record, fields, model) in enumerate(_meta_infos(records)):
        if fields is None:
            findings.drop("no_reply", record.line, "no reply with meta_info; left out")
            continue
        identity = text_at(fields, "id")
        if identity is not None and identity in unfinished:
            part = kept.pop(unfinished.pop(identity))
            findings.drop("partial_reply", part[0].line, "part of a stream; its last one counts")
        if identity is not None and fields.get("finish_reason", "") is None:
            unfinished[identity] = place
        kept[place] = (record, fields, model)
    yield from kept.values()


def _meta_infos(
    records: Iterable[JsonRecord],
) -> Iterator[tuple[JsonRecord, dict[str, Any] | None, str | None]]:
    """Yield what each reply says of itself and its model; None for what is no reply."""
    for record in records:
        for value in record.value if isinstance(record.value, list) else [record.value]:
            details, choices = at(value, "sglext", "spec_tokens_details"), at(value, "choices")
            choices = choices if isinstance(choices, list) else []
            name = model_name(text_at(value, "model"))
            of_choices = [at(choice, "meta_info") for choice in choices]
            if isinstance(details, dict):
                tokens = at(value, "usage", "completion_tokens") if len(choices) < 2 else None
                yield record, {"completion_tokens": tokens, **details}, name
            elif any(isinstance(meta_info, dict) for meta_info in of_choices):
                yield from ((record, one, name) for one in of_choices if isinstance(one, dict))
            elif isinstance(at(value, "meta_info"), dict):
                yield record, at(value, "meta_info"), None
            else:
                yield record, value if at(value, _ROUNDS) is not None else None, None


def _era(fields: Mapping[str, Any]) -> str:
    """Return the oldest release that names the fields of a reply like this."""
    if any(name in fields for name in _NEW_NAMES):
        if not any(name in fields for name in _OLD_NAMES):
            return "0.5.23"
        return "0.5.16" if any(name in fields for name in _CAPS) else "0.5.12"
    return next((era for era, names in _ERAS if any(n in fields for n in names)), _OLDEST)


def _count(fields: Mapping[str, Any], name: str, line: int, source: SourceText) -> int:
    """Return a count of a reply, 0 where there is none; refuse one that cannot be."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if not 0 <= value <= _MOST_COUNT or value != int(value):
        raise FormatError(
            source.path,
            f"{name} is {value:g}, but must be a whole number that is not negative",
            line=line,
            code="invalid_value",
        )
    return int(value)


def _completion_tokens(
    fields: Mapping[str, Any], rounds: int, line: int, source: SourceText
) -> float | None:
    """Return the tokens of a reply; where it does not say, from its accept length."""
    if number_at(fields, "completion_tokens") is not None:
        return float(_count(fields, "completion_tokens", line, source)) or None
    accept_length = number_at(fields, "spec_accept_length")  # completion tokens / rounds
    known = accept_length is not None and 0 < accept_length <= _MOST_COUNT
    return float(round((accept_length or 0.0) * rounds)) if known else None


def _histogram(fields: Mapping[str, Any], line: int, source: SourceText) -> AcceptHistogram | None:
    """Return the histogram of a reply, None where it has none or an empty one."""
    counts = next((fields[name] for name in _HISTOGRAMS if fields.get(name)), None)
    if not isinstance(counts, list):
        return None
    try:
        histogram = AcceptHistogram(counts)
    except ParameterError as error:
        raise FormatError(source.path, str(error), line=line, code="invalid_value") from None
    return histogram if histogram.num_rounds else None


def _cap(fields: Mapping[str, Any]) -> float | None:
    """Return the cap of the rounds of a reply: the smallest, else the mean; None where none is said."""
    counts = fields.get("spec_cap_lens_histogram")
    for cap, rounds in enumerate(counts if isinstance(counts, list) else ()):
        if isinstance(rounds, int | float) and rounds > 0:
            return float(cap)
    return number_at(fields, "spec_cap_length") or None  # 0 is written where there is no cap


def _add_row(replies: Sequence[_Reply], findings: Findings) -> bool:
    """Add the row of all replies of a model, or why there is none; return whether it was added."""
    first = replies[0]
    histogram = pooled([reply.histogram for reply in replies if reply.histogram is not None])
    complete = histogram if all(reply.histogram is not None for reply in replies) else None
    rounds = sum(reply.counted_rounds for reply in replies)
    accepted = sum(reply.accepted or 0.0 for reply in replies)
    tokens = [r.completion_tokens for r in replies if r.completion_tokens is not None]
    num_steps = None if histogram is None else float(histogram.num_steps)
    num_draft_tokens, notes = _drafted(replies, num_steps)
    notes += ["no_throughput"] if num_steps is not None else ["depth_unknown", "no_throughput"]
    row = measured_row(
        first.line,
        {
            "accept_length": 1 + accepted / rounds,
            "full_accuracy": complete.full_accuracy if complete else None,
            "verify_rounds": float(rounds),
            "num_steps": num_steps,
            "num_draft_tokens": num_draft_tokens,
            "output_tokens": sum(tokens) / len(tokens) if tokens else None,
            "target_model": first.model,
            "engine": "sglang",
        },
        details={
            "rounds": float(rounds),
            "requests": float(len(replies)),
            "conditional_accuracy": complete.conditional_accuracy if complete else None,
        },
    )
    return findings.keep(first.line, row, notes)


def _drafted(replies: Sequence[_Reply], num_steps: float | None) -> tuple[float | None, list[str]]:
    """Return the draft tokens of a round, root included, and what is to be said about them."""
    proposed = [reply.proposed for reply in replies if reply.proposed is not None]
    rounds = sum(reply.rounds for reply in replies)
    per_round = sum(proposed) / rounds if len(proposed) == len(replies) else None
    depth = num_steps if num_steps is not None else per_round
    caps = [reply.cap for reply in replies if reply.cap is not None]
    if caps and depth is not None and min(caps) < depth - _ROUNDING:
        return None, ["capped_rounds"]
    if per_round is None:
        return None, []
    varies = abs(per_round - round(per_round)) > _ROUNDING
    return per_round + 1, ["variable_draft_length"] if varies else []
