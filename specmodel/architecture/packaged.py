"""Packaged shapes of public models by name, and the formats that a label of a table means for them."""

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

from specmodel.architecture.quantisation import SYNONYMS, Quantisation, quantisation
from specmodel.architecture.shape import ModelShape
from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.records import from_record

# Words of labels in the order in which they are tried.
_WORDS: tuple[str, ...] = ("nvfp4", "mxfp4", "mxfp8", "fp8", "awq", "gptq", "int4", "w4a16", "fp4")
_WORDS += ("int8", "w8a8", "bf16", "fp16", "fp32")
_ENDING = re.compile(
    r"[-_ ](instruct|chat|it|base|thinking|hf|fp8|fp4|nvfp4|mxfp4|mxfp8|bf16|int4|int8|awq|gptq|"
    r"w4a16|w8a8|gguf|qat|dynamic|quantized|\d{4})$"
)
_BRACKETS = re.compile(r"\([^()]{0,200}\)")
_FOUR_BITS = 4
_MOST_CHARACTERS = 200


class Preset(NamedTuple):
    """A packaged shape with what was published about it."""

    shape: ModelShape
    aliases: tuple[str, ...]
    published_parameters: float
    published_active_parameters: float
    confidence: str
    source: str


@cache
def presets() -> Mapping[str, Preset]:
    """Every packaged model in the order of their names. [model-shapes]_."""
    return MappingProxyType({name: _preset(name) for name in _records()})


def preset(name: str) -> ModelShape:
    """Shape of a public model with the formats of its first release; UnknownKeyError without one.

    Organisation, case, brackets and endings such as ``-Instruct`` or ``-FP8`` do not matter.

    >>> preset("moonshotai/Kimi-K2.5").hidden_size
    7168
    """
    found = _names().get(_key(name))
    if found is None:
        known = list(_records())
        close = difflib.get_close_matches(name[:_MOST_CHARACTERS], known, n=5, cutoff=0.5)
        raise UnknownKeyError("model", name[:_MOST_CHARACTERS], close or known)
    return _preset(found).shape


def has_preset(name: str) -> bool:
    """Whether a model is packaged, by the same names as `preset`."""
    return _key(name) in _names()


def packaged_name(name: str) -> str | None:
    """Name of a packaged model by any of its names; None for another model."""
    return _names().get(_key(name))


def stated_weights(shape: ModelShape, label: str) -> Quantisation:
    """Formats of a model's parts from a label such as ``nvfp4`` or ``awq-int4``.

    An empty label, and one with the format that the model's experts are released in, mean that release;
    a text of `quantisation` (with a part or ``+``) is taken as it stands. Four bits alone mean every
    linear layer of a dense model; of a mixture they mean experts and feed-forward blocks, while attention
    keeps the first release's format, as the four-bit releases of large mixtures mostly have it
    (judgement).

    >>> stated_weights(preset("Kimi-K2.6"), "int4").routed_experts.name
    'int4-g32'
    >>> found = stated_weights(preset("GLM-5.1"), "nvfp4 a16")
    >>> found.routed_experts.name, found.attention.name
    ('nvfp4', 'bf16')
    """
    if not label.strip():
        return shape.weights
    shown = label[:100]
    if "+" in label or re.search(r"\s(experts|mlp|attention|head)\s*$", shown):
        return quantisation(label)
    lowered = shown.lower()
    word = next(
        (each for each in _WORDS if re.search(rf"(?<![a-z0-9]){each}(?![0-9])", lowered)), None
    )
    if word is None:
        allowed = f"a label with one of {', '.join(_WORDS)}"
        raise ParameterError("weights", repr(label[:40]), allowed)
    name = SYNONYMS.get(word, word)
    released = shape.weights
    if released.routed_experts.name.partition("-")[0] == name.partition("-")[0]:
        return released
    found = quantisation(name)
    if shape.num_experts and found.routed_experts.bits == _FOUR_BITS:
        kept = {"attention": released.attention, "head": released.head, "rest": released.rest}
        return dataclasses.replace(found, **kept)
    return found


def _key(name: str) -> str:
    """Name without organisation, case, brackets and endings that do not change the shape."""
    last = name[:_MOST_CHARACTERS].rstrip("/").rsplit("/", 1)[-1]
    key = _BRACKETS.sub("", last).strip().lower().removeprefix("meta-")
    key = key.replace("_", "-").replace("llama3", "llama-3")
    previous = ""
    while previous != key:
        previous, key = key, _ENDING.sub("", key)
    return key


@cache
def _records() -> Mapping[str, Mapping[str, Any]]:
    """Records of the packaged models by name."""
    data = resources.files("specmodel").joinpath("data", "packaged_models.json")
    found: dict[str, Mapping[str, Any]] = json.loads(data.read_text("utf-8"))
    return found


@cache
def _names() -> Mapping[str, str]:
    """Packaged model by the key of each of its names; its own name goes before aliases."""
    known = {_key(name): name for name in _records()}
    for name, record in _records().items():
        for alias in record["aliases"]:
            known.setdefault(_key(alias), name)
    return known


@cache
def _preset(name: str) -> Preset:
    """Packaged model of exactly that name."""
    record = _records()[name]
    return Preset(
        shape=from_record(ModelShape, record["shape"]),
        aliases=tuple(record["aliases"]),
        published_parameters=record["published_parameters"],
        published_active_parameters=record["published_active_parameters"],
        confidence=record["confidence"],
        source=record["source"],
    )
