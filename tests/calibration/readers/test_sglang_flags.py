"""What the arguments of an SGLang server say about speculation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers.sglang_flags import NOTE_MESSAGES, sglang_cells

EAGLE3 = {
    "model_path": "/srv/weights/Tern-8B",
    "tp_size": 2,
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "acme/Tern-8B-eagle3",
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 4,
    "speculative_num_draft_tokens": 16,
}


def test_the_flags_of_a_tree_are_taken_as_they_are() -> None:
    flags = sglang_cells({**EAGLE3, "version": "0.5.6", "dp_size": 2})
    assert flags.cells == {
        "target_model": "Tern-8B",
        "engine_version": "0.5.6",
        "tp_size": 2.0,
        "algorithm": "EAGLE3",
        "draft_model": "acme/Tern-8B-eagle3",
        "num_steps": 5.0,
        "topk": 4.0,
        "num_draft_tokens": 16.0,
    }
    assert (flags.speculates, flags.dp_size, flags.notes) == (True, 2, ())


def test_a_chain_verifies_its_steps_and_the_root_whatever_was_asked_for() -> None:
    forced = sglang_cells({**EAGLE3, "speculative_eagle_topk": 1})
    assert forced.cells["num_draft_tokens"] == 6.0
    assert forced.notes == ("draft_tokens_forced",)
    asked = {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 6}
    assert sglang_cells({**EAGLE3, **asked}).notes == ()


@pytest.mark.parametrize("algorithm", ["DFLASH", "DSPARK"])
def test_a_block_drafter_keeps_its_block(algorithm: str) -> None:
    flags = sglang_cells(
        {
            "speculative_algorithm": algorithm,
            "speculative_num_steps": 1,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 16,
        }
    )
    assert (flags.cells["num_draft_tokens"], flags.notes) == (16.0, ())


@pytest.mark.parametrize("absent", [None, "None", "", "NONE", "null"])
def test_a_server_without_an_algorithm_is_a_baseline_and_says_nothing_of_drafts(
    absent: object,
) -> None:
    arguments = {**EAGLE3, "speculative_algorithm": absent, "max_running_requests": 48}
    flags = sglang_cells({**arguments, "speculative_accept_threshold_acc": 0.5})
    assert flags.cells == {"target_model": "Tern-8B", "tp_size": 2.0, "num_steps": 0.0}
    assert (flags.speculates, flags.notes) == (False, ())


def test_arguments_that_do_not_name_the_algorithm_say_nothing() -> None:
    flags = sglang_cells({"model_path": "acme/Tern-8B"})
    assert (flags.speculates, "num_steps" in flags.cells) == (None, False)


def test_an_adaptive_depth_is_left_empty() -> None:
    for written in (True, "True"):
        flags = sglang_cells({**EAGLE3, "speculative_adaptive": written})
        assert (flags.adaptive, flags.notes) == (True, ("adaptive_steps",))
        assert not {"num_steps", "num_draft_tokens"} & flags.cells.keys()


def test_zero_steps_with_a_draft_model_are_no_baseline() -> None:
    flags = sglang_cells({**EAGLE3, "speculative_num_steps": 0})
    assert (flags.speculates, flags.notes) == (True, ("draft_model_idle",))
    assert "num_steps" not in flags.cells


def test_the_cap_that_speculation_sets_and_lossy_thresholds_are_noted() -> None:
    capped = sglang_cells({**EAGLE3, "max_running_requests": 48})
    assert capped.notes == ("max_running_requests_48",)
    assert sglang_cells({**EAGLE3, "max_running_requests": 49}).notes == ()
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        assert sglang_cells({**EAGLE3, name: 0.99}).notes == ("lossy_acceptance",)
        assert sglang_cells({**EAGLE3, name: 1.0}).notes == ()


def test_no_graphs_are_another_cost_regime() -> None:
    assert sglang_cells({"disable_cuda_graph": True}).cells == {"variant": "eager"}
    assert sglang_cells({"disable_cuda_graph": False}).cells == {}


def test_nothing_else_of_the_arguments_is_copied() -> None:
    arguments = {**EAGLE3, "api_key": "secret", "host": "node7", "tokenizer_path": "/secret"}
    assert sglang_cells(arguments) == sglang_cells(EAGLE3)


@given(
    st.dictionaries(
        st.sampled_from([*EAGLE3, "dp_size", "version", "max_running_requests"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none()),
    )
)
def test_no_value_is_too_odd(arguments: dict[str, object]) -> None:
    flags = sglang_cells(arguments)
    numbers = [cell for cell in flags.cells.values() if isinstance(cell, float)]
    assert all(map(math.isfinite, numbers))
    assert set(flags.notes) <= NOTE_MESSAGES.keys()


def test_a_number_beyond_every_float_is_no_number() -> None:
    assert "tp_size" not in sglang_cells({"tp_size": 10**400, "dp_size": 10**400}).cells
