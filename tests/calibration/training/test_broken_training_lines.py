"""No text makes a reader fail or slow; what is cut away takes records, and adds none."""

import random
from math import isnan
from pathlib import Path

import pytest

from calibration.training.records import RawLog
from tests.calibration.training.fed_lines import fed
from tests.extent import extent, sample

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
NAMES = (
    "automodel.log",
    "bad_13_specforge_nan.log",
    "deepspec.log",
    "eagle1_hass_epoch.log",
    "eagle3_epoch.log",
    "medusa_hf_dict.log",
    "modelopt.log",
    "specforge_2026_step_lines.log",
    "specforge_cutover_dict.log",
    "specforge_tqdm_cr.log",
    "specforge_v01_epoch.log",
    "torchspec.log",
)
ALPHABET = (
    b"{",
    b"}",
    b"'",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"9",
    b".",
    b"\r",
    b"\n",
    b"nan",
    b"e",
    b"=",
)


def num_records(raw: RawLog) -> int:
    return sum(raw.num_records.values())


def numbers(raw: RawLog) -> set[tuple[str, str, float]]:
    """All numbers by split and column; the family may be open until an evaluation names it."""
    return {
        (split, name, value)
        for tables in raw.tables.values()
        for split, table in tables.items()
        for name, column in table.columns.items()
        for value in column
        if not isnan(value) and name not in ("stream", "format")
    }


@pytest.mark.parametrize("name", NAMES)
def test_mutated_logs_are_read_without_an_error(name: str) -> None:
    content = (FIXTURES / name).read_bytes()
    generator = random.Random(name)  # noqa: S311
    for _ in range(150):
        broken = bytearray(content)
        for _ in range(generator.randint(1, 6)):
            start = generator.randrange(len(broken) + 1)
            end = min(len(broken), start + generator.choice((0, 1, 1, 3, 40)))
            broken[start:end] = generator.choice(ALPHABET) * generator.choice((0, 1, 2))
        raw = fed(bytes(broken))
        for tables in raw.tables.values():
            for table in tables.values():
                assert all(len(column) == len(table) for column in table.columns.values())


@sample(6)
@pytest.mark.parametrize("name", NAMES)
def test_the_beginning_of_a_log_has_no_other_numbers_than_the_log(name: str) -> None:
    content = (FIXTURES / name).read_bytes()
    whole = fed(content)
    known = numbers(whole)
    for length in range(len(content)):
        beginning = fed(content[:length])
        assert num_records(beginning) <= num_records(whole)
        assert numbers(beginning) <= known, length


@pytest.mark.parametrize(
    "piece",
    [
        "step 1: {'acc_0': ",
        "step 1: {",
        "{'loss': 1, 'medusa0_top1': [",
        "'acc_0': 0.5, ",
        "Train Epoch [1/2], position 0,  Acc: ",
        "Train Epoch [1/2], position 0,  Acc: 0.5",
        "Epoch [1/2], Loss: ",
        "Training Epoch 1: 1%|",
        "Training Epoch 1: 1%|x| 1/2 [acc=",
        "epoch 0: 1%|x| 1/2 [00:01, acc=0.5, ",
        "train_acc=0.5 epoch=",
        "eval: loss=1, acc_len=0.5, ",
        "Step 5 Training Acc: [0.5, ",
        "Step 5 AR: 1",
        "{'parallel_0_step_0': ",
        "epoch=1 step=1/2 loss=",
        "(" * 50,
        "9" * 50,
        " " * 50,
    ],
)
def test_long_lines_of_pieces_are_read(piece: str) -> None:
    """In proportion to their length: if it were to its square, this test would not end."""
    length = extent(test=200_000, prove=2_000_000)
    text = "step 1: {'acc_0': 0.5, 'loss': 1} acc_len= medusa " + piece * (length // len(piece))
    raw = fed(text + "\n")
    assert raw.num_records.get("specforge", 0) >= 1
