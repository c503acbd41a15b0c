"""The files of a checkpoint's folder: one safetensors file, or shards with an index."""

import json
from pathlib import Path
from typing import Any, Final

from drafter.safetensors_header import TensorEntry, read_header
from specmodel.errors import FormatError
from specmodel.units import MEBI

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"

_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_MOST_INDEX_BYTES: Final = 64 * MEBI
_MOST_SHARDS: Final = 10_000


def checkpoint_tensors(folder: Path) -> dict[str, TensorEntry]:
    r"""Every tensor of a checkpoint, whichever of its files it is in.

    .. math:: \text{folder} \mapsto \{\text{name} : (\text{file}, \text{type}, \text{shape}, \text{place})\}

    Parameters
    ----------
    folder : Path
        Folder with ``model.safetensors``, with shards and their index, or with any safetensors files.

    Returns
    -------
    dict of str to TensorEntry
        By the names in the files.

    Raises
    ------
    FormatError
        If there is no such file, one is missing, cut short or corrupt, or a name occurs twice.

    Notes
    -----
    A pickle (``pytorch_model.bin``) is not read: it can run code. The error says how to convert it.

    Examples
    --------
    >>> checkpoint_tensors(Path("nowhere"))
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: nowhere: no safetensors file here...
    """
    index = folder / INDEX_FILE
    if index.is_file():
        return _indexed(folder, index)
    single = folder / SINGLE_FILE
    paths = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not paths:
        raise _no_file(folder)
    found: dict[str, TensorEntry] = {}
    for path in paths:
        for name, entry in read_header(path).items():
            if name in found:
                raise FormatError(
                    path, f"tensor {name} is also in {found[name].path.name}; keep one"
                )
            found[name] = entry
    return found


def _no_file(folder: Path) -> FormatError:
    """Error for a folder without safetensors; a pickle gets what to do."""
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if not pickles:
        return FormatError(
            folder, "no safetensors file here; name the folder of a draft checkpoint"
        )
    return FormatError(
        folder,
        f"{pickles[0]} is a pickle, which can run code when it is read, so it is not; convert it once: "
        f"torch.load({pickles[0]!r}, weights_only=True), then safetensors.torch.save_file(tensors, "
        f"{SINGLE_FILE!r})",
        code="pickle",
    )


def _indexed(folder: Path, index: Path) -> dict[str, TensorEntry]:
    """Tensors of shards, each where the index says."""
    shards: dict[str, dict[str, TensorEntry]] = {}
    found: dict[str, TensorEntry] = {}
    for name, file in _weight_map(index).items():
        if (
            not isinstance(file, str)
            or Path(file).name != file
            or not file.endswith(".safetensors")
        ):
            raise FormatError(
                index, f"tensor {name} must be in a safetensors file beside it, got {file!r}"
            )
        if file not in shards:
            if not (folder / file).is_file():
                raise FormatError(
                    folder / file, f"missing, but {INDEX_FILE} has tensor {name} in it"
                )
            if len(shards) >= _MOST_SHARDS:
                raise FormatError(index, f"names more than {_MOST_SHARDS} files")
            shards[file] = read_header(folder / file)
        if name not in shards[file]:
            raise FormatError(
                folder / file, f"tensor {name} is missing, but {INDEX_FILE} has it here"
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
