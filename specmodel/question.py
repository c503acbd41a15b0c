"""What to predict: configurations, accept lengths and questions, as plain records."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from specmodel.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How a round drafts and verifies, and the load; None where it is not known.

    What follows from the rest is filled in, so that two spellings of one configuration are equal:
    an unstated topk is a chain, and a chain verifies ``num_steps + 1`` tokens.

    Parameters
    ----------
    num_steps : float or None
        Draft depth, at least 0, [tokens].
    topk : float or None
        Branching, at least 1; 1 = chain.
    num_draft_tokens : float or None
        Verified tokens per request, root included, at least 1, [tokens].
    batch_size : float or None
        Running requests, at least 1.
    context_tokens : float or None
        Context, not negative, [tokens].

    Raises
    ------
    ParameterError
        If a number is below what is possible.
    """

    num_steps: float | None = None
    topk: float | None = None
    num_draft_tokens: float | None = None
    batch_size: float | None = None
    context_tokens: float | None = None

    def __post_init__(self) -> None:
        least = {"num_steps": 0, "topk": 1, "num_draft_tokens": 1, "batch_size": 1}
        for name, bound in {**least, "context_tokens": 0}.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise ParameterError(name, f"{value:g}", f"at least {bound}")
        if self.topk is None:
            object.__setattr__(self, "topk", 1.0)
        if self.num_draft_tokens is None and self.num_steps is not None:
            object.__setattr__(self, "num_draft_tokens", self.num_steps + 1.0)

    def __str__(self) -> str:
        """Short form for tables."""
        parts = ["depth not stated" if self.num_steps is None else f"depth {self.num_steps:g}"]
        if self.topk is not None and self.topk > 1:
            parts.append(f"topk {self.topk:g}")
        chain = self.num_steps is not None and self.num_draft_tokens == self.num_steps + 1
        if self.num_draft_tokens is not None and not (chain and self.topk == 1):
            parts.append(f"{self.num_draft_tokens:g} draft tokens")
        if self.batch_size is not None:
            parts.append(f"batch {self.batch_size:g}")
        if self.context_tokens is not None:
            parts.append(f"context {self.context_tokens:g}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Rows that share a baseline and a way of drafting."""

    workload: str  # empty where the points do not name it
    tree: bool  # whether topk is above 1
    batch_size: float | None = None  # the load
    context_tokens: float | None = None


@dataclass(frozen=True)
class Estimate:
    """Median and central 90 % interval."""

    median: float  # in the unit of the quantity
    low: float
    high: float

    def __float__(self) -> float:
        """The median."""
        return self.median

    def __format__(self, spec: str) -> str:
        """The median in a format such as ``.2f``; everything without one."""
        return format(self.median, spec) if spec else str(self)

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit; the factor is positive."""
        return Estimate(self.median * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, kw_only=True)
class AcceptLength:
    """An accept length with what is known of its spread.

    Parameters
    ----------
    estimate : Estimate
        Median and interval at the depth of the question, [tokens].
    log_sd : float
        Standard deviation of its logarithm; 0 where it was given as a number, [-].
    """

    estimate: Estimate
    log_sd: float = 0.0

    @classmethod
    def exact(cls, value: float) -> "AcceptLength":
        """An accept length that was measured at the depth of the question."""
        return cls(estimate=Estimate(value, value, value))


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to predict.

    Parameters
    ----------
    accept_length : AcceptLength
        At the depth of the configuration.
    configuration : Configuration
        Depth, branching, load; a depth of None is that of the calibration.
    workload : str or None
        Workload of the calibration whose baseline and run to use; None for another one.
    baseline_tokens_per_s : float or None
        Throughput without speculation; None: that of the calibration, where it is known, [tokens/s].
    non_decode_share : float or None
        Where it was measured, by time to first token and output length; None: modelled, and 0 where
        the throughputs of the calibration are those of decoding alone, [-].
    points_depth : int or None
        Depth that points are taken to have which state none; None: as the fit counts them, [tokens].
    """

    accept_length: AcceptLength
    configuration: Configuration
    workload: str | None = None
    baseline_tokens_per_s: float | None = None
    non_decode_share: float | None = None
    points_depth: int | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the points say of one configuration, by the identity R = tau y0 / y."""

    configuration: Configuration  # which one
    num_points: int  # rows of it
    accept_length: tuple[float, float]  # smallest and largest, [tokens]
    # smallest, median and largest of accept_length x baseline / throughput, [baseline steps]
    round_cost: tuple[float, float, float]
    accept_length_at: float  # accept length of its first row, [tokens]
    output_tokens_per_s: float  # throughputs of its first row, [tokens/s]
    baseline_tokens_per_s: float
    # median of the same with the time that is not decoding taken out where it was measured,
    # [baseline steps]
    decode_round_cost: float
    # mean of each workload; empty in files of older releases, [tokens]
    accept_lengths: dict[str, float] = field(default_factory=dict)


def estimate_json(estimate: Estimate | None) -> dict[str, float | None] | None:
    """Median and bounds; None where there is no estimate, or where it is infinite.

    Examples
    --------
    >>> estimate_json(Estimate(median=2.0, low=1.5, high=float("inf")))
    {'median': 2.0, 'low': 1.5, 'high': None}
    """
    if estimate is None:
        return None
    values = {"median": estimate.median, "low": estimate.low, "high": estimate.high}
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()}


def longest_accept_length(configuration: Configuration) -> float | None:
    """Most tokens that a round of a configuration can emit; None where that is not known."""
    num_steps, tokens = configuration.num_steps, configuration.num_draft_tokens
    if num_steps is None or tokens is None:
        return tokens
    block = num_steps == 1 and configuration.topk == 1 and tokens > 2
    return float(tokens) if block else min(num_steps + 1.0, tokens)


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
