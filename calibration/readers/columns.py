"""The canonical columns: their names, other names, kinds, bounds and scopes."""

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from specmodel.units import MICRO, MILLI


class Kind(Enum):
    """What a column holds."""

    NUMBER = "number"
    WHOLE = "whole number"
    LIST = "list of fractions"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One canonical column of a points file."""

    name: str  # its name, with the unit
    kind: Kind = Kind.TEXT  # what it holds
    zero: bool = False  # whether zero is possible. No number of a points file can be negative
    # bounds of what can be, in the unit of the column; zero is a matter of ``zero``
    least: float = 0.0
    most: float = math.inf
    share: bool = False  # whether it is a part of a whole, which may be written in percent
    aliases: tuple[str, ...] = ()  # other names, normalised as `normalised_name` does, best first
    # names that carry another unit, and the factor from that unit
    scaled: tuple[tuple[str, float], ...] = ()


_THROUGHPUT_UNITS = (
    *("tok/s", "tok_s", "tok_per_s", "tokens/s", "tokens_s", "tokens_per_s", "tps"),
    *("tokens_per_second", "tok/sec", "tokens/sec"),
)


def _throughput(*prefixes: str) -> tuple[str, ...]:
    """Return the names of a throughput after each prefix."""
    return tuple(
        prefix + name
        for prefix in prefixes
        for name in (
            *("throughput", *_THROUGHPUT_UNITS),
            *(f"throughput_{unit}" for unit in _THROUGHPUT_UNITS),
        )
    )


def _time(*stems: str) -> tuple[tuple[str, float], ...]:
    """Return the names of a time in other units than milliseconds."""
    return tuple(
        (f"{stem}_{unit}", factor)
        for stem in stems
        for unit, factor in (("s", 1 / MILLI), ("us", MICRO / MILLI))
    )


_BASELINES = ("baseline_", "base_", "no_spec_", "nospec_", "vanilla_", "baseline_output_")

# Every canonical column, in the order of the file.
COLUMNS: Final = (
    Column(
        name="accept_length",
        kind=Kind.NUMBER,
        zero=True,  # its own bound, 1, is checked with the row
        aliases=(
            *("acc_length", "accept_len", "acceptance_length", "mean_acceptance_length", "tau"),
            *("mean_accept_length", "mean_accept_len", "avg_accept_length", "avg_accept_len"),
            *("average_acceptance_length", "average_accept_length", "avg_acceptance_length"),
            *("acc_len", "acceptance_len", "mean_acc_length", "mean_acc_len", "avg_acc_length"),
            *("spec_accept_length", "avg_spec_accept_length", "spec_decode_acceptance_length"),
            *("tokens_per_round", "\N{GREEK SMALL LETTER TAU}"),
        ),
    ),
    Column(
        name="output_tokens_per_s",
        kind=Kind.NUMBER,
        aliases=(
            "output_token_throughput",
            *_throughput("output_", "spec_", "speculative_", "gen_", "generation_", "", "e2e_"),
        ),
    ),
    Column(
        name="baseline_tokens_per_s",
        kind=Kind.NUMBER,
        aliases=("baseline", "baseline_throughput", "baseline_tok/s", *_throughput(*_BASELINES)),
    ),
    Column(
        name="batch_size",
        kind=Kind.NUMBER,
        least=0.5,  # a mean in flight; a lone client that waits is somewhat below 1
        most=1e6,
        aliases=("bs", "batch", "concurrency", "batchsize", "max_concurrency"),
    ),
    Column(
        name="num_steps",
        kind=Kind.WHOLE,
        zero=True,
        most=1024,
        aliases=(
            *("depth", "k", "num_speculative_tokens", "nextn", "speculative_num_steps", "steps"),
            *("spec_steps", "spec_num_steps", "num_spec_tokens", "draft_depth", "gamma"),
            *("speculative_num_tokens", "num_speculative_steps"),
        ),
    ),
    Column(
        name="topk",
        kind=Kind.WHOLE,
        zero=True,  # of a baseline row
        most=65536,
        aliases=("eagle_topk", "speculative_eagle_topk", "spec_topk", "draft_topk"),
    ),
    Column(
        name="num_draft_tokens",
        kind=Kind.NUMBER,
        zero=True,  # of a baseline row
        least=1,
        most=65536,
        aliases=("speculative_num_draft_tokens", "spec_num_draft_tokens", "num_verify_tokens"),
    ),
    Column(
        name="context_tokens",
        kind=Kind.NUMBER,
        zero=True,
        most=1e9,
        aliases=("context", "context_length", "context_len", "ctx", "ctx_len", "ctx_tokens"),
    ),
    Column(
        name="output_tokens",
        kind=Kind.NUMBER,
        aliases=("output_length", "output_len", "osl", "mean_output_tokens"),
    ),
    Column(
        name="ttft_ms",
        kind=Kind.NUMBER,
        zero=True,
        aliases=("mean_ttft_ms", "avg_ttft_ms"),
        scaled=_time("ttft", "mean_ttft", "avg_ttft"),
    ),
    Column(
        name="step_time_ms",
        kind=Kind.NUMBER,
        aliases=("round_time_ms", "mean_step_time_ms"),
        scaled=_time("step_time", "round_time", "mean_step_time"),
    ),
    Column(
        name="baseline_step_time_ms",
        kind=Kind.NUMBER,
        aliases=("decode_step_time_ms", "base_step_time_ms", "baseline_step_ms"),
        scaled=_time("baseline_step_time", "decode_step_time", "base_step_time"),
    ),
    Column(
        name="spread",
        kind=Kind.NUMBER,
        zero=True,
        share=True,
        aliases=("relative_sd", "rel_sd", "cv"),
    ),
    Column(
        name="full_accuracy",
        kind=Kind.LIST,
        zero=True,
        share=True,
        aliases=(
            *("full_accuracies", "full_acc", "survival", "joint_accuracy"),
            *("per_position_acceptance_rate", "per_position_acceptance_rates"),
            *("acceptance_rate_per_position", "acceptance_rates_per_position"),
        ),
    ),
    Column(
        name="verify_rounds",
        kind=Kind.NUMBER,
        aliases=("num_rounds", "num_verify_rounds", "spec_verify_ct", "num_verify_steps"),
    ),
    Column(name="temperature", kind=Kind.NUMBER, zero=True, aliases=("temp",)),
    Column(name="dtype", aliases=("precision", "data_type")),
    Column(name="variant"),
    Column(name="throughput_scope", aliases=("tok_s_unit", "scope")),
    Column(name="num_experts", kind=Kind.WHOLE, zero=True, aliases=("experts", "n_experts")),
    Column(
        name="experts_per_token",
        kind=Kind.WHOLE,
        zero=True,
        aliases=("num_experts_per_tok", "experts_per_tok", "num_experts_per_token"),
    ),
    Column(name="workload", aliases=("dataset", "dataset_name", "task", "benchmark")),
    Column(
        name="target_model",
        aliases=("model", "target", "target_model_name", "model_name", "target_model_path"),
    ),
    Column(
        name="draft_model",
        aliases=("drafter", "draft_model_name", "draft_model_path", "speculative_draft_model_path"),
    ),
    Column(
        name="algorithm",
        aliases=("speculative_algorithm", "spec_algorithm", "algo", "speculative_algo"),
    ),
    Column(name="engine", aliases=("framework", "serving_engine")),
    Column(name="engine_version"),
    Column(name="gpu", aliases=("gpu_type", "gpu_name", "gpu_model", "accelerator")),
    Column(name="num_gpus", kind=Kind.WHOLE, aliases=("n_gpus", "num_gpu", "gpu_count")),
    Column(
        name="tp_size",
        kind=Kind.WHOLE,
        aliases=("tp", "tensor_parallel_size", "tensor_parallel", "tensor_parallelism"),
    ),
    Column(name="interconnect"),
    Column(name="source_id", aliases=("source",)),
    Column(name="source_url", aliases=("url",)),
    Column(name="date"),
    Column(name="notes", aliases=("note", "comment", "comments")),
)

# Read and used, but not kept: it gives the baseline where there is none.
SPEEDUP: Final = Column(
    name="speedup",
    kind=Kind.NUMBER,
    aliases=("speed_up", "speedup_x", "speed_up_x", "speedup_factor"),
)

CANONICAL_NAMES: Final = tuple(column.name for column in COLUMNS)
NUMBER_NAMES: Final = tuple(c.name for c in COLUMNS if c.kind in {Kind.NUMBER, Kind.WHOLE})
TEXT_NAMES: Final = tuple(c.name for c in COLUMNS if c.kind is Kind.TEXT)


# What a throughput may be counted over.
SCOPES: Final = ("aggregate", "per_user", "per_gpu")

_SPELLINGS: Final = {
    **dict.fromkeys(("", "total", "aggregate", "aggregated", "sum", "all", "overall"), "aggregate"),
    **dict.fromkeys(("system", "server", "batch", "whole", "whole_batch"), "aggregate"),
    **dict.fromkeys(("user", "users", "request", "req", "sequence", "stream"), "per_user"),
    **dict.fromkeys(("gpu", "gpus", "device", "accelerator", "card"), "per_gpu"),
}
_TOKEN_RATE = re.compile(
    r"(?:(?:total|output|aggregate)_)*(?:tps|(?:k?tok|k?tokens?)(?:/|_per_|_)s(?:ec(?:ond)?)?)"
)
_BETWEEN = re.compile(r"[_/]*(?:per_)?")


def scope_of(written: str) -> str | None:
    """Return the scope that a text stands for, None where it stands for none."""
    text = re.sub(r"[\s-]+", "_", written.strip().strip("()[]").casefold())
    rate = _TOKEN_RATE.match(text)
    rest = text[rate.end() :] if rate else text
    between = _BETWEEN.match(rest)
    return _SPELLINGS.get(rest[between.end() :] if between else rest)
