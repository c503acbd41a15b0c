"""Training logs from files and folders, plain or packed."""

import gzip
from pathlib import Path

import pytest

from calibration.training.projection import curves_of
from calibration.training.reading import _read_files, read_training_log
from calibration.training.records import Split
from calibration.training.training_log import TrainingLogError
from specmodel.errors import FormatError, ParameterError
from tests.calibration.training.log_texts import train_line, val_line

LINES = "".join(train_line(step, (0.5 + step / 100, 0.25)) for step in range(1, 6))


@pytest.mark.parametrize(
    "content",
    [
        LINES.encode(),
        b"\xef\xbb\xbf" + LINES.encode(),
        LINES.encode("utf-16"),
        gzip.compress(LINES.encode()),
        LINES.replace("\n", "\r\n").encode(),
        LINES.replace("\n", "\r").encode(),
        b"\x80\x81 not text\n" + LINES.encode(),
    ],
    ids=["plain", "mark", "utf-16", "gzip", "crlf", "cr", "other bytes"],
)
def test_a_log_is_the_same_in_every_container(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(content)
    log = read_training_log(path)
    assert (log.unique_steps, log.last_step) == (5, 5)
    assert log.codes == {"train-only"}


def test_a_log_is_recognised_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("events", "log.csv", "log.json", "slurm-123.out.1"):
        path = tmp_path / name
        path.write_text(LINES)
        assert read_training_log(path).last_step == 5


def test_a_table_is_recognised_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("export", "export.csv", "export.txt"):
        path = tmp_path / name
        path.write_text("Step,train/full_acc_0,train/cond_acc_0\n7,0.61,0.61\n8,0.62,0.62\n")
        assert read_training_log(path).formats == ("S6",)


def test_what_else_lies_in_a_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(LINES)
    (tmp_path / "config.json").write_text('{"num_layers": 1}')
    (tmp_path / "picture.png").write_bytes(b"\x89PNG" + b"\0" * 1000)
    (tmp_path / "weights.log").write_bytes(b"\0" * 10_000)
    log = read_training_log(tmp_path)
    assert [path.name for path in log.paths] == ["train.log"]


def test_a_state_file_gives_its_step_to_the_metrics_beside_it(tmp_path: Path) -> None:
    (tmp_path / "val_metrics.json").write_text('{"full_acc_0_epoch": 0.6, "cond_acc_0_epoch": 0.6}')
    (tmp_path / "training_state.json").write_text(
        '{"epoch": 1, "local_step": 8, "global_step": 2656}'
    )
    for paths in ([tmp_path], [tmp_path / "val_metrics.json", tmp_path / "training_state.json"]):
        log = read_training_log(paths)
        (series,) = log.series.values()
        assert (series.step.tolist(), log.epochs) == ([2656.0], (1.0,))


def test_a_state_file_alone_is_refused_with_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "training_state.json"
    path.write_text('{"epoch": 1, "local_step": 8, "global_step": 2656}')
    with pytest.raises(TrainingLogError) as caught:
        read_training_log(path)
    assert caught.value.code == "no-metrics"
    assert caught.value.companion["global_step"] == 2656


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nothing to read\n", "unrecognised"),
        ("", "unrecognised"),
        ("{}", "unrecognised"),
        ("epoch=1 step=10/1000 loss=3.4\n", "loss-only"),
        ("{'loss': 2.5, 'learning_rate': 0.0001, 'epoch': 0.1}\n", "loss-only"),
    ],
)
def test_what_is_no_log_with_accuracies_is_refused(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    with pytest.raises(TrainingLogError) as caught:
        read_training_log(path)
    assert (caught.value.code, "\n" in str(caught.value)) == (code, False)


def test_a_missing_file_an_empty_folder_and_a_wrong_name_are_said(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        read_training_log(tmp_path / "no.log")
    with pytest.raises(FormatError, match="no file in this folder"):
        read_training_log(tmp_path)
    with pytest.raises(ParameterError, match="one file or more"):
        read_training_log([])
    with pytest.raises(ParameterError, match="family must be speculators-eagle3 or"):
        read_training_log(tmp_path, family="eagle4")


def test_a_family_leaves_out_the_records_of_others(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(LINES + "step 5: {'acc_0': 0.6, 'loss': 2.0}\n")
    assert _read_files(path, None, None).raw.num_records == {
        "speculators-eagle3": 5,
        "specforge": 1,
    }
    log = read_training_log(path, family="specforge")
    assert (log.family, sum(map(len, log.series.values()))) == ("specforge", 1)


def test_progress_adds_up_to_the_size_of_the_files(tmp_path: Path) -> None:
    told: list[int] = []
    for number in range(3):
        (tmp_path / f"{number}.log").write_text(LINES + val_line((0.5, 0.25)))
    read_training_log(tmp_path, progress=told.append)
    assert sum(told) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_what_a_record_with_nan_prints_is_left_out_as_a_whole(tmp_path: Path) -> None:
    line = "INFO Step {} eval: loss={}, acc=0.2710, sim_acc_len={}\n"
    path = tmp_path / "train.log"
    path.write_text(line.format(40, "6.3120", "0.37") + line.format(80, "nan", "0.99"))
    reported = read_training_log(path).series[Split.VAL].reported["sim_acc_len"]
    assert reported.last == 0.37


def test_a_log_whose_kinds_have_unlike_depths_has_curves(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    columns = ("full_acc_0", "full_acc_1", "cond_acc_0", "cond_acc_1", "cond_acc_2")
    rows = "".join(f"{step},0.6,0.3,0.6,0.5,0.4\n" for step in range(100, 2000, 100))
    for left_out, kind, depths in (
        ((), "conditional", 3),
        (("cond_acc_1", "cond_acc_2"), "joint", 2),
    ):
        kept = [place for place, name in enumerate(columns, 1) if name not in left_out]
        lines = [",".join(["Step", *(f"train/{name}" for name in columns)]), *rows.splitlines()]
        cells = [line.split(",") for line in lines]
        path.write_text(
            "".join(",".join([row[0], *(row[k] for k in kept)]) + "\n" for row in cells)
        )
        curves = curves_of(read_training_log(path))
        assert curves is not None
        assert (curves.kind, curves.depths) == (kind, depths)
        assert curves.conditional[-1] == pytest.approx([0.6, 0.5, 0.4][:depths])
