"""Replies about an SGLang server."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_server_info import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped

FLAGS: dict[str, Any] = {
    "model_path": "/data/private/Tern-8B",
    "tp_size": 2,
    "api_key": "planted-key",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "acme/Tern-8B-eagle3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "version": "0.5.8",
}
PLAIN = FLAGS | {name: None for name in FLAGS if name.startswith("speculative_")}
GAPS = [0.02, 0.03, 0.025, 3.0]
STATE: dict[str, Any] = {"avg_spec_accept_length": 2.5, "step_time_dict": {"8": GAPS}}


def reading(*replies: object) -> Reading:
    text = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in replies)
    return read(SourceText(path=Path("info.json"), text=text, encoding="utf-8"))


def reply(*states: dict[str, Any], flags: dict[str, Any] = FLAGS, **more: object) -> dict[str, Any]:
    return {**flags, **more, "internal_states": list(states)}


def error(*replies: object) -> str:
    with pytest.raises(FormatError) as found:
        reading(*replies)
    return found.value.code


def test_a_row_has_the_twentieth_percentile_of_its_gaps() -> None:
    (row,) = reading(reply(STATE)).rows
    step_time_ms = 1000 * np.percentile(GAPS, 20)
    assert row.cells["step_time_ms"] == pytest.approx(step_time_ms, rel=1e-12)
    assert row.cells["output_tokens_per_s"] == pytest.approx(1000 * 8 * 2.5 / step_time_ms)
    assert row.cells["throughput_origin"] == "step_time"
    assert row.details == {"samples": 4.0}


def test_flags_become_cells_and_nothing_else_is_copied() -> None:
    found = reading(reply(STATE))
    cells = found.rows[0].cells
    assert cells["target_model"] == "Tern-8B"
    assert cells["draft_model"] == "acme/Tern-8B-eagle3"
    assert (cells["num_steps"], cells["num_draft_tokens"], cells["tp_size"]) == (3.0, 4.0, 2.0)
    assert "planted-key" not in repr(found)
    assert "private" not in repr(found)


def test_the_oldest_layout_has_its_state_among_the_flags() -> None:
    found = reading({**FLAGS, **STATE})
    assert found.era == ("0.4.3",)
    assert found.rows[0].cells["batch_size"] == 8.0
    assert reading(reply(STATE)).era == ("0.4.6",)


def test_replies_of_both_layouts_are_mixed_eras() -> None:
    found = reading({**FLAGS, **STATE}, reply(STATE))
    assert found.era == ("0.4.3", "0.4.6")
    assert "mixed_eras" in codes(found)
    assert [row.line for row in found.rows] == [1, 2]


def test_a_server_without_speculation_is_a_baseline() -> None:
    found = reading(reply({"step_time_dict": {"8": [0.016] * 5}}, flags=PLAIN))
    (row,) = found.rows
    assert (row.cells["num_steps"], row.cells["accept_length"]) == (0.0, 1.0)
    assert row.cells["output_tokens_per_s"] == pytest.approx(500.0)
    assert codes(found) == set()


def test_a_baseline_and_a_speculative_row_of_equal_load_are_a_pair() -> None:
    (speculative,) = reading(reply(STATE)).rows
    (baseline,) = reading(reply({"step_time_dict": {"8": [0.016] * 5}}, flags=PLAIN)).rows
    other = reading(reply(STATE, tp_size=4)).rows[0]
    assert speculative.load == baseline.load != other.load


def test_ranks_are_rows_with_their_own_accept_length() -> None:
    second = {"avg_spec_accept_length": 2.0, "step_time_dict": {"4": [0.01] * 3, "8": [0.02] * 3}}
    found = reading(reply(STATE, second))
    assert [(r.details["rank"], r.cells["accept_length"]) for r in found.rows] == [
        *(("DP0", 2.5), ("DP1", 2.0), ("DP1", 2.0))
    ]
    assert codes(found) == {"lifetime_counters", "per_rank"}


def test_without_step_times_the_last_interval_is_the_throughput() -> None:
    found = reading(reply({"avg_spec_accept_length": 2.5, "last_gen_throughput": 700.0}))
    (row,) = found.rows
    assert row.cells["output_tokens_per_s"] == 700.0
    assert not row.cells.keys() & {"batch_size", "step_time_ms", "throughput_origin"}
    assert codes(found) == {"lifetime_counters", "last_interval_throughput"}


@pytest.mark.parametrize("idle", [0, -1.0, None, "none"])
def test_an_idle_server_has_no_throughput(idle: object) -> None:
    found = reading(reply({"avg_spec_accept_length": 2.5, "last_gen_throughput": idle}))
    assert "output_tokens_per_s" not in found.rows[0].cells
    assert codes(found) == {"lifetime_counters", "no_throughput"}


def test_few_gaps_are_said_and_none_are_no_row() -> None:
    state = STATE | {"step_time_dict": {"1": [3.0, 0.02], "2": [], "8": GAPS, "16": None}}
    found = reading(reply(state))
    assert [row.cells["batch_size"] for row in found.rows] == [1.0, 8.0]
    assert found.rows[0].cells["step_time_ms"] == pytest.approx(20 + 0.2 * (3000 - 20))
    assert "few_samples" in codes(found)
    assert dropped(found) == {"no_samples": 2}


def test_gaps_that_cannot_be_are_left_out() -> None:
    times = [0.02, -1.0, float("nan"), float("inf"), "x", None, True, 0.02, 0.02]
    (row,) = reading(reply(STATE | {"step_time_dict": {"8": times}})).rows
    assert row.details["samples"] == 3.0
    assert row.cells["step_time_ms"] == pytest.approx(20.0)


def test_no_running_request_is_no_batch() -> None:
    state = STATE | {"step_time_dict": {"0": GAPS, "many": GAPS, "8": GAPS}}
    assert dropped(reading(reply(state))) == {"idle": 2}


def test_a_rank_without_a_round_is_dropped() -> None:
    found = reading(reply(STATE, {"last_gen_throughput": 0.0}))
    assert dropped(found) == {"no_rounds": 1}


@pytest.mark.parametrize(("flags", "accept_length"), [(FLAGS, 4.5), (PLAIN, 2.5)])
def test_more_tokens_than_the_depth_allows_are_dropped(
    flags: dict[str, Any], accept_length: float
) -> None:
    state = STATE | {"avg_spec_accept_length": accept_length}
    good = reply({"step_time_dict": {"4": GAPS}}, flags=PLAIN)
    assert dropped(reading(good, reply(state, flags=flags))) == {"accept_length_above_depth": 1}


def test_what_the_flags_warn_of_is_told() -> None:
    found = reading(
        reply(
            STATE,
            max_running_requests=48,
            speculative_accept_threshold_single=0.7,
            speculative_num_draft_tokens=16,
        )
    )
    assert codes(found) == {
        *("lifetime_counters", "max_running_requests_48", "lossy_acceptance"),
        "draft_tokens_forced",
    }
    assert found.rows[0].cells["num_draft_tokens"] == 4.0


def test_thresholds_changed_on_a_running_server_are_told() -> None:
    state = STATE | {"speculative_accept_threshold_acc": 0.9}
    found = reading(reply(state, speculative_accept_threshold_acc=1.0))
    assert {"accept_thresholds_changed", "lossy_acceptance"} <= codes(found)


def test_a_depth_that_is_not_there_is_said() -> None:
    assert "depth_unknown" in codes(reading(reply(STATE, speculative_num_steps=None)))


def test_flags_alone_are_refused() -> None:
    assert error(FLAGS) == "no_rows"
    assert error(reply()) == "no_rows"
    assert error(reply({}, {})) == "no_rows"


def test_a_cut_reply_is_refused() -> None:
    text = json.dumps(reply(STATE))
    assert error(text[:-40]) == "bad_json"
    assert error(json.dumps(reply(STATE), indent=1)[:-40]) == "bad_json"


@pytest.mark.parametrize("states", [None, 3, "x", [3], [None], {"a": 1}])
def test_odd_states_end_in_one_error(states: object) -> None:
    assert error({**FLAGS, "internal_states": states}) == "no_rows"


def test_a_benchmark_that_quotes_the_server_is_not_recognised() -> None:
    assert recognise(json.dumps(reply(STATE)))
    assert recognise(json.dumps(FLAGS)[:150])
    assert not recognise(json.dumps({"backend": "sglang", "server_info": reply(STATE)}))
    assert not recognise("server_args=ServerArgs(model_path='a', speculative_algorithm='EAGLE')")
    assert not recognise(json.dumps({"text": json.dumps(FLAGS)}))
