"""The calibration file: what is written is read back; what is not whole is refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration import fit
from calibration.points.packaged import packaged_table
from specmodel import AcceptLength, Calibration, Configuration, Question, predict
from specmodel.calibration import SCHEMA_VERSION
from specmodel.errors import FormatError, ParameterError
from specmodel.files import OutputError, checksum
from specmodel.records import from_record, to_record


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    return fit(packaged_table("rtx6kpro-kimi-k26-dcp4").path)


@pytest.fixture
def path(fitted: Calibration, tmp_path: Path) -> Path:
    file = tmp_path / "calibration.json"
    fitted.save(file)
    return file


def test_a_file_predicts_what_its_calibration_predicts(fitted: Calibration, path: Path) -> None:
    read = Calibration.load(path)
    questions = [
        Question(accept_length=AcceptLength.exact(2.4), configuration=configuration)
        for configuration in fitted.configurations
    ]
    for before, after in zip(predict(fitted, questions), predict(read, questions), strict=True):
        assert after.speedup.median == pytest.approx(before.speedup.median, rel=1e-8)
        assert after.speedup.high == pytest.approx(before.speedup.high, rel=1e-7)
        assert after.round_cost.low == pytest.approx(before.round_cost.low, rel=1e-7)


def test_a_rig_unlike_the_public_ones_keeps_its_wide_prior(tmp_path: Path) -> None:
    bench = tmp_path / "bench.csv"
    bench.write_text("accept_length,throughput,baseline\n2.1,42.3,90.0\n", encoding="utf-8")
    unlike = fit(bench)
    unlike.save(tmp_path / "calibration.json")
    read = Calibration.load(tmp_path / "calibration.json")
    assert np.trace(unlike.posterior.prior_covariance) > 1.5 * np.trace(unlike.prior.covariance)
    np.testing.assert_allclose(
        read.posterior.prior_covariance, unlike.posterior.prior_covariance, rtol=1e-7, atol=1e-12
    )


def test_every_constant_and_record_survives(fitted: Calibration, path: Path) -> None:
    read = Calibration.load(path)
    assert read.configurations == fitted.configurations
    assert read.runs == fitted.runs
    assert read.observations == fitted.observations
    assert read.notes == fitted.notes
    np.testing.assert_allclose(
        read.posterior.covariance, fitted.posterior.covariance, rtol=1e-8, atol=1e-14
    )
    assert [one.name for one in read.constants] == [one.name for one in fitted.constants]


def test_the_file_is_strict_json_without_nan(path: Path) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert json.loads(path.read_text(), parse_constant=refuse)["schema_version"] == SCHEMA_VERSION


def edited(path: Path, change: dict[str, Any]) -> Path:
    """The file with some keys changed by hand."""
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, **change}))
    return path


def refusal(path: Path) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(FormatError) as caught:
        Calibration.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def test_a_newer_schema_is_refused_with_its_version(path: Path) -> None:
    assert "schema_version 7 is newer" in refusal(edited(path, {"schema_version": 7}))


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5, True])
def test_a_schema_version_that_is_no_whole_number_is_refused(path: Path, version: object) -> None:
    assert "schema_version must be a whole number" in refusal(
        edited(path, {"schema_version": version})
    )


def test_an_edited_file_is_refused(path: Path) -> None:
    assert "edited by hand" in refusal(edited(path, {"num_points": 7}))


@pytest.mark.parametrize("name", ["noise_scale", "effect_scale", "degrees_of_freedom"])
@pytest.mark.parametrize("value", [0.0, -1.0, None, "x"])
def test_a_scale_that_is_no_scale_is_refused(
    fitted: Calibration, name: str, value: float | str | None
) -> None:
    record = to_record(fitted)
    record["posterior"][name] = value
    with pytest.raises(ParameterError, match=rf"posterior\.{name} must be (finite|a number)"):
        from_record(Calibration, record)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda record: record["posterior"]["mean"].__setitem__(3, "x"), r"posterior\.mean\[3\]"),
        (lambda record: record["posterior"]["mean"].pop(), r"posterior\.covariance"),
        (lambda record: record["runs"].pop(), "posterior must be effects for each"),
        (lambda record: record["configurations"][1].update(topk=0), r"configurations\[1\]\.topk"),
        (lambda record: record["prior"]["noise"].pop("run_log_sd"), r"prior\.noise\.run_log_sd"),
        (lambda record: record.pop("prior"), "prior must be given"),
        (lambda record: record.update(surprise=1), "surprise must be one of"),
    ],
)
def test_a_defect_is_refused_by_its_place(
    fitted: Calibration, change: Callable[[dict[str, Any]], object], place: str
) -> None:
    record = json.loads(json.dumps(to_record(fitted)))
    change(record)
    with pytest.raises(ParameterError, match=place):
        from_record(Calibration, record)


SCHEMA_1 = Path(__file__).parents[1] / "fixtures" / "calibrations" / "one_point_schema_1.json"


def test_a_file_of_schema_1_predicts_about_as_when_it_was_written(tmp_path: Path) -> None:
    old = Calibration.load(SCHEMA_1)
    question = Question(
        accept_length=AcceptLength.exact(2.5),
        configuration=Configuration(num_steps=3, batch_size=2, context_tokens=2048),
    )
    assert old.physical is not None
    old.save(tmp_path / "again.json")
    for calibration in (old, Calibration.load(tmp_path / "again.json")):
        (found,) = predict(calibration, [question])
        assert found.speedup.median == pytest.approx(1.028, rel=0.03)
        # A batch that no point has was surer then: nothing was known of effects over loads.
        assert found.speedup.high > 1.160
        assert found.round_cost.low < 2.248


@pytest.mark.parametrize("name", ["noise_scale", "degrees_of_freedom", "prior_width"])
@pytest.mark.parametrize("value", [0.0, -1.0, None])
def test_a_file_of_schema_1_that_is_not_sound_is_refused(
    name: str, value: float | None, tmp_path: Path
) -> None:
    content = json.loads(SCHEMA_1.read_text(encoding="utf-8")) | {name: value}
    file = tmp_path / "old.json"
    file.write_text(json.dumps(content | {"content_sha256": checksum(content)}), encoding="utf-8")
    assert "not a sound calibration" in refusal(file)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(path: Path, share: float) -> None:
    text = path.read_text()
    path.write_text(text[: int(share * len(text))])
    assert "truncated" in refusal(path)


@pytest.mark.parametrize("content", ["[]", "3", '"text"', "{}", "null"])
def test_other_json_is_refused(path: Path, content: str) -> None:
    path.write_text(content)
    assert "not a calibration" in refusal(path)


def test_binary_content_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    assert "not text" in refusal(binary)
    assert "no such file" in refusal(tmp_path / "missing.json")
    assert "cannot be read" in refusal(tmp_path)


def test_an_unwritable_place_is_named_and_nothing_is_left(
    fitted: Calibration, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        fitted.save(tmp_path / "file" / "calibration.json")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_write_leaves_the_old_file_whole(
    fitted: Calibration, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_number_of_thousands_of_digits_is_refused_in_one_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('"num_points": ', f'"num_points": {"9" * 5000}')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match="not valid JSON"):
        Calibration.load(path)
