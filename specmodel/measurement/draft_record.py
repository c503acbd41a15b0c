"""What was measured of one draft model on one device, and whether its steps beat those of torch."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from specmodel.errors import FormatError, ParameterError
from specmodel.files import CheckedJson
from specmodel.records import from_record, to_record
from specmodel.units import PERCENT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA_VERSION: Final = 1
"""Layout of the file; it rises when a key changes its meaning. [-]"""

MEASURED: Final = "measured"
"""Kind of a record whose times came from a device's own clock."""

DRY: Final = "dry"
"""Kind of a dry run's record: its times are of an interpreter, and nothing may be predicted from them."""

KINDS: Final = (MEASURED, DRY)

COLD: Final = "cold"
"""Weights come from memory, as after a pass of the target model."""

CACHE_STATES: Final = (COLD, "hot")
"""State of the last-level cache before each timed draft."""

_FILE: Final = CheckedJson(
    name="drafter record",
    schema_version=SCHEMA_VERSION,
    marks=("steps", "extends"),
    lacking="no times of steps and extend passes",
    write="`specmodel drafter time`",
    again="run `specmodel drafter time` again to write a new one",
)

LEAST_SPREAD: Final = PERCENT
"""Two runs may agree more closely than this by chance; no difference below it is claimed. A judgement. [-]"""

FASTER: Final = "faster"
SLOWER: Final = "slower"
NOT_SEPARABLE: Final = "not separable"


@dataclass(frozen=True)
class Clocks:
    """Clocks of a device at one moment; they are read before and after, never set."""

    multiprocessor_hz: float
    memory_hz: float

    def __post_init__(self) -> None:
        _check_positive("multiprocessor_hz", self.multiprocessor_hz)
        _check_positive("memory_hz", self.memory_hz)


@dataclass(frozen=True)
class DraftShapes:
    """Shapes of the draft model that was measured; attention is ``grouped`` or ``latent``."""

    hidden_size: int
    target_hidden_size: int
    num_aux_states: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_width: int
    target_vocab_size: int
    draft_vocab_size: int
    attention: str = "grouped"

    def __post_init__(self) -> None:
        _check_counts(self, **{each.name: 1 for each in fields(self) if each.name != "attention"})
        if self.attention not in {"grouped", "latent"}:
            raise ParameterError("attention", repr(self.attention), "grouped or latent")


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    r"""Time of one decode step of the draft model, inside a draft and with cold weights (drafter.md 20).

    .. math:: t = \frac{\mathrm{d} T}{\mathrm{d} k}

    the slope of the time of a whole draft over its number of steps: launch and extend pass cancel. The floor
    is the step's bytes over the read bandwidth that was measured on the same device; the baseline is the same
    step in eager torch with library products. A spread is the relative difference of two identical runs.
    """

    batch_size: int
    context_tokens: int
    topk: int
    time_s: float
    floor_s: float
    hot_time_s: float | None = None  # repeated alone without a flush, weights in the cache
    cold_time_s: float | None = None  # alone right after a flush, launches included
    baseline_s: float | None = None
    baseline_spread: float | None = None
    spread: float
    num_samples: int

    def __post_init__(self) -> None:
        _check_counts(self, batch_size=1, context_tokens=0, topk=1, num_samples=1)
        _check_times(self, "time_s", "floor_s", "hot_time_s", "cold_time_s", "baseline_s")
        _check_spread(self.spread)
        if (self.baseline_s is None) != (self.baseline_spread is None):
            raise ParameterError(
                "baseline_spread", self.baseline_spread, "given where baseline_s is, and only there"
            )
        if self.baseline_spread is not None:
            _check_spread(self.baseline_spread)

    @property
    def ratio(self) -> float:
        """Time over floor, [-]."""
        return self.time_s / self.floor_s


@dataclass(frozen=True)
class ExtendTiming:
    """Time of the pass over a request's newly accepted tokens, which drafts the first token too."""

    tokens: int
    batch_size: int
    context_tokens: int
    time_s: float
    spread: float
    num_samples: int

    def __post_init__(self) -> None:
        _check_counts(self, tokens=1, batch_size=1, context_tokens=0, num_samples=1)
        _check_times(self, "time_s")
        _check_spread(self.spread)


@dataclass(frozen=True, kw_only=True)
class DraftTiming:
    """Time of one whole draft in a graph with cold weights: extend pass, steps, for a tree the selection.

    What a round pays on the device; launch of the graph and host work come on top (drafter.md 14).
    """

    batch_size: int
    context_tokens: int
    topk: int
    num_steps: int
    num_draft_tokens: int  # to verify, root included
    graph_s: float
    graph_nodes: int | None = None
    selection_s: float | None = None  # choice of the verified nodes of a tree
    baseline_s: float | None = None
    spread: float
    num_samples: int

    def __post_init__(self) -> None:
        _check_counts(
            self,
            batch_size=1,
            context_tokens=0,
            topk=1,
            num_steps=1,
            num_samples=1,
            num_draft_tokens=2,
        )
        if self.graph_nodes is not None:
            _check_counts(self, graph_nodes=1)
        _check_times(self, "graph_s", "selection_s", "baseline_s")
        _check_spread(self.spread)


@dataclass(frozen=True)
class KernelTiming:
    """Mean time of one launch of a kernel inside a replayed draft, without the gaps between kernels."""

    name: str
    calls: int  # in one draft
    time_s: float

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise ParameterError("name", repr(self.name), "the name of a kernel")
        _check_counts(self, calls=1)
        _check_times(self, "time_s")


@dataclass(frozen=True, kw_only=True)
class DraftRecord:
    """What `specmodel drafter time` writes (drafter.md 21): device, software, bandwidth and times by load."""

    kind: str
    draft_model: str
    layout: str
    shapes: DraftShapes
    dtype: str
    substituted: tuple[str, ...] = ()  # tensors that were not the checkpoint's own
    device: str
    device_uuid: str | None
    driver: str | None
    sm: int  # compute capability times ten; 0 without a GPU
    device_state: str = ""
    clocks_before: Clocks | None
    clocks_after: Clocks | None
    torch_version: str
    triton_version: str
    package_version: str
    read_bandwidth_bytes_per_s: float
    cache_state: str
    spread: float
    steps: tuple[StepTiming, ...]
    extends: tuple[ExtendTiming, ...]
    drafts: tuple[DraftTiming, ...] = ()
    kernels: tuple[KernelTiming, ...] = ()
    kernels_of: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (("kind", KINDS), ("cache_state", CACHE_STATES)):
            if getattr(self, name) not in allowed:
                raise ParameterError(name, repr(getattr(self, name)), " or ".join(allowed))
        _check_counts(self, sm=0)
        _check_spread(self.spread)
        _check_positive("read_bandwidth_bytes_per_s", self.read_bandwidth_bytes_per_s)
        for name in ("steps", "extends"):
            if not getattr(self, name):
                raise ParameterError(name, "none", "at least one measurement")
        steps = [(row.topk, row.batch_size, row.context_tokens) for row in self.steps]
        extends = [(row.tokens, row.batch_size, row.context_tokens) for row in self.extends]
        drafts = [
            (row.topk, row.batch_size, row.context_tokens, row.num_steps, row.num_draft_tokens)
            for row in self.drafts
        ]
        for name, loads in (("steps", steps), ("extends", extends), ("drafts", drafts)):
            twice = next((load for load in loads if loads.count(load) > 1), None)  # type: ignore[arg-type]
            if twice is not None:
                raise ParameterError(name, f"{twice} twice", "one row for each load")

    def check_usable(self) -> None:
        """Refuse a dry run, or a hot cache: a pass of the target runs before each draft in serving."""
        if self.kind != MEASURED:
            raise ParameterError(
                "kind",
                self.kind,
                "measured",
                "its times are of no device; run `specmodel drafter time` on a GPU",
            )
        if self.cache_state != COLD:
            raise ParameterError(
                "cache_state",
                self.cache_state,
                "cold",
                "replays that find the weights in cache are faster than a draft in serving",
            )


def save_record(record: DraftRecord, path: Path | str) -> None:
    """Write a record as JSON, so that an interruption leaves the old file whole."""
    _FILE.save(path, to_record(record))


def load_record(path: Path | str, *, allow_dry: bool = False) -> DraftRecord:
    """Read a record; that of a dry run or of a hot cache only where it is asked for."""
    _, content = _FILE.load(path)
    try:
        record = from_record(DraftRecord, content)
        if not allow_dry:
            record.check_usable()
    except ParameterError as error:
        code = "not_usable" if error.name in {"kind", "cache_state"} else "edited"
        raise FormatError(path, f"{error}; {_FILE.again}", code=code) from None
    return record


class Comparison(NamedTuple):
    """A step beside its baseline: time of the baseline over that of the step, and its bounds."""

    row: StepTiming
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``faster``, ``slower`` or ``not separable``."""
        if self.low > 1.0:
            return FASTER
        return SLOWER if self.high < 1.0 else NOT_SEPARABLE


def compared(row: StepTiming) -> Comparison | None:
    r"""A step against its baseline; None without one (drafter.md 22).

    .. math:: r = \frac{t_b}{t}, \qquad \frac{r}{1 + s} \text{ to } r\,(1 + s), \qquad
        s = \max(s_t + s_b,\; 0.01)

    The spreads of two identical runs are added: both may err the same way. It is no confidence interval.
    """
    if row.baseline_s is None or row.baseline_spread is None:
        return None
    ratio = row.baseline_s / row.time_s
    apart = 1.0 + max(row.spread + row.baseline_spread, LEAST_SPREAD)
    return Comparison(row, ratio, ratio / apart, ratio * apart)


def comparisons(record: DraftRecord) -> tuple[Comparison, ...]:
    """Every step of a record that has a baseline, in its order."""
    found = (compared(row) for row in record.steps)
    return tuple(each for each in found if each is not None)


def _check_counts(row: object, **least: int) -> None:
    for name, bound in least.items():
        value = getattr(row, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < bound:
            raise ParameterError(name, value, f"a whole number of at least {bound}")


def _check_times(row: "DataclassInstance", *names: str) -> None:
    """Refuse a time that cannot have been measured; one that may be left out is None."""
    optional = {field.name for field in fields(row) if field.default is None}
    for name in names:
        value = getattr(row, name)
        if value is None and name in optional:
            continue
        if not _is_number(value) or not 0.0 < value < math.inf:
            raise ParameterError(name, value, "a positive number of seconds")


def _check_spread(spread: float) -> None:
    if not _is_number(spread) or not 0.0 <= spread < math.inf:
        raise ParameterError("spread", spread, "a number of at least 0")


def _check_positive(name: str, value: float) -> None:
    if not _is_number(value) or not 0.0 < value < math.inf:
        raise ParameterError(name, value, "positive and finite")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
