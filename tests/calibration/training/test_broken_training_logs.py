"""Whatever is in a training log: a log or one clear line, in bounded time and memory.

``SPECMODEL_FUZZ=20000 pytest tests/calibration/training/test_broken_training_logs.py`` spends a budget larger
than that of `make prove`.
"""

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from calibration.training.following import TrainingLogFollower
from calibration.training.log_summary import log_summary, refusal_summary
from calibration.training.reading import read_training_log
from calibration.training.training_log import TrainingLogError
from specmodel.errors import FormatError
from tests.calibration.mutations import at_most, mutated
from tests.extent import extent

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
SEEDS = sorted(
    path
    for path in FIXTURES.iterdir()
    if path.suffix not in (".md", ".gz") and not path.name.endswith(".expected.json")
)
BUDGET = int(os.environ.get("SPECMODEL_FUZZ", extent(test=180, prove=6000)))
BATCHES = 6
MOST_S = 10


def one_line(error: FormatError) -> str:
    """Return a message, which must be one line."""
    assert "\n" not in str(error)
    return str(error)


def said_of(path: Path) -> str:
    """Return everything that is said of a file; an error must be one line."""
    try:
        found = log_summary(read_training_log(path))
    except TrainingLogError as error:
        found = refusal_summary(error) | {"message": one_line(error)}
    except FormatError as error:
        return one_line(error)
    return json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_broken_log_ends_in_a_log_or_a_line(tmp_path: Path, batch: int) -> None:
    chance = random.Random(f"broken training logs {batch}")  # noqa: S311 - the same in every run
    for number in range(BUDGET // BATCHES):
        seed = chance.choice(SEEDS)
        data = mutated(seed.read_bytes(), chance)
        path = tmp_path / f"broken{seed.suffix}"
        path.write_bytes(data)
        try:
            with at_most(MOST_S):
                assert said_of(path)
        except Exception as error:
            kept = Path(os.environ.get("SPECMODEL_FUZZ_KEEP", tmp_path)) / f"{batch}-{number}"
            kept.write_bytes(data)
            error.add_note(f"made from {seed.name}, kept as {kept}")
            raise


@pytest.mark.parametrize("batch", range(2))
def test_every_broken_log_can_be_followed_piece_by_piece(tmp_path: Path, batch: int) -> None:
    chance = random.Random(f"followed broken logs {batch}")  # noqa: S311 - the same in every run
    path = tmp_path / "growing.log"
    for _ in range(BUDGET // BATCHES // 6):
        data = mutated(chance.choice(SEEDS).read_bytes(), chance)
        path.unlink(missing_ok=True)
        follower = TrainingLogFollower(path)
        place = 0
        with at_most(MOST_S):
            while place < len(data):
                following = place + chance.randint(1, max(1, len(data) // 3))
                with path.open("ab") as file:
                    file.write(data[place:following])
                place = following
                try:
                    follower.poll()
                except FormatError as error:
                    one_line(error)


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * (1 << 20),
        b"[08:53:20] INFO     train/loss_0=" + b"1" * 1_000_000,
        b"\r" * (1 << 20),
        b"{" * (1 << 20),
        b"{'loss': " * 200_000,
        b"\x1b[" * 500_000,
        b"                    train/loss_0=1.0,\n" * 30_000,
        b"[08:53:20] INFO     train/full_acc_0=0.5, epoch=0, lr=1.00e-04,\n" * 10_000,
        b"Train Epoch [1/10], position 0,  Acc: 0.66\n" * 10_000,
        b"".join(b"[rank%d]: step %d: {'acc_0': 0.5, 'loss': 2.0}\n" % (n, n) for n in range(9000)),
        b"step 7: {'acc_0': 0.5, 'loss': 2.0}\n" * 30_000,
        b"Training Epoch 0:  12%| | 120/1000 [02:02<15:00, loss=1.38, acc=0.55]" * 20_000,
        b"99%|" * 300_000,
    ],
    ids=lambda content: repr(content[:30]),
)
def test_a_monotonous_log_takes_no_longer_than_another(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "monotonous.log.gz"
    path.write_bytes(gzip.compress(content))
    with at_most(2 * MOST_S):
        assert said_of(path)
