"""Scrapes of vLLM, with counts of rounds that were made up."""

from pathlib import Path

import pytest

from calibration.readers.reading import SourceText
from calibration.readers.scraped_counters import LLAMACPP, VLLM
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes, dropped

NAME = "vllm:spec_decode_num_"

read, read_series = VLLM.read, VLLM.read_series
recognise, series_key = VLLM.recognise, VLLM.series_key


def scrape(
    rounds: float,
    drafted: float,
    positions: tuple[float, ...],
    *,
    accepted: float | None = None,
    engine: str = "0",
    model: str = "acme/Otter",
    created: float | None = None,
    name: str = "1",
) -> SourceText:
    labels = f'engine="{engine}",model_name="{model}"'
    total = sum(positions) if accepted is None else accepted
    lines = [
        f"{NAME}drafts_total{{{labels}}} {rounds}",
        f"{NAME}draft_tokens_total{{{labels}}} {drafted}",
        f"{NAME}accepted_tokens_total{{{labels}}} {total}",
    ]
    lines += [
        f'{NAME}accepted_tokens_per_pos_total{{{labels},position="{place}"}} {count}'
        for place, count in reversed(list(enumerate(positions)))
    ]
    if created is not None:
        lines.append(f"{NAME}drafts_created{{{labels}}} {created}")
    return SourceText(path=Path(name), text="\n".join(lines) + "\n", encoding="utf-8")


def together(*sources: SourceText) -> SourceText:
    return SourceText(path=Path("1"), text="".join(s.text for s in sources), encoding="utf-8")


def error(*sources: SourceText) -> str:
    with pytest.raises(FormatError) as found:
        read_series(sources)
    return found.value.code


def test_positions_are_unconditional_and_counted_from_zero_in_any_order() -> None:
    reading = read(scrape(100.0, 300.0, (80.0, 50.0, 20.0)))
    (row,) = reading.rows
    assert row.cells == {
        "accept_length": 2.5,
        "full_accuracy": (0.8, 0.5, 0.2),
        "verify_rounds": 100.0,
        "num_steps": 3.0,
        "topk": 1.0,
        "num_draft_tokens": 4.0,
        "engine": "vllm",
        "target_model": "acme/Otter",
    }
    assert codes(reading) == {"lifetime_accept_length"}


def test_two_scrapes_are_the_run_between_them() -> None:
    reading = read_series(
        [scrape(100.0, 200.0, (10.0, 5.0), name="1"), scrape(300.0, 600.0, (150.0, 55.0), name="2")]
    )
    (row,) = reading.rows
    assert row.cells["full_accuracy"] == (0.7, 0.25)
    assert row.cells["accept_length"] == 1.95
    assert codes(reading) == set()


def test_engines_of_a_model_are_summed_before_dividing() -> None:
    (row,) = read(
        together(scrape(100.0, 100.0, (90.0,)), scrape(300.0, 300.0, (30.0,), engine="1"))
    ).rows
    assert row.cells["accept_length"] == 1.3
    assert row.cells["verify_rounds"] == 400.0


def test_models_are_rows_of_their_own() -> None:
    reading = read(
        together(
            scrape(100.0, 100.0, (90.0,)),
            scrape(100.0, 100.0, (10.0,), model="acme/Lynx"),
            scrape(0.0, 0.0, (0.0,), model="acme/Idle"),
        )
    )
    assert [(r.cells["target_model"], r.cells["accept_length"]) for r in reading.rows] == [
        ("acme/Lynx", 1.1),
        ("acme/Otter", 1.9),
    ]
    assert dropped(reading) == {"no_verify_rounds": 1}


@pytest.mark.parametrize(
    "later",
    [
        scrape(90.0, 200.0, (60.0,), name="2"),
        scrape(200.0, 200.0, (5.0,), accepted=60.0, name="2"),
        scrape(200.0, 200.0, (60.0,), created=1774000001.5, name="2"),
    ],
)
def test_a_restart_is_no_run(later: SourceText) -> None:
    earlier = scrape(100.0, 100.0, (50.0,), created=1774000000.5, name="1")
    last = scrape(1000.0, 1000.0, (500.0,), name="3")
    reading = read_series([earlier, later, last])
    assert dropped(reading) == {"counter_reset": 1}
    assert len(reading.rows) == 1


def test_a_restart_of_one_engine_is_seen_though_the_sum_grew() -> None:
    earlier = together(scrape(100.0, 100.0, (50.0,)), scrape(10.0, 10.0, (5.0,), engine="1"))
    later = together(scrape(20.0, 20.0, (5.0,)), scrape(500.0, 500.0, (200.0,), engine="1"))
    assert error(earlier, later) == "no_points"


def test_drafts_shorter_than_the_positions_are_told() -> None:
    reading = read(scrape(100.0, 250.0, (60.0, 40.0, 20.0)))
    assert reading.rows[0].cells["num_steps"] == 3.0
    assert "variable_draft_length" in codes(reading)


def test_without_positions_the_depth_is_drafts_per_round_where_whole() -> None:
    reading = read(scrape(100.0, 400.0, (), accepted=150.0))
    assert reading.rows[0].cells["num_draft_tokens"] == 5.0
    assert "full_accuracy" not in reading.rows[0].cells


def test_a_depth_that_cannot_be_derived_is_left_empty() -> None:
    reading = read(scrape(100.0, 250.0, (), accepted=150.0))
    assert not reading.rows[0].cells.keys() & {"num_steps", "num_draft_tokens"}
    assert {"no_speculation_flags", "variable_draft_length"} <= codes(reading)


def test_a_missing_position_leaves_no_accuracies() -> None:
    source = scrape(100.0, 300.0, (80.0, 50.0, 20.0))
    text = "".join(line for line in source.text.splitlines(keepends=True) if '"1"' not in line)
    (row,) = read(SourceText(path=Path("1"), text=text, encoding="utf-8")).rows
    assert "full_accuracy" not in row.cells
    assert row.cells["num_steps"] == 3.0


def test_accuracies_that_rise_or_do_not_add_up_are_told() -> None:
    assert "accuracy_increasing" in codes(read(scrape(100.0, 200.0, (40.0, 60.0))))
    assert "accuracy_sum_mismatch" in codes(read(scrape(100.0, 200.0, (80.0, 60.0), accepted=90.0)))


@pytest.mark.parametrize(
    "source",
    [
        scrape(0.0, 0.0, (0.0,)),
        scrape(100.0, 100.0, (120.0,)),
        scrape(float("nan"), 100.0, (50.0,)),
        scrape(-5.0, 100.0, (50.0,)),
        SourceText(path=Path("1"), text='vllm:num_requests_running{engine="0"} 2.0\n', encoding=""),
    ],
)
def test_a_scrape_without_usable_rounds_is_refused(source: SourceText) -> None:
    assert error(source) == "no_points"


def test_times_of_creation_are_no_counts() -> None:
    (row,) = read(scrape(100.0, 100.0, (50.0,), created=1774000000.5)).rows
    assert row.cells["verify_rounds"] == 100.0


def test_servers_of_other_depth_or_model_are_not_compared() -> None:
    keys = {
        series_key(scrape(10.0, 10.0, (1.0,))),
        series_key(scrape(10.0, 20.0, (1.0, 1.0))),
        series_key(scrape(10.0, 10.0, (1.0,), model="acme/Lynx")),
    }
    assert len(keys) == 3
    assert series_key(scrape(10.0, 10.0, (1.0,))) == series_key(scrape(99.0, 99.0, (9.0,)))


def test_it_is_recognised_by_its_names() -> None:
    assert recognise(scrape(1.0, 1.0, (1.0,)).text)
    assert not recognise("INFO vllm: SpecDecoding metrics: 3\n")


def test_llamacpp_counts_the_same_under_names_of_its_own() -> None:
    source = scrape(1000, 3000, (700, 500, 300))
    text = source.text.replace("vllm:", "llamacpp:")
    found = LLAMACPP.read(SourceText(path=source.path, text=text, encoding="utf-8"))
    assert LLAMACPP.recognise(text)
    assert not recognise(text)
    cells = found.rows[0].cells
    assert (cells["engine"], cells["num_steps"]) == ("llama.cpp", 3)
    assert cells["accept_length"] == pytest.approx(1 + 1500 / 1000)
    assert cells["full_accuracy"] == pytest.approx((0.7, 0.5, 0.3))
