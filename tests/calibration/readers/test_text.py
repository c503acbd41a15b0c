"""Bytes to text."""

import contextlib
import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers.text import read_head, read_text, redacted
from specmodel.errors import FormatError

TEXT = "accept_length,workload\n2.1,Gespräch\n"


def code_of(path: Path | str, **options: int) -> str:
    with pytest.raises(FormatError) as error:
        read_text(path, **options)
    assert str(path) in str(error.value)
    return error.value.code


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_unicode_is_read_whatever_its_form(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes(TEXT.encode(encoding))
    source = read_text(tmp_path / "a.csv")
    assert source.text == TEXT
    assert not source.guessed


@pytest.mark.parametrize(
    ("written", "text"), [("a\rb\r", "a\nb\n"), ("bar\rdone\nb\r\n", "bar\rdone\nb\r\n")]
)
def test_returns_end_lines_where_nothing_else_does(tmp_path: Path, written: str, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(written.encode())
    assert read_text(tmp_path / "a.txt").text == text
    assert read_head(tmp_path / "a.txt", 100) == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_gzip_is_seen_by_content_not_by_name(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes(gzip.compress(TEXT.encode(encoding)))
    assert read_text(tmp_path / "a.csv").text == TEXT


def test_an_old_desktop_encoding_is_read_and_marked_as_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(TEXT.encode("cp1252"))
    source = read_text(tmp_path / "a.csv")
    assert (source.text, source.guessed) == (TEXT, True)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    assert code_of(tmp_path / "absent.csv") == "not_found"


def test_folder_is_refused(tmp_path: Path) -> None:
    assert code_of(tmp_path) == "not_a_file"


def test_name_that_no_file_can_have_is_refused() -> None:
    assert code_of("a\0b.csv") == "unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_forbidden_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(TEXT)
    path.chmod(0)
    assert code_of(path) == "unreadable"


@pytest.mark.parametrize(
    "data",
    [b"\x00\x01\x02", b"PK\x03\x04rest", b"%PDF-1.7 text", b"\xff\xfea", b"\x81\x8d", b"a\x07b"],
    ids=["zeros", "workbook", "pdf", "half a UTF-16 unit", "no code page has it", "bell"],
)
def test_binary_content_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    assert code_of(tmp_path / "a.csv") == "not_text"


@pytest.mark.parametrize("cut", [3, 12, -4])
def test_damaged_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode())[:cut])
    assert code_of(tmp_path / "a.csv.gz") == "not_text"


def test_content_above_the_bound_is_refused_compressed_or_not(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_bytes(b"a" * 2048)
    (tmp_path / "packed.csv").write_bytes(gzip.compress(b"a" * 2048))
    assert code_of(tmp_path / "plain.csv", max_bytes=2047) == "too_large"
    assert code_of(tmp_path / "packed.csv", max_bytes=2047) == "too_large"
    assert len(read_text(tmp_path / "packed.csv", max_bytes=2048).text) == 2048


def test_endless_input_is_refused() -> None:
    assert code_of("/dev/zero", max_bytes=4096) == "too_large"


@pytest.mark.parametrize("text", ["", " \n\t\r\n"])
def test_white_space_is_an_empty_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert code_of(tmp_path / "a.csv") == "empty_file"


@given(data=st.binary(max_size=200))
def test_any_bytes_give_text_or_a_format_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bin"
    path.write_bytes(data)
    with contextlib.suppress(FormatError):
        assert read_text(path).text.strip()


@pytest.mark.parametrize("text", ["decode tok/s: 12", "12 ms/token", "acc/round 2", "per_token 3"])
def test_units_are_no_paths_and_no_keys(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "text", ["token=abcdef", "token: abcdef", "HF_TOKEN abcdef", "api-key abcdef", "/data/abcdef"]
)
def test_what_looks_like_a_key_or_a_path_is_not_shown(text: str) -> None:
    assert "abcdef" not in redacted(text)
