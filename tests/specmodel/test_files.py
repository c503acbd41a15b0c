"""Files of bytes are written whole or not at all."""

from pathlib import Path

import pytest

from specmodel.files import OutputError, write_bytes_atomically


def test_bytes_arrive_as_they_are(tmp_path: Path) -> None:
    data = bytes(range(256)) + b"\r\n\x00"
    write_bytes_atomically(tmp_path / "a.bin", data)
    assert (tmp_path / "a.bin").read_bytes() == data


def test_new_bytes_replace_old_ones_and_leave_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old and longer")
    write_bytes_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_interrupted_write_keeps_the_old_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bytes_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_folder_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").write_bytes(b"")
    with pytest.raises(OutputError) as refused:
        write_bytes_atomically(tmp_path / "folder" / "a.bin", b"new")
    assert "\n" not in str(refused.value)
    assert refused.value.path == tmp_path / "folder" / "a.bin"
