"""What is sensible to ask for: bounds far outside any system, so that a slip is not answered."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Bounds(NamedTuple):
    """Least and most of a quantity, both included, in the unit of the option or column."""

    least: float
    most: float

    def hold(self, value: float) -> bool:
        """Whether a number is inside; NaN never is."""
        return self.least <= value <= self.most

    def __str__(self) -> str:
        """For a person to read, without an exponent where it is short."""
        return " to ".join(
            f"{value:g}" if abs(value) < 1e6 else f"{value:.0e}".replace("e+0", "e")
            for value in self
        )


BOUNDS: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        "num_steps": Bounds(0, 128),
        "topk": Bounds(1, 65_536),
        "num_draft_tokens": Bounds(1, 65_536),
        "batch_size": Bounds(1, 1e6),
        "context_tokens": Bounds(0, 1e9),
        "accept_length": Bounds(1, 1e4),
        "baseline_tokens_per_s": Bounds(1e-3, 1e9),
        "speedup": Bounds(1e-3, 1000),
        "arrival_rate_per_s": Bounds(1e-6, 1e6),
        "output_tokens": Bounds(1, 1e7),
        "prefill_ms": Bounds(0, 1e7),
        "max_running": Bounds(1, 4096),
    }
)
"""What is sensible to ask for, far outside any system, so that a slip is not answered: by canonical name;
throughputs in tokens/s, lengths and depths in tokens, arrivals in requests/s."""
