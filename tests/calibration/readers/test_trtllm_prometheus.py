"""Scrapes of TensorRT-LLM: drafted and accepted tokens of rounds that were made up."""

from pathlib import Path

import pytest

from calibration.readers.reading import SourceText
from calibration.readers.scraped_counters import TRTLLM
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes

read, read_series = TRTLLM.read, TRTLLM.read_series
recognise, series_key = TRTLLM.recognise, TRTLLM.series_key


def scrape(
    drafted: float,
    accepted: float,
    *,
    depth: str | None = "3",
    model: str = "acme/Otter",
    name: str = "1",
) -> SourceText:
    lines = [
        f'trtllm_spec_decode_num_draft_tokens_total{{model_name="{model}"}} {drafted}',
        f'trtllm_spec_decode_num_accepted_tokens_total{{model_name="{model}"}} {accepted}',
        f'trtllm_spec_decode_acceptance_length{{model_name="{model}"}} 3.9',
        f'trtllm_iteration_latency_seconds{{model_name="{model}"}} 0.5',
    ]
    if depth is not None:
        labels = f'model_name="{model}",spec_method="EAGLE3",spec_num_tokens="{depth}"'
        lines.append(f"trtllm_speculative_config_info{{{labels}}} 1.0")
    return SourceText(path=Path(name), text="\n".join(lines) + "\n", encoding="utf-8")


def error(*sources: SourceText) -> str:
    with pytest.raises(FormatError) as found:
        read_series(sources)
    return found.value.code


def test_rounds_are_drafted_tokens_over_the_depth() -> None:
    reading = read(scrape(300.0, 150.0))
    (row,) = reading.rows
    assert row.cells == {
        "accept_length": 2.5,
        "verify_rounds": 100.0,
        "num_steps": 3.0,
        "topk": 1.0,
        "num_draft_tokens": 4.0,
        "algorithm": "EAGLE3",
        "engine": "tensorrt-llm",
        "target_model": "acme/Otter",
    }
    assert codes(reading) == {"assumed_drafts", "lifetime_accept_length"}


def test_two_scrapes_are_the_run_between_them() -> None:
    reading = read_series([scrape(300.0, 0.0, name="1"), scrape(900.0, 300.0, name="2")])
    assert [row.cells["accept_length"] for row in reading.rows] == [2.5]
    assert codes(reading) == {"assumed_drafts"}


def test_a_restart_is_no_run() -> None:
    reading = read_series(
        [
            scrape(d, a, name=n)
            for d, a, n in ((900.0, 300.0, "1"), (30.0, 9.0, "2"), (60.0, 18.0, "3"))
        ]
    )
    assert [row.cells["accept_length"] for row in reading.rows] == [pytest.approx(1.9)]
    assert [(one.code, one.count) for one in reading.dropped] == [("counter_reset", 1)]


def test_drafted_tokens_that_are_no_multiple_of_the_depth_are_told() -> None:
    assert "variable_draft_length" in codes(read(scrape(301.0, 150.0)))


@pytest.mark.parametrize("depth", [None, "", "many", "0", "-3", "99999999999999999999"])
def test_without_a_depth_there_are_no_rounds(depth: str | None) -> None:
    assert error(scrape(300.0, 150.0, depth=depth)) == "no_points"


def test_two_depths_of_one_model_are_no_depth() -> None:
    info = 'trtllm_speculative_config_info{model_name="acme/Otter",spec_num_tokens="5"} 1.0\n'
    text = scrape(300.0, 150.0).text + info
    assert error(SourceText(path=Path("1"), text=text, encoding="utf-8")) == "no_points"


def test_a_configuration_without_a_model_holds_for_the_only_one() -> None:
    text = scrape(300.0, 150.0, depth=None).text
    text += 'trtllm_speculative_config_info{spec_method="MTP",spec_num_tokens="3"} 1.0\n'
    (row,) = read(SourceText(path=Path("1"), text=text, encoding="utf-8")).rows
    assert (row.cells["num_steps"], row.cells["algorithm"]) == (3.0, "MTP")


@pytest.mark.parametrize(
    ("drafted", "accepted"), [(0.0, 0.0), (300.0, 301.0), (-3.0, 0.0), (float("inf"), 3.0)]
)
def test_counts_that_cannot_be_are_refused(drafted: float, accepted: float) -> None:
    assert error(scrape(drafted, accepted)) == "no_points"


def test_servers_of_other_depth_are_not_compared() -> None:
    assert series_key(scrape(1.0, 1.0)) == series_key(scrape(2.0, 2.0))
    assert series_key(scrape(1.0, 1.0)) != series_key(scrape(1.0, 1.0, depth="4"))
    assert series_key(scrape(1.0, 1.0, depth=None)) != series_key(scrape(1.0, 1.0))


def test_it_is_recognised_by_its_names() -> None:
    assert recognise(scrape(1.0, 1.0).text)
    assert not recognise('{"trtllm_request_success_total": 3}')
