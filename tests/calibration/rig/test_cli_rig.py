"""The physical form at the command line: fit with a rig, predict --set, whatif on a calibration."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from calibration import fit
from calibration.rig.from_points import AskedRig
from calibration.rig.whatif import KEYS
from specmodel.calibration import Calibration
from specmodel.measurement import save_record
from specmodel.text_layout import fits
from tests.extent import extent, sample
from tests.specmodel.measurement.example_record import example_record

Run = Callable[..., Result]

REFERENCE = "accept_length,throughput,baseline,num_steps\n2.1,82.3,90.0,3\n"
RIG = ("--model", "Kimi-K2.5", "--gpu", "RTX PRO 6000 Server", "--num-gpus", "8")

BENCHES = {
    "point": REFERENCE,
    "depth not stated": "accept_length,throughput,baseline\n2.1,82.3,90.0\n",
    "trees": (
        "accept_length,throughput,baseline,num_steps,topk,num_draft_tokens\n"
        "2.1,82.3,90.0,3,4,16\n2.5,92.3,90.0,5,4,32\n"
    ),
    "block": (
        "accept_length,throughput,baseline,num_steps,num_draft_tokens,algorithm\n"
        "4.1,182.3,90.0,1,16,DFLASH\n"
    ),
    "sweep": "accept_length,throughput,baseline,num_steps,batch_size,context_tokens\n"
    + "".join(
        f"2.1,{80 * batch**0.8:.1f},{90 * batch**0.8 / (1 + context / 1e5):.1f},{depth},{batch},{context}\n"
        for batch in (1, 16)
        for context in (0, 8192)
        for depth in (3, 5)
    ),
    "per user": (
        "accept_length,throughput,baseline,num_steps,batch_size,throughput_scope\n"
        "2.1,82.3,60.0,3,8,per_user\n2.1,62.3,50.0,3,32,per_user\n"
    ),
    "measured shares": (
        "accept_length,throughput,baseline,num_steps,ttft_ms,output_tokens\n"
        "2.1,82.3,90.0,3,300,500\n"
    ),
    "baseline rows": (
        "accept_length,throughput,num_steps,batch_size\n1,90,0,1\n1,700,0,8\n2.1,82.3,3,1\n2.2,600,3,8\n"
    ),
    "too fast": "accept_length,throughput,baseline,num_steps\n2.1,8.2e8,9.0e8,3\n",
    "too slow": "accept_length,throughput,baseline,num_steps\n2.1,0.002,0.0021,3\n",
    "deepest": "accept_length,throughput,baseline,num_steps\n2.1,82,90,128\n",
    "widest": (
        "accept_length,throughput,baseline,num_steps,topk,num_draft_tokens\n2.1,82,90,8,64,60000\n"
    ),
    "longest": (
        "accept_length,throughput,baseline,num_steps,batch_size,context_tokens\n"
        "2.1,82,90,3,1,100000000\n"
    ),
    "long words": (
        "accept_length,throughput,baseline,num_steps,topk,num_draft_tokens,batch_size,context_tokens\n"
        "3.11,615.3,381.2,5,4,8,3.664,2040.56\n3.11,615.3,381.2,128,64,60000,14.8125,123456.7\n"
    ),
    "fractions": (
        "accept_length,throughput,baseline,num_steps,batch_size,context_tokens\n"
        "2.1,82.3,90.0,3,1.5,1000.5\n"
    ),
}


DENSE = ("sweep", "trees", "fractions", "longest")
"""Those that are fitted as of a dense model on one GPU."""


def no_constant(text: str) -> None:
    raise AssertionError(f"{text} in JSON")


def answer(result: Result) -> dict[str, Any]:
    """The JSON of a command that succeeded; without NaN."""
    assert result.exit_code == 0, result.stderr
    record: dict[str, Any] = json.loads(result.stdout, parse_constant=no_constant)
    return record


def text(result: Result) -> str:
    """The text of a command that succeeded, as one line; it keeps to 80 columns."""
    assert result.exit_code == 0, result.stderr
    assert fits(result.stdout), result.stdout
    assert all(len(line) <= 80 or " " not in line.strip() for line in result.stderr.splitlines())
    return " ".join(result.stdout.split())


def refusal(result: Result, status: int | None = None) -> str:
    """The one line of a command that refused."""
    assert result.exit_code in {1, 2}
    assert status is None or result.exit_code == status, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "unexpected " not in line
    return str(line)


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    file = tmp_path / "bench.csv"
    file.write_text(REFERENCE, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Text of the calibration of one point on the reference rig."""
    folder = tmp_path_factory.mktemp("reference-rig")
    (folder / "bench.csv").write_text(REFERENCE, encoding="utf-8")
    rig = AskedRig(model="Kimi-K2.5", gpu="RTX PRO 6000 Server", num_gpus=8)
    fit(folder / "bench.csv", rig=rig, profile=False).save(folder / "calibration.json")
    return (folder / "calibration.json").read_text(encoding="utf-8")


@pytest.fixture
def fitted(specmodel: Run, bench: Path, calibration: str) -> Run:
    """The command line in a folder with a calibration of a known rig."""
    (bench.parent / "calibration.json").write_text(calibration, encoding="utf-8")
    return specmodel


# fit


@sample(6)
@pytest.mark.parametrize("name", BENCHES)
def test_any_points_of_a_named_rig_are_fitted_and_explained_or_refused(
    specmodel: Run, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "bench.csv"
    file.write_text(BENCHES[name], encoding="utf-8")
    rig = ("--model", "Llama-3.1-8B", "--gpu", "H100") if name in DENSE else RIG
    result = specmodel("fit", file, *rig, "--explain", "-o", "one.json")
    if result.exit_code:
        refusal(result, 1)
        assert not (tmp_path / "one.json").exists()
        return
    assert "what a round adds to a step" in text(result)
    assert Calibration.load(tmp_path / "one.json").physical is not None
    load = ("--depth", "3", "--topk", "1", "--batch-size", "1", "--context-tokens", "0")
    ask = ("predict", "--calibration", "one.json", "--accept", "1.5", *load)
    again = answer(specmodel(*ask, "--set", "schedule=host", "--json"))
    assert sum(part["share"] for part in again["breakdown"]) == pytest.approx(1)


@pytest.mark.parametrize("name", ["sweep", "per user", "too slow"])
def test_the_json_of_a_fit_holds_the_physical_form(
    specmodel: Run, tmp_path: Path, name: str
) -> None:
    (tmp_path / "bench.csv").write_text(BENCHES[name], encoding="utf-8")
    record = answer(specmodel("fit", "bench.csv", *RIG, "--json", "--explain"))
    assert record["physical"]["rig"]["gpu"] == "RTX PRO 6000 Blackwell Server"
    assert record["rig_note"] is None


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--model", "Llama-3.1-9B", "--gpu", "H100"), 2, "Llama-3.1-8B"),
        (("--model", "Qwen3-8B", "--gpu", "H10O"), 2, "H100"),
        (("--model", "no/config.json", "--gpu", "H100"), 1, "cannot be read"),
        (("--model", "Qwen3-8B", "--gpu", " "), 2, "unknown GPU"),
        ((*RIG, "--interconnect", "zigbee"), 2, "nvlink4"),
        ((*RIG, "--dtype", "fp7"), 1, "nvfp4"),
        ((*RIG[:4], "--num-gpus", "4"), 1, "8 GPUs would do"),
        ((*RIG[:4], "--num-gpus", "0"), 2, "--num-gpus"),
        ((*RIG[:4], "--num-gpus", "5000"), 2, "--num-gpus"),
        ((*RIG[:4], "--num-gpus", "two"), 2, "--num-gpus"),
        ((*RIG, "--draft-kind", "oracle"), 2, "eagle3"),
        ((*RIG, "--kv-dtype", "int3"), 2, "fp8"),
        ((*RIG, "--allreduce", "none.json"), 1, "none.json"),
        ((*RIG, "--allreduce", "bench.csv"), 1, "bench.csv"),
        ((*RIG, "--drafter", "none.json"), 1, "none.json"),
    ],
)
def test_a_rig_that_cannot_be_is_refused_and_nothing_is_written(
    specmodel: Run, bench: Path, options: tuple[str, ...], status: int, said: str
) -> None:
    assert said in refusal(specmodel("fit", bench, *options), status)
    assert not (bench.parent / "calibration.json").exists()


def test_a_refused_fit_leaves_the_old_file_whole(fitted: Run, bench: Path) -> None:
    before = (bench.parent / "calibration.json").read_bytes()
    refusal(fitted("fit", bench, "--model", "nonsense", "--gpu", "H100"))
    assert (bench.parent / "calibration.json").read_bytes() == before


def test_points_whose_rig_is_not_known_are_fitted_as_before(specmodel: Run, bench: Path) -> None:
    assert "not priced: the points do not name the model and the GPU" in text(
        specmodel("fit", bench, "--explain")
    )
    record = answer(specmodel("fit", bench, "--json"))
    assert record["physical"] is None
    assert "give --model and --gpu" in record["rig_note"]


def test_points_whose_model_is_not_packaged_say_so_in_few_words(
    specmodel: Run, tmp_path: Path
) -> None:
    (tmp_path / "bench.csv").write_text(
        "accept_length,throughput,baseline,target_model,gpu\n2.1,82.3,90,MyModel-7B,H100\n",
        encoding="utf-8",
    )
    said = text(specmodel("fit", "bench.csv"))
    assert "not priced: unknown model 'MyModel-7B'" in said


def test_a_rig_far_from_the_measured_times_is_doubted(specmodel: Run, tmp_path: Path) -> None:
    (tmp_path / "bench.csv").write_text(BENCHES["too fast"], encoding="utf-8")
    result = specmodel("fit", "bench.csv", *RIG)
    text(result)
    assert "times faster than this rig is expected to be" in " ".join(result.stderr.split())
    codes = {
        one["code"] for one in answer(specmodel("fit", "bench.csv", *RIG, "--json"))["warnings"]
    }
    assert "doubtful_rig" in codes


def test_the_explanation_of_the_reference_rig_has_its_parts(specmodel: Run, bench: Path) -> None:
    said = text(specmodel("fit", bench, *RIG, "--explain"))
    for part in (
        "Kimi-K2.5 (weights as released) on 8 x RTX PRO 6000 Blackwell Server over pcie5",
        "KV cache in bf16",
        "of the base step",
        "122 over the layers, each of 14,336 B a token",
        "2.30 measured",
        "what a round adds to a step step ms round ms added ms in steps",
        "factor (1: as usual)",
        "round cost by hand relative form physical form",
    ):
        assert part in said
    found = answer(specmodel("fit", bench, *RIG, "--kv-dtype", "fp8", "--json"))["physical"]
    assert found["rig"]["kv_bytes_per_value"] == 1
    assert not any("KV cache" in one for one in found["assumed"])
    assert found["allreduce_share_of_base_step"]["low"] < 0.3
    assert found["allreduce_share_of_base_step"]["high"] > 0.3
    assert (found["layer_all_reduces"], found["allreduce_bytes_per_token"]) == (122, 14336)


# predict --set


def good_values(folder: Path) -> dict[str, list[str]]:
    """Values that a Kimi rig of 8 GPUs may take, by key."""
    save_record(example_record(), folder / "drafter.json")
    return {
        "interconnect": ["nvlink4", "PCIe 5.0 x16"],
        "allreduce": ["nccl", "custom"],
        "tp_size": ["8", "16"],
        "num_gpus": ["16"],
        "gpu": ["B200", "RTX PRO 6000"],
        "model": ["Kimi-K2.6", "Qwen3-8B"],
        "dtype": ["int4"],
        "kv_dtype": ["fp8", "bf16"],
        "batch_size": ["8", "1.5"],
        "context_tokens": ["65536"],
        "depth": ["7", "128"],
        "num_steps": ["2"],
        "topk": ["1"],
        "num_draft_tokens": ["4"],
        "schedule": ["host", "draft"],
        "draft.kind": ["eagle3", "mtp", "parallel", "lookup"],
        "draft.vocab": ["151936"],
        "draft.tp_size": ["1", "8"],
        "capture_limit": ["1", "512"],
        "draft.step_ms": ["0.5", "30"],
        "draft.record": ["drafter.json"],
    }


def test_every_key_of_set_answers_in_text_and_json(fitted: Run, tmp_path: Path) -> None:
    values = good_values(tmp_path)
    assert set(values) == set(KEYS)
    for key, texts in values.items():
        for value in texts[: extent(test=1, prove=4)]:
            ask = ("predict", "--accept", "2.5", "--set", f"{key}={value}")
            said, record = text(fitted(*ask)), answer(fitted(*ask, "--json"))
            assert "the physical form, fitted to 2 measured times" in said
            assert "times its speed-up" in said
            assert record["physical"] is True
            assert sum(part["share"] for part in record["breakdown"]) == pytest.approx(1)
            assert all(math.isfinite(part["time_ms"]) for part in record["breakdown"])
            assert 0 <= record["probability_faster"] <= 1
            assert record["speedup"]["low"] <= record["speedup"]["median"]
            assert record["speedup_ratio"]["low"] <= record["speedup_ratio"]["high"]
            rate = record["output_tokens_per_s"]
            assert rate["low"] < rate["median"] < rate["high"]


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        (("batch=2",), 2, "batch_size"),
        (("depth",), 2, "KEY=VALUE"),
        (("depth=",), 2, "KEY=VALUE"),
        (("=3",), 2, "known: interconnect"),
        (("gpu=H10O",), 2, "H100"),
        (("model=Llama-3.1-9B",), 2, "Llama-3.1-8B"),
        (("model=no/config.json",), 1, "cannot be read"),
        (("interconnect=zigbee",), 2, "nvlink4"),
        (("dtype=fp7",), 2, "nvfp4"),
        (("kv_dtype=int3",), 2, "fp8"),
        (("allreduce=mpi",), 2, "nccl"),
        (("schedule=magic",), 2, "sequential"),
        (("tp_size=0",), 2, "from 1"),
        (("tp_size=2.5",), 2, "whole number"),
        (("tp_size=4",), 2, "8 GPUs would do"),
        (("tp_size=65537",), 2, "from 1"),
        (("batch_size=nan",), 2, "from 1"),
        (("batch_size=1e400",), 2, "from 1"),
        (("batch_size=1000000",), 2, "does not fit"),
        (("context_tokens=-1",), 2, "from 0"),
        (("context_tokens=1,5",), 2, "from 0"),
        (("depth=0",), 2, "from 1"),
        (("depth=1:5",), 2, "from 1"),
        (("depth=1",), 2, "between 1 and 2"),
        (("topk=4",), 2, "--num-draft-tokens"),
        (("num_draft_tokens=16",), 2, "4"),
        (("draft.kind=oracle",), 2, "eagle3"),
        (("draft.vocab=0",), 2, "from 1"),
        (("draft.tp_size=3",), 2, "1 or tp_size (8)"),
        (("draft.step_ms=0",), 2, "draft.step_ms"),
        (("draft.record=none.json",), 1, "none.json"),
        (("draft.record=calibration.json",), 1, "drafter record"),
        (("depth=3", "num_steps=5"), 2, "twice"),
        (("tp_size=16", "num_gpus=16"), 2, "twice"),
        (("tp_size=16", "tp_size=16"), 2, "twice"),
        (("interconnect=nvlink4", "gpu=H10O"), 2, "H100"),
    ],
)
def test_what_cannot_be_set_is_refused_in_one_line(
    fitted: Run, changes: tuple[str, ...], status: int, said: str
) -> None:
    options = [part for change in changes for part in ("--set", change)]
    for command in ("predict", "whatif"):
        accept = ("--accept", "2.5")
        if command == "whatif" and (len(changes) > 1 or "depth=1" in changes or "fit" in said):
            continue  # a table has a row with the reason
        if command == "whatif" and any(
            mark in changes[0] for mark in ("tp_size=4", "topk", "num_")
        ):
            continue
        assert said in refusal(fitted(command, *accept, *options), status)
        refusal(fitted(command, *accept, *options, "--json"), status)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--depth", "5", "--set", "depth=5"), "same thing twice"),
        (("--batch-size", "4", "--set", "batch_size=4"), "same thing twice"),
        (("--set", "tp_size=16", "--plot", "x.png"), "--plot"),
        (("--set", "tp_size=16", "--points", "bench.csv"), "--points"),
        (("--set", "tp_size=16", "--workload", "nope"), "workload"),
        (("--set", "tp_size=16", "--topk", "4"), "--num-draft-tokens"),
    ],
)
def test_options_that_contradict_a_change_are_refused(
    fitted: Run, options: tuple[str, ...], said: str
) -> None:
    assert said in refusal(fitted("predict", "--accept", "2.5", *options), 2)


def test_nothing_to_predict_is_asked_for(fitted: Run) -> None:
    assert "--accept" in refusal(fitted("predict", "--set", "tp_size=16"), 2)


def test_depths_of_a_changed_rig_are_lines_with_the_best_one(fitted: Run) -> None:
    ask = (
        "predict",
        "--full",
        ".742,.47,.29,.15,.097",
        "--depth",
        "1:6",
        "--set",
        "interconnect=nvlink5",
    )
    text(fitted(*ask))
    record = answer(fitted(*ask, "--json"))
    assert [one["num_steps"] for one in record["predictions"]] == [1, 2, 3, 4, 5, 6]
    assert record["best_num_steps"] in range(7)
    assert 0 < record["probability_best"] <= 1
    speedups = [one["speedup"]["median"] for one in record["predictions"]]
    assert record["best_num_steps"] in {0, 1 + speedups.index(max(speedups))}


def test_a_target_on_a_changed_rig_names_its_accept_length(fitted: Run) -> None:
    ask = ("predict", "--accept", "2.5", "--target-speedup", "1.5", "--set", "draft.kind=mtp")
    record = answer(fitted(*ask, "--json"))
    needed = record["target"]["accept_length"]["median"]
    assert f"{needed:.2f}" in text(fitted(*ask))
    alone = answer(fitted("predict", *ask[3:], "--json"))
    assert alone["target"]["accept_length"] == record["target"]["accept_length"]
    assert alone["speedup"] is None


def test_training_accuracies_are_transferred_on_a_changed_rig_too(fitted: Run) -> None:
    ask = ("predict", "--full", ".74,.47,.29", "--accuracy-from", "training", "--set", "gpu=B200")
    record = answer(fitted(*ask, "--json"))
    assert record["as_logged"]["accept_length"]["median"] > record["accept_length"]["median"]
    assert "expected served" in text(fitted(*ask))


def test_a_baseline_of_the_changed_rig_goes_before_its_price(fitted: Run) -> None:
    ask = ("predict", "--accept", "2.5", "--set", "gpu=B200", "--baseline", "180", "--json")
    record = answer(fitted(*ask))
    assert record["output_tokens_per_s"]["median"] == pytest.approx(
        180 * record["speedup"]["median"]
    )


def test_an_accept_length_beyond_the_calibrated_depth_has_nothing_to_compare_with(
    fitted: Run,
) -> None:
    ask = ("predict", "--accept", "5", "--set", "depth=7")
    record = answer(fitted(*ask, "--json"))
    assert (record["num_steps"], record["speedup_ratio"]) == (7, None)
    assert "over the rig" not in text(fitted(*ask))


def test_a_calibration_without_a_rig_says_how_to_get_one(specmodel: Run, bench: Path) -> None:
    ask = ("predict", "--accept", "2.5", "--depth", "3", "--set", "tp_size=16")
    assert "specmodel whatif" in refusal(specmodel(*ask), 2)  # the packaged prior
    assert specmodel("fit", bench).exit_code == 0
    line = refusal(specmodel(*ask), 2)
    assert "`specmodel fit` with --model and --gpu" in line
    assert line.count("give") == 1
    assert "--model and --gpu" in refusal(specmodel("whatif", "--accept", "2"), 2)


@sample(1)
@pytest.mark.parametrize(("rate", "tokens"), [("1e6", "1e7"), ("4", "1e7"), ("0.000001", "1")])
def test_a_server_at_any_rate_of_a_changed_rig_keeps_to_80_columns(
    fitted: Run, rate: str, tokens: str
) -> None:
    ask = ("predict", "--accept", "2", "--arrival-rate", rate, "--output-tokens", tokens)
    text(fitted(*ask, "--set", "interconnect=nvlink4"))
    answer(fitted(*ask, "--set", "interconnect=nvlink4", "--json"))


# whatif on a calibration


def test_whatif_takes_the_calibration_of_the_folder_or_the_one_that_is_named(
    fitted: Run, tmp_path: Path
) -> None:
    here = answer(fitted("whatif", "--json"))
    assert (here["fitted_to_points"], here["num_times"]) == (True, 2)
    assert here["base"]["accept_length"] == 2.1
    assert "fitted to 2 measured times" in text(fitted("whatif")).lower()
    (tmp_path / "calibration.json").rename(tmp_path / "other.json")
    other = answer(fitted("whatif", "--calibration", "other.json", "--json"))
    assert other == here | {"calibration": "other.json"}
    assert "--model and --gpu" in refusal(fitted("whatif"), 2)
    assert "one of them" in refusal(fitted("whatif", "--calibration", "other.json", *RIG), 2)
    assert "none.json" in refusal(fitted("whatif", "--calibration", "none.json"), 1)


@sample(4)
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--depth", "5", "--accept", "3"),
        ("--batch-size", "8", "--accept", "2"),
        ("--context-tokens", "65536", "--accept", "2"),
        ("--topk", "4", "--num-draft-tokens", "16", "--accept", "2"),
        ("--set", "topk=4", "--set", "num_draft_tokens=16", "--set", "interconnect=nvlink4"),
        ("--set", "tp_size=4", "--set", "batch_size=1000000"),
        ("--set", "depth=1", "--set", "depth=5"),
        ("--set", "gpu=RTX PRO 6000", "--set", "interconnect=pcie_no_peer_access"),
    ],
)
def test_whatif_on_a_calibration_prices_or_gives_a_reason(
    fitted: Run, options: tuple[str, ...]
) -> None:
    text(fitted("whatif", *options))
    record = answer(fitted("whatif", *options, "--json"))
    for row in record["changes"]:
        assert (row["priced"] is None) == bool(row["reason"])
        assert (row["speedup_ratio"] is None) == (row["priced"] is None)
    assert sum(part["share"] for part in record["base"]["breakdown"]) == pytest.approx(1)


def test_whatif_asks_for_what_several_configurations_leave_open(
    specmodel: Run, tmp_path: Path
) -> None:
    (tmp_path / "bench.csv").write_text(BENCHES["sweep"], encoding="utf-8")
    assert specmodel("fit", "bench.csv", *RIG).exit_code == 0
    options: tuple[str, ...] = ()
    for option, value in (("--batch-size", "16"), ("--context-tokens", "8192"), ("--depth", "5")):
        line = refusal(specmodel("whatif", *options), 2)
        assert "several values" in line
        assert any(name in line for name in ("--batch-size", "--context-tokens", "--depth"))
        options += (option, value)
    text(specmodel("whatif", *options))
    another = (*options[:-1], "4")
    assert "--accept" in refusal(specmodel("whatif", *another), 2)
    text(specmodel("whatif", *another, "--accept", "2"))


# help


def options_of(help_text: str) -> Iterator[str]:
    """Words of a help text, without the line breaks inside lists."""
    yield from help_text.replace(",", " ").replace(".  [", " [").split()


@pytest.mark.parametrize("command", ["predict", "whatif"])
def test_the_help_names_every_key_but_synonyms(specmodel: Run, command: str) -> None:
    said = text(specmodel(command, "--help"))
    words = set(options_of(said.replace(". ", " ")))
    assert set(KEYS) - {"num_gpus", "num_steps"} <= words


def test_a_measured_all_reduce_outside_its_sizes_is_said_by_every_command_that_uses_it(
    specmodel: Run, tmp_path: Path
) -> None:
    table, points = tmp_path / "large.csv", tmp_path / "two.csv"
    table.write_text("size_bytes,time_us\n4000000,2000\n8000000,4000\n16000000,8000\n")
    points.write_text(
        "num_steps,batch_size,accept_length,throughput,baseline\n3,1,2.5,12,8\n3,8,2.5,70,60\n"
    )
    curve = tmp_path / "large.json"
    specmodel("allreduce", "fit", table, "--ranks", 2, "-o", curve)
    rig = ("--model", "Llama-3.1-8B", "--gpu", "H100", "--num-gpus", 2, "--allreduce", curve)
    said = "outside the measured 3.81 MiB to 15.3 MiB (2000 µs to 8000 µs)"
    fit = specmodel("fit", points, *rig, "--json")
    assert any(said in one["message"] for one in answer(fit)["warnings"])
    assert said in " ".join(fit.stderr.split())
    ask = ("predict", "--accept", 2.5, "--depth", 3, "--batch-size", 1, "--set", "kv_dtype=fp8")
    assert said in " ".join(specmodel(*ask).stderr.split())
    assert said in json.dumps(answer(specmodel(*ask, "--json")), ensure_ascii=False)
    named = ("whatif", *rig, "--depth", 3, "--accept", 2.5)
    assert said in " ".join(text(specmodel(*named)).split())
    assert any(said in one for one in answer(specmodel(*named, "--json"))["warnings"])
