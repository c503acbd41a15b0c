"""Replies of SGLang with acceptance, in the naming of every release."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_meta_info import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped

ROUNDS = [0, 1, 1, 2, 3, 3, 3, 0, 2, 1]  # accepted drafts of each round of a made-up reply
HISTOGRAM = np.bincount(ROUNDS, minlength=4).tolist()
PLAIN = {
    "id": "r",
    "finish_reason": {"type": "length"},
    "completion_tokens": 1 + len(ROUNDS) + sum(ROUNDS),
    "spec_verify_ct": len(ROUNDS),
}
RATES = {"spec_accept_rate": 0.5, "spec_accept_length": 2.7}
PROPOSED = 3 * len(ROUNDS)
OLD = {"spec_accept_token_num": sum(ROUNDS), "spec_draft_token_num": PROPOSED}
MIDDLE = {"spec_accepted_drafts": sum(ROUNDS), "spec_proposed_drafts": PROPOSED}
OLD_HISTOGRAM = {"spec_accept_histogram": HISTOGRAM}
NEW = {
    "spec_num_correct_drafts": sum(ROUNDS),
    "spec_num_proposed_drafts": PROPOSED,
    "spec_correct_drafts_histogram": HISTOGRAM,
}
CAPS = {"spec_cap_length": 2.1, "spec_cap_lens_histogram": [0, 0, 9, 1]}
ERAS: dict[str, dict[str, Any]] = {
    "0.4.6": PLAIN,
    "0.5.4": PLAIN | RATES,
    "0.5.6": PLAIN | RATES | OLD,
    "0.5.9": PLAIN | RATES | OLD | OLD_HISTOGRAM,
    "0.5.11": PLAIN | RATES | MIDDLE | OLD_HISTOGRAM,
    "0.5.12": PLAIN | RATES | MIDDLE | OLD_HISTOGRAM | NEW,
    "0.5.16": PLAIN | RATES | MIDDLE | OLD_HISTOGRAM | NEW | CAPS,
    "0.5.23": PLAIN | RATES | NEW,
}


def reading(*replies: object) -> Reading:
    text = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in replies)
    return read(SourceText(path=Path("replies.jsonl"), text=text, encoding="utf-8"))


def wrapped(**fields: object) -> dict[str, Any]:
    return {"text": "an answer", "meta_info": {**PLAIN, **fields}}


def error(*replies: object) -> str:
    with pytest.raises(FormatError) as found:
        reading(*replies)
    return found.value.code


@pytest.mark.parametrize("era", ERAS)
def test_every_naming_gives_the_same_accept_length(era: str) -> None:
    found = reading({"text": "a", "meta_info": ERAS[era]})
    (row,) = found.rows
    assert found.era == (era,)
    assert row.cells["accept_length"] == pytest.approx(1 + np.mean(ROUNDS))
    assert row.cells["verify_rounds"] == len(ROUNDS)
    assert row.cells["output_tokens"] == PLAIN["completion_tokens"]


@pytest.mark.parametrize("era", ["0.5.9", "0.5.11", "0.5.12", "0.5.16", "0.5.23"])
def test_a_histogram_gives_depth_and_accuracies(era: str) -> None:
    (row,) = reading(ERAS[era]).rows
    shares = [np.mean([r >= depth for r in ROUNDS]) for depth in (1, 2, 3)]
    assert row.cells["full_accuracy"] == pytest.approx(shares)
    assert row.cells["num_steps"] == 3.0
    assert row.details["conditional_accuracy"] == pytest.approx(
        [shares[0], shares[1] / shares[0], shares[2] / shares[1]]
    )


@pytest.mark.parametrize("era", ["0.5.6", "0.5.9", "0.5.11", "0.5.12", "0.5.23"])
def test_proposed_drafts_give_the_draft_tokens_and_count_once(era: str) -> None:
    assert reading(ERAS[era]).rows[0].cells["num_draft_tokens"] == 4.0


def test_where_a_cap_acts_the_accuracies_are_censored() -> None:
    found = reading(ERAS["0.5.16"])
    assert "capped_rounds" in codes(found)
    assert "num_draft_tokens" not in found.rows[0].cells


@pytest.mark.parametrize(
    "caps", [{"spec_cap_length": 3.0}, {"spec_cap_length": 0.0, "spec_cap_lens_histogram": []}]
)
def test_a_cap_that_does_not_act_is_nothing(caps: dict[str, Any]) -> None:
    found = reading(ERAS["0.5.12"] | caps)
    assert "capped_rounds" not in codes(found)
    assert found.rows[0].cells["num_draft_tokens"] == 4.0


def test_without_a_histogram_the_depth_is_unknown() -> None:
    found = reading(PLAIN)
    assert not found.rows[0].cells.keys() & {"num_steps", "full_accuracy"}
    assert codes(found) == {"depth_unknown", "no_throughput"}


def test_the_prefill_token_of_every_reply_is_taken_off() -> None:
    short = PLAIN | {"id": "s", "completion_tokens": 3, "spec_verify_ct": 1}
    (row,) = reading(PLAIN, short).rows
    tokens = PLAIN["completion_tokens"]
    assert isinstance(tokens, int)
    assert row.cells["accept_length"] == pytest.approx((tokens + 3 - 2) / (len(ROUNDS) + 1))


def test_histograms_are_summed_before_they_are_divided() -> None:
    (row,) = reading(
        wrapped(id="a", spec_accept_histogram=[10, 0, 0, 0, 10]),
        wrapped(id="b", spec_verify_ct=5, spec_accept_histogram=[5]),
    ).rows
    assert row.cells["accept_length"] == pytest.approx(1 + 40 / 25)
    assert row.cells["full_accuracy"] == pytest.approx([0.4] * 4)
    assert row.details["requests"] == 2.0


def test_replies_with_and_without_histogram_are_pooled_without_accuracies() -> None:
    found = reading(ERAS["0.5.4"] | {"id": "a"}, ERAS["0.5.23"] | {"id": "b"})
    (row,) = found.rows
    assert found.era == ("0.5.4", "0.5.23")
    assert row.cells["accept_length"] == pytest.approx(1 + np.mean(ROUNDS))
    assert row.cells["verify_rounds"] == 2 * len(ROUNDS)
    assert "full_accuracy" not in row.cells
    assert "mixed_eras" in codes(found)


def test_a_list_lines_and_bare_objects_are_all_replies() -> None:
    many = [wrapped(id=str(place)) for place in range(3)]
    bare = PLAIN | {"id": "x"}
    for found in (
        reading(many),
        reading(*many),
        reading(many, bare),
        reading(bare, bare | {"id": "y"}),
    ):
        assert found.rows[0].cells["accept_length"] == pytest.approx(1 + np.mean(ROUNDS))
    assert reading(many, bare).rows[0].details["requests"] == 4.0


def test_a_reply_without_a_round_is_dropped() -> None:
    found = reading(wrapped(spec_verify_ct=0), wrapped(), {"meta_info": {"completion_tokens": 5}})
    assert dropped(found) == {"no_rounds": 2}
    assert found.rows[0].cells["output_tokens"] == PLAIN["completion_tokens"]


def test_parts_of_a_stream_count_once() -> None:
    part = wrapped(finish_reason=None, completion_tokens=4, spec_verify_ct=2)
    found = reading(part, part, wrapped(), wrapped())
    assert dropped(found) == {"partial_reply": 2}
    assert found.rows[0].details["requests"] == 2.0


def test_a_line_that_does_not_parse_is_dropped() -> None:
    found = reading(wrapped(), json.dumps(wrapped())[:50])
    assert dropped(found) == {"truncated_line": 1}


def test_other_objects_between_replies_are_told() -> None:
    assert dropped(reading(wrapped(), {"warmup": True}, 3)) == {"no_reply": 2}


def test_replies_of_the_openai_endpoint_name_their_model() -> None:
    details = {k: v for k, v in ERAS["0.5.23"].items() if k.startswith("spec_")}
    replies = [
        {
            "id": f"c{place}",
            "model": model,
            "choices": [{"message": {"content": "text"}}],
            "usage": {"completion_tokens": PLAIN["completion_tokens"]},
            "sglext": {"spec_tokens_details": details},
        }
        for place, model in enumerate(["/data/private/Tern-8B", "acme/Heron", "acme/Heron"])
    ]
    found = reading(*replies)
    assert [(r.cells["target_model"], r.details["requests"]) for r in found.rows] == [
        ("Tern-8B", 1.0),
        ("acme/Heron", 2.0),
    ]
    assert found.era == ("0.5.23",)
    assert found.rows[0].cells["accept_length"] == pytest.approx(1 + np.mean(ROUNDS))


@pytest.mark.parametrize(
    "fields",
    [
        {"spec_accept_histogram": [10, -5, 4]},
        {"spec_accept_histogram": [10, 1.5]},
        {"spec_accept_histogram": [10, "x"]},
        {"spec_accept_histogram": [10, float("nan")]},
        {"spec_accept_histogram": [1] * 5000},
        {"spec_verify_ct": -3},
        {"spec_verify_ct": float("inf")},
        {"completion_tokens": -9},
        {"spec_proposed_drafts": -1},
    ],
)
def test_counts_that_cannot_be_refuse_the_file(fields: dict[str, Any]) -> None:
    assert error(wrapped(), wrapped(**fields)) == "invalid_value"


def test_a_file_without_rounds_is_refused() -> None:
    assert error(wrapped(spec_verify_ct=0)) == "no_rows"
    assert error({"meta_info": None}) == "no_rows"
    assert error([]) == "no_rows"
    assert error([[], [3]]) == "no_rows"


def test_a_cut_list_is_refused() -> None:
    assert error(json.dumps([wrapped(), wrapped()])[:-30]) == "bad_json"


def test_a_histogram_of_other_rounds_than_its_reply_is_told() -> None:
    found = reading(wrapped(spec_verify_ct=50, spec_accept_histogram=HISTOGRAM))
    assert found.rows[0].cells["verify_rounds"] == len(ROUNDS)
    assert "histogram_rounds_mismatch" in codes(found)


def test_a_varying_draft_length_is_told() -> None:
    found = reading(ERAS["0.5.23"] | {"spec_num_proposed_drafts": PROPOSED - 4})
    assert "variable_draft_length" in codes(found)


def test_generated_text_is_not_copied() -> None:
    assert "an answer" not in repr(reading(wrapped()))


def test_replies_are_recognised_and_other_formats_are_not() -> None:
    assert recognise(json.dumps(wrapped()))
    assert recognise(json.dumps(PLAIN))
    assert recognise('[{"sglext": {"spec_tokens_details": {"spec_verify_ct"')
    assert not recognise(json.dumps({"text": json.dumps(wrapped())}))
    assert not recognise(json.dumps({"timings": {"predicted_n": 3}}))
    assert not recognise("spec_verify_ct 3")
