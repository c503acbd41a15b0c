"""What a vLLM server prints about itself when it starts: version, models, speculation."""

import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Final

from calibration.readers.model_names import model_name, plain_name
from calibration.readers.vllm_log_line import LogLine

# Beginnings of methods that draft up to a number of tokens, or none.
VARIABLE_METHODS: Final = ("ngram", "suffix")

_BLOCK_METHODS = ("dflash", "dspark", "peagle", "pard")
_MOST_CHARACTERS = 100_000
_MOST_STEPS = 1024
_LONGEST_LOGO = 1000

_VERSION = re.compile(r"vLLM API server version ([\w.+-]{1,60})", re.ASCII)
_LOGO = re.compile(r"[\u2580-\u259f].*\s(version|model)\s+(\S{1,300})")
_ARGS = re.compile(r"(?:non-default )?args: ", re.ASCII)
_ENGINE = re.compile(r"Initializing an? (?:V1 )?LLM engine \(v([\w.+-]{1,60})\)", re.ASCII)
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
    engine = _ENGINE.match(text)
    if engine:
        settings = replace(_settings(text), engine_version=_version(engine[1]))
        return Banner(kind=BannerKind.ENGINE, settings=settings)
    return _first_words(text)


def _first_words(text: str) -> Banner | None:
    """Return what the first words of a server say, plain or beside the logo."""
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
