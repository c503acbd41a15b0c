"""The text of a metrics endpoint, as the two formats define it."""

import math
from pathlib import Path

import pytest

from calibration.readers.prometheus_text import (
    Exposition,
    Sample,
    in_order,
    is_exposition,
    read_exposition,
)
from calibration.readers.reading import SourceText

NAMES = {"tern:a_total", "tern:b"}


def exposition(text: str, path: str = "s.prom") -> Exposition:
    return read_exposition(SourceText(path=Path(path), text=text, encoding="utf-8"), NAMES)


def only(text: str) -> Sample:
    (scrape,) = exposition(text).scrapes
    (sample,) = scrape.samples
    return sample


@pytest.mark.parametrize(
    ("written", "value"),
    [("3", 3.0), ("3.0", 3.0), ("1.5e+03", 1500.0), ("-2", -2.0), ("+Inf", math.inf), (".5", 0.5)],
)
def test_values_are_numbers_of_any_form(written: str, value: float) -> None:
    assert only(f"tern:b {written}\n").value == value


def test_a_value_may_be_no_number() -> None:
    assert math.isnan(only("tern:b NaN\n").value)
    assert not only("tern:b NaN\n").is_count


def test_labels_may_hold_escapes_commas_and_braces() -> None:
    sample = only('tern:b{path="C:\\\\x\\n",say="a \\"}\\", b" , } 1\n')
    assert sample.labels == {"path": "C:\\x\n", "say": 'a "}", b'}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_blank_lines_and_other_names_are_nothing(end: str) -> None:
    lines = [
        "# HELP tern:b how many",
        "# TYPE tern:b gauge",
        "",
        "other 5",
        "tern:bc 2",
        "tern:b 1",
        "",
    ]
    sample = only(end.join(lines))
    assert (sample.line, sample.value) == (6, 1.0)


def test_times_are_milliseconds_or_after_eof_seconds() -> None:
    assert only("tern:b 1 1782000000500\n").time_s == 1782000000.5
    assert only("tern:b 1 1782000000.5\n# EOF\n").time_s == 1782000000.5
    assert only("tern:b 1 30000\n").time_s == 30.0
    assert only("tern:b 1 30\n# EOF\n").time_s == 30.0
    assert only("tern:b 1\n").time_s is None


def test_seconds_are_seconds_though_the_last_line_was_lost() -> None:
    assert only("tern:b 1 1782000000\n").time_s == 1782000000.0


def test_an_exemplar_is_no_time() -> None:
    sample = only('tern:a_total 17.0 # {trace="abc"} 0.67 1782000000.1\n# EOF\n')
    assert (sample.value, sample.time_s) == (17.0, None)


@pytest.mark.parametrize(
    "line",
    [
        "tern:b",
        "tern:b{",
        'tern:b{x="1} 3',
        "tern:b{x=1} 3",
        "tern:b three",
        "tern:b 1_0",
        "tern:b 1 x",
    ],
)
def test_a_line_that_cannot_be_read_is_told(line: str) -> None:
    found = exposition(f"tern:a_total 4.0\n{line}\n")
    assert found.broken == (2,)
    assert [sample.value for sample in found.scrapes[0].samples] == [4.0]


def test_a_number_that_was_cut_is_not_believed() -> None:
    assert exposition("tern:a_total 400.0\ntern:b 12").broken == (2,)
    assert exposition("tern:a_total 400.0\ntern:b 12.").broken == (2,)
    assert exposition("tern:a_total 400.0 1782000000000\ntern:b 12.0 178200").broken == (2,)


def test_a_missing_last_line_end_alone_is_no_cut() -> None:
    assert exposition("tern:a_total 400.0\ntern:b 12.0").broken == ()
    assert exposition("tern:a_total 400\ntern:b 12").broken == ()


def test_appended_scrapes_are_told_apart_by_repetition() -> None:
    found = exposition('tern:b 1\ntern:a_total{r="0"} 2\ntern:a_total{r="1"} 3\ntern:b 4\n')
    assert [[s.value for s in scrape.samples] for scrape in found.scrapes] == [[1, 2, 3], [4]]


def test_appended_scrapes_are_told_apart_by_eof() -> None:
    found = exposition("tern:b 1\n# EOF\ntern:a_total 2\n# EOF\n")
    assert [[s.value for s in scrape.samples] for scrape in found.scrapes] == [[1], [2]]


def test_samples_listed_by_series_are_grouped_by_time() -> None:
    found = exposition("tern:b 1 1000\ntern:b 2 2000\ntern:a_total 3 1000\ntern:a_total 4 2000\n")
    assert [[s.value for s in scrape.samples] for scrape in found.scrapes] == [[1, 3], [2, 4]]


def test_scrapes_are_put_in_order_of_time_and_else_of_names() -> None:
    timed = [
        exposition(f"tern:b 1 {t}000\n", f"{n}.prom").scrapes[0] for t, n in ((9, "a"), (8, "b"))
    ]
    assert [scrape.path.name for scrape in in_order(timed)] == ["b.prom", "a.prom"]
    untimed = [exposition("tern:b 1\n", name).scrapes[0] for name in ("s10", "s9", "S1")]
    assert [scrape.path.name for scrape in in_order(untimed)] == ["S1", "s9", "s10"]
    assert in_order([timed[0], *untimed])[0].path.name == "S1"


@pytest.mark.parametrize(
    "head",
    [
        '{"text": "\\ntern:b 1"}',
        "[2026-01-01 00:00:00] Decode batch\ntern:b 1\n",
        "# TYPE other gauge\nother 1\n",
        "",
        "tern:b is a metric\n",
    ],
)
def test_other_texts_are_not_recognised(head: str) -> None:
    assert not is_exposition(head, "tern:")


@pytest.mark.parametrize("cut", [30, 60, 75, 200])
def test_a_cut_head_is_recognised(cut: int) -> None:
    head = '# HELP tern:b how many\n# TYPE tern:b gauge\ntern:b{model_name="a"} 1\n'[:cut]
    assert is_exposition(head, "tern:") == ("# TYPE tern:b " in head)
