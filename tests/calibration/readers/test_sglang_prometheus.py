"""Scrapes of SGLang, with numbers from the definition of their counters."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from calibration.readers.reading import SourceText
from calibration.readers.sglang_prometheus import read, read_series, recognise, series_key
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped

LABELS = 'model_name="acme/Tern-8B",engine_type="unified",tp_rank="0",pp_rank="0"'
BEFORE = {
    "num_running_reqs": 8.0,
    "spec_accept_length": 3.9,  # a gauge of one interval: never used
    "gen_throughput": 9999.0,
    "spec_num_steps": 3.0,
    "spec_num_draft_tokens": 4.0,
    "spec_verify_calls_total": 1000.0,
    "generation_tokens_total": 2600.0,
    "prompt_tokens_total": 500.0,
}
AFTER = BEFORE | {"spec_verify_calls_total": 3000.0, "generation_tokens_total": 7600.0}
# between them: 5000 tokens in 2000 calls, so 2.5 tokens a round


def scrape(
    values: Mapping[str, float],
    *,
    time_s: float | None = None,
    labels: str = LABELS,
    name: str = "1",
) -> SourceText:
    time = "" if time_s is None else f" {time_s * 1000:.0f}"
    lines = [f"sglang:{metric}{{{labels}}} {value}{time}\n" for metric, value in values.items()]
    return SourceText(path=Path(name), text="".join(lines), encoding="utf-8")


def error(*sources: SourceText) -> str:
    with pytest.raises(FormatError) as found:
        read_series(sources)
    return found.value.code


def test_one_scrape_is_the_life_of_the_server() -> None:
    reading = read(scrape(BEFORE))
    (row,) = reading.rows
    assert row.cells == {
        "accept_length": 2.6,
        "verify_rounds": 1000.0,
        "num_steps": 3.0,
        "num_draft_tokens": 4.0,
        "engine": "sglang",
        "target_model": "acme/Tern-8B",
    }
    assert codes(reading) == {"lifetime_counters", "no_throughput"}
    assert reading.era == ("0.5.16",)


def test_two_scrapes_are_the_run_between_them_in_any_order() -> None:
    sources = [
        scrape(AFTER, time_s=1782000010, name="a"),
        scrape(BEFORE, time_s=1782000000, name="b"),
    ]
    reading = read_series(sources)
    (row,) = reading.rows
    assert row.cells["accept_length"] == 2.5
    assert row.cells["batch_size"] == 8.0
    assert row.cells["output_tokens_per_s"] == 500.0  # 5000 tokens in 10 s
    assert row.cells["step_time_ms"] == pytest.approx(1000 * 8 * 2.5 / 500)
    assert row.cells["throughput_origin"] == "step_time"
    assert codes(reading) == set()


def test_prompts_in_between_leave_the_throughput_and_no_round_time() -> None:
    later = AFTER | {"prompt_tokens_total": 900.0}
    reading = read_series([scrape(BEFORE, time_s=1782000000), scrape(later, time_s=1782000010)])
    (row,) = reading.rows
    assert row.cells["output_tokens_per_s"] == 500.0
    assert not row.cells.keys() & {"step_time_ms", "throughput_origin"}
    assert codes(reading) == {"prefill_in_window"}


def test_a_changed_batch_gives_no_round_time() -> None:
    later = AFTER | {"num_running_reqs": 7.0}
    (row,) = read_series([scrape(BEFORE, time_s=1782000000), scrape(later, time_s=1782000010)]).rows
    assert not row.cells.keys() & {"batch_size", "step_time_ms"}


def test_unknown_prompts_give_no_round_time() -> None:
    sources = [
        scrape({k: v for k, v in values.items() if not k.startswith("prompt")}, time_s=time_s)
        for values, time_s in ((BEFORE, 1782000000.0), (AFTER, 1782000010.0))
    ]
    reading = read_series(sources)
    assert "step_time_ms" not in reading.rows[0].cells
    assert "prefill_unknown" in codes(reading)


def test_scrapes_without_times_have_no_throughput() -> None:
    reading = read_series([scrape(AFTER, name="s10"), scrape(BEFORE, name="s9")])
    assert reading.rows[0].cells["accept_length"] == 2.5
    assert "output_tokens_per_s" not in reading.rows[0].cells
    assert codes(reading) == {"no_scrape_time", "no_throughput"}


def test_a_restart_drops_its_pair_and_no_other() -> None:
    restarted = AFTER | {"generation_tokens_total": 900.0}
    times = [1782000000.0, 1782000010.0, 1782000020.0, 1782000030.0]
    values = [BEFORE, AFTER, restarted, restarted | {"spec_verify_calls_total": 3100.0}]
    sources = [scrape(v, time_s=t) for v, t in zip(values, times, strict=True)]
    reading = read_series(sources)
    assert [row.cells["accept_length"] for row in reading.rows] == [2.5]
    # the last pair made 100 rounds and no token: no round can be like that
    assert dropped(reading) == {"counter_reset": 1, "accept_length_out_of_range": 1}


def test_scrapes_of_which_all_pairs_restart_are_refused() -> None:
    assert error(scrape(AFTER, name="1"), scrape(BEFORE, name="2")) == "no_rows"


def test_gauges_alone_are_refused() -> None:
    gauges = {k: v for k, v in BEFORE.items() if not k.startswith("spec_verify")}
    assert error(scrape(gauges)) == "no_rows"


def test_a_scrape_from_before_the_first_request_is_passed_over() -> None:
    early = {"num_running_reqs": 0.0}
    reading = read_series([scrape(early, name="1"), scrape(BEFORE, name="2")])
    assert reading.rows[0].cells["accept_length"] == 2.6
    assert "lifetime_counters" in codes(reading)


def test_a_window_without_verify_calls_is_dropped() -> None:
    reading = read_series(
        [scrape(v, name=n) for v, n in ((BEFORE, "1"), (BEFORE, "2"), (AFTER, "3"))]
    )
    assert len(reading.rows) == 1
    assert dropped(reading) == {"no_rounds": 1}


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1.5])
def test_a_counter_that_cannot_be_is_refused(value: float) -> None:
    assert error(scrape(BEFORE | {"spec_verify_calls_total": value})) == "invalid_value"


def test_more_tokens_than_the_depth_allows_are_dropped() -> None:
    assert error(scrape(BEFORE | {"generation_tokens_total": 4100.0})) == "no_rows"


def test_ranks_of_a_data_parallel_server_are_rows() -> None:
    ranks = [
        scrape(values, labels=f'{LABELS},dp_rank="{rank}"').text
        for rank, values in enumerate((BEFORE, AFTER))
    ]
    reading = read(SourceText(path=Path("1"), text="".join(ranks), encoding="utf-8"))
    assert {row.details["rank"]: row.cells["verify_rounds"] for row in reading.rows} == {
        "DP0": 1000.0,
        "DP1": 3000.0,
    }
    assert "per_rank" in codes(reading)


def test_tensor_parallel_ranks_count_once() -> None:
    other = LABELS.replace('tp_rank="0"', 'tp_rank="1"')
    text = scrape(BEFORE).text + scrape(BEFORE, labels=other).text
    reading = read(SourceText(path=Path("1"), text=text, encoding="utf-8"))
    assert [row.cells["verify_rounds"] for row in reading.rows] == [1000.0]


def test_tokens_that_are_not_counted_by_rank_give_one_row() -> None:
    scheduler = {k: v for k, v in BEFORE.items() if "tokens_total" not in k}
    text = "".join(
        scrape(scheduler, labels=f'model_name="a",dp_rank="{rank}"', name="1").text
        for rank in (0, 1)
    )
    text += 'sglang:generation_tokens_total{model_name="a"} 5200.0\n'
    (row,) = read(SourceText(path=Path("1"), text=text, encoding="utf-8")).rows
    assert (row.cells["accept_length"], row.cells["verify_rounds"]) == (2.6, 2000.0)


def test_a_depth_that_changed_is_left_empty() -> None:
    deeper = AFTER | {"spec_num_steps": 5.0, "spec_num_draft_tokens": 6.0}
    reading = read_series([scrape(BEFORE, name="1"), scrape(deeper, name="2")])
    assert not reading.rows[0].cells.keys() & {"num_steps", "num_draft_tokens"}
    assert "adaptive_steps" in codes(reading)


def test_a_depth_that_is_not_there_is_said() -> None:
    reading = read(scrape({k: v for k, v in BEFORE.items() if "num_" not in k}))
    assert "num_steps" not in reading.rows[0].cells
    assert "depth_unknown" in codes(reading)


def test_scrapes_appended_to_one_file_are_read_as_several() -> None:
    text = scrape(BEFORE, time_s=1782000000).text + scrape(AFTER, time_s=1782000010).text
    (row,) = read(SourceText(path=Path("1"), text=text, encoding="utf-8")).rows
    assert row.cells["output_tokens_per_s"] == 500.0


def test_a_broken_line_is_told() -> None:
    text = scrape(BEFORE).text + "sglang:prompt_tokens_total{model_name=\n"
    reading = read(SourceText(path=Path("1"), text=text, encoding="utf-8"))
    assert dropped(reading) == {"truncated_line": 1}


def test_scrapes_of_another_model_are_another_server() -> None:
    other = scrape(BEFORE, labels='model_name="acme/Heron"')
    assert series_key(scrape(BEFORE)) == series_key(scrape(AFTER))
    assert series_key(scrape(BEFORE)) != series_key(other)


def test_it_is_recognised_by_its_names() -> None:
    assert recognise(scrape(BEFORE).text)
    assert not recognise(scrape(BEFORE).text.replace("sglang:", "vllm:"))
    assert not recognise('{"text": "sglang:spec_verify_calls_total 3"}')
