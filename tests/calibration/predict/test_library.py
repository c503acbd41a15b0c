"""The library answers what the command answers, and refuses what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration import fit
from specmodel import AcceptLength, Calibration, ConditionalAccuracy, FullAccuracy
from specmodel.errors import ParameterError, SpecModelError, UsageError
from specmodel.question import Estimate

Run = Callable[..., Result]
pytestmark = pytest.mark.filterwarnings("ignore::specmodel.errors.ExtrapolationWarning")

BENCH = {
    "no_depth": "accept_length,throughput,baseline\n2.1,82.3,90.0\n",
    "chains": "workload,tau,tok/s,baseline,k,bs\nchat,2.4,118,77,3,1\nchat,2.6,121,77,5,1\n"
    "code,2.9,140,80,3,1\ncode,3.1,410,330,3,8\n",
    "ladder": "num_steps,batch_size,accept_length,throughput,baseline\n2,1,1.70,136.0,100\n"
    "4,1,2.40,171.4,100\n6,1,3.00,187.5,100\n",
    "tree": "tau,tok/s,baseline,k,topk,num_draft_tokens\n2.4,118,77,3,4,8\n2.6,121,77,4,4,8\n",
}
FULL = (0.742, 0.47, 0.29, 0.15, 0.097)
OPTIONS = {
    "depth": "--depth",
    "accept_depth": "--accept-depth",
    "topk": "--topk",
    "num_draft_tokens": "--num-draft-tokens",
    "batch_size": "--batch-size",
    "context_tokens": "--context-tokens",
    "workload": "--workload",
    "baseline_tokens_per_s": "--baseline",
    "target_speedup": "--target-speedup",
    "claim": "--claim",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrations of every kind of points."""
    folder = tmp_path_factory.mktemp("calibrations")
    for name, text in BENCH.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        fit(folder / f"{name}.csv").save(folder / f"{name}.json")
    Calibration.from_prior().save(folder / "prior.json")
    return folder


def typed(asked: dict[str, Any]) -> list[str]:
    """The options of the command for the arguments of the library."""
    words = []
    match asked.get("accept_length"):
        case FullAccuracy(values=values):
            words += ["--full", ",".join(map(repr, values.tolist()))]
        case ConditionalAccuracy(values=values):
            words += ["--conditional", ",".join(map(repr, values.tolist()))]
        case None:
            pass
        case number:
            words += ["--accept", repr(number)]
    for name, option in OPTIONS.items():
        value = asked.get(name)
        if isinstance(value, range):
            value = f"{value[0]}:{value[-1]}"
        if value is not None:
            words += [option, str(value)]
    if asked.get("from_training"):
        prompts = {None: "", True: "-matched", False: "-unmatched"}[asked.get("matched_prompts")]
        words += ["--accuracy-from", f"training{prompts}"]
    return words


def compared(run: Run, folder: Path, name: str, asked: dict[str, Any]) -> None:
    """Ask the same of both."""
    file = folder / f"{name}.json"
    result = run("predict", "--calibration", file, "--json", *typed(asked))
    accepted = asked.get("accept_length")
    rest = {key: value for key, value in asked.items() if key != "accept_length"}
    if result.exit_code:
        with pytest.raises(SpecModelError) as caught:
            Calibration.load(file).predict(accepted, **rest)
        assert str(caught.value) in result.stderr
        return
    found = Calibration.load(file).predict(accepted, **rest)
    said = json.loads(result.stdout)
    mine = json.loads(json.dumps(found.to_dict()))
    for one in (said, *said.get("predictions", ())):
        one["calibration"] = None  # the library is not told which file it was
    assert mine == said


accepted = st.one_of(
    st.floats(0.5, 9.0).map(lambda value: round(value, 3)),
    st.sampled_from([FullAccuracy(FULL), FullAccuracy(FULL[:3]), ConditionalAccuracy((0.8, 0.6))]),
    st.none(),
)
asks = st.fixed_dictionaries(
    {"accept_length": accepted},
    optional={
        "depth": st.one_of(st.integers(1, 8), st.sampled_from([range(1, 4), range(2, 8)])),
        "topk": st.sampled_from([1, 4]),
        "num_draft_tokens": st.sampled_from([3, 4, 8, 16]),
        "batch_size": st.sampled_from([1, 8, 32]),
        "context_tokens": st.sampled_from([0, 1000]),
        "workload": st.sampled_from(["chat", "code", "maths"]),
        "baseline_tokens_per_s": st.sampled_from([80.0, 400.0]),
        "target_speedup": st.sampled_from([1.0, 1.5]),
        "from_training": st.booleans(),
    },
)


@pytest.mark.parametrize("ask", [{"accept_length": 3.0, "accept_depth": 6}, {}])
def test_the_best_depth_is_the_best_measured_one(
    specmodel: Run, folder: Path, ask: dict[str, Any]
) -> None:
    ask = {**ask, "depth": range(2, 7)}
    compared(specmodel, folder, "ladder", ask)
    found = Calibration.load(folder / "ladder.json").predict(**ask)
    measured = {2: (1.70, 136.0), 4: (2.40, 171.4), 6: (3.00, 187.5)}
    for one in found.depths:
        if one.num_steps in measured:
            length, rate = measured[one.num_steps]
            output = one.prediction.output_tokens_per_s
            assert one.prediction.question.accept_length == AcceptLength.exact(length)
            assert output is not None
            assert output.median == pytest.approx(rate, rel=0.02)
            assert output.low < rate < output.high
    assert found.best is not None
    assert found.depths[found.best].num_steps == 6


def test_each_workload_and_load_has_its_own_accept_length(folder: Path) -> None:
    known = Calibration.load(folder / "chains.json")
    measured = [("chat", 3, 1, 2.4), ("chat", 5, 1, 2.6), ("code", 3, 1, 2.9), ("code", 3, 8, 3.1)]
    for workload, depth, batch, length in measured:
        found = known.predict(depth=depth, workload=workload, batch_size=batch)
        assert found.prediction.question.accept_length == AcceptLength.exact(length)
    for batch in (1, 8):  # the only workload there
        (note,) = [
            one
            for one in known.predict(depth=5, workload="code", batch_size=batch).notes
            if one.code == "accept_length_measured"
        ]
        assert "depth 3" in note.message
        assert "carries them to depth 5" in note.message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*BENCH, "prior"]), asks, st.integers(1, 8) | st.none())
def test_both_answer_or_refuse_the_same(
    specmodel: Run, folder: Path, name: str, ask: dict[str, Any], accept_depth: int | None
) -> None:
    if isinstance(ask["accept_length"], float) and accept_depth is not None:
        ask = {**ask, "accept_depth": accept_depth}
    compared(specmodel, folder, name, ask)


@pytest.mark.parametrize(
    "ask",
    [
        {"accept_length": 2.75, "depth": 10, "accept_depth": 5, "claim": 3.1},
        {"accept_length": FullAccuracy(FULL), "depth": range(1, 11)},
        {"accept_length": FullAccuracy(FULL), "from_training": True},
        {"accept_length": FullAccuracy(FULL), "from_training": True, "matched_prompts": True},
        {"accept_length": FullAccuracy(FULL), "from_training": True, "matched_prompts": False},
        {"accept_length": -3.0},
        {"accept_length": 0.9},
        {"accept_length": 7.0, "depth": 3},
        {"accept_length": None},
        {"accept_length": 2.0, "workload": "maths"},
        {"accept_length": 2.0, "depth": 4, "num_draft_tokens": 9},
        {"accept_length": 2.0, "depth": range(3, 5)},
    ],
)
@pytest.mark.parametrize("name", BENCH)
def test_these_are_answered_or_refused_the_same(
    specmodel: Run, folder: Path, name: str, ask: dict[str, Any]
) -> None:
    compared(specmodel, folder, name, ask)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"accept_length": float("nan")}, "accept length must be finite"),
        ({"accept_length": 1e9}, "in 1 to 10000"),
        ({"accept_length": 2.0, "depth": 0}, "num_steps must be a whole number from 1 to 128"),
        ({"accept_length": 2.0, "depth": 2.5}, "num_steps must be a whole number"),
        ({"accept_length": 2.0, "depth": []}, "num_steps must be"),
        ({"accept_length": 2.0, "batch_size": 0}, "batch_size must be"),
        ({"accept_length": 2.0, "baseline_tokens_per_s": -1.0}, "baseline_tokens_per_s must be"),
        ({"accept_length": [74.2, 47.0]}, "percentage"),
        ({"accept_length": []}, "accuracies must be"),
    ],
)
def test_what_the_command_refuses_by_its_options_is_one_line_too(
    folder: Path, ask: dict[str, Any], said: str
) -> None:
    accepted = ask.pop("accept_length")
    with pytest.raises(ParameterError, match=said):
        Calibration.load(folder / "no_depth.json").predict(accepted, **ask)


def test_depth_has_one_name_at_a_time(folder: Path) -> None:
    known = Calibration.load(folder / "no_depth.json")
    assert known.predict(2.5, depth=3).to_dict() == known.predict(2.5, num_steps=3).to_dict()
    with pytest.raises(UsageError, match="say the same thing twice"):
        known.predict(2.5, depth=3, num_steps=3)


def test_a_list_is_of_full_accuracies_and_a_spread_is_kept(folder: Path) -> None:
    known = Calibration.load(folder / "chains.json")
    where: dict[str, Any] = {"batch_size": 1, "workload": "chat"}
    assert known.predict(list(FULL), **where).to_dict() == (
        known.predict(FullAccuracy(FULL), **where).to_dict()
    )
    unsure = AcceptLength(estimate=Estimate(median=2.5, low=2.2, high=2.8), log_sd=0.08)
    wide, narrow = (known.predict(one, depth=3, **where).speedup for one in (unsure, 2.5))
    assert float(wide) == pytest.approx(float(narrow))
    assert wide.high - wide.low > narrow.high - narrow.low


def test_several_depths_are_a_table_and_one_depth_is_its_numbers(folder: Path) -> None:
    known = Calibration.load(folder / "no_depth.json")
    several = known.predict(FullAccuracy(FULL), depth=range(1, 8))
    table = several.to_frame()
    assert table["num_steps"].tolist() == list(range(1, 8))
    assert (table["speedup_low"] < table["speedup"]).all()
    assert several.best is not None
    with pytest.raises(AttributeError, match="several depths"):
        _ = several.speedup
    one = known.predict(2.75)
    assert f"{one.speedup:.2f}" == f"{float(one.speedup):.2f}" == "1.19"
    assert len(repr(known).splitlines()) < 5


def test_points_without_a_depth_count_the_same_everywhere(folder: Path) -> None:
    known = Calibration.load(folder / "no_depth.json")
    plain = known.predict(2.75).output_tokens_per_s
    ranged = known.predict(2.75, accept_depth=5, depth=range(1, 11))
    for found in (
        known.predict(2.75, accept_depth=5),
        known.predict(2.75, accept_depth=5, depth=5),
        known.predict(2.75, depth=5),
    ):
        assert float(found.output_tokens_per_s or 0) == pytest.approx(float(plain or 0))
        assert found.notes[0].code == "unknown_depth"
    deep = ranged.depths[4].prediction.output_tokens_per_s
    assert float(deep or 0) == pytest.approx(float(plain or 0))
    listed = known.predict(FullAccuracy(FULL)).to_dict()["speedup"]
    several = known.predict(FullAccuracy(FULL), depth=range(1, 8)).to_dict()["predictions"][4]
    assert listed == pytest.approx(several["speedup"], rel=1e-12)


def test_fit_is_told_the_depth_of_rows_that_do_not_state_it(specmodel: Run, tmp_path: Path) -> None:
    bench = tmp_path / "bench.csv"
    bench.write_text("tau,tok/s,baseline,k\n2.1,82.3,90,\n1.9,78,90,3\n", encoding="utf-8")
    result = specmodel("fit", bench, "--num-steps", "5", "-o", tmp_path / "known.json")
    assert result.exit_code == 0, result.stderr
    known = Calibration.load(tmp_path / "known.json")
    assert {one.num_steps for one in known.configurations} == {3.0, 5.0}
    refused = specmodel("fit", bench, "--num-steps", "1", "-o", tmp_path / "other.json")
    assert refused.exit_code == 0, "one step may draft a block"
    bench.write_text("tau,tok/s,baseline\n4.1,182.3,90\n", encoding="utf-8")
    refused = specmodel("fit", bench, "--num-steps", "2", "-o", tmp_path / "other.json")
    assert refused.exit_code == 2
    assert "give --num-steps of at least 4" in refused.stderr
