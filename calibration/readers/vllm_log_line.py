"""Lines of a vLLM server's log: the logger's prefix, acceptance metrics, and the banner of a start."""

import math
import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from itertools import zip_longest
from typing import Final

from calibration.readers.log_file import without_escapes
from calibration.readers.model_names import model_name, plain_name

_HEADER = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\s+"
    r"\[?[\w./-]+:\d+\]\s?",
    re.ASCII,
)
_CONTAINER = re.compile(r"^([\w./-]{1,100})\s*\|\s", re.ASCII)
_QUOTES = frozenset("'\"`{")
_LONGEST_PREFIX = 300
# A run of digits is tried once, from its first: a broken line may be nothing but digits.
_ENGINE = re.compile(r"(?:Engine \d+|(?<!\d)\d+ Engines Aggregated): ", re.ASCII)

V0: Final = "Speculative metrics:"
V1: Final = "SpecDecoding metrics:"
_MARKER = re.compile(f"{V0}|{V1}")

_V1_LABEL = re.compile(
    "(Mean acceptance length|Accepted throughput|Drafted throughput|Accepted|Drafted"
    r"|Per-position acceptance rate|Avg Draft acceptance rate|Draft acceptance rate)\s*:"
)
_V0_FIELDS = tuple(
    re.compile(rf"{label}:\s*(\d{{1,15}})(?:[,.]\s|[,.]$)", re.ASCII)
    for label in (
        "Number of speculative tokens",
        "Number of draft tokens(?: tokens)?",
        "Number of emitted tokens",
    )
)
_TOKENS = re.compile(r"(\d{1,15}) tokens\b(?!/)", re.ASCII)
_NUMBER = re.compile(r"(nan|\d{1,9}(?:\.\d{1,15})?)", re.ASCII)
_PERCENT = re.compile(r"(?:nan|\d+(?:\.\d+)?)\s?%", re.ASCII)
_RATES = re.compile(
    r"\[?\s*((?:nan|\d(?:\.\d{1,15})?)(?:,\s*(?:nan|\d(?:\.\d{1,15})?))*)", re.ASCII
)
_LAST_RATE = re.compile(r"(?:^|[\s,\[])(?:nan|\d\.\d{3,})\s*\]?\s*$", re.ASCII)
_MOST_RATES = 1024
_SUM_TOLERANCE = 0.02  # of printed rates against the printed mean: rounding of both, and room


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a V1 line says about the time since the last one."""

    era: str  # ``v1_early`` or ``v1``
    accepted: float  # counts, [tokens]
    drafted: float
    # mean acceptance length as printed, with two decimals; None where the line has none
    mean: float | None
    # share of rounds in which the first 1, 2, ... drafts were all accepted; empty where the line
    # has none
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a V0 line says about the time since the server started."""

    num_steps: int  # depth
    drafted: float  # counts, [tokens]
    emitted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of the server itself."""

    stream: str  # name of the container in front of the line; empty where there is none
    text: str  # what the server said
    # whether its logger wrote it, which is known from level, time and place in the code
    logged: bool


def log_line(line: str) -> LogLine | None:
    """Return what a server said in a line, None where the words may be somebody's data."""
    text = without_escapes(line).rstrip("\r")
    text = text[text.rfind("\r") + 1 :]  # a progress bar was overwritten
    header = _HEADER.search(text, 0, _LONGEST_PREFIX)
    container = _CONTAINER.match(text)
    stream = container[1] if container else ""
    if header is None:
        return LogLine(
            stream=stream, text=text[container.end() if container else 0 :], logged=False
        )
    if _QUOTES.intersection(text[: header.start()]):
        return None
    return LogLine(stream=stream, text=text[header.end() :], logged=True)


def is_metrics(line: LogLine) -> bool:
    """Return whether the server says how many drafts were accepted."""
    text = _ENGINE.sub("", line.text, count=1)
    marker = _MARKER.search(text, 0, _LONGEST_PREFIX)
    if marker is None:
        return False
    before = text[: marker.start()]
    return not before.strip() if line.logged else not _QUOTES.intersection(before)


def read_metrics(text: str) -> Window | Counters | None:
    """Return the figures of a metrics line, None where it is cut off or garbled.

    The list of rates is separated like the fields, so the text is split on the names of the fields.
    """
    if V1 not in text:
        return _read_v0(text)
    found = list(_V1_LABEL.finditer(text))
    fields: dict[str, str] = {}
    for label, following in zip_longest(found, found[1:]):
        value = text[label.end() : following.start() if following else len(text)]
        fields.setdefault(label[1], value.strip().removesuffix(",").rstrip())
    early = "Draft acceptance rate" in fields
    rate = fields.get("Draft acceptance rate" if early else "Avg Draft acceptance rate", "")
    accepted = _TOKENS.match(fields.get("Accepted", ""))
    drafted = _TOKENS.match(fields.get("Drafted", ""))
    if not _PERCENT.match(rate) or accepted is None or drafted is None:
        return None
    mean = _NUMBER.match(fields.get("Mean acceptance length", ""))
    rates = _rates(fields.get("Per-position acceptance rate"), last=early and text)
    if rates is None or (not early and (mean is None or not rates)):
        return None
    length = float(mean[1]) if mean else None
    window = Window(
        era="v1_early" if early else "v1",
        accepted=float(accepted[1]),
        drafted=float(drafted[1]),
        mean=None if length is None or math.isnan(length) else length,
        rates=tuple(rates),
    )
    return None if early and _is_short(window) else window


def _read_v0(text: str) -> Counters | None:
    """Return the counters of a V0 line, None where it is cut off."""
    found = [field.search(text) for field in _V0_FIELDS]
    numbers = [float(field[1]) for field in found if field]
    if len(numbers) < len(found):
        return None
    num_steps, drafted, emitted = numbers
    return Counters(num_steps=int(num_steps), drafted=drafted, emitted=emitted)


def _rates(written: str | None, *, last: str | bool) -> list[float] | None:
    """Return the rates of a list, None where it is cut off; ``last``: the text it is the end of."""
    if written is None:
        return []
    found = _RATES.match(written)
    if found is None or (isinstance(last, str) and not _LAST_RATE.search(last)):
        return None
    rates = found[1].split(",")
    return [float(rate) for rate in rates] if len(rates) <= _MOST_RATES else None


def _is_short(window: Window) -> bool:
    """Return whether rates at the end of a line are fewer than the mean was made of."""
    if window.mean is None or not window.rates:
        return False
    return 1 + sum(window.rates) < window.mean - _SUM_TOLERANCE


# Beginnings of methods that draft up to a number of tokens, or none.
VARIABLE_METHODS: Final = ("ngram", "suffix")

_BLOCK_METHODS = ("dflash", "dspark", "peagle", "pard")
_MOST_CHARACTERS = 100_000
_MOST_STEPS = 1024
_LONGEST_LOGO = 1000

_VERSION = re.compile(r"vLLM API server version ([\w.+-]{1,60})", re.ASCII)
_LOGO = re.compile(r"[\u2580-\u259f].*\s(version|model)\s+(\S{1,300})")
_ARGS = re.compile(r"(?:non-default )?args: ", re.ASCII)
_BANNER_ENGINE = re.compile(r"Initializing an? (?:V1 )?LLM engine \(v([\w.+-]{1,60})\)", re.ASCII)
_LAUNCH = re.compile(
    r"\s*(?:(?:[$+#>]+|exec|command:|\w{1,60}=\S{0,300}|\S{0,100}python[\d.]*\s+-m)\s+){0,20}"
    r"(?:\S{0,200}/)?(?:vllm serve\s+|vllm\.entrypoints\.\S{0,40}api_server\b)",
    re.ASCII | re.IGNORECASE,
)
_SERVED = re.compile(r"vllm serve\s+([^\s'\"-]\S{0,300})")
_SPECULATIVE = re.compile(r"(?<![\w-])(?:--)?speculative[-_]config['\"]?\s*[:=\s]\s*['\"]?(?=[{S])")
_OPENING = re.compile(r"(?:SpeculativeConfig)?([({])")
_PAIRS = {"(": ")", "{": "}"}


class BannerKind(Enum):
    """What a line says about the server."""

    LAUNCH = "the command that starts it"
    START = "its first words"
    ARGUMENTS = "the options it was given"
    ENGINE = "what it made of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What is known about a server; None where nothing is."""

    engine_version: str | None = None  # as the canonical columns
    target_model: str | None = None
    draft_model: str | None = None
    algorithm: str | None = None
    tp_size: float | None = None  # as the canonical column
    num_steps: int | None = None  # number of speculative tokens
    parallel: bool | None = None  # whether all drafts of a round come from one forward
    synthetic: bool | None = None  # whether acceptance is set by configuration
    eager: bool | None = None  # whether steps run without CUDA graphs

    def filled_from(self, other: "ServerSettings") -> "ServerSettings":
        """Return these settings, and those of others where nothing is known."""
        missing = {
            field.name: getattr(other, field.name)
            for field in fields(self)
            if getattr(self, field.name) is None
        }
        return replace(self, **missing)

    @property
    def varies(self) -> bool:
        """Whether the method drafts up to a number of tokens rather than that number."""
        return (self.algorithm or "").startswith(VARIABLE_METHODS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """A line about the server, and what it says."""

    kind: BannerKind
    settings: ServerSettings


def read_banner(line: LogLine) -> Banner | None:
    """Return what a line says about the server, None where it says nothing."""
    text = line.text[:_MOST_CHARACTERS]
    if not line.logged:
        launch = _LAUNCH.match(text)
        return Banner(kind=BannerKind.LAUNCH, settings=_settings(text)) if launch else None
    if _ARGS.match(text):
        return Banner(kind=BannerKind.ARGUMENTS, settings=_settings(text))
    engine = _BANNER_ENGINE.match(text)
    if engine:
        settings = replace(_settings(text), engine_version=_version(engine[1]))
        return Banner(kind=BannerKind.ENGINE, settings=settings)
    version = _VERSION.match(text)
    logo = _LOGO.search(text[:_LONGEST_LOGO])
    if logo and logo[1] == "model":
        return Banner(
            kind=BannerKind.ENGINE, settings=ServerSettings(target_model=model_name(logo[2]))
        )
    if not version and not logo:
        return None
    written = version[1] if version else logo[2] if logo else ""
    return Banner(kind=BannerKind.START, settings=ServerSettings(engine_version=_version(written)))


def _version(written: str) -> str | None:
    """Return a version without a ``v`` and without what ends the sentence."""
    return plain_name(written.removeprefix("v").rstrip(".,-"))


def _settings(text: str) -> ServerSettings:
    """Return the settings in options, in a dictionary of them or in a configuration."""
    text = text.replace('\\"', '"')
    speculation, rest = _cut_speculation(text)
    served = _SERVED.search(rest)
    target = _value(rest, "model") or (served[1] if served else None) or _value(rest, "model_tag")
    target_model = model_name(target)
    draft_model = model_name(_value(speculation, "model", "draft_model"))
    draft_model = draft_model or model_name(_value(rest, "speculative_model"))
    algorithm = plain_name(_value(speculation, "method"))
    if algorithm is None and (draft_model or "").startswith("[ngram"):
        algorithm = "ngram"  # the name that stood for it before there were methods
    if draft_model == target_model or (algorithm or "").startswith(VARIABLE_METHODS):
        draft_model = None  # layers of the target, or no model at all
    parallel = _is_true(_value(speculation, "parallel_drafting"))
    block = (algorithm or "").replace("_", "").startswith(_BLOCK_METHODS)
    num_steps = _whole(_value(speculation, "num_speculative_tokens", "num_spec_tokens"))
    return ServerSettings(
        target_model=target_model,
        draft_model=draft_model,
        algorithm=algorithm,
        tp_size=_whole(_value(rest, "tensor_parallel_size", "tp")),
        num_steps=num_steps or _whole(_value(rest, "num_speculative_tokens")),
        parallel=True if parallel or block else None,
        synthetic=True if _is_synthetic(speculation) else None,
        eager=True if _is_true(_value(rest, "enforce_eager")) or _is_flag(rest) else None,
    )


def _cut_speculation(text: str) -> tuple[str, str]:
    """Return the configuration of the speculation, and the text without it."""
    start = _SPECULATIVE.search(text)
    opening = _OPENING.match(text, start.end()) if start else None
    if start is None or opening is None:
        return "", text
    first, last = opening[1], _PAIRS[opening[1]]
    depth = 0
    for index in range(opening.start(1), len(text)):
        depth += (text[index] == first) - (text[index] == last)
        if not depth:
            return text[opening.start(1) : index + 1], text[: start.start()] + text[index + 1 :]
    return text[opening.start(1) :], text[: start.start()]


def _value(text: str, *names: str) -> str | None:
    """Return what one of some names is set to, as an option, a dictionary or an argument."""
    for name in names:
        written = name.replace("_", "[-_]")
        found = re.search(
            rf"(?<![\w-])(?:--?{written}[=\s]\s*|['\"]?{written}['\"]?\s*[:=]\s*)"
            r"(?:'([^'\n]*)'|\"([^\"\n]*)\"|([^\s,'\"(){}]+))",
            text,
        )
        if found:
            value = next((group for group in found.groups() if group is not None), "")
            if value not in {"", "None", "null", "[", "[]"}:
                return value
    return None


def _whole(written: str | None) -> int | None:
    """Return a number of tokens or devices, None where it is none."""
    if written is None or not re.fullmatch(r"\d{1,4}", written, re.ASCII):
        return None
    return int(written) if 0 < int(written) <= _MOST_STEPS else None


def _is_true(written: str | None) -> bool:
    """Return whether a setting is on."""
    return (written or "").lower() == "true"


def _is_flag(text: str) -> bool:
    """Return whether the option for steps without CUDA graphs stands in a command."""
    return bool(re.search(r"--enforce[-_]eager(?:\s|$)", text))


def _is_synthetic(speculation: str) -> bool:
    """Return whether acceptance is set by configuration."""
    return (_value(speculation, "rejection_sample_method") or "") == "synthetic" or bool(
        re.search(
            r"synthetic_acceptance_(?:rates?|length)['\"]?\s*[:=]\s*['\"]?[\[(\d]", speculation
        )
    )
