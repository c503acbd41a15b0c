"""``vllm bench latency`` and ``throughput``: recognised, and refused in words."""

from pathlib import Path

import pytest

from calibration.readers.reading import SourceText
from calibration.readers.vllm_bench_offline import read, recognise
from specmodel.errors import FormatError

LATENCY = '{"avg_latency": 1.5, "latencies": [1.4, 1.6], "percentiles": {"50": 1.5}}'
THROUGHPUT = (
    '{"elapsed_time": 9.0, "num_requests": 10, "total_num_tokens": 900, "requests_per_second": 1.1,'
    ' "tokens_per_second": 100.0}'
)


@pytest.mark.parametrize(
    ("text", "words"), [(LATENCY, "random tokens"), (THROUGHPUT, "count the prompt")]
)
def test_both_are_refused_in_one_line(text: str, words: str) -> None:
    assert recognise(text)
    with pytest.raises(FormatError, match=words) as caught:
        read(SourceText(path=Path("a.json"), text=text, encoding="utf-8"))
    assert caught.value.code == "no_points"
    assert "\n" not in str(caught.value)


def test_a_cut_result_is_malformed() -> None:
    text = LATENCY[:-30]
    assert recognise(text)
    with pytest.raises(FormatError) as caught:
        read(SourceText(path=Path("a.json"), text=text, encoding="utf-8"))
    assert caught.value.code == "malformed_json"


def test_results_of_a_server_are_not_theirs() -> None:
    assert not recognise('{"output_throughput": 9.0, "mean_e2el_ms": 3.0}')
