"""What a llama.cpp program was started with, from the line of a log that shows the command."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calibration.readers.model_names import model_name, plain_name
from calibration.readers.reading import Cell

_PROGRAM = re.compile(
    r"(?:^|[\s/\\\"'])llama-(?:server|cli|speculative(?:-simple)?)(?:\.exe)?[\"']?(?=\s|$)"
)
_WORD = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s\"']+")
_LONGEST = 20_000
_WHOLE_NUMBER = re.compile(r"\d{1,6}", re.ASCII)
_NUMBER = re.compile(r"\d{0,6}\.?\d{1,9}", re.ASCII)

_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "depth": ("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft", "LLAMA_ARG_DRAFT_MAX"),
    "gate": ("--spec-draft-p-min", "--draft-p-min", "LLAMA_ARG_DRAFT_P_MIN"),
    "slots": ("--parallel", "-np", "LLAMA_ARG_N_PARALLEL"),
    "kind": ("--spec-type",),
    "target": ("--model", "-m", "--hf-repo", "-hf", "-hfr", "LLAMA_ARG_MODEL"),
    "draft": (
        *("--model-draft", "-md", "--spec-draft-model", "--hf-repo-draft", "-hfd", "-hfrd"),
        *("--spec-draft-hf", "LLAMA_ARG_MODEL_DRAFT"),
    ),
}
_MEANING: Final = {flag: meaning for meaning, flags in _FLAGS.items() for flag in flags}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Settings of a server."""

    depth: float | None = None  # most drafts of a round
    # least probability of a draft; rounds may stop drafting before the depth
    gate: float | None = None
    slots: float | None = None  # requests that can run together
    kind: str | None = None  # how it drafts, and the names of the models without where they lie
    target: str | None = None
    draft: str | None = None

    @property
    def speculates(self) -> bool:
        """Whether it was told to draft."""
        told = self.kind is not None and self.kind.casefold() != "none"
        return told or self.draft is not None or self.depth is not None

    @property
    def cells(self) -> dict[str, Cell | None]:
        """The cells of a row that it fills."""
        return {
            "target_model": self.target,
            "draft_model": self.draft,
            "algorithm": self.kind,
            "variant": f"{self.slots:g} slots" if self.slots and self.slots > 1 else None,
            "notes": f"drafts only above a probability of {self.gate:g}" if self.gate else None,
        }


def launched(line: str) -> bool:
    """Return whether a line shows how a program of llama.cpp was started, not quoted in a text."""
    found = _PROGRAM.search(line)
    return found is not None and '"' not in line[: found.start()]


def parse_launch(line: str) -> Launch:
    """Return the settings in a command."""
    values: dict[str, str] = {}
    meaning = None
    for word in _WORD.findall(line[:_LONGEST]):
        written = word.strip("\"'")
        flag, equals, value = written.partition("=")
        if meaning is not None and not (written.startswith("-") and written in _MEANING):
            values[meaning] = written
            meaning = None
            continue
        meaning = _MEANING.get(flag)
        if meaning is not None and equals:
            values[meaning] = value
            meaning = None
    slots, depth = values.get("slots", ""), values.get("depth", "")
    gate = values.get("gate", "")
    return Launch(
        depth=float(depth) if _WHOLE_NUMBER.fullmatch(depth) and int(depth) else None,
        gate=float(gate) if _NUMBER.fullmatch(gate) and float(gate) else None,
        slots=float(slots) if _WHOLE_NUMBER.fullmatch(slots) and int(slots) else None,
        kind=plain_name(values.get("kind")),
        target=model_name(values.get("target")),
        draft=model_name(values.get("draft")),
    )
