"""Output of nccl-tests reads as the expected files beside the fixtures say."""

import json
from pathlib import Path

import pytest

from calibration.allreduce.reading import read_collectives
from tests.calibration.allreduce.reading_summary import summary

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "nccl"
EXPECTED = sorted(FOLDER.glob("*.expected.json"))


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.name.partition(".")[0])
def test_a_fixture_reads_as_its_expected_file_says(path: Path) -> None:
    expected = json.loads(path.read_text(encoding="utf-8"))
    assert summary(read_collectives(FOLDER / expected["file"])) == expected


def test_every_fixture_has_an_expected_file() -> None:
    assert len(EXPECTED) == 8


def test_the_environment_of_a_json_file_is_not_kept() -> None:
    reading = read_collectives(FOLDER / "json_output.json")
    assert "must-not-be-stored" in (FOLDER / "json_output.json").read_text(encoding="utf-8")
    assert "must-not-be-stored" not in repr(reading)
    assert "NCCL_P2P_LEVEL" not in repr(reading)


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.name.partition(".")[0])
def test_no_host_and_no_process_is_kept(path: Path) -> None:
    reading = read_collectives(FOLDER / json.loads(path.read_text(encoding="utf-8"))["file"])
    kept = repr(reading).replace(repr(reading.path), "")
    assert [
        name for name in ("host-", "node-a", "gpu-node", "b200-01", "41230") if name in kept
    ] == []
