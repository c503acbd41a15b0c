"""The DSPARK cost table, evaluated as SGLang does, against times worked by hand."""

import json
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.fitting import fit
from calibration.packaged import packaged_table
from calibration.readers import sglang_dspark_cost_table
from calibration.readers.dspark_table import DsparkTable
from calibration.readers.reading import SourceText
from calibration.writers.dspark_table import (
    GROWTH_PER_PROBE,
    dspark_additive_table,
    dspark_sampled_table,
    dspark_table_text,
    write_dspark_table,
)
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError

MakeSystem = Callable[..., Calibration]


def sampled_s(table: dict[str, Any], rows: int) -> float:
    """Seconds per round: the probe at or below, the first below all."""
    place = max(bisect_right(table["sample_batch_tokens"], rows) - 1, 0)
    return float(1.0 / table["sample_steps_per_sec"][place])


def additive_s(table: dict[str, Any], requests: int, rows: int) -> float:
    """Seconds per round: straight lines between probes, held at the ends."""
    alpha = np.interp(requests, table["bs_probes"], table["alpha_seconds"])
    theta = np.interp(rows, table["m_probes"], table["theta_seconds"])
    return float(table["bias_seconds"] + alpha + theta)


def check_as_sglang_does(table: dict[str, Any]) -> None:
    if "bias_seconds" in table:
        assert table["bias_seconds"] > 0
        axes = [("bs_probes", "alpha_seconds"), ("m_probes", "theta_seconds")]
    else:
        axes = [("sample_batch_tokens", "sample_steps_per_sec")]
        assert table["max_batch_tokens"] >= table["sample_batch_tokens"][-1]
        assert all(rate > 0 for rate in table["sample_steps_per_sec"])
    for probes, values in axes:
        assert all(type(one) is int for one in table[probes])
        assert table[probes] == sorted(set(table[probes]))
        assert len(table[probes]) == len(table[values]) > 1


def test_sampled_times_are_the_hand_worked_ones(flat_then_linear: Calibration) -> None:
    # n = 4: 10 ms max(1, m / 8) for the verification, a tenth of the baseline step for the draft
    table = dspark_sampled_table(flat_then_linear, 4)
    check_as_sglang_does(table)
    assert table["sample_batch_tokens"][0] == 1
    assert table["max_batch_tokens"] == 128
    for rows, rate in zip(table["sample_batch_tokens"], table["sample_steps_per_sec"], strict=True):
        verify = 0.010 * max(1.0, rows / 8)
        draft = 0.001 * max(1.0, rows / 4 / 8)
        assert 1 / rate == pytest.approx(verify + draft, rel=1e-6)


def test_no_row_is_promised_much_less_than_it_takes(flat_then_linear: Calibration) -> None:
    table = dspark_sampled_table(flat_then_linear, 4)
    for rows in range(1, 129):
        true_s = 0.010 * max(1.0, rows / 8) + 0.001 * max(1.0, rows / 4 / 8)
        told_s = sampled_s(table, rows)
        # At few rows one row more is a longer way than from probe to probe.
        assert told_s <= true_s * (1 + 1e-9)
        assert told_s >= true_s / (1 + max(GROWTH_PER_PROBE, 1 / rows)) * (1 - 1e-9)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_the_additive_form_is_the_model_of_the_round(
    make_system: MakeSystem, share: float, exponent: float
) -> None:
    # V(B, m) = 1.2 (T(B) + share (T(m) - T(B))), D(B) = 0.3 T(B) (10 ms / T(B))^exponent
    system = make_system(
        {1.0: 0.010, 8.0: 0.010, 128.0: 0.160},
        fixed_cost=1.2,
        step_cost=0.3,
        growth_share=share,
        draft_exponent=exponent,
    )
    table = dspark_additive_table(system)
    check_as_sglang_does(table)

    def step_s(batch: int) -> float:
        return 0.010 * max(1.0, batch / 8)

    for requests in (1, 2, 8, 16, 32):
        for rows in (requests, 2 * requests, 4 * requests):
            base_s = step_s(requests)
            verify_s = 1.2 * (base_s + share * (step_s(rows) - base_s))
            draft_s = 0.3 * base_s * (0.010 / base_s) ** exponent
            told_s = additive_s(table, requests, rows)
            assert told_s == pytest.approx(verify_s + draft_s, rel=1e-6)


def test_both_forms_agree_at_full_blocks(flat_then_linear: Calibration) -> None:
    additive = dspark_additive_table(flat_then_linear)
    sampled = dspark_sampled_table(flat_then_linear, 4)
    for rows in (4, 8, 32, 64, 128):
        assert additive_s(additive, rows // 4, rows) == pytest.approx(
            sampled_s(sampled, rows), rel=1e-6
        )


def test_a_step_has_a_probe_on_each_side(make_system: MakeSystem) -> None:
    # 5 ms up to 16 rows, 20 ms from 32 on: faster growth than the batch's, so there is a step
    system = make_system({1.0: 0.005, 16.0: 0.005, 32.0: 0.020, 64.0: 0.020}, step_cost=1e-9)
    table = dspark_sampled_table(system, 4)
    assert {16, 17} <= set(table["sample_batch_tokens"])
    assert sampled_s(table, 16) == pytest.approx(0.005)
    assert sampled_s(table, 17) == pytest.approx(0.020)  # where it lies is not known: the safe side
    told = dspark_sampled_table(system, 4, last_rows_before_step=[24])
    assert {24, 25} <= set(told["sample_batch_tokens"])
    assert sampled_s(told, 24) == pytest.approx(0.005)
    assert sampled_s(told, 25) == pytest.approx(0.020)
    additive = dspark_additive_table(system, last_rows_before_step=[24])
    assert additive_s(additive, 1, 24) == pytest.approx(0.005)
    assert additive_s(additive, 1, 25) == pytest.approx(0.020)


def test_times_never_fall(make_system: MakeSystem) -> None:
    table = dspark_sampled_table(make_system({1.0: 0.010, 8.0: 0.009, 32.0: 0.012}), 4)
    assert all(after <= before for before, after in pairwise(table["sample_steps_per_sec"]))


def test_the_last_row_lies_within_the_baselines(flat_then_linear: Calibration) -> None:
    table = dspark_sampled_table(flat_then_linear, 4, max_batch_tokens=64)
    assert table["max_batch_tokens"] == table["sample_batch_tokens"][-1] == 64
    with pytest.raises(ParameterError, match="above 1 and at most 128"):
        dspark_sampled_table(flat_then_linear, 4, max_batch_tokens=129)
    with pytest.raises(ParameterError, match="last_rows_before_step must be from 1 to 127"):
        dspark_additive_table(flat_then_linear, last_rows_before_step=[128])


def test_without_a_batch_curve_there_is_no_table(make_system: MakeSystem) -> None:
    with pytest.raises(ParameterError, match="without speculation over batch 1 to 64"):
        dspark_additive_table(make_system())
    with pytest.raises(ParameterError, match="num_draft_tokens must be at least 2"):
        dspark_sampled_table(make_system({1.0: 0.01, 8.0: 0.02}), 1)


@pytest.mark.parametrize("context_tokens", [0, 65536])
def test_a_measured_system_with_context_gives_lawful_tables(context_tokens: int) -> None:
    calibration = fit(packaged_table("rtx6kpro-kimi-k26-dcp1").path, profile=False)
    for table in (
        dspark_sampled_table(calibration, 8, context_tokens=context_tokens),
        dspark_additive_table(calibration, context_tokens=context_tokens),
    ):
        check_as_sglang_does(json.loads(dspark_table_text(table)))


def test_the_file_is_the_text(flat_then_linear: Calibration, tmp_path: Path) -> None:
    table = dspark_additive_table(flat_then_linear)
    write_dspark_table(tmp_path / "table.json", table)
    text = (tmp_path / "table.json").read_text(encoding="utf-8")
    assert text == dspark_table_text(table)
    assert json.loads(text) == table


def test_both_forms_come_back_through_the_reader(flat_then_linear: Calibration) -> None:
    def read(table: dict[str, Any]) -> DsparkTable:
        text = dspark_table_text(table)
        assert sglang_dspark_cost_table.recognise(text)
        source = SourceText(path=Path("table.json"), text=text, encoding="utf-8")
        return sglang_dspark_cost_table.table(source)

    sampled = dspark_sampled_table(flat_then_linear, 4)
    back = read(sampled)
    assert not back.falls
    assert back.max_batch_tokens == 128
    for rows in sampled["sample_batch_tokens"]:
        assert back.step_time_s(batch_tokens=rows) == pytest.approx(sampled_s(sampled, rows))
    additive = dspark_additive_table(flat_then_linear)
    back = read(additive)
    assert not back.falls
    for requests in (1, 3, 8, 20):
        told_s = back.step_time_s(num_reqs=requests, budget_tokens=3 * requests)
        assert told_s == pytest.approx(additive_s(additive, requests, 4 * requests))
