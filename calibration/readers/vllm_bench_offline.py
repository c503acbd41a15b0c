"""Results of ``vllm bench latency`` and ``vllm bench throughput``: no points, and why."""

from typing import Final

from calibration.readers.findings import Findings
from calibration.readers.json_text import json_keys, json_objects
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import FormatError

FORMAT: Final = "vllm_bench_offline"

_LATENCY = frozenset({"avg_latency", "latencies"})
_THROUGHPUT = frozenset({"tokens_per_second", "total_num_tokens"})


def recognise(head: str) -> bool:
    """Return whether a text is a result of one of the two."""
    keys = json_keys(head)
    return keys >= _LATENCY or keys >= _THROUGHPUT


def read(source: SourceText) -> Reading:
    """Refuse a result: nothing in it belongs to speculation."""
    objects = json_objects(source, Findings(source.path, {}))
    latency = any(record.fields.keys() >= _LATENCY for record in objects)
    reason = (
        "a result of `vllm bench latency`: random tokens, no counters of drafts, and neither batch "
        "nor lengths"
        if latency
        else "a result of `vllm bench throughput`: its tokens per second count the prompt, and it "
        "has no counters of drafts"
    )
    raise FormatError(
        source.path,
        f"{reason}, so no point follows from it; run `vllm bench serve --save-result`",
        code="no_points",
    )
