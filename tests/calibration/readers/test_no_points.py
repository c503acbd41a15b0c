"""Files of vLLM without points: recognised, and refused in words."""

from pathlib import Path

import pytest

from calibration.readers.no_points import FORMATS
from calibration.readers.reading import SourceText
from specmodel.errors import FormatError

LATENCY = '{"avg_latency": 1.5, "latencies": [1.4, 1.6], "percentiles": {"50": 1.5}}'
THROUGHPUT = (
    '{"elapsed_time": 9.0, "num_requests": 10, "total_num_tokens": 900, "requests_per_second": 1.1,'
    ' "tokens_per_second": 100.0}'
)
SCHEDULES = (
    "[[1, 4, 5], [5, 16, 0]]",
    '{"1-4": 5, "5-16": 0}',
    '{"num_speculative_tokens_per_batch_size": {"1-4": 5}}',
)


def refusal(text: str) -> FormatError:
    (found,) = [one for one in FORMATS if one.recognise(text)]
    with pytest.raises(FormatError) as caught:
        found.read(SourceText(path=Path("a.json"), text=text, encoding="utf-8"))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LATENCY, "random tokens"),
        (THROUGHPUT, "count the prompt"),
        *((text, "schedule of draft lengths") for text in SCHEDULES),
    ],
)
def test_each_is_refused_in_one_line(text: str, words: str) -> None:
    assert words in str(refusal(text))
    assert refusal(text).code == "no_points"


@pytest.mark.parametrize("text", [LATENCY[:-30], "[[1, 4, 5], [5,"])
def test_one_that_is_cut_is_malformed(text: str) -> None:
    assert refusal(text).code == "malformed_json"


@pytest.mark.parametrize(
    "text",
    [
        '{"output_throughput": 9.0, "mean_e2el_ms": 3.0}',
        *('{"1": {"candidate_steps": [1, 3]}}', '{"1": 3}', "[[1, 2]]", "[1, 2, 3]", "1-4: 5"),
    ],
)
def test_others_are_none_of_them(text: str) -> None:
    assert not any(one.recognise(text) for one in FORMATS)
