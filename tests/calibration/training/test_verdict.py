import math

import pytest

from calibration.training.decision import Facts, VerdictCode, verdict

FACTS = Facts(
    target=1.3,
    now_speedup=1.10,
    now_interval=(0.9, 1.3),
    now_tokens_per_s=99.0,
    now_probability=0.1,
    end_speedup=1.25,
    end_probability=0.4,
    end_in_log=2.9,
    added=0.15,
    now_step=3000,
    end_step=7500,
    remaining_hours=12.4,
    finished=False,
    round_cost=1.8,
    public_round_cost=1.5,
    round_cost_is_high=False,
    speedup_at_public_cost=1.5,
    fastest=2.5,
    needed=2.4,
    needed_in_log=2.65,
    why_unknown="",
)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, "worth_finishing"),
        ({"now_probability": 0.5}, "already_there"),
        ({"now_probability": 0.6, "end_speedup": None, "end_probability": None}, "already_there"),
        ({"end_speedup": 1.11, "added": 0.01, "end_probability": 0.12}, "little_left"),
        ({"end_speedup": 1.05, "added": -0.05, "end_probability": 0.12}, "little_left"),
        ({"end_probability": 0.05}, "cannot_reach_target"),
        ({"round_cost_is_high": True}, "round_cost_too_high"),
        ({"round_cost_is_high": True, "end_probability": 0.6}, "worth_finishing"),
        ({"round_cost_is_high": True, "speedup_at_public_cost": 1.2}, "worth_finishing"),
        (
            {"round_cost_is_high": True, "speedup_at_public_cost": 1.2, "end_probability": 0.01},
            "cannot_reach_target",
        ),
        ({"fastest": 1.2, "end_probability": 0.01}, "round_cost_too_high"),
        ({"end_speedup": None, "end_probability": None}, "unknown"),
        (
            {"end_speedup": None, "end_probability": None, "round_cost_is_high": True},
            "round_cost_too_high",
        ),
    ],
)
def test_the_code_follows_from_the_facts(changes: dict[str, object], code: str) -> None:
    found = verdict(FACTS._replace(**changes))  # type: ignore[arg-type]
    assert found.code == VerdictCode(code)
    assert "None" not in found.text
    assert 1 <= found.text.count(". ") + 1 <= 3


def test_the_text_says_now_end_and_what_remains() -> None:
    text = verdict(FACTS).text
    for part in ("1.10x", "99 tok/s", "step 7,500", "1.25x", "40 %", "4,500 steps (12 h)", "0.15x"):
        assert part in text


def test_a_round_that_costs_too_much_is_said_not_to_be_the_drafters_fault() -> None:
    text = verdict(FACTS._replace(round_cost_is_high=True, round_cost=2.29)).text
    assert "2.29 baseline steps" in text
    assert "accept length is not the problem" in text


def test_a_reason_for_no_projection_is_passed_on() -> None:
    facts = FACTS._replace(end_speedup=None, end_probability=None, why_unknown="4 points")
    assert "(4 points)" in verdict(facts).text


def test_an_accept_length_out_of_any_reach_is_said_in_words() -> None:
    facts = FACTS._replace(end_probability=0.0, needed_in_log=math.inf)
    assert "more than any" in verdict(facts).text
    assert "less than 1 %" in verdict(facts).text


def test_a_finished_run_has_nothing_left() -> None:
    facts = FACTS._replace(
        finished=True,
        end_step=None,
        end_speedup=1.10,
        added=None,
        end_probability=0.3,
        end_in_log=2.5,
    )
    found = verdict(facts)
    assert found.code is VerdictCode.LITTLE_LEFT
    assert "finished" in found.text
