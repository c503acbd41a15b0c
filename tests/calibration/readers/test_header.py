"""Names of columns."""

import pytest

from calibration.readers import CANONICAL_NAMES, canonical_name
from calibration.readers.columns import COLUMNS
from calibration.readers.header import closest_name, match_header, role_of

ALIASES = {  # the vocabulary that users are promised
    "accept_length": "acc_length, accept_len, acceptance_length, mean_acceptance_length, tau",
    "num_steps": "depth, k, num_speculative_tokens, nextn, speculative_num_steps",
    "topk": "eagle_topk, speculative_eagle_topk",
    "num_draft_tokens": "speculative_num_draft_tokens",
    "output_tokens_per_s": "throughput, tok/s, tps, output_throughput, tok_per_s, output_tok_s",
    "baseline_tokens_per_s": "baseline, baseline_throughput, baseline tok/s, baseline_tok_s",
    "batch_size": "bs, batch, concurrency",
    "workload": "dataset",
    "target_model": "model",
    "step_time_ms": "round_time_ms",
    "full_accuracy": "survival, per-position acceptance rate",
}


@pytest.mark.parametrize("name", CANONICAL_NAMES)
def test_canonical_names_mean_themselves(name: str) -> None:
    assert canonical_name(name) == name
    assert canonical_name(name.upper().replace("_", " ")) == name


@pytest.mark.parametrize("name", ALIASES)
def test_promised_aliases(name: str) -> None:
    for alias in ALIASES[name].split(", "):
        assert canonical_name(alias) == name
        assert canonical_name(f" {alias.title()} [unit] ") == name


def test_no_alias_is_the_name_of_another_column() -> None:
    for column in COLUMNS:
        for alias in column.aliases:
            assert canonical_name(alias) == column.name


@pytest.mark.parametrize(
    "name",
    ["top_k", "acceptance_rate", "total_throughput", "step_time", "ttft", "acc_k", "input_len"],
)
def test_names_that_can_mean_two_things_mean_nothing(name: str) -> None:
    assert canonical_name(name) is None


def test_columns_without_a_name_are_left_out() -> None:
    assert [column.index for column in match_header(["", "tau", " ", "x"])] == [1, 3]


def test_the_better_name_has_the_column() -> None:
    matched = match_header(["throughput", "depth", "output_throughput", "num_steps", "num_steps"])
    assert [c.column.name if c.column else None for c in matched] == [
        *(None, None, "output_tokens_per_s", "num_steps", None)
    ]


@pytest.mark.parametrize(
    ("written", "factor"),
    [
        *(("ttft_ms", 1), ("ttft_s", 1000), ("TTFT ms (s)", 1000), ("step_time_us", 1e-3)),
        *(("throughput (ktok/s)", 1000), ("tok/s (tok/s)", 1), ("spread (%)", 0.01)),
        *(("full_accuracy [%]", 0.01), ("step_time_ms (\N{MICRO SIGN}s)", 1e-3)),
    ],
)
def test_units_are_converted(written: str, factor: float) -> None:
    (column,) = match_header([written])
    assert column.column is not None
    assert column.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    "written", ["throughput (req/s)", "context_tokens (k)", "ttft_ms (min)", "output_tokens (MB)"]
)
def test_a_unit_that_is_not_understood_is_not_ignored(written: str) -> None:
    assert match_header([written])[0].column is None


@pytest.mark.parametrize(("unit", "scope"), [("tok/s/user", "per_user"), ("tok/s/GPU", "per_gpu")])
def test_the_unit_says_what_a_throughput_is_counted_over(unit: str, scope: str) -> None:
    assert match_header([f"throughput ({unit})"])[0].scope == scope


def test_near_misses_are_suggested() -> None:
    assert closest_name("acept length") == "accept_length"
    assert closest_name("operator") is None


@pytest.mark.parametrize(
    ("written", "scope"),
    [
        *(("tok/s (tok/s/user)", "per_user"), ("throughput [tokens/s per GPU]", "per_gpu")),
        *(("throughput (tok/s)", ""), ("throughput (higher is better)", "")),
    ],
)
def test_the_unit_of_a_throughput_may_say_what_it_is_counted_over(written: str, scope: str) -> None:
    (column,) = match_header([written])
    assert column.column is not None
    assert (column.scope, column.factor) == (scope, 1.0)


@pytest.mark.parametrize(
    "written", ["throughput (tok/s/node)", "throughput (%)", "accept_length (%)", "speedup [%]"]
)
def test_a_unit_that_a_column_cannot_have_makes_it_unknown(written: str) -> None:
    (column,) = match_header([written])
    assert column.column is None


@pytest.mark.parametrize(
    ("label", "role"),
    [
        *(
            (label, "baseline")
            for label in ("off", "No", "none", "plain", "AR", "base", "baseline")
        ),
        *(
            (label, "baseline")
            for label in ("no spec", "MTP off", "without MTP", "w/o speculation")
        ),
        *((label, "baseline") for label in ("Baseline (no draft)", "no draft model", "Spec: off")),
        *((label, "baseline") for label in ("non-speculative", "MTP=none", "disabled")),
        *((label, "speculative") for label in ("EAGLE-3 (no tree)", "MTP, no thinking", "EAGLE3")),
        *((label, "speculative") for label in ("base + EAGLE", "MTP without CUDA graphs")),
        *((label, "") for label in ("default", "No tuning was done", "H100, no NVLink")),
    ],
)
def test_the_name_of_a_run_says_whether_it_drafts(label: str, role: str) -> None:
    assert role_of(label) == role


@pytest.mark.parametrize(
    "written",
    ["E2E (s)", "Output (s)", "generation (ms)", "decode (ms)", "throughput (s)", "speed (x)"],
)
def test_a_time_or_a_ratio_is_no_rate(written: str) -> None:
    (column,) = match_header([written])
    assert column.column is None or not column.column.name.endswith("_per_s")
