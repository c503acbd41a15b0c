"""The rows of the packaged tables: shape, identities and values typed from the publications."""

import csv
import math
from collections import Counter
from functools import cache

import pytest

from calibration.points.packaged import PackagedTable, packaged_table, packaged_tables

# design.md, section 5, then the two columns that cite each row
COLUMNS = [
    "accept_length",
    "output_tokens_per_s",
    "baseline_tokens_per_s",
    "batch_size",
    "num_steps",
    "topk",
    "num_draft_tokens",
    "context_tokens",
    "output_tokens",
    "ttft_ms",
    "step_time_ms",
    "baseline_step_time_ms",
    "spread",
    "full_accuracy",
    "temperature",
    "dtype",
    "variant",
    "throughput_scope",
    "num_experts",
    "experts_per_token",
    "workload",
    "target_model",
    "draft_model",
    "algorithm",
    "engine",
    "engine_version",
    "gpu",
    "num_gpus",
    "tp_size",
    "interconnect",
    "source_id",
    "source_url",
    "date",
    "notes",
    "how",
    "locator",
]
WHOLE = ["batch_size", "num_steps", "topk", "num_draft_tokens", "context_tokens", "num_experts"]
WHOLE += ["experts_per_token", "num_gpus", "tp_size", "output_tokens"]
REAL = ["accept_length", "output_tokens_per_s", "baseline_tokens_per_s", "step_time_ms"]
REAL += ["baseline_step_time_ms", "temperature", "ttft_ms", "spread"]
SYSTEM = ["target_model", "engine", "engine_version", "gpu", "num_gpus", "tp_size"]
SYSTEM += ["interconnect", "dtype", "variant", "source_id"]
EXPERTS = {  # routed experts, experts per token: the models' own configurations
    "Qwen3-30B-A3B": ("128", "8"),
    "Qwen3-235B-A22B": ("128", "8"),
    "Qwen3-Coder-480B-A35B": ("160", "8"),
    "Kimi-K2": ("384", "8"),
    "Kimi-K2.6": ("384", "8"),
    "DeepSeek-V3": ("256", "8"),
    "DeepSeek-R1": ("256", "8"),
    "Llama-4-Scout-17B-16E": ("16", "1"),
}

Row = dict[str, str]
every_table = pytest.mark.parametrize("table", packaged_tables(), ids=lambda table: table.name)


@cache
def rows_of(name: str) -> list[Row]:
    with packaged_table(name).path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def speculative(name: str) -> list[Row]:
    return [row for row in rows_of(name) if row["num_steps"] != "0"]


def round_cost(row: Row) -> float:
    return (
        float(row["accept_length"])
        * float(row["baseline_tokens_per_s"])
        / float(row["output_tokens_per_s"])
    )


@every_table
def test_header_is_canonical(table: PackagedTable) -> None:
    with table.path.open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == COLUMNS
    assert b"\r" not in table.path.read_bytes()


@every_table
def test_counts_are_those_of_the_description(table: PackagedTable) -> None:
    assert len(rows_of(table.name)) == table.num_rows
    assert len(speculative(table.name)) == table.num_speculative_rows


@every_table
def test_every_row_is_cited(table: PackagedTable) -> None:
    for row in rows_of(table.name):
        assert row["source_url"].startswith("https://")
        assert row["locator"].strip()
        assert "{" not in row["locator"]
        assert row["how"] in {"table", "text", "digitised", "derived"}
    assert {row["source_id"] for row in rows_of(table.name)} == set(table.source_keys)


@every_table
def test_numbers_are_plain_and_positive(table: PackagedTable) -> None:
    for row in rows_of(table.name):
        for column in WHOLE:
            assert row[column] == "" or row[column].isdecimal()
        for column in REAL:
            assert row[column] == "" or math.isfinite(float(row[column]))
        assert float(row["output_tokens_per_s"]) > 0
        assert row["throughput_scope"] in {"aggregate", "per_user", "per_gpu", ""}


@every_table
def test_speculative_rows_carry_the_three_numbers_of_a_round_cost(table: PackagedTable) -> None:
    for row in speculative(table.name):
        assert float(row["baseline_tokens_per_s"]) > 0
        assert row["algorithm"] not in {"", "none"}
        longest = float(row["num_draft_tokens"] or "inf")
        if row["num_steps"]:
            longest = min(longest, float(row["num_steps"]) + 1)
        assert 1 <= float(row["accept_length"]) <= longest


@every_table
def test_baseline_rows_are_cells_no_speculative_row_carries(table: PackagedTable) -> None:
    cell = [*SYSTEM, "batch_size", "context_tokens", "workload"]
    carried = {tuple(row[key] for key in cell) for row in speculative(table.name)}
    for row in rows_of(table.name):
        if row["num_steps"] == "0":
            assert row["accept_length"] == ""
            assert row["baseline_tokens_per_s"] == ""
            assert tuple(row[key] for key in cell) not in carried


@every_table
def test_step_times_agree_with_throughput(table: PackagedTable) -> None:
    for row in rows_of(table.name):
        batch = float(row["batch_size"] or "nan")
        if row["step_time_ms"]:
            length = float(row["accept_length"] or "1")
            expected = 1e3 * batch * length / float(row["output_tokens_per_s"])
            assert float(row["step_time_ms"]) == pytest.approx(expected, rel=0.05)
        if row["baseline_step_time_ms"]:
            expected = 1e3 * batch / float(row["baseline_tokens_per_s"])
            assert float(row["baseline_step_time_ms"]) == pytest.approx(expected, rel=0.05)


@every_table
def test_full_accuracy_falls_and_sums_to_the_accept_length(table: PackagedTable) -> None:
    for row in rows_of(table.name):
        if row["full_accuracy"]:
            rates = [float(part) for part in row["full_accuracy"].split(";")]
            assert rates == sorted(rates, reverse=True)
            assert len(rates) == int(row["num_draft_tokens"]) - 1
            assert float(row["accept_length"]) == pytest.approx(1 + sum(rates), rel=0.015)


@every_table
def test_expert_counts_follow_the_class(table: PackagedTable) -> None:
    for row in rows_of(table.name):
        counts = (row["num_experts"], row["experts_per_token"])
        if table.system_class == "dense":
            assert counts in {("0", "0"), ("", "")}  # empty: the target is not named
        else:
            assert int(counts[1]) < int(counts[0])
        assert EXPERTS.get(row["target_model"], counts) == counts


def test_chains_verify_one_token_more_than_steps() -> None:
    for table in packaged_tables():
        for row in speculative(table.name):
            if row["topk"] == "1" and row["num_steps"]:
                assert int(row["num_draft_tokens"]) == int(row["num_steps"]) + 1


def test_one_baseline_per_cell_of_a_system() -> None:
    seen: dict[tuple[str, ...], str] = {}
    cell = [*SYSTEM, "batch_size", "context_tokens", "workload"]
    for table in packaged_tables():
        for row in speculative(table.name):
            key = tuple(row[column] for column in cell)
            assert (
                seen.setdefault(key, row["baseline_tokens_per_s"]) == row["baseline_tokens_per_s"]
            )


def test_no_measurement_stands_in_two_tables_or_twice() -> None:
    fields = ["target_model", "workload", "batch_size", "context_tokens", "num_steps", "topk"]
    fields += ["accept_length", "baseline_tokens_per_s", "output_tokens_per_s", "dtype", "variant"]
    counts = Counter(
        tuple(row[field] for field in fields)
        for table in packaged_tables()
        for row in rows_of(table.name)
    )
    assert [key for key, count in counts.items() if count > 1] == []


def test_only_llama4_scout_has_round_costs_below_one() -> None:
    below = Counter(
        table.name
        for table in packaged_tables()
        for row in speculative(table.name)
        if round_cost(row) < 1
    )
    assert below == {"specbundle-llama4-scout": 25}


PUBLISHED = [
    # table, conditions, accept length, output, baseline
    ("rtx6kpro-kimi-k26-dcp4", {"batch_size": "8", "context_tokens": "0"}, 2.319, 386.2, 315.7),
    ("trtllm-dsr1-b200-mtp", {"num_steps": "1"}, 1.92, 198, 111),
    ("trtllm-dsr1-b200-mtp", {"num_steps": "3"}, 2.82, 253, 111),
    ("trtllm-dsr1-b200-mtp", {"num_steps": "5"}, 3.01, 239, 111),
    ("vllm-20780-eagle1", {"num_steps": "3"}, 2.29, 1e3 / 4.29, 1e3 / 7.07),
    ("vllm-20780-eagle3", {"num_steps": "4"}, 3.08, 1e3 / 4.05, 1e3 / 7.07),
    ("vllm-20780-eagle3", {"num_steps": "7"}, 3.54, 1e3 / 4.29, 1e3 / 7.07),
    ("sglang-pr23336-glm47", {"num_steps": "7"}, 4.52, 732.3, 447.2),
    (
        "specbundle-kimi-k2",
        {"workload": "math500", "num_steps": "7", "topk": "4"},
        3.1435862587473253,
        649.083231514055,
        492.06079685961566,
    ),
    ("angelslim-163-qwen3-30b-a3b", {"batch_size": "32"}, 2.560, 927.11, 1128.30),
    ("angelslim-h20-qwen3vl-30b-a3b", {"workload": "mmstar"}, 1.94, 52.57, 30.93),
]


@pytest.mark.parametrize(("name", "where", "length", "output", "baseline"), PUBLISHED)
def test_published_values_are_there(
    name: str, where: dict[str, str], length: float, output: float, baseline: float
) -> None:
    found = [row for row in rows_of(name) if where.items() <= row.items()]
    assert len(found) == 1
    assert float(found[0]["accept_length"]) == pytest.approx(length, abs=5e-4)
    assert float(found[0]["output_tokens_per_s"]) == pytest.approx(output, rel=1e-4)
    assert float(found[0]["baseline_tokens_per_s"]) == pytest.approx(baseline, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("vllm-20780-eagle1", [1.298, 1.390, 1.514, 1.619, 1.712, 1.817]),
        ("vllm-20780-eagle3", [1.442, 1.614, 1.764, 1.939, 2.055, 2.148]),
    ],
)
def test_depth_sweeps_give_the_published_round_costs(name: str, published: list[float]) -> None:
    rows = sorted(speculative(name), key=lambda row: int(row["num_steps"]))
    assert [round_cost(row) for row in rows] == pytest.approx(published, abs=6e-4)


def test_round_cost_of_kimi_on_pcie_rises_with_context() -> None:
    rows = [row for row in speculative("rtx6kpro-kimi-k26-dcp4") if row["batch_size"] == "8"]
    rows.sort(key=lambda row: int(row["context_tokens"]))
    assert round_cost(rows[0]) == pytest.approx(1.90, abs=0.005)
    assert round_cost(rows[-1]) == pytest.approx(2.95, abs=0.005)
