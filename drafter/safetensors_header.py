"""The header of a safetensors file, read without torch: names, types, shapes and places of tensors."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeGuard, final

from specmodel.errors import FormatError
from specmodel.units import MEBI

ITEM_BYTES: Final[Mapping[str, int]] = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}
"""Width of an element by the format's name of its type. [B]"""

_LENGTH_BYTES: Final = 8
_MOST_HEADER_BYTES: Final = 100 * MEBI  # the format's own bound
_MOST_AXES: Final = 8
_SHOWN: Final = 80


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where a tensor stands.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        As the file has it.
    dtype : str
        One of `ITEM_BYTES`.
    shape : tuple of int
        Lengths of its axes.
    start : int
        Place of its first byte in the file, [B].
    num_bytes : int
        Its length, [B].
    """

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    num_bytes: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    r"""Every tensor of a safetensors file.

    .. math:: \text{file} \mapsto \{\text{name} : (\text{type}, \text{shape}, \text{place})\}

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict of str to TensorEntry
        In the order of the header.

    Raises
    ------
    FormatError
        If the file is no safetensors file, is cut short, or a tensor's length contradicts its shape;
        the line names the tensor and what was expected.

    Notes
    -----
    The format: 8 bytes with the length of a JSON object, little-endian, the object with type, shape
    and bounds of every tensor, then the data. No data are read here.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "one.safetensors"
    ...     header = b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    ...     _ = path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    ...     read_header(path)["x"].shape
    (2,)
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            text = _header_text(file, size, path)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise _corrupt(path, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise _corrupt(path, "its header is no JSON object")
    first = _LENGTH_BYTES + len(text)
    entries = {
        name: _entry(path, name, stated, first)
        for name, stated in header.items()
        if name != "__metadata__"
    }
    _check_places(path, entries, first, size)
    return entries


def _header_text(file: BinaryIO, size: int, path: Path) -> bytes:
    """Bytes of the JSON object."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if size < _LENGTH_BYTES or length > _MOST_HEADER_BYTES:
        raise _corrupt(path, "it does not begin with the length of a header")
    if _LENGTH_BYTES + length > size:
        raise _cut(path, f"a header of {length} bytes", size)
    return file.read(length)


def _entry(path: Path, name: str, stated: Any, first: int) -> TensorEntry:
    """One tensor of the header, checked against itself."""
    where = f"tensor {name[:_SHOWN]}"
    values = stated if isinstance(stated, dict) else {}
    dtype, shape, bounds = (values.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        known = ", ".join(ITEM_BYTES)
        raise FormatError(path, f"{where} has type {str(dtype)[:_SHOWN]}; known types: {known}")
    if not _counts(shape) or len(shape) > _MOST_AXES:
        raise _corrupt(path, f"{where} has no shape")
    if not _counts(bounds) or len(bounds) != 2 or bounds[0] > bounds[1]:
        raise _corrupt(path, f"{where} has no bounds of its data")
    expected = math.prod(shape) * ITEM_BYTES[dtype]
    if bounds[1] - bounds[0] != expected:
        raise _corrupt(
            path,
            f"{where} has {bounds[1] - bounds[0]} bytes, but {dtype} of shape {list(shape)} takes {expected}",
        )
    return TensorEntry(
        path=path,
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        start=first + bounds[0],
        num_bytes=expected,
    )


def _counts(value: Any) -> TypeGuard[list[int]]:
    """Whether a value is a list of whole numbers that are not negative."""
    return isinstance(value, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 2**63 for each in value
    )


def _check_places(path: Path, entries: dict[str, TensorEntry], first: int, size: int) -> None:
    """Tensors lie one after another and fill the file."""
    end = first
    for entry in sorted(entries.values(), key=lambda each: (each.start, each.num_bytes)):
        if entry.start != end:
            raise _corrupt(
                path, f"tensor {entry.name[:_SHOWN]} does not begin where the one before ends"
            )
        end += entry.num_bytes
        if end > size:
            raise _cut(path, f"tensor {entry.name[:_SHOWN]} up to byte {end}", size)
    if end != size:
        raise _corrupt(path, f"its tensors end at byte {end}, but the file has {size}")


def _corrupt(path: Path, reason: str) -> FormatError:
    """Error for a file that is not what its header says."""
    return FormatError(path, f"not a sound safetensors file: {reason}", code="corrupt")


def _cut(path: Path, expected: str, size: int) -> FormatError:
    """Error for a file that ends too early."""
    return FormatError(
        path, f"cut short: expected {expected}, but the file ends at byte {size}; copy it again"
    )
