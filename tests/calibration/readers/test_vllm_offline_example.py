"""Summaries of the offline example: counts first, rates as printed, cut ones left out."""

from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.vllm_offline_example import read, recognise
from specmodel.errors import FormatError

SUMMARY = """total_num_output_tokens: 250
num_drafts: 100
num_draft_tokens: 300
num_accepted_tokens: 150
mean acceptance length: 2.50
--------------------------------------------------
acceptance at token 0: 0.80
acceptance at token 1: 0.45
acceptance at token 2: 0.25
"""


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("run.txt"), text=text, encoding="utf-8"))


def test_the_accept_length_comes_from_the_counts() -> None:
    cells = read_text(SUMMARY.replace("2.50", "2.49")).rows[0].cells
    assert cells["accept_length"] == 2.5
    assert cells["full_accuracy"] == (0.8, 0.45, 0.25)
    assert [cells[n] for n in ("num_steps", "topk", "num_draft_tokens")] == [3, 1, 4]
    assert cells["verify_rounds"] == 100
    assert "output_tokens_per_s" not in cells


def test_summaries_one_after_the_other_are_rows() -> None:
    shallow = SUMMARY.replace("300", "200").replace("acceptance at token 2: 0.25\n", "")
    shallow = shallow.replace("150", "125").replace("2.50", "2.25")
    reading = read_text(SUMMARY + shallow)
    assert [row.cells["num_steps"] for row in reading.rows] == [3, 2]
    assert [warning.code for warning in reading.warnings] == ["depth_changed"]


def test_the_engine_banner_in_front_names_the_models() -> None:
    banner = "INFO 02-14 12:00:00 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: "
    banner += "model='a/B', speculative_config=SpeculativeConfig(method='eagle', model='a/Draft', "
    banner += "num_spec_tokens=3), tensor_parallel_size=2\n"
    cells = read_text(banner + SUMMARY).rows[0].cells
    found = [cells[n] for n in ("engine_version", "target_model", "draft_model", "tp_size")]
    assert found == ["0.11.0", "a/B", "a/Draft", 2]


def test_drafts_that_vary_are_said() -> None:
    reading = read_text(SUMMARY.replace("300", "270"))
    assert reading.rows[0].cells["num_steps"] == 3
    assert [warning.code for warning in reading.warnings] == ["variable_draft_length"]


@pytest.mark.parametrize(
    "text",
    [
        SUMMARY[: SUMMARY.index("acceptance at token 2")],
        SUMMARY[:-3],
        SUMMARY[:-7] + "\n",
        SUMMARY[: SUMMARY.index("num_accepted")],
        SUMMARY.replace("num_drafts: 100", "num_drafts: "),
    ],
)
def test_a_summary_that_is_cut_off_is_dropped(text: str) -> None:
    reading = read_text(SUMMARY + text)
    assert [(d.code, d.count) for d in reading.dropped] == [("malformed", 1)]
    with pytest.raises(FormatError) as caught:
        read_text(text)
    assert caught.value.code == "no_points"


def test_a_run_without_drafts_says_nothing() -> None:
    text = (
        "num_drafts: 0\nnum_draft_tokens: 0\nnum_accepted_tokens: 0\nmean acceptance length: nan\n"
    )
    with pytest.raises(FormatError, match="no round with a draft"):
        read_text(text)


def test_it_is_recognised_by_its_labels_and_not_in_quotes() -> None:
    assert recognise("noise\r\n" + SUMMARY.replace("\n", "\r\n"))
    assert recognise(SUMMARY[:60] + "\nnum_draft_tok")
    assert not recognise('{"num_drafts": 100, "num_accepted_tokens": 150}')
    assert not recognise("subset,num_drafts,acceptance_at_pos_0\nqa,1,0.5\n")
    assert not recognise("INFO 03-04 08:00:00 [metrics.py:86] SpecDecoding metrics: Mean")
