"""JSON of vLLM that holds no points: recognised, so that what it is can be said."""

import re
from dataclasses import dataclass
from typing import Final

from calibration.readers.json_text import MALFORMED_JSON, json_keys, json_value
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import FormatError


@dataclass(kw_only=True, eq=False)
class WithoutPoints:
    """A format that is read only to be refused in words."""

    FORMAT: str
    says: str
    keys: frozenset[str] = frozenset()  # of the objects
    begins: re.Pattern[str] | None = None

    def recognise(self, head: str) -> bool:
        """Return whether a text is of the format."""
        if self.begins is not None:
            return self.begins.match(head) is not None
        return json_keys(head) >= self.keys

    def read(self, source: SourceText) -> Reading:
        """Refuse a file of the format."""
        json_value(source, code=MALFORMED_JSON)
        raise FormatError(source.path, self.says, code="no_points")


_RANGE = r"[\[(]?\s*\d{1,9}\s*(?:-|\.\.|:|,|\N{EN DASH}|to)\s*\d{1,9}\s*[\])]?"
_SERVE = "so no point follows from it; run `vllm bench serve --save-result`"

FORMATS: Final = (
    WithoutPoints(
        FORMAT="vllm_bench_latency",
        keys=frozenset({"avg_latency", "latencies"}),
        says="a result of `vllm bench latency`: random tokens, no counters of drafts, and neither "
        f"batch nor lengths, {_SERVE}",
    ),
    WithoutPoints(
        FORMAT="vllm_bench_throughput",
        keys=frozenset({"tokens_per_second", "total_num_tokens"}),
        says="a result of `vllm bench throughput`: its tokens per second count the prompt, and it "
        f"has no counters of drafts, {_SERVE}",
    ),
    WithoutPoints(
        FORMAT="vllm_k_schedule",
        begins=re.compile(
            r"\s*\[\s*\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]\s*(?:[,\]]|$)"
            rf'|\s*\{{\s*"{_RANGE}"\s*:\s*\d+\s*(?:[,}}]|$)'
            r'|\s*\{\s*"num_speculative_tokens_per_batch_size"\s*:\s*[\[{]',
            re.ASCII,
        ),
        says="a schedule of draft lengths by batch, which has neither times nor acceptance, so no "
        "points; read the results of `vllm bench serve` that it was made from",
    ),
)
