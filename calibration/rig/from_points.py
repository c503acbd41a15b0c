"""The rig that points were measured on: from their columns, a config.json, and what the user adds."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from calibration.rig.draft import DraftChoice, kind_of
from calibration.rig.scenario import KV_BYTES, Scenario, card_link, edition_of, pcie_link
from specmodel.architecture import ModelShape, has_preset, preset, shape_from_config, stated_weights
from specmodel.architecture.config_json import parsed_config
from specmodel.cost.allreduce import AllReduceCurve
from specmodel.errors import FormatError, ParameterError, SpecModelError, UnknownKeyError
from specmodel.hardware import gpu
from specmodel.rig.served_model import link_class
from specmodel.units import MEBI

if TYPE_CHECKING:  # so that a changed rig is priced without pandas
    import pandas as pd

    from calibration.points.table import Points

MOST_BYTES: Final = 16 * MEBI
"""A larger file is no configuration."""

_CONFIG = "config.json"
_MODELOPT = "hf_quant_config.json"


def named_model(text: str) -> ModelShape:
    """Shape of a packaged model or of a local configuration.

    A path that exists goes before a name.
    """
    path = Path(text)
    written_as_path = text.endswith(".json") or text.startswith((".", "/", "~"))
    if written_as_path or (_exists(path) and not has_preset(text)) or _exists(path / _CONFIG):
        return read_model_config(path)
    return preset(text)


def read_model_config(path: Path | str) -> ModelShape:
    """Shape of a model from its local ``config.json``.

    Nothing is fetched. `specmodel.architecture.config_json` says what is read.
    """
    file = Path(path).expanduser()
    file = file / _CONFIG if file.is_dir() else file
    config = dict(parsed_config(_text(file), path=str(file)))
    beside, inside = file.with_name(_MODELOPT), config.get("text_config")
    stated = config.get("quantization_config")
    if isinstance(inside, dict):
        stated = stated or inside.get("quantization_config")
    if stated is None and beside.is_file():
        config["quantization_config"] = _modelopt(beside)
    folder = file.parent.name if file.name == _CONFIG else file.stem
    return shape_from_config(config, path=str(file), name=folder)


def _modelopt(file: Path) -> dict[str, Any]:
    """Formats that ModelOpt writes beside a configuration."""
    try:
        return {"quant_method": "modelopt", **json.loads(_text(file))["quantization"]}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise FormatError(file, "must be a JSON object with quantization") from None


def _text(file: Path) -> str:
    """Text of a file of bounded size."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such file"
        raise FormatError(file, f"cannot be read: {reason}") from None
    if len(data) > MOST_BYTES:
        raise FormatError(file, f"larger than {MOST_BYTES} bytes: not a {_CONFIG}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError(file, f"not UTF-8 text: not a {_CONFIG}") from None


def _exists(path: Path) -> bool:
    """Whether a path exists; one that cannot be a path does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


_NAMED: Final = {"target_model": ("the model", "--model"), "gpu": ("the GPU", "--gpu")}
_ENGINE_WORDS: Final = ("p2p custom", "pcie_p2p", "custom all-reduce", "custom ar on")
_STATED_FORMAT: Final = re.compile(
    r"(?i)(nvfp4|mxfp4|mxfp8|fp8|awq|gptq|w4a16|w8a8|int4|int8|bf16)"
)


class AskedRig(NamedTuple):
    """What the user says of the rig; empty or None where the points say it.

    `curves` are measured all-reduces by number of ranks.
    """

    model: str = ""
    gpu: str = ""
    num_gpus: int | None = None
    interconnect: str = ""
    dtype: str = ""
    kv_dtype: str = ""
    curves: tuple[tuple[int, AllReduceCurve], ...] = ()
    kernel: str = ""
    draft: DraftChoice | None = None

    @property
    def given(self) -> bool:
        """Whether the user said anything."""
        return self != AskedRig()


class RigFinding(NamedTuple):
    """A rig, or why there is none; `assumed` says what nobody stated."""

    scenario: Scenario | None
    reason: str = ""
    assumed: tuple[str, ...] = ()


def rig_of_points(frame: "pd.DataFrame", asked: AskedRig | None = None) -> RigFinding:
    """Return the rig of one system's points.

    Number of GPUs, link, stored weights, format of the KV cache and draft model are assumed where nobody
    states them, and said; model and GPU are not.
    """
    given = asked or AskedRig()
    stated = {name: _common(frame, name) for name in _COLUMNS}
    stated["target_model"] = given.model or stated["target_model"]
    stated["gpu"] = given.gpu or stated["gpu"]
    lacking = [words for name, words in _NAMED.items() if not stated[name]]
    if lacking:
        things, options = (" and ".join(each) for each in zip(*lacking, strict=True))
        return RigFinding(None, f"the points do not name {things}; give {options}")
    try:
        return _found(given, stated)
    except SpecModelError as error:
        if given.given:
            raise
        if isinstance(error, UnknownKeyError):  # the known ones are listed where the user names one
            error = SpecModelError(f"unknown {error.what} {error.key!r}")
        return RigFinding(None, f"{error}; give --model, --gpu or the like")


def with_named_rig(points: "Points", asked: AskedRig | None) -> "Points":
    """Return points in which empty cells of the rig hold what the user says of it."""
    if asked is None or not asked.given:
        return points
    frame = points.frame
    texts = {name: getattr(asked, name) for name in ("gpu", "interconnect", "dtype")}
    texts["target_model"] = asked.model if asked.model and has_preset(asked.model) else ""
    filled = {
        name: frame[name].where(frame[name].astype(str) != "", text)
        for name, text in texts.items()
        if text
    }
    if asked.num_gpus:
        filled["num_gpus"] = frame["num_gpus"].fillna(asked.num_gpus)
        filled["tp_size"] = frame["tp_size"].fillna(asked.num_gpus)
    return replace(points, frame=frame.assign(**filled))


_COLUMNS: Final = (
    *("target_model", "gpu", "num_gpus", "tp_size", "interconnect", "dtype"),
    *("algorithm", "variant", "source_id"),
)

_USUAL_KV: Final = "bf16"
_CONTEXT_PARALLEL: Final = re.compile(r"(?i)\bdcp[ =_-]?(\d{1,3})\b")


def _found(given: AskedRig, stated: Mapping[str, str]) -> RigFinding:
    """The rig, with what had to be assumed."""
    model = named_model(stated["target_model"])
    card, edition = edition_of(stated["gpu"])
    assumed = [edition] if edition else []
    ranks = given.num_gpus or _count(stated["tp_size"]) or _count(stated["num_gpus"])
    if not ranks:
        ranks = 1
        assumed.append("one GPU")
    link, kernel = "", ""
    if ranks > 1 and ranks not in dict(given.curves):
        link, kernel = _link(given.interconnect, stated["interconnect"], card, assumed)
    dtype = given.dtype or _dtype(stated["dtype"], stated["target_model"], given.model)
    try:
        stated_weights(model, dtype)
    except ParameterError:
        if given.dtype:
            raise
        assumed.append(f"weights as released, since {dtype!r} is not a known format")
        dtype = ""
    if not given.kv_dtype:
        assumed.append(f"KV cache in {_USUAL_KV}")
    draft = given.draft or DraftChoice(kind=kind_of(stated["algorithm"]))
    scenario = Scenario(
        model=model,
        gpu=card,
        tp_size=ranks,
        interconnect=link,
        kernel=given.kernel or kernel,
        dtype=dtype,
        kv_bytes_per_value=KV_BYTES[given.kv_dtype or _USUAL_KV],
        curves=given.curves,
        context_parallel=_context_parallel((stated["variant"], stated["source_id"]), ranks),
        draft=draft,
    )
    scenario.rig()
    if draft.kind != "lookup":
        assumed.append(f"draft model: {draft.described(model)[0]}")
    return RigFinding(scenario, assumed=tuple(assumed))


def _common(frame: "pd.DataFrame", name: str) -> str:
    """The most frequent value of a column as text; empty where there is none."""
    if name not in frame:
        return ""
    values = [str(value) for value in frame[name].tolist() if str(value) not in {"", "nan", "None"}]
    return max(dict.fromkeys(values), key=values.count) if values else ""


def _count(text: str) -> int:
    """A number of GPUs; 0 where there is none."""
    try:
        value = float(text)
    except ValueError:
        return 0
    return int(value) if value >= 1 and value.is_integer() else 0


def _link(asked: str, stated: str, card: str, assumed: list[str]) -> tuple[str, str]:
    """Link and all-reduce kernel: the user's, that of the points, else the card's usual one."""
    if asked:
        return link_class(asked), ""
    lowered = stated.lower()
    kernel = "nccl" if "nccl" in lowered else ""
    kernel = "engine" if any(word in lowered for word in _ENGINE_WORDS) else kernel
    try:
        return link_class(stated), kernel
    except (UnknownKeyError, ParameterError):
        pass
    if "pcie" in lowered:
        if "no p2p" in lowered or "without peer" in lowered:
            return "pcie_no_peer_access", kernel
        generation = re.search(r"pcie[ _-]*(?:gen *)?([345])", lowered)
        return f"pcie{generation[1]}" if generation else pcie_link(gpu(card)), kernel
    usual = card_link(card)
    assumed.append(f"all-reduce over {usual}")
    return usual, kernel


def _dtype(stated: str, model_name: str, asked_model: str) -> str:
    """Stored weights: stated, or in the ending of the model's name; empty for the release's."""
    if stated or asked_model:
        return stated
    ending = _STATED_FORMAT.search(model_name.rsplit("/", 1)[-1])
    return ending.group(1).lower() if ending else ""


def _context_parallel(names: Sequence[str], ranks: int) -> int:
    """Ranks that share a request's tokens, as ``DCP4`` in the first name that has it; else 1."""
    found = next(filter(None, map(_CONTEXT_PARALLEL.search, names)), None)
    size = int(found[1]) if found else 1
    return size if 1 <= size <= ranks else 1
