"""Opt-in: makes the golden files again with speculators, and compares them with the ones in the repository."""

import csv
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "drafter"
PYTHON = os.environ.get("SPECMODEL_PARITY_PYTHON")

pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="SPECMODEL_PARITY_PYTHON names no interpreter that has speculators"
)


@pytest.fixture(scope="module")
def made_again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("goldens")
    assert PYTHON is not None
    subprocess.run(
        [PYTHON, str(ROOT / "scripts" / "make_drafter_goldens.py"), str(folder)],
        check=True,
        capture_output=True,
    )
    return folder


def files(folder: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(pattern))


def test_the_same_files_are_made(made_again: Path) -> None:
    assert files(made_again, "*") == files(GOLDEN, "*")
    assert len(files(GOLDEN, "golden.safetensors")) == 11


def test_the_same_numbers_are_made(made_again: Path) -> None:
    for name in files(GOLDEN, "*.safetensors"):
        ours, theirs = load_file(GOLDEN / name), load_file(made_again / name)
        assert sorted(ours) == sorted(theirs), name
        for tensor, values in ours.items():
            # only what is computed may differ, by the order of sums in single precision
            computed = tensor in {"logits", "heads"}
            torch.testing.assert_close(
                theirs[tensor], values, rtol=0.0, atol=1e-6 if computed else 0.0
            )


def test_the_same_frequencies_are_made(made_again: Path) -> None:
    tables = []
    for folder in (GOLDEN, made_again):
        with (folder / "rope_frequencies.csv").open(encoding="utf-8", newline="") as file:
            tables.append(list(csv.DictReader(file)))
    assert len(tables[0]) == len(tables[1]) == 80
    for ours, theirs in zip(*tables, strict=True):
        for column, value in ours.items():
            if column in {"frequency_rad_per_token", "magnitude"}:
                assert float(theirs[column]) == pytest.approx(float(value), rel=1e-6)
            else:
                assert theirs[column] == value
