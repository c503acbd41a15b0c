"""The header reader against files that the safetensors package wrote, and against broken ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from drafter.checkpoint_files import ITEM_BYTES, read_header
from specmodel.errors import FormatError


def crafted(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_names_types_shapes_and_places_are_those_that_were_written(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {
        "a": torch.arange(6, dtype=torch.int64).reshape(2, 3),
        "b": torch.ones(4, dtype=torch.bfloat16),
        "c": torch.tensor([True, False]),
        "empty": torch.zeros(0, 5),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    found = read_header(path)
    data = path.read_bytes()
    assert {name: entry.shape for name, entry in found.items()} == {
        "a": (2, 3),
        "b": (4,),
        "c": (2,),
        "empty": (0, 5),
    }
    assert {name: entry.dtype for name, entry in found.items()} == {
        "a": "I64",
        "b": "BF16",
        "c": "BOOL",
        "empty": "F32",
    }
    for name in ("a", "b", "c"):
        entry = found[name]
        raw = data[entry.start : entry.start + entry.num_bytes]
        values = torch.frombuffer(bytearray(raw), dtype=tensors[name].dtype)
        assert torch.equal(values.reshape(entry.shape), tensors[name])


def test_every_type_has_the_width_that_torch_gives_it() -> None:
    known = {
        "F64": torch.float64,
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
    }
    known |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8}
    known |= {"U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn}
    for name, dtype in known.items():
        assert ITEM_BYTES[name] == dtype.itemsize


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    save_file({"lm_head.weight": torch.ones(4, 4), "norm.weight": torch.ones(4)}, whole)
    data = whole.read_bytes()
    path = tmp_path / "model.safetensors"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(FormatError):
            read_header(path)


def test_a_file_cut_in_its_data_names_the_tensor_and_the_place(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"lm_head.weight": torch.ones(4, 4)}, path)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(FormatError) as caught:
        read_header(path)
    assert f"expected tensor lm_head.weight up to byte {len(data)}" in str(caught.value)
    assert f"ends at byte {len(data) - 1}" in str(caught.value)


TWO = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"{", b"", "header is not JSON"),
        ([], b"", "header is no JSON object"),
        ({"x": {**TWO, "dtype": "F4"}}, bytes(8), "tensor x has type F4; known types"),
        ({"x": {**TWO, "shape": [-2]}}, bytes(8), "tensor x has no shape"),
        ({"x": {**TWO, "shape": [True, 2]}}, bytes(8), "tensor x has no shape"),
        ({"x": {**TWO, "data_offsets": [8, 0]}}, bytes(8), "tensor x has no bounds"),
        (
            {"x": {**TWO, "shape": [3]}},
            bytes(8),
            "tensor x has 8 bytes, but F32 of shape [3] takes 12",
        ),
        ({"x": TWO}, bytes(9), "tensors end at byte"),
        ({"x": TWO, "y": TWO}, bytes(8), "does not begin where the one before ends"),
        ({"x": {**TWO, "data_offsets": [4, 12]}}, bytes(12), "does not begin where"),
        ({"x": 3}, b"", "tensor x has type None"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    tmp_path: Path, header: Any, data: bytes, message: str
) -> None:
    with pytest.raises(FormatError) as caught:
        read_header(crafted(tmp_path / "model.safetensors", header, data))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_length_beyond_the_file_or_the_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for length in (100, 2**40):
        path.write_bytes(length.to_bytes(8, "little") + b"{}")
        with pytest.raises(FormatError):
            read_header(path)
