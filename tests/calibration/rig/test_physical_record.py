"""The physical section of a calibration file: read back as written, and refused when it is not sound."""

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.rig.draft import DraftChoice, measured_draft
from calibration.rig.from_points import AskedRig
from calibration.rig.prediction import changed_rig, rig_prediction, speedup_ratio
from calibration.rig.scenario import scenario_from_record, scenario_to_record
from specmodel.calibration import SCHEMA_VERSION, Calibration
from specmodel.cost.allreduce import AllReduceCurve
from specmodel.errors import FitError, FormatError, SpecModelError
from specmodel.physical_fit import PhysicalFit
from specmodel.prediction import Prediction
from specmodel.question import AcceptLength, Configuration, Question
from specmodel.records import from_record, to_record
from tests.calibration.rig.known_rigs import (
    LLAMA_POINTS,
    LLAMA_RIG,
    ONE_POINT,
    of_points,
    packaged,
    sealed,
)
from tests.extent import sample
from tests.specmodel.measurement.example_record import example_record

CHANGES = (("interconnect", "nvlink4"), ("context_tokens", "2048"))
QUESTION = Question(
    accept_length=AcceptLength.exact(2.5),
    configuration=Configuration(num_steps=3, batch_size=2, context_tokens=2048),
)
EVERYTHING = AskedRig(
    model="Kimi-K2.5",
    gpu="RTX PRO 6000 Server",
    num_gpus=8,
    dtype="int4",
    curves=((8, AllReduceCurve.from_points([1024, 65536], [2e-5, 5e-5])),),
    draft=DraftChoice(kind="eagle3", times=measured_draft(example_record()), tp_size=1),
)
"""A rig of which everything is said."""

PathInRecord = tuple[str | int, ...]
VALUES: tuple[Any, ...] = (
    *(None, True, "", "x", "nan", 0, -1, 2, 3.7, 0.5, 1e9, 1e300, -1e300, 1e-300, 10**400),
    *(math.nan, math.inf, [], {}, [1], [None], [[1]], {"a": 1}, [math.nan] * 9, ["x"] * 9),
)
DELETED = object()


def written(calibration: Calibration) -> dict[str, Any]:
    """What a calibration file holds, but for its checksum."""
    return {"schema_version": SCHEMA_VERSION, **to_record(calibration)}


def predicted(calibration: Calibration) -> Prediction:
    return rig_prediction(changed_rig(calibration, CHANGES), QUESTION)


def numbers(found: Prediction) -> list[float]:
    values = [found.probability_faster, found.non_decode_share]
    for estimate in (found.round_cost, found.speedup, found.output_tokens_per_s):
        assert estimate is not None
        assert estimate.low <= estimate.median <= estimate.high
        values += [estimate.low, estimate.median, estimate.high]
    return values + [part.share for part in found.breakdown]


@pytest.mark.parametrize(
    "known",
    [
        lambda: packaged("rtx6kpro-kimi-k26-dcp4"),
        lambda: of_points(ONE_POINT),
        lambda: of_points(ONE_POINT, EVERYTHING),
        lambda: of_points(LLAMA_POINTS, LLAMA_RIG),
    ],
    ids=["table", "point", "everything", "dense"],
)
def test_a_file_predicts_a_changed_rig_as_its_calibration_does(
    known: Callable[[], Calibration], tmp_path: Path
) -> None:
    calibration = known()
    file = tmp_path / "calibration.json"
    calibration.save(file)
    again = Calibration.load(file)
    assert numbers(predicted(again)) == pytest.approx(numbers(predicted(calibration)), rel=1e-6)
    rigs = [changed_rig(one, CHANGES) for one in (calibration, again)]
    ratios = [speedup_ratio(rig, QUESTION, QUESTION) for rig in rigs]
    assert ratios[1].median == pytest.approx(ratios[0].median, rel=1e-6)
    assert ratios[1].high == pytest.approx(ratios[0].high, rel=1e-5)


def test_the_record_is_plain_json_and_gives_the_fit_back() -> None:
    fit = packaged("rtx6kpro-kimi-k26-dcp4").physical
    assert fit is not None
    again = from_record(PhysicalFit, json.loads(json.dumps(to_record(fit), allow_nan=False)))
    assert (again.factors, vars(again.form), again.notes) == (
        fit.factors,
        vars(fit.form),
        fit.notes,
    )
    for name in ("mean", "covariance", "prior_sd", "residual", "noise_sd", "shared_sd"):
        np.testing.assert_allclose(getattr(again, name), getattr(fit, name), rtol=1e-9)


def test_a_rig_of_which_everything_is_said_comes_back() -> None:
    fit = of_points(ONE_POINT, EVERYTHING).physical
    assert fit is not None
    record = json.loads(json.dumps(fit.rig))
    again = scenario_to_record(scenario_from_record(record))
    assert json.loads(json.dumps(again)) == record


def test_calibrations_from_before_the_physical_form_load_and_know_no_rig(tmp_path: Path) -> None:
    record = written(of_points(ONE_POINT))
    del record["physical"]
    file = tmp_path / "calibration.json"
    file.write_text(sealed(record), encoding="utf-8")
    old = Calibration.load(file)
    assert old.physical is None
    with pytest.raises(SpecModelError, match="before there was a physical form"):
        changed_rig(old, CHANGES)


def test_calibrations_of_another_form_are_refused_where_the_form_is_asked(tmp_path: Path) -> None:
    record = written(of_points(ONE_POINT))
    factors = record["physical"]["factors"]
    record["physical"]["factors"] = [f"{name}_2" for name in factors]
    file = tmp_path / "calibration.json"
    file.write_text(sealed(record), encoding="utf-8")
    with pytest.raises(FitError, match=r"another release.*specmodel fit"):
        changed_rig(Calibration.load(file), CHANGES)


def places(value: Any, at: PathInRecord = ()) -> Iterator[PathInRecord]:
    """Every place of a record, of long lists the first two."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:2]):
            yield from places(inner, (*at, index))


def broken(record: dict[str, Any], at: PathInRecord, value: object) -> dict[str, Any]:
    """A copy of a record with one value in the place of another, or without it."""
    found = copy.deepcopy(record)
    inside: Any = found
    for key in at[:-1]:
        inside = inside.setdefault(key, {}) if isinstance(inside, dict) else inside[key]
    if value is DELETED:
        del inside[at[-1]]
    else:
        inside[at[-1]] = copy.deepcopy(value)
    return found


def check(record: dict[str, Any], folder: Path) -> bool:
    """Whether a damaged calibration is refused in one line; else its numbers are sound ones."""
    file = folder / "calibration.json"
    file.write_text(sealed(record), encoding="utf-8")
    try:
        found = numbers(predicted(Calibration.load(file)))
    except SpecModelError as error:
        lines = str(error).splitlines()
    else:
        assert all(math.isfinite(value) for value in found)
        return False
    assert len(lines) == 1
    return True


@sample(2)
@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("asked", [LLAMA_RIG, EVERYTHING], ids=["plain", "everything"])
def test_a_damaged_section_is_refused_or_gives_sound_numbers(
    asked: AskedRig, offset: int, tmp_path: Path
) -> None:
    record = json.loads(json.dumps(written(of_points(ONE_POINT, asked))))
    values = (*VALUES, DELETED)
    refused = tried = 0
    for number, at in enumerate(places(record["physical"])):
        value = values[(7 * number + offset) % len(values)]
        damaged = {**record, "physical": broken(record["physical"], at, value)}
        refused += check(damaged, tmp_path)
        tried += 1
    assert tried > 100
    assert refused > 0.6 * tried


@sample(9)
@pytest.mark.parametrize("value", VALUES)
def test_a_damaged_list_of_what_was_assumed_is_refused(value: object, tmp_path: Path) -> None:
    record = json.loads(json.dumps(written(of_points(ONE_POINT))))
    damaged = {**record, "physical": broken(record["physical"], ("notes",), value)}
    texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
    assert check(damaged, tmp_path) is not texts


@sample(12)
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("rig", "gpu"), "GTX 970"),
        (("rig", "gpu"), 3),
        (("rig", "tp_size"), 3.0),
        (("rig", "tp_size"), 0),
        (("rig", "tp_size"), True),
        (("rig", "interconnect"), "zigbee"),
        (("rig", "interconnect"), None),
        (("rig", "dtype"), "fp7"),
        (("rig", "kernel"), "mpi"),
        (("rig", "schedule"), "magic"),
        (("rig", "kv_bytes_per_value"), "2"),
        (("rig", "context_parallel"), []),
        (("rig", "draft", "kind"), "oracle"),
        (("rig", "draft", "vocab_size"), 3.7),
        (("rig", "draft", "step_s"), -1.0),
        (("rig", "draft", "times"), {"name": "x", "device": "y", "steps": [], "extends": []}),
        (("rig", "draft", "times"), [[1, 1, 1, 1e30]]),
        (("rig", "draft"), None),
        (("rig", "curves"), [[8, {"size_bytes": [1, 2], "time_s": [-1, 1]}]]),
        (("rig", "model"), None),
        (("rig", "model", "vocab_size"), "x"),
        (("rig", "model", "layers", 0, "mlp"), 1),
        (("rig", "model", "layers"), []),
        (("rig", "model", "kind"), "os.system"),
    ],
)
def test_a_rig_that_cannot_be_read_says_so(at: PathInRecord, value: object, tmp_path: Path) -> None:
    record = json.loads(json.dumps(written(of_points(ONE_POINT))))
    damaged = {**record, "physical": broken(record["physical"], at, value)}
    file = tmp_path / "calibration.json"
    file.write_text(sealed(damaged), encoding="utf-8")
    known = Calibration.load(file)  # the relative form is not concerned
    with pytest.raises(FormatError, match=r"its rig cannot be read.*run `specmodel fit` again"):
        changed_rig(known, CHANGES)
