"""A log that grows: each look reads the new bytes and says what a whole reading would say."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from calibration.training.following import TrainingLogFollower
from calibration.training.line_readers import LineReaders
from calibration.training.log_summary import log_summary
from calibration.training.reading import read_training_log
from calibration.training.training_log import TrainingLogError
from specmodel.errors import ParameterError
from tests.calibration.training.log_texts import train_line, val_line

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
SOUND = (
    *("spec_04_wrap160_ttt5.log", "spec_05_06_wide.log", "spec_dflash_wide.log", "modelopt.log"),
    *("specforge_cutover_dict.log", "specforge_tqdm_cr.log", "torchspec.log", "automodel.log"),
    *(
        "specforge_2026_step_lines.log",
        "eagle3_epoch.log",
        "eagle1_hass_epoch.log",
        "bad_17_utf16.log",
    ),
    *("bad_02_wrapped_interleaved.log", "bad_06_restart_repeats.log", "bad_16_restart_no_step.log"),
    *("bad_03_cr_glue.log", "bad_07_prefixed.log", "bad_14_conflicting_ranks.log"),
)


def grow(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("name", SOUND)
def test_followed_in_pieces_a_log_says_what_it_says_as_a_whole(tmp_path: Path, name: str) -> None:
    data = (FIXTURES / name).read_bytes()
    path = tmp_path / name
    chance = random.Random(name)  # noqa: S311 - the same pieces in every run
    follower = TrainingLogFollower(path)
    last = None
    for start in range(0, len(data), 97):
        with path.open("ab") as file:
            file.write(data[start : start + 97])
        if chance.random() < 0.5:
            last = follower.poll() or last
    with path.open("ab") as file:  # what comes next shows that the last line has ended
        file.write("\n\n".encode("utf-16-le") if "utf16" in name else b"\n\n")
    last = follower.poll() or last
    assert last is not None
    whole = log_summary(read_training_log(FIXTURES / name))
    assert json.dumps(log_summary(last)) == json.dumps(whole)


def test_only_new_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    original = LineReaders.feed

    def counted(self: LineReaders, block: bytes) -> None:
        fed.append(len(block))
        original(self, block)

    monkeypatch.setattr(LineReaders, "feed", counted)
    path = tmp_path / "train.log"
    follower = TrainingLogFollower(path)
    assert follower.poll() is None  # it is not there yet
    for step in range(1, 50):
        grow(path, train_line(step, (0.5, 0.25)))
        log = follower.poll()
        assert log is not None
        assert log.last_step == step
        assert follower.poll() is None
    assert sum(fed) == path.stat().st_size


def test_what_is_being_written_is_not_called_cut(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    line = train_line(2, (0.6, 0.25))
    grow(path, train_line(1, (0.5, 0.25)) + line[:60])
    follower = TrainingLogFollower(path)
    log = follower.poll()
    assert log is not None
    assert log.last_step == 1
    assert log.codes == {"train-only"}
    grow(path, line[60:])
    log = follower.poll()
    assert log is not None
    assert log.last_step == 2
    assert log.codes == {"train-only"}


def test_a_file_that_became_shorter_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(train_line(step, (0.5, 0.25)) for step in range(1, 9)))
    follower = TrainingLogFollower(path)
    follower.poll()
    path.write_text(train_line(3, (0.6, 0.25)))
    log = follower.poll()
    assert log is not None
    assert (log.unique_steps, log.last_step) == (1, 3)


def test_several_files_grow_together(tmp_path: Path) -> None:
    paths = [tmp_path / f"train_{part}.log" for part in (1, 2)]
    follower = TrainingLogFollower(paths)
    grow(paths[0], train_line(1, (0.5, 0.25)))
    grow(paths[1], train_line(3, (0.5, 0.25)))
    first = follower.poll()
    grow(paths[0], train_line(2, (0.5, 0.25)))
    grow(paths[1], val_line((0.4, 0.2)))
    second = follower.poll()
    assert first is not None
    assert second is not None
    assert second.training is not None
    assert second.training.step.tolist() == [1, 2, 3]
    assert np.array_equal(second.training.line, [1, 2, 3])


def test_a_refusal_is_raised_and_the_next_look_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    grow(path, train_line(1, (0.5, 0.25), loss="nan"))
    follower = TrainingLogFollower(path)
    with pytest.raises(TrainingLogError, match="nan or inf"):
        follower.poll()
    grow(path, train_line(2, (0.5, 0.25)))
    log = follower.poll()
    assert log is not None
    assert log.last_step == 2


def test_nothing_to_follow_is_refused() -> None:
    with pytest.raises(ParameterError, match="one file or more"):
        TrainingLogFollower([])


def test_blocks_of_an_open_family_are_followed_as_the_named_one(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text(
        "Train Epoch [4/40], position 0,  Acc: 0.66\nTrain Epoch [4/40], position 0, pLoss: 1.0\n"
    )
    follower = TrainingLogFollower(file, family="specforge")
    first = follower.poll()
    with file.open("a") as more:
        more.write(
            "Train Epoch [5/40], position 0,  Acc: 0.68\nTrain Epoch [5/40], position 0, pLoss: 0.9\n"
        )
    second = follower.poll()
    assert first is not None
    assert second is not None
    assert first.framework.startswith("SpecForge")
    assert json.dumps(log_summary(second)) != json.dumps(log_summary(first))
    whole = log_summary(read_training_log(file, family="specforge"))
    assert json.dumps(log_summary(second)) == json.dumps(whole)
