"""Measured draft passes in the physical form: known times, refusals, and what is said of them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from calibration.rig.draft import DraftChoice, measured_draft, read_measured_draft
from calibration.rig.pricing import Pricing
from calibration.rig.scenario import Scenario, scenario_from_record, scenario_to_record
from specmodel.architecture import preset
from specmodel.errors import FormatError, ParameterError
from specmodel.measurement import ExtendTiming, StepTiming, save_record
from tests.specmodel.measurement.example_record import example_record

Run = Callable[..., Result]

POINTS = (
    "accept_length,output_tokens_per_s,baseline_tokens_per_s,num_steps,batch_size,context_tokens,"
    "target_model,gpu\n2.4,230,140,3,1,2048,Llama-3.1-8B,H100\n"
)


def llama(**given: Any) -> Scenario:
    usual: dict[str, Any] = {"gpu": "H100", "depth": 3, "context_tokens": 2048}
    return Scenario(model=preset("Llama-3.1-8B"), **{**usual, **given})


def draft_s(scenario: Scenario) -> float:
    parts = Pricing(scenario).price(scenario).parts_s
    return sum(time_s for name, time_s in parts.items() if name.startswith("draft "))


def test_a_draft_takes_an_extend_pass_and_the_other_steps_as_measured() -> None:
    record = example_record()
    extend_s, step_s = record.extends[0].time_s, record.steps[0].time_s  # 4 tokens, context 2048
    known = llama(draft=DraftChoice(times=measured_draft(record)))
    assert draft_s(known) == pytest.approx(extend_s + 2 * step_s)


def test_no_factor_of_the_form_moves_a_measured_draft() -> None:
    known = llama(draft=DraftChoice(times=measured_draft(example_record())))
    rig = known.rig()
    usual, slow = (
        rig.round_parts(3, context_tokens=2048, multipliers=None),
        replace(rig, dtype="fp8").round_parts(3, context_tokens=2048),
    )
    assert float(usual.draft.total_s) == pytest.approx(float(slow.draft.total_s))


def test_times_follow_the_loads_that_were_measured() -> None:
    record = example_record()
    steps = tuple(
        StepTiming(
            batch_size=batch, context_tokens=2048, topk=1, time_s=1e-4 * batch, floor_s=1e-5,
            spread=0.0, num_samples=1,
        )
        for batch in (1, 4)
    )  # fmt: skip
    draft = measured_draft(replace(record, steps=steps))
    found = draft.step_s(np.ones(3), np.array([1.0, 2.0, 4.0]), np.full(3, 2048.0))
    np.testing.assert_allclose(found, [1e-4, 2e-4, 4e-4])


def test_a_calibration_keeps_the_measured_passes() -> None:
    known = llama(draft=DraftChoice(times=measured_draft(example_record())))
    kept = scenario_from_record(json.loads(json.dumps(scenario_to_record(known))))
    assert kept.draft == known.draft


def test_a_dry_run_and_a_hot_cache_are_refused(tmp_path: Path) -> None:
    save_record(replace(example_record(), kind="dry"), tmp_path / "dry.json")
    with pytest.raises(FormatError, match="dry"):
        read_measured_draft(tmp_path / "dry.json")
    with pytest.raises(ParameterError, match="cold"):
        measured_draft(replace(example_record(), cache_state="hot"))


def test_predict_with_a_record_says_where_it_was_not_measured(
    specmodel: Run, tmp_path: Path
) -> None:
    extends = tuple(
        ExtendTiming(
            tokens=4, batch_size=1, context_tokens=context, time_s=3e-4, spread=0, num_samples=1
        )
        for context in (2048, 8192)
    )
    save_record(replace(example_record(), extends=extends), tmp_path / "drafter.json")
    (tmp_path / "bench.csv").write_text(POINTS, encoding="utf-8")
    fitted, drafter = tmp_path / "c.json", tmp_path / "drafter.json"
    assert specmodel("fit", tmp_path / "bench.csv", "-o", fitted).exit_code == 0
    asked = ("predict", "--calibration", fitted, "--accept", "2.4", "--drafter", drafter, "--json")
    inside = json.loads(specmodel(*asked).stdout)
    messages = " ".join(note["message"] for note in inside["warnings"])
    assert "measured on a GPU that does not exist, not on H100 SXM" in messages
    assert "were not measured at" not in messages
    assert inside["set"] == {"draft.record": str(drafter)}
    deeper = json.loads(specmodel(*asked, "--set", "context_tokens=32768").stdout)
    assert any("context_tokens 32768" in note["message"] for note in deeper["warnings"])
