"""The file of a drafter record: it round-trips, and every defect is one clear line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specmodel.errors import FormatError
from specmodel.files import OutputError, checksum
from specmodel.measurement import load_record, save_record
from tests.specmodel.measurement.example_record import example_record

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "drafter.json"
    save_record(example_record(), path)
    return path


def rewritten(path: Path, change: Change, *, signed: bool = True) -> Path:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    if signed:
        content["content_sha256"] = checksum(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def refusal(path: Path, **options: bool) -> FormatError:
    with pytest.raises(FormatError) as caught:
        load_record(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return caught.value


def test_a_record_comes_back_as_it_was_saved(saved: Path) -> None:
    assert load_record(saved) == example_record()


def test_the_file_names_its_schema_and_its_units(saved: Path) -> None:
    content = json.loads(saved.read_text(encoding="utf-8"))
    assert content["schema_version"] == 1
    assert content["steps"][0]["time_s"] == 2.0e-4
    assert content["read_bandwidth_bytes_per_s"] == 4.3e12


def test_a_file_that_is_not_there_says_how_to_write_one(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none.json")
    assert "specmodel drafter time" in str(error)
    assert error.code == "not_found"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    text = saved.read_text(encoding="utf-8").rstrip()
    saved.write_text(text[: int(share * len(text))], encoding="utf-8")
    assert refusal(saved).code == "not_json"


def test_bytes_that_are_no_text_are_refused(saved: Path) -> None:
    saved.write_bytes(b"\xff\xfe\x00")
    assert refusal(saved).code == "not_text"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path).code == "unreadable"


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"steps": []}'])
def test_other_json_is_refused(saved: Path, text: str) -> None:
    saved.write_text(text, encoding="utf-8")
    assert refusal(saved).code == "not_a_record"


def test_a_calibration_is_not_taken_for_a_record(saved: Path) -> None:
    saved.write_text('{"schema_version": 1, "internal_mean": {}}', encoding="utf-8")
    assert refusal(saved).code == "other_json"


def test_json_nested_too_deep_is_refused(saved: Path) -> None:
    saved.write_text("[" * 100_000 + "]" * 100_000, encoding="utf-8")
    assert refusal(saved).code == "not_json"


def test_an_edit_by_hand_is_refused(saved: Path) -> None:
    def faster(content: dict[str, Any]) -> None:
        content["steps"][0]["time_s"] = 1e-4

    assert refusal(rewritten(saved, faster, signed=False)).code == "edited"


def test_a_newer_schema_is_refused_with_its_version(saved: Path) -> None:
    error = refusal(rewritten(saved, lambda content: content.update(schema_version=2)))
    assert error.code == "newer_schema"
    assert "schema_version 2 is newer" in str(error)


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None])
def test_a_schema_version_that_is_none_is_refused(saved: Path, version: object) -> None:
    error = refusal(rewritten(saved, lambda content: content.update(schema_version=version)))
    assert "schema_version must be a whole number" in str(error)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.pop("device"), "device must be given"),
        (lambda r: r.update(surprise=1), "surprise must be one of"),
        (lambda r: r["steps"][0].pop("floor_s"), r"steps\[0\]\.floor_s must be given"),
        (lambda r: r["steps"][1].update(time_s=-1.0), r"steps\[1\]\.time_s must be a positive"),
        (lambda r: r["steps"][0].update(time_s="fast"), r"steps\[0\]\.time_s"),
        (lambda r: r["steps"][0].update(time_s=float("nan")), r"steps\[0\]\.time_s"),
        (lambda r: r["extends"][0].update(colour=1), r"extends\[0\]\.colour must be one of"),
        (lambda r: r.update(steps={}), "steps must be a list"),
        (lambda r: r.update(steps=[3]), r"steps\[0\] must be an object"),
        (lambda r: r.update(shapes=None), "shapes must be an object"),
        (lambda r: r["shapes"].update(mlp_width=0), r"shapes\.mlp_width"),
        (lambda r: r["clocks_after"].update(memory_hz=0), r"clocks_after\.memory_hz"),
        (lambda r: r.update(substituted="all"), "substituted must be a list"),
        (lambda r: r.update(notes=[1]), r"notes\[0\] must be a text"),
        (lambda r: r.update(device=None), "device must be a text"),
        (lambda r: r.update(driver=535), "driver must be a text"),
        (lambda r: r.update(kind="guess"), "kind must be measured or dry"),
        (lambda r: r["steps"].append(r["steps"][0]), "one row for each load"),
    ],
)
def test_a_defect_behind_a_sound_checksum_is_one_line_that_names_it(
    saved: Path, change: Change, words: str
) -> None:
    with pytest.raises(FormatError, match=words):
        load_record(rewritten(saved, change))
    refusal(saved)


@pytest.mark.parametrize("change", [{"kind": "dry"}, {"cache_state": "hot"}])
def test_a_record_that_predicts_nothing_is_refused_unless_asked_for(
    tmp_path: Path, change: dict[str, str]
) -> None:
    path = tmp_path / "drafter.json"
    record = replace(example_record(), **change)  # type: ignore[arg-type]
    save_record(record, path)
    assert refusal(path).code == "not_usable"
    assert load_record(path, allow_dry=True) == record


def test_a_dry_record_made_to_look_measured_is_seen_as_edited(tmp_path: Path) -> None:
    path = tmp_path / "drafter.json"
    save_record(replace(example_record(), kind="dry"), path)
    path.write_text(path.read_text("utf-8").replace('"dry"', '"measured"'), encoding="utf-8")
    assert refusal(path).code == "edited"


def test_an_unwritable_place_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        save_record(example_record(), tmp_path / "no" / "drafter.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OutputError):
        save_record(replace(example_record(), device="other"), saved)
    assert load_record(saved) == example_record()
