"""`specmodel predict --arrival-rate`: a server whose law is known, and what is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from calibration import fit

Run = Callable[..., Result]

TOKENS, ACCEPT = 512, 2.75
STEP_MS, MORE_MS, ROUND_MS, ROUND_MORE_MS = 10.0, 0.15, 13.5, 0.54
"""theory.md B8: t0 and t1 of a step, 1.35 and 3.6 times as much of a round."""

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WAY = {
    *("keeps_up", "probability_keeps_up", "running_requests", "per_user_tokens_per_s"),
    *("decode_latency_s", "waiting_s", "output_tokens_per_s", "max_rate_per_s"),
    "share_of_max_rate",
}


def linear_rows(batches: tuple[int, ...] = BATCHES, *, columns: str = "", cells: str = "") -> str:
    """Points of a server whose step and round grow by as much with every further request."""
    lines = [
        "num_steps,batch_size,accept_length,output_tokens_per_s,baseline_tokens_per_s" + columns
    ]
    for batch in batches:
        step_ms = STEP_MS + MORE_MS * (batch - 1)
        round_ms = ROUND_MS + ROUND_MORE_MS * (batch - 1)
        baseline = 1e3 * batch / step_ms
        lines.append(f"5,{batch},{ACCEPT},{1e3 * ACCEPT * batch / round_ms},{baseline}{cells}")
    return "\n".join(lines) + "\n"


def saved(folder: Path, text: str) -> Path:
    bench = folder / "bench.csv"
    bench.write_text(text, encoding="utf-8")
    fit(bench).save(folder / "server.json")
    return folder / "server.json"


@pytest.fixture(scope="module", name="linear")
def _linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("linear"), linear_rows())


@pytest.fixture(scope="module", name="rig")
def _rig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Baselines at one batch, of a model and a GPU that are known."""
    columns, cells = ",target_model,gpu", ",Llama-3.1-8B,H100"
    return saved(tmp_path_factory.mktemp("rig"), linear_rows((8,), columns=columns, cells=cells))


def asked(run: Run, calibration: Path, rate: float, *more: str | Path) -> dict[str, Any]:
    common = ("--calibration", calibration, "--accept", ACCEPT, "--output-tokens", TOKENS)
    result = run("predict", *common, "--arrival-rate", rate, *more, "--json")
    assert result.exit_code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def codes(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer["warnings"]]


# --- the law of linear steps ---


@pytest.mark.parametrize(("rate", "speedup"), [(0.2, 2.03), (4.0, 1.76), (8.0, 1.03)])
def test_the_worked_example_comes_back_from_its_points(
    specmodel: Run, linear: Path, rate: float, speedup: float
) -> None:
    answer = asked(specmodel, linear, rate)
    latency_s = 1e-3 * TOKENS * STEP_MS / (1.0 - 1e-3 * rate * TOKENS * MORE_MS)
    plain = answer["without_speculation"]
    assert plain["decode_latency_s"]["median"] == pytest.approx(latency_s, rel=0.03)
    assert plain["running_requests"]["median"] == pytest.approx(rate * latency_s, rel=0.03)
    assert answer["speedup"]["median"] == pytest.approx(speedup, rel=0.015)
    assert answer["speedup"]["low"] < speedup < answer["speedup"]["high"]


def test_with_prefill_steps_and_rounds_are_those_of_decoding_alone(
    specmodel: Run, linear: Path
) -> None:
    known = json.loads(linear.read_text(encoding="utf-8"))["constants"]
    share = known["non_decode_share"]["value"]
    assert share > 0.01
    wall, decoding = (
        asked(specmodel, linear, 0.01, *more)["without_speculation"]["decode_latency_s"]["median"]
        for more in ((), ("--prefill-ms", "0"))
    )
    assert decoding / wall == pytest.approx(1.0 - share, rel=0.01)


def test_speculation_stops_paying_at_the_crossover_of_the_closed_form(
    specmodel: Run, linear: Path
) -> None:
    answer = asked(specmodel, linear, 4.0)
    assert answer["speculation_pays"] == "below"
    assert answer["pays_from_rate_per_s"]["median"] == 0.0
    crossover = answer["crossover_rate_per_s"]
    assert crossover["median"] == pytest.approx(8.10, rel=0.02)
    assert crossover["low"] < 8.10
    assert crossover["high"] is None or crossover["high"] > 8.10


def test_a_full_server_carries_the_throughput_of_its_largest_batch(
    specmodel: Run, linear: Path
) -> None:
    answer = asked(specmodel, linear, 1.0, "--max-running", "256")
    assert answer["max_running_requests"] == 256
    step_s = 1e-3 * (STEP_MS + MORE_MS * 255)
    largest = answer["without_speculation"]["max_rate_per_s"]["median"]
    assert largest == pytest.approx(256 / step_s / TOKENS, rel=1e-6)
    round_s = 1e-3 * (ROUND_MS + ROUND_MORE_MS * 255)
    largest = answer["with_speculation"]["max_rate_per_s"]["median"]
    assert largest == pytest.approx(ACCEPT * 256 / round_s / TOKENS, rel=0.01)


# --- what belongs together ---


def test_every_way_has_the_same_keys_and_obeys_little_s_law(specmodel: Run, linear: Path) -> None:
    answer = asked(specmodel, linear, 4.0, "--prefill-ms", "10")
    assert answer["schema_version"] == 1
    assert answer["form"] == "relative"
    for name in ("without_speculation", "with_speculation"):
        way = answer[name]
        assert set(way) == WAY
        latency_s = way["decode_latency_s"]["median"]
        assert way["running_requests"]["median"] == pytest.approx(4.0 * latency_s)
        assert way["per_user_tokens_per_s"]["median"] == pytest.approx(TOKENS / latency_s)
        assert way["output_tokens_per_s"]["median"] == 4.0 * TOKENS
        assert way["share_of_max_rate"]["median"] == pytest.approx(
            4.0 / way["max_rate_per_s"]["median"]
        )
        for value in (way["running_requests"], way["decode_latency_s"], way["max_rate_per_s"]):
            assert value["low"] < value["median"] < value["high"]


def test_a_user_s_speed_is_that_of_a_prediction_at_the_running_requests(
    specmodel: Run, linear: Path
) -> None:
    # The rate at which a server that always runs 16 requests decodes what arrives.
    round_s = 1e-3 * (ROUND_MS + ROUND_MORE_MS * 15)
    rate = ACCEPT * 16 / round_s / TOKENS
    way = asked(specmodel, linear, rate)["with_speculation"]
    assert way["running_requests"]["median"] == pytest.approx(16.5, rel=0.06)
    common = ("--calibration", linear, "--accept", ACCEPT, "--batch-size", "16", "--json")
    at_16 = json.loads(specmodel("predict", *common).stdout)
    assert way["per_user_tokens_per_s"]["median"] == pytest.approx(
        at_16["per_user_tokens_per_s"]["median"], rel=0.06
    )


def test_prefill_takes_its_time_from_the_largest_rate(specmodel: Run, linear: Path) -> None:
    rates = [
        asked(specmodel, linear, 1.0, "--prefill-ms", prefill)["with_speculation"][
            "max_rate_per_s"
        ]["median"]
        for prefill in ("0", "200")
    ]
    assert 1 / rates[1] - 1 / rates[0] == pytest.approx(0.2, rel=1e-6)


def test_without_prefill_the_share_of_the_points_is_said(specmodel: Run, linear: Path) -> None:
    assert "prefill_not_given" in codes(asked(specmodel, linear, 1.0))
    assert "prefill_not_given" not in codes(asked(specmodel, linear, 1.0, "--prefill-ms", "0"))


def test_more_than_was_measured_is_said(specmodel: Run, tmp_path: Path) -> None:
    few = saved(tmp_path, linear_rows((1, 4)))
    answer = asked(specmodel, few, 1.0)
    assert answer["max_running_requests"] == 8
    assert "extrapolation" in codes(answer)
    assert "extrapolation" not in codes(asked(specmodel, few, 0.1))


def test_away_from_measured_batches_the_interval_is_wider(specmodel: Run, tmp_path: Path) -> None:
    def width(batches: tuple[int, ...]) -> float:
        answer = asked(specmodel, saved(tmp_path, linear_rows(batches)), 4.0, "--max-running", "64")
        low_high = answer["without_speculation"]["running_requests"]
        return float(low_high["high"] / low_high["low"])

    assert width((1, 8)) > 1.1 * width((1, 8, 32, 64))


def test_a_server_that_cannot_keep_up_says_so(specmodel: Run, linear: Path) -> None:
    both = asked(specmodel, linear, 40.0)
    assert both["speedup"] is None
    for name in ("without_speculation", "with_speculation"):
        assert both[name]["keeps_up"] is False
        assert both[name]["waiting_s"]["median"] is None
        assert both[name]["output_tokens_per_s"]["median"] < 40.0 * TOKENS
    common = ("--calibration", linear, "--accept", ACCEPT, "--output-tokens", TOKENS)
    text = specmodel("predict", *common, "--arrival-rate", "40").stdout
    assert text.count("overloaded") == 2
    assert "without end" in text


def test_speculation_that_never_pays_and_that_always_does_is_said_plainly(
    specmodel: Run, linear: Path
) -> None:
    common = ("--calibration", linear, "--output-tokens", TOKENS, "--arrival-rate", "1")
    never = specmodel("predict", *common, "--accept", "1.2")
    assert "at no arrival rate" in " ".join(never.stdout.split())
    always = specmodel("predict", *common, "--accept", "5.5")
    assert "at every arrival rate that can be served: no crossover" in " ".join(
        always.stdout.split()
    )
    assert max(map(len, (never.stdout + always.stdout).splitlines())) <= 80


def test_bounds_of_the_paying_rates_say_which_end_is_none(specmodel: Run, tmp_path: Path) -> None:
    """A round that grows less with the batch than a step pays from some rate on, if it pays at all."""
    columns = ",num_steps,batch_size,target_model,gpu,num_gpus,dtype\n"
    text = "accept_length,throughput,baseline" + columns
    file = saved(tmp_path, text + "2.1,82.3,90.0,5,1,Kimi-K2.5,RTX PRO 6000 Server,8,int4\n")
    load = ("--accept", "2.1", "--arrival-rate", "1", "--output-tokens", "512")
    result = specmodel("predict", "--calibration", file, *load)
    line = " ".join(result.stdout.partition("it pays")[2].split())
    start, _, stop = line.partition(" up to ")
    assert start.startswith("from ")
    assert start.endswith("to no rate)")
    assert "(90 %: no rate to " in stop


def test_a_slower_workload_has_slower_steps(specmodel: Run, tmp_path: Path) -> None:
    lines = [
        "workload,num_steps,batch_size,accept_length,output_tokens_per_s,baseline_tokens_per_s"
    ]
    for name, factor in (("chat", 1.0), ("long", 0.8)):
        for batch in (1, 8, 32):
            rate = factor * 1e3 * batch / (STEP_MS + MORE_MS * (batch - 1))
            lines.append(f"{name},3,{batch},2.5,{1.6 * rate},{rate}")
    two = saved(tmp_path, "\n".join(lines) + "\n")
    chat, long = (
        asked(specmodel, two, 2.0, "--workload", name)["without_speculation"]["max_rate_per_s"]
        for name in ("chat", "long")
    )
    assert long["median"] == pytest.approx(0.8 * chat["median"], rel=0.01)


# --- the physical form ---


def test_baselines_at_one_batch_are_answered_by_the_physical_form(
    specmodel: Run, rig: Path
) -> None:
    answer = asked(specmodel, rig, 1.0)
    assert answer["form"] == "physical"
    assert answer["max_running_requests"] > 8
    changed = asked(specmodel, rig, 1.0, "--set", "gpu=H200")
    assert changed["set"] == {"gpu": "H200"}
    rates = [one["without_speculation"]["max_rate_per_s"]["median"] for one in (answer, changed)]
    assert rates[1] > rates[0]


def test_memory_limits_the_running_requests_of_a_rig(specmodel: Run, rig: Path) -> None:
    short, long = (
        asked(specmodel, rig, 0.1, "--context-tokens", tokens)["max_running_requests"]
        for tokens in ("2000", "20000")
    )
    # 80 GB less 16 GB of weights: 128 KiB a token
    assert short == pytest.approx(10 * long, rel=0.1)
    assert long * 20_000 * 131_072 < 64e9
    line = refused(
        *(specmodel, "--calibration", rig, "--accept", "2.75", "--output-tokens", "512"),
        *("--arrival-rate", "1", "--context-tokens", "20000", "--max-running", str(10 * long)),
    )
    assert f"at most {long}, which memory holds" in line


# --- what is refused ---


def refused(run: Run, *arguments: str | Path) -> str:
    result = run("predict", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return str(line)


def test_one_batch_without_a_rig_says_what_to_add(specmodel: Run, tmp_path: Path) -> None:
    one = saved(tmp_path, linear_rows((8,)))
    common = ("--accept", ACCEPT, "--output-tokens", TOKENS, "--arrival-rate", "1")
    line = refused(specmodel, "--calibration", one, *map(str, common))
    assert "at one batch, 8" in line
    assert "num_steps 0" in line
    assert "--gpu" in line


def test_the_packaged_prior_knows_no_server(specmodel: Run) -> None:
    line = refused(
        *(specmodel, "--accept", "2.75", "--depth", "5"),
        *("--output-tokens", "512", "--arrival-rate", "1"),
    )
    assert "--calibration" in line


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--batch-size", "4"), "--batch-size"),
        (("--baseline", "90"), "--baseline"),
        (("--target-speedup", "1.5"), "--target-speedup"),
        (("--claim", "3"), "--claim"),
        (("--plot", "x.png"), "--plot"),
        (("--depth", "1:4", "--accept-depth", "3"), "--depth"),
        (("--prefill-ms", "-1"), "--prefill-ms"),
        (("--max-running", "0"), "--max-running"),
        (("--points", "bench.csv"), "--points"),
    ],
)
def test_what_has_no_meaning_at_an_arrival_rate_is_refused(
    specmodel: Run, linear: Path, more: tuple[str, ...], named: str
) -> None:
    line = refused(
        *(specmodel, "--calibration", linear, "--accept", "2.75"),
        *("--arrival-rate", "1", "--output-tokens", "512", *more),
    )
    assert named in line


def test_a_batch_among_the_changes_says_a_thing_twice(specmodel: Run, rig: Path) -> None:
    line = refused(
        *(specmodel, "--calibration", rig, "--accept", "2.75", "--set", "batch_size=4"),
        *("--arrival-rate", "1", "--output-tokens", "512"),
    )
    assert "--set batch_size" in line


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (("--accept", "2", "--output-tokens", "5"), "--arrival-rate"),
        (("--accept", "2", "--prefill-ms", "5"), "--arrival-rate"),
        (("--accept", "2", "--max-running", "5"), "--arrival-rate"),
        (("--accept", "2", "--arrival-rate", "5"), "--output-tokens"),
        (("--arrival-rate", "5", "--output-tokens", "5"), "--accept"),
        (("--accept", "2", "--arrival-rate", "0", "--output-tokens", "5"), "--arrival-rate"),
    ],
)
def test_what_is_missing_is_named(
    specmodel: Run, linear: Path, arguments: tuple[str, ...], needed: str
) -> None:
    assert needed in refused(specmodel, "--calibration", linear, *arguments)


def test_a_prediction_without_an_arrival_rate_loads_nothing_of_it(
    linear: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from calibration.cli import main\n"
        f"main(['predict', '--calibration', {str(linear)!r}, '--accept', '2.75', '--batch-size', '8'],"
        " standalone_mode=False)\n"
        "heavy = {'specmodel.arrival', 'calibration.predict.arrival', 'calibration.predict.relative_times'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
