"""What a checkpoint holds, without loading a weight: files, names, shapes, vocabulary, contents against the config."""

import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from drafter.config_json import CONFIG_FILE, DraftConfig, read_draft_config
from drafter.extra import require_extra
from drafter.spec import DraftSpec, LatentHeads
from specmodel.errors import FormatError
from specmodel.units import MEBI

_TYPES: Final = {
    "torch.bool": "BOOL",
    "torch.uint8": "U8",
    "torch.int32": "I32",
    "torch.int64": "I64",
    "torch.bfloat16": "BF16",
    "torch.float16": "F16",
    "torch.float32": "F32",
    "torch.float64": "F64",
}
_BITS: Final = re.compile(r"\d+")
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where a tensor stands."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of its data, [B]; of the types of the format all but BOOL say their bits."""
        bits = _BITS.search(self.dtype)
        return math.prod(self.shape) * (int(bits.group()) if bits else 8) // 8


@contextmanager
def opened(path: Path, framework: str) -> Iterator[Any]:
    """A safetensors file; one that the library cannot read is one line."""
    require_extra("safetensors", what="a checkpoint")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except SafetensorError as error:
        reason = str(error).partition("\n")[0]
        hint = "copy the file again, it may be cut short"
        raise FormatError(
            path, f"not a sound safetensors file: {reason}; {hint}", code="corrupt"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise FormatError(path, f"cannot be read: {reason}") from None


def pickled(path: Path) -> Mapping[str, Any]:
    """Tensors of a pickle, by torch's loader of weights alone, which runs no code of the file."""
    from drafter.torch_extra import torch

    is_zip = zipfile.is_zipfile(path)  # of torch before 1.6 it is none, and is not mapped
    try:
        found = torch.load(path, map_location="cpu", mmap=is_zip, weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever a file that is no such pickle makes torch raise
        reason = str(error).strip().partition("\n")[0]
        raise FormatError(
            path, f"no pickle of tensors: {reason[:_SHOWN]}", code="corrupt"
        ) from None
    if not isinstance(found, dict) or not all(map(torch.is_tensor, found.values())):
        raise FormatError(
            path, "its pickle holds something else than tensors by name", code="pickle"
        )
    return found


def read_tensors(path: Path) -> dict[str, TensorEntry]:
    """Every tensor of a file, by its name; no data are read."""
    if path.suffix != SAFETENSORS:
        return {
            name: TensorEntry(
                path=path,
                name=name,
                dtype=_TYPES.get(str(each.dtype), "?"),
                shape=tuple(each.shape),
            )
            for name, each in pickled(path).items()
        }
    with opened(path, "numpy") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return {
            name: TensorEntry(
                path=path, name=name, dtype=part.get_dtype(), shape=tuple(part.get_shape())
            )
            for name, part in parts.items()
        }


def tensor_values(entries: Iterable[tuple[str, TensorEntry]], framework: str) -> dict[str, Any]:
    """Data of some tensors, by the names that are given: numpy's, or torch's mapped from their files."""
    by_file: dict[Path, list[tuple[str, str]]] = {}
    for name, entry in entries:
        by_file.setdefault(entry.path, []).append((name, entry.name))
    found: dict[str, Any] = {}
    for path, names in by_file.items():
        if path.suffix == SAFETENSORS:
            with opened(path, framework) as file:
                found |= {name: file.get_tensor(stored) for name, stored in names}
        else:
            whole = pickled(path)
            own = {name: whole[stored] for name, stored in names}
            found |= {n: t.numpy() for n, t in own.items()} if framework == "numpy" else own
    return found


FIRST_LAYER: Final = "layers.0."
"""Prefix of the one layer's tensors in canonical names."""

DRAFT_TO_TARGET: Final = "d2t"
"""Offsets from a draft token to its target token: target = draft + offset."""

TARGET_HAS_DRAFT: Final = "t2d"
"""Whether a target token has a draft token."""

EMBEDDING: Final = "embed_tokens.weight"
HEAD: Final = "lm_head.weight"
OUTPUT_BIAS: Final = "layers.0.self_attn.o_proj.bias"
PARALLEL_ONLY: Final = "mask_hidden"
"""Tensor that only drafting in parallel (P-EAGLE) has."""

_OLD_NORMS: Final = {"aux_norm_low": 0, "aux_norm_mid": 1, "aux_norm_high": 2}
_OLD_NORM: Final = re.compile(r"(aux_norm_(?:low|mid|high))(?:\.weight)?")
_OTHER_LAYER: Final = re.compile(r"layers\.([1-9]\d*)\.")


def canonical_name(name: str) -> str:
    """Canonical name of a tensor.

    ``midlayer.`` is ``layers.0.``; ``aux_norm_low``, ``_mid`` and ``_high`` are ``fc_norm.0`` to ``2``.
    """
    bare = name.removeprefix("model.")
    if bare.startswith("midlayer."):
        bare = FIRST_LAYER + bare.removeprefix("midlayer.")
    old = _OLD_NORM.fullmatch(bare)
    return f"fc_norm.{_OLD_NORMS[old.group(1)]}.weight" if old else bare


Shape = tuple[int, ...]

_ATTENTION: Final = f"{FIRST_LAYER}self_attn."
_MLP: Final = f"{FIRST_LAYER}mlp."

SWITCHED: Final = {
    "fc.bias": "bias",
    **{f"{_ATTENTION}{each}_proj.bias": "attention_bias" for each in "qkvo"},
    **{f"{_ATTENTION}{each}_norm.weight": "the qwen3 type of the layer" for each in "qk"},
    f"{_ATTENTION}q_a_proj.weight": "latent attention",
    f"{_ATTENTION}kv_a_proj_with_mqa.weight": "latent attention",
    "input_norm.weight": "norm_before_fc",
    "fc_norm.0.weight": "fc_norm",
}
"""Tensors that exist only where the configuration says so, and what has to say so."""


def expected_shapes(spec: DraftSpec) -> dict[str, Shape]:
    """Shape of every weight that a spec computes with.

    Section 3 of the project's drafter reference. Only the first projections of attention see
    :math:`2H`: embedding and hidden state side by side. Without fusion there is no ``fc``. Biases of
    attention include that of the output projection, as in the files of [speculators-eagle3]_.
    """
    hidden = spec.hidden_size
    return {
        **_fusion(spec),
        **(_grouped(spec) if spec.latent is None else _latent(spec, spec.latent)),
        f"{_MLP}gate_proj.weight": (spec.mlp_width, hidden),
        f"{_MLP}up_proj.weight": (spec.mlp_width, hidden),
        f"{_MLP}down_proj.weight": (hidden, spec.mlp_width),
        f"{FIRST_LAYER}input_layernorm.weight": (hidden,),
        f"{FIRST_LAYER}hidden_norm.weight": (hidden,),
        f"{FIRST_LAYER}post_attention_layernorm.weight": (hidden,),
        "norm.weight": (hidden,),
        HEAD: (spec.draft_vocab_size, hidden),
        EMBEDDING: (spec.target_vocab_size, hidden),
    }


def _fusion(spec: DraftSpec) -> dict[str, Shape]:
    """Tensors that turn captured states into a hidden state."""
    if not spec.use_aux_hidden_state:
        return {}
    width = spec.num_aux_states * spec.target_hidden_size
    found: dict[str, Shape] = {"fc.weight": (spec.hidden_size, width)}
    if spec.fc_bias:
        found["fc.bias"] = (spec.hidden_size,)
    if spec.norm_before_fc:
        found["input_norm.weight"] = (width,)
    if spec.fc_norm:
        states = range(spec.num_aux_states)
        found |= {f"fc_norm.{state}.weight": (spec.target_hidden_size,) for state in states}
    return found


def _grouped(spec: DraftSpec) -> dict[str, Shape]:
    """Tensors of attention with grouped heads."""
    inputs = 2 * spec.hidden_size
    rows = {
        "q_proj": spec.num_heads * spec.head_dim,
        "k_proj": spec.num_kv_heads * spec.head_dim,
        "v_proj": spec.num_kv_heads * spec.head_dim,
    }
    found: dict[str, Shape] = {
        f"{_ATTENTION}{name}.weight": (count, inputs) for name, count in rows.items()
    }
    if spec.attention_bias:
        found |= {f"{_ATTENTION}{name}.bias": (count,) for name, count in rows.items()}
        found[f"{_ATTENTION}o_proj.bias"] = (spec.hidden_size,)
    if spec.qk_norm:
        found |= {f"{_ATTENTION}{name}_norm.weight": (spec.head_dim,) for name in ("q", "k")}
    found[f"{_ATTENTION}o_proj.weight"] = (spec.hidden_size, spec.num_heads * spec.head_dim)
    return found


def _latent(spec: DraftSpec, heads: LatentHeads) -> dict[str, Shape]:
    """Tensors of latent attention."""
    inputs = 2 * spec.hidden_size
    return {
        f"{_ATTENTION}q_a_proj.weight": (heads.query_rank, inputs),
        f"{_ATTENTION}q_a_layernorm.weight": (heads.query_rank,),
        f"{_ATTENTION}q_b_proj.weight": (
            spec.num_heads * (heads.nope_dim + heads.rope_dim),
            heads.query_rank,
        ),
        f"{_ATTENTION}kv_a_proj_with_mqa.weight": (heads.kv_rank + heads.rope_dim, inputs),
        f"{_ATTENTION}kv_a_layernorm.weight": (heads.kv_rank,),
        f"{_ATTENTION}kv_b_proj.weight": (
            spec.num_heads * (heads.nope_dim + heads.value_dim),
            heads.kv_rank,
        ),
        f"{_ATTENTION}o_proj.weight": (spec.hidden_size, spec.num_heads * heads.value_dim),
    }


SAFETENSORS: Final = ".safetensors"
SINGLE_FILES: Final = ("model.safetensors", "pytorch_model.bin")
INDEX_FILES: Final = tuple(f"{name}.index.json" for name in SINGLE_FILES)

_KINDS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_MOST_INDEX_BYTES: Final = 64 * MEBI
_MOST_PADDING: Final = 512  # rows of a head beyond its vocabulary


def checkpoint_tensors(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of a checkpoint, whichever of its files it is in.

    Where there are safetensors, pickles are not looked at.
    """
    for index, single in zip(INDEX_FILES, SINGLE_FILES, strict=True):
        if (folder / index).is_file():
            return _indexed(folder, folder / index)
        if (folder / single).is_file():
            return read_tensors(folder / single)
    paths = next(filter(None, (sorted(folder.glob(kind)) for kind in _KINDS)), [])
    if not paths:
        raise FormatError(
            folder, "no safetensors file or pickle here; name the folder of a draft checkpoint"
        )
    found: dict[str, TensorEntry] = {}
    for path in paths:
        for name, entry in read_tensors(path).items():
            if name in found:
                raise FormatError(
                    path, f"tensor {name} is also in {found[name].path.name}; keep one"
                )
            found[name] = entry
    return found


def has_tensors(folder: Path) -> bool:
    """Whether a folder has files of tensors, or an index of some."""
    is_indexed = any((folder / name).is_file() for name in INDEX_FILES)
    return is_indexed or any(next(folder.glob(kind), None) for kind in _KINDS)


def _indexed(folder: Path, index: Path) -> dict[str, TensorEntry]:
    """Tensors of shards, each where the index says."""
    shards: dict[str, dict[str, TensorEntry]] = {}
    found: dict[str, TensorEntry] = {}
    for name, file in _weight_map(index).items():
        if (
            not isinstance(file, str)
            or Path(file).name != file
            or not file.endswith((SAFETENSORS, ".bin"))
        ):
            raise FormatError(
                index, f"tensor {name} must be in a safetensors file beside it, got {file!r}"
            )
        if file not in shards:
            if not (folder / file).is_file():
                raise FormatError(
                    folder / file, f"missing, but {index.name} has tensor {name} in it"
                )
            shards[file] = read_tensors(folder / file)
        if name not in shards[file]:
            raise FormatError(
                folder / file, f"tensor {name} is missing, but {index.name} has it here"
            )
        found[name] = shards[file][name]
    return found


def _weight_map(index: Path) -> dict[str, Any]:
    """File of every tensor."""
    try:
        if index.stat().st_size > _MOST_INDEX_BYTES:
            raise FormatError(index, f"longer than {_MOST_INDEX_BYTES} bytes: not an index")
        content = json.loads(index.read_bytes())
    except OSError as error:
        raise FormatError(index, f"cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(index, "not JSON; copy it again") from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(index, "has no weight_map from tensors to files")
    return weight_map


WEIGHT_TYPES: Final = ("BF16", "F16", "F32", "F64")
"""Stored types that a weight may have."""

Replacement = Literal[
    "the target's embedding", "the target's head", "the embedding", "no offsets", "zeros"
]
"""What stands for a tensor that the checkpoint does not have."""

_EXPECTED_MAP_TYPES: Final = {DRAFT_TO_TARGET: ("I64", "I32"), TARGET_HAS_DRAFT: ("BOOL", "U8")}
_IGNORED: Final = re.compile(r"(?:.*\.)?rotary_emb\.\w+")
_SHOWN_NAMES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContents:
    """A checkpoint whose tensors are those of its configuration."""

    folder: Path
    config: DraftConfig
    tensors: dict[str, TensorEntry]
    replaced: dict[str, Replacement]
    notes: tuple[str, ...]


def checkpoint_contents(folder: Path | str) -> CheckpointContents:
    """Contents of the checkpoint in a folder.

    Reads headers only, so it takes no time and needs neither torch nor a GPU. Embeddings are often left
    out, because the target's serves; that needs equal widths.
    """
    place = Path(folder)
    place = place.parent if place.name == CONFIG_FILE else place
    config = read_draft_config(folder)
    stored = checkpoint_tensors(place)
    renamed = {name: canonical_name(name) for name in stored}
    _refuse_doubles(place, renamed)
    tensors = {canonical: stored[name] for name, canonical in renamed.items()}
    shapes = expected_shapes(config.spec)
    unknown = _unknown(place, tensors, set(shapes))
    replaced = _replacements(place, config, tensors)
    # a head of the whole vocabulary beside a smaller draft vocabulary is no padding
    whole = HEAD in tensors and tensors[HEAD].shape[:1] == (config.spec.target_vocab_size,)
    padding = {} if whole else {HEAD: _MOST_PADDING}
    for name, shape in shapes.items():
        if name not in replaced:
            _check_tensor(place, tensors, name, shape, WEIGHT_TYPES, padding=padding)
    sizes = (config.spec.draft_vocab_size, config.spec.target_vocab_size)
    for (name, types), size in zip(_EXPECTED_MAP_TYPES.items(), sizes, strict=True):
        if name in tensors:
            _check_tensor(place, tensors, name, (size,), types)
    notes = list(config.notes)
    rows, used = tensors[HEAD].shape[0] if HEAD in tensors else 0, config.spec.draft_vocab_size
    if rows > used:
        notes.append(f"{HEAD} is padded to {rows} rows; the first {used} are used")
    if config.num_layers > 1:
        notes.append(
            f"num_hidden_layers is {config.num_layers}, the target's; the files hold one layer"
        )
    if unknown:
        shown = ", ".join(unknown[:_SHOWN_NAMES]) + (", ..." if len(unknown) > _SHOWN_NAMES else "")
        notes.append(f"not read, since no draft model has such a tensor: {shown}")
    return CheckpointContents(
        folder=place,
        config=config,
        tensors={name: entry for name, entry in tensors.items() if name not in unknown},
        replaced=replaced,
        notes=tuple(notes),
    )


def _refuse_doubles(folder: Path, renamed: dict[str, str]) -> None:
    """A tensor under two names leaves open which one counts."""
    for canonical, count in Counter(renamed.values()).items():
        if count > 1:
            names = " and ".join(name for name, other in renamed.items() if other == canonical)
            raise FormatError(
                folder, f"{names} are the same tensor under two names; keep one of them"
            )


def _unknown(folder: Path, tensors: dict[str, TensorEntry], needed: set[str]) -> list[str]:
    """Tensors that nothing reads; those that contradict the configuration are refused."""
    rest = [
        name
        for name in tensors
        if name not in needed and name not in _EXPECTED_MAP_TYPES and not _IGNORED.fullmatch(name)
    ]
    for name in rest:
        if name == PARALLEL_ONLY:
            raise FormatError(
                folder, f"tensor {name}: a head that drafts in parallel (P-EAGLE) is not supported"
            )
        layer = _OTHER_LAYER.match(name)
        if layer:
            raise FormatError(
                folder,
                f"tensor {name} is of layer {int(layer.group(1))}; only draft models of one layer are supported; "
                "serve it in its engine, and fit the rounds measured there (`specmodel fit`)",
            )
        if name in SWITCHED:
            raise FormatError(
                folder,
                f"tensor {name} is in the files, but {CONFIG_FILE} does not ask for it ({SWITCHED[name]})",
            )
    return rest


def _replacements(
    folder: Path, config: DraftConfig, tensors: dict[str, TensorEntry]
) -> dict[str, Replacement]:
    """What stands for the tensors that may be missing."""
    spec = config.spec
    found: dict[str, Replacement] = {}
    whole = spec.draft_vocab_size == spec.target_vocab_size
    same_width = spec.hidden_size == spec.target_hidden_size
    if EMBEDDING not in tensors:
        if not same_width:
            raise FormatError(
                folder,
                f"tensor {EMBEDDING} is missing, and the target's has width {spec.target_hidden_size} "
                f"instead of {spec.hidden_size}; such a checkpoint has to bring its own",
            )
        found[EMBEDDING] = "the target's embedding"
    if HEAD not in tensors and whole and same_width:
        if config.tied_head:
            found[HEAD] = "the embedding"
        elif not config.own_vocabulary:
            found[HEAD] = "the target's head"
    if spec.attention_bias and spec.latent is None and OUTPUT_BIAS not in tensors:
        found[OUTPUT_BIAS] = "zeros"
    if DRAFT_TO_TARGET not in tensors:
        if not whole:
            raise FormatError(
                folder,
                f"tensor {DRAFT_TO_TARGET} is missing: [{spec.draft_vocab_size}] offsets from draft tokens "
                f"to the {spec.target_vocab_size} target tokens are expected",
            )
        found[DRAFT_TO_TARGET] = "no offsets"
    return found


def _check_tensor(
    folder: Path,
    tensors: dict[str, TensorEntry],
    name: str,
    shape: tuple[int, ...],
    types: tuple[str, ...],
    padding: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Refuse a tensor that is missing or of another shape or type; its rows may be padded."""
    entry = tensors.get(name)
    if entry is None:
        raise FormatError(
            folder,
            f"tensor {name} is missing; a tensor of shape {list(shape)} is expected",
            code="missing",
        )
    more = entry.shape[0] - shape[0] if entry.shape[1:] == shape[1:] else -1
    if entry.shape != shape and not 0 < more < padding.get(name, 0):
        raise FormatError(
            entry.path,
            f"tensor {entry.name} has shape {list(entry.shape)}, but {CONFIG_FILE} implies {list(shape)}",
            code="shape",
        )
    if entry.dtype not in types:
        raise FormatError(
            entry.path,
            f"tensor {entry.name} has type {entry.dtype}, but {' or '.join(types)} is expected",
            code="type",
        )


def draft_to_target(contents: CheckpointContents) -> NDArray[np.int64]:
    """Offsets of a checkpoint, checked.

    Offsets in all public code, not target tokens; where the entries would only make sense as target
    tokens, the error says so.
    """
    spec = contents.config.spec
    entry = contents.tensors.get(DRAFT_TO_TARGET)
    if entry is None:
        return np.zeros(spec.draft_vocab_size, dtype=np.int64)
    maps = (DRAFT_TO_TARGET, TARGET_HAS_DRAFT)
    stored = [(name, contents.tensors[name]) for name in maps if name in contents.tensors]
    values = tensor_values(stored, "numpy")
    offsets: NDArray[np.int64] = values[DRAFT_TO_TARGET].astype(np.int64)
    flags = values[TARGET_HAS_DRAFT].astype(np.bool_) if TARGET_HAS_DRAFT in values else None
    check_offsets(offsets, flags, spec.target_vocab_size, entry.path)
    return offsets


def check_offsets(
    offsets: NDArray[np.int64],
    has_draft: NDArray[np.bool_] | None,
    target_vocab_size: int,
    path: Path,
) -> None:
    """Refuse offsets that are no map from draft tokens to target tokens.

    Draft tokens need not be in the order of their target tokens.
    """
    tokens = np.arange(offsets.size, dtype=np.int64) + offsets
    outside = np.flatnonzero((tokens < 0) | (tokens >= target_vocab_size))
    reason = _collision(tokens)
    if outside.size:
        first = int(outside[0])
        reason = f"draft token {first} maps to {int(tokens[first])}, outside the {target_vocab_size} target tokens"
    if reason:
        hint = _absolute(offsets, has_draft, target_vocab_size)
        raise FormatError(path, f"tensor {DRAFT_TO_TARGET} is no map of offsets: {reason}{hint}")
    if has_draft is None:
        return
    unmarked = np.flatnonzero(~has_draft[tokens])
    if unmarked.size:
        first = int(unmarked[0])
        raise FormatError(
            path,
            f"tensor {TARGET_HAS_DRAFT} is false at {int(tokens[first])}, which draft token {first} maps to",
        )
    marked = int(has_draft.sum())
    if marked != offsets.size:
        raise FormatError(
            path,
            f"tensor {TARGET_HAS_DRAFT} is true for {marked} target tokens, but there are {offsets.size} "
            "draft tokens",
        )


def _collision(tokens: NDArray[np.int64]) -> str:
    """Two draft tokens of one target token; empty where there are none."""
    order = np.argsort(tokens, kind="stable")
    same = np.flatnonzero(np.diff(tokens[order]) == 0)
    if not same.size:
        return ""
    first, second = (int(order[same[0] + step]) for step in (0, 1))
    return f"draft tokens {first} and {second} both map to {int(tokens[first])}"


def _absolute(
    entries: NDArray[np.int64], has_draft: NDArray[np.bool_] | None, target_vocab_size: int
) -> str:
    """A hint where the entries would be sound as target tokens."""
    inside = bool(np.all((entries >= 0) & (entries < target_vocab_size)))
    if not inside or np.unique(entries).size != entries.size or entries.size == 1:
        return ""
    if has_draft is not None and not has_draft[entries].all():
        return ""
    return "; the entries look like target tokens: subtract the draft token from each"
