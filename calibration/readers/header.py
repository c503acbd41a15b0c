"""What the headings of a table mean: names in any wording, with their units, runs and statistics."""

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from calibration.readers.columns import (
    COLUMNS,
    DERIVING,
    RATE,
    TIME,
    TIME_UNITS,
    WORDS,
    Column,
    Kind,
    scope_of,
)
from calibration.readers.reading import Cell
from specmodel.units import KILO, PERCENT

_MARKUP = re.compile(r"<[^<>]{0,80}>|[*`#\u2020\u2021\u2190-\u21ff\u25a0-\u25ff\u2b00-\u2bff]")
_RAISED = re.compile(r"<sup>.{0,20}?</sup>|[\u00b9\u00b2\u00b3\u2070-\u2079]", re.IGNORECASE)
_BRACKETS = re.compile(r"[\(\[]([^()\[\]]*)[\)\]]")
_BLANKS = re.compile(r"(?:[\s\-\u2010-\u2014_:,]|\.(?=[\s_]|$))+")
_SCRIPTS = re.compile(r"(?<=[a-z0-9/])(?=[\u3040-\u9fff])|(?<=[\u3040-\u9fff])(?=[a-z0-9])")
_SPECULATIVE_DECODING = re.compile(r"spec(?:ulative)?_decod(?:e|ing)(?=_|$)")
_SCOPE = re.compile(r"(?:^|_)(?:per_|/)(user|request|req|sequence|stream|gpu|device|card)(?=_|$)")
_GIVEN = re.compile(
    r"(?<!\w)(k|depth|steps|num_steps|num_speculative_tokens|gamma|\u03b3|nextn|n_max|topk|eagle_topk|"
    r"num_draft_tokens|bs|batch(?:[ _]size)?|concurrency|conc|\u5e76\u53d1)[ ]*[=:][ ]*(\d{1,6})(?!\w)",
    re.IGNORECASE,
)
_LLAMA_BENCH = re.compile(r"tg ?(\d{1,7})(?: @ d(\d{1,7}))?")
_PROMPT_TEST = re.compile(r"pp ?\d{1,7}(?:\+tg\d{1,7})?(?: @ d\d{1,7})?")
_PERCENT = re.compile(r"(?<![(\[])%$")
_NUMBERED = re.compile(r"(?<![a-z0-9])(mtp|eagle|nextn)_?\d{1,2}(?![a-z0-9])")
_POSITION = re.compile(
    r"(?:(?:acc|accept|acceptance|acceptance_rate|accept_rate)[_/@]*)?(?:at_)?(?:pos|position|p|\u4f4d\u7f6e)_?(\d{1,2})"
)
_RUNS = re.compile(r"(?:runs?|#|mean of|avg of|n ?=)? ?\d+(?: ?/ ?(?:run |#)?\d+)*(?: runs?)?")
_NUMERAL = re.compile(r"(?<![\w.-])\d+(?![\w.-])")
_NO_RATES = ("x", "tokens", "tok", "j", "w", "gb", "gib", "mb")
_NOT_TOKENS = ("req", "token/req", "k", "ktok", "ktokens", "kb", "mb")
_AROUND_KINDS = (*("baseline", "baseline alone", "negation", "speculative", "filler", "aggregate"),)
_SHORT = 2  # words of a name that is nothing but a negation
_TIMES = ("latency", "time", "speed")
_LONGEST = 120  # characters of a heading
_MOST_COLUMNS = 1000
_WORST = 10_000  # rank of a median beside a mean


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderColumn:
    """One column of a file."""

    index: int  # its place in the row
    written: str  # its name as the file writes it
    column: Column | None  # what it means, None where that is not known
    factor: float = 1.0  # from the unit of the file to the unit of the column
    scope: str = ""  # what the throughput is counted over, where the unit says it (``tok/s/user``)
    in_cells: bool = False  # whether the cells have the unit, without which it is not known
    given: tuple[tuple[str, float], ...] = ()  # what the heading says of all its cells: ``k=3``
    named: bool = True  # whether it says more than which run it is of
    rank: int = 0  # how good a name it is; 0 is the canonical name


_KNOWN: Final = {column.name: column for column in (*COLUMNS, *DERIVING)}
# What a name means, how good a name it is, and whether it means that only with its unit.
_NAMES: Final[dict[str, tuple[Column, int, bool]]] = {
    name: (column, rank, rank > len(column.aliases))
    for column in _KNOWN.values()
    for rank, name in enumerate((column.name, *column.aliases, *column.with_unit))
}
_AROUND: Final = frozenset().union(*(WORDS[kind] for kind in _AROUND_KINDS))
_LONG = [
    re.escape(word)
    for word in _AROUND | WORDS["statistic"]
    if ord(word[0]) > 0x2FF and len(word) > 1
]
_TOUCHING = re.compile("|".join(sorted(_LONG, key=len, reverse=True)))
_BASELINES: Final = {
    "output_tokens_per_s": "baseline_tokens_per_s",
    "decode_tokens_per_s": "baseline_decode_tokens_per_s",
    "step_time_ms": "baseline_step_time_ms",
    "tpot_ms": "baseline_tpot_ms",
}

_OTHER_RUN: Final = {
    "output_tokens_per_s": "baseline_tokens_per_s",
    "baseline_tokens_per_s": "output_tokens_per_s",
}


def plain(written: str) -> str:
    """Return a cell or heading without emphasis, tags, arrows and the marks of footnotes."""
    return _MARKUP.sub("", unicodedata.normalize("NFKC", _RAISED.sub("", written))).strip()


def normalised_name(written: str) -> str:
    """Return a column name in lower case, with underscores and without a unit in brackets."""
    return _BLANKS.sub("_", _BRACKETS.sub(" ", plain(written)).strip()).strip("_").casefold()


def canonical_name(written: str) -> str | None:
    """Return the canonical column that a name stands for, None where it is not known."""
    found = _meaning(_BRACKETS.sub(" ", written))
    known = found.column is not None and not found.in_cells
    return found.column.name if known and found.column in COLUMNS else None


def closest_name(written: str) -> str | None:
    """Return the known name that is spelled most like an unknown one, None where none is close."""
    close = difflib.get_close_matches(normalised_name(written), _NAMES, n=1, cutoff=0.8)
    return close[0] if close else None


def role_of(text: str) -> str:
    """Return whether a text is of a run ``baseline`` or ``speculative``; empty where it says neither."""
    name = _TOUCHING.sub(r"_\g<0>_", _NUMBERED.sub(r"\1", _BLANKS.sub("_", plain(text).casefold())))
    words = [word for word in re.split(r"[_()\[\]=+]+", name) if word]
    drafts = [word in WORDS["speculative"] or word in WORDS["draft"] for word in words]
    alone = not any(drafts)
    for place, word in enumerate(words):
        before = word in WORDS["negation behind"] and any(drafts[max(place - 1, 0) : place])
        near = any(drafts[place + 1 : place + 2]) or before  # no draft, draft off
        negated = word in WORDS["negation"] and (near or (alone and len(words) <= _SHORT))
        if word in WORDS["baseline"] or negated or (alone and word in WORDS["baseline alone"]):
            return "baseline"
    return "speculative" if any(word in WORDS["speculative"] for word in words) else ""


def is_label(written: str) -> bool:
    """Return whether a heading is that of a column that names the runs."""
    return normalised_name(_GIVEN.sub(" ", plain(written))) in WORDS["label"]


def said_of_run(label: str) -> dict[str, Cell]:
    """Return what the name of a run says of it: its depth, its batch, that it drafts nothing."""
    text = plain(label)
    said: dict[str, Cell] = dict(_given(text))
    generation = _LLAMA_BENCH.fullmatch(text)
    if generation:  # of one request, without a draft
        said |= {"num_steps": 0.0, "batch_size": 1.0, "throughput_origin": "step_time"}
        said["output_tokens"] = float(generation[1])
        said |= {"context_tokens": float(generation[2])} if generation[2] else {}
    elif "num_steps" not in said and role_of(text) == "baseline":
        said["num_steps"] = 0.0
    return said


def said_of_title(title: str) -> dict[str, Cell]:
    """Return what the line above a table says of all its runs: ``Baseline:``, ``EAGLE-3 (k=3)``."""
    text = plain(title).strip("#: ")
    given = dict(_given(text))
    if _NUMERAL.search(_GIVEN.sub("", text)):  # k = 3 and 5
        return {}
    words = {*_BLANKS.sub("_", text.casefold()).strip("_").split("_")}
    if role_of(text) == "baseline" and words <= _AROUND | WORDS["title"]:
        given.setdefault("num_steps", 0.0)
    return {**given}


def is_prefill(label: str) -> bool:
    """Return whether a run is named as the reading of a prompt, which generates nothing."""
    return _PROMPT_TEST.fullmatch(plain(label)) is not None


def match_header(
    names: Sequence[str], families: Mapping[int, str] | None = None
) -> tuple[HeaderColumn, ...]:
    """Return what the columns of a file mean; columns without a name are left out.

    Where two columns mean the same, the one with the better name has it (the canonical name,
    then the aliases in their order, then the first), and the other counts as not known. `families`
    says whether the cells of a column have a unit of a rate or of a time.
    """
    read = [
        replace(_meaning(written), index=index)
        if index < _MOST_COLUMNS
        else HeaderColumn(index=index, written=written.strip(), column=None)
        for index, written in enumerate(names)
        if written.strip()
    ]
    rates = {one.column.name for one in read if one.column is not None and not one.in_cells}
    for place, one in enumerate(read):
        if one.column is not None and one.in_cells:
            family = (families or {}).get(one.index)
            other = "" if one.named else _OTHER_RUN.get(one.column.name, "")
            other = other if role_of(one.written) else ""
            is_time = one.column.name.endswith("_ms")
            beside = family == "number" and other in rates  # `base` beside `tok/s`
            if not beside and family != ("time" if is_time else "rate"):
                read[place] = replace(one, column=None)
    best: dict[tuple[object, ...], tuple[int, int]] = {}
    for one in read:
        if one.column is not None:
            key = _key(one)
            best[key] = min(best.get(key, (one.rank, one.index)), (one.rank, one.index))
    return tuple(
        one if one.column is None or best[_key(one)][1] == one.index else replace(one, column=None)
        for one in read
    )


def _key(column: HeaderColumn) -> tuple[object, ...]:
    """Return what columns share of which only one is read; each position has its own."""
    name = column.column.name if column.column else ""
    return name, column.given, column.index if name == "position_rate" else -1


@lru_cache(maxsize=4096)
def _meaning(written: str) -> HeaderColumn:
    """Return what one heading means, wherever it stands."""
    if len(written) > _LONGEST:
        return HeaderColumn(index=0, written=written.strip(), column=None)
    text = plain(written)
    given = _given(text)
    unknown = HeaderColumn(index=0, written=written.strip(), column=None, given=given)
    text = _PERCENT.sub(" (%)", _GIVEN.sub(" ", text))
    name = normalised_name(text)
    remarks = [_BLANKS.sub("_", one.strip()).casefold() for one in _BRACKETS.findall(text)]
    remarks = [one for one in remarks if one]
    around = [one for one in remarks if {*one.split("_")} <= _AROUND | WORDS["statistic"]]
    stem = _SPECULATIVE_DECODING.sub("speculative", _SCRIPTS.sub("_", name))
    stem = _TOUCHING.sub(r"_\g<0>_", _NUMBERED.sub(r"\1", stem))
    rate = RATE.search(stem)
    time = None if rate else TIME.search(stem)
    unit = rate or time
    stem = stem[: unit.start()] + stem[unit.end() :] if unit else stem
    per = _SCOPE.search(stem)
    scope = scope_of((rate and rate["scope"]) or (per and per[1]) or "") or ""
    words = [word for word in "_".join((_SCOPE.sub("_", stem), *around)).split("_") if word]
    named = [word for word in words if word not in WORDS["statistic"]]
    base = "_".join(word for word in named if word not in _AROUND)
    tries = (name, "_".join(named), base)
    tried = next((one for one in tries if one in _NAMES), None)
    if _POSITION.fullmatch(name) and tried is None:
        tried = name = "position_rate"
    of_run = tried == base != name or bool(around)
    if tried is None and (base in _TIMES or {"k", "\u03c4", "\u03b3"} & {*remarks}):
        # latency (ms/tok), or a symbol: draft tokens (k)
        tried = next((one for one in remarks if one in _NAMES), None)
        remarks = [one for one in remarks if one != tried]
        of_run = tried is not None
    others = {word for one in remarks for word in one.split("_")}
    others |= {*words} if tried != name else set()
    if tried is None or others & WORDS["other"]:
        return unknown
    column, rank, needs_unit = _NAMES[tried]
    over_baseline = column.name in {"speedup", "gain"}
    if of_run and not over_baseline and role_of("_".join(words)) == "baseline":
        if column.name not in _BASELINES:
            return unknown
        column = _KNOWN[_BASELINES[column.name]]
    if tried == name:
        rate = time = None
    is_rate, is_time = column.name.endswith("_per_s"), column.name.endswith("_ms")
    if (rate and not is_rate) or (time and not is_time):
        return unknown
    factor = KILO if rate and rate["kilo"] else TIME_UNITS[time[1]] if time else 1.0
    has_unit = bool(rate or time)
    for remark in remarks:
        if remark in around or _RUNS.fullmatch(remark.replace("_", " ")):
            continue
        if column.open and remark in _NAMES and _NAMES[remark][0] in DERIVING:
            column = _NAMES[remark][0]
            continue
        own = _read_unit(remark, column)
        if own is None:
            return unknown
        has_unit |= bool((TIME if is_time else RATE).search(remark))
        factor, scope = (
            (own[0], own[1] or scope) if own[0] != 1.0 or own[1] or is_time else (factor, scope)
        )
    return replace(
        unknown,
        column=column,
        factor=factor,
        scope="" if scope == "aggregate" else scope,
        in_cells=needs_unit and not has_unit,
        named=bool(tried),
        rank=rank + _WORST * bool({"median", "p50"} & {*words}),
    )


def _given(text: str) -> tuple[tuple[str, float], ...]:
    """Return what a text says of a run in the form ``k=3``, by column."""
    found = ((_BLANKS.sub("_", key.casefold()), value) for key, value in _GIVEN.findall(text))
    return tuple((_NAMES[key][0].name, float(value)) for key, value in found)


def _read_unit(unit: str, column: Column) -> tuple[float, str] | None:
    """Return factor and scope of a remark in brackets, None where the column cannot have it."""
    short = unit.replace("_", "")
    if column.name.endswith("_ms"):
        return (TIME_UNITS[short], "") if short in TIME_UNITS else None
    if short == "%" and column.kind is not Kind.TEXT:
        return (PERCENT, "") if column.share else None
    if column.name.endswith("_per_s"):
        scope = scope_of(unit)
        if short.startswith("req") or (scope is None and short.count("/") > 1):  # tok/s/node
            return None
        if short in TIME_UNITS or short in _NO_RATES:
            return None
        said = scope if scope in {"per_user", "per_gpu"} else ""
        return KILO if short.startswith("k") else 1.0, said
    if column.name.endswith("tokens") and short in _NOT_TOKENS:
        return None
    return 1.0, ""
