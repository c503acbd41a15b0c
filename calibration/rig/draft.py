"""The draft model of a rig: said, assumed where nothing is, or measured."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.architecture import DenseMlp, GroupedAttention, LatentAttention, ModelShape
from specmodel.cost.physical_round import Drafter
from specmodel.errors import ParameterError
from specmodel.measurement import DraftRecord, ExtendTiming, StepTiming, load_record
from specmodel.measurement.load_grid import interpolate
from specmodel.rig import DraftPasses, eagle3_passes, mtp_passes

Array = NDArray[np.float64]

MOST_S: Final = 10.0
"""No draft pass takes longer. [s]"""

_STEP_AXES = ("topk", "batch_size", "context_tokens")
_EXTEND_AXES = ("tokens", "batch_size", "context_tokens")

_Row = tuple[float, float, float, float]  # a load, and its time


@dataclass(frozen=True, kw_only=True)
class MeasuredDraft:
    """Times of the passes of a draft model on one GPU, log-linear between measured loads."""

    name: str
    device: str
    steps: tuple[_Row, ...]
    extends: tuple[_Row, ...]

    def __post_init__(self) -> None:
        for name in ("steps", "extends"):
            rows = np.array(getattr(self, name)).reshape(-1, 4)
            sound = (rows >= 0) & (rows < np.inf) & (rows[:, 3:] > 0) & (rows[:, 3:] <= MOST_S)
            if not len(rows) or not np.all(sound):
                allowed = f"one or more, times above 0 and up to {MOST_S:g} s"
                raise ParameterError(f"draft {name}", f"{len(rows)} rows", allowed)

    @property
    def words(self) -> str:
        """The draft model in words."""
        return f"{self.name}, its passes measured on {self.device}"

    def step_s(self, branches: Array, batch_size: Array, context_tokens: Array) -> Array:
        """Time of a decode pass at each load, [s]."""
        return _times(self.steps, _STEP_AXES, branches, batch_size, context_tokens)

    def extend_s(self, rows: Array, batch_size: Array, context_tokens: Array) -> Array:
        """Time of a first pass at each load, [s]."""
        return _times(self.extends, _EXTEND_AXES, rows, batch_size, context_tokens)

    def outside(
        self, topk: float, rows: float, batch_size: float, context_tokens: float
    ) -> tuple[str, ...]:
        """Axes on which a load is outside what was measured, in words."""
        load = (batch_size, context_tokens)
        step = interpolate(_points(self.steps), (topk, *load), _STEP_AXES)
        extend = interpolate(_points(self.extends), (rows, *load), _EXTEND_AXES)
        words = (
            f"{one.axis} {one.value:g}, measured {one.low:g} to {one.high:g}"
            for one in (*step.beyond, *extend.beyond)
        )
        return tuple(dict.fromkeys(words))


def measured_draft(record: DraftRecord) -> MeasuredDraft:
    """Times of a record."""
    record.check_usable()
    return MeasuredDraft(
        name=record.draft_model,
        device=record.device,
        steps=tuple(_row(each.topk, each) for each in record.steps),
        extends=tuple(_row(each.tokens, each) for each in record.extends),
    )


def _row(first: float, timing: StepTiming | ExtendTiming) -> _Row:
    """A load, by what differs between the passes first, and its time."""
    return float(first), float(timing.batch_size), float(timing.context_tokens), timing.time_s


def read_measured_draft(path: Path) -> MeasuredDraft:
    """Return the times of a ``drafter.json``."""
    return measured_draft(load_record(path))


def _times(rows: tuple[_Row, ...], axes: tuple[str, str, str], *at: Array) -> Array:
    """Times at loads, each different load once."""
    points = _points(rows)
    table = np.stack(np.broadcast_arrays(*at), axis=-1)
    loads, back = np.unique(table.reshape(-1, 3), axis=0, return_inverse=True)
    times = np.array([interpolate(points, tuple(load), axes).value for load in loads.tolist()])
    return times[np.ravel(back)].reshape(table.shape[:-1])


def _points(rows: tuple[_Row, ...]) -> dict[tuple[float, ...], float]:
    """Times by load."""
    return {row[:3]: row[3] for row in rows}


DRAFT_VOCABULARY: Final = 32_000
"""Reduced vocabulary of an EAGLE-3 head that is not described (judgement). [tokens]"""

DRAFT_WIDTH: Final = 3
"""Width of the feed-forward block of such a head for a mixture of experts, over the hidden size:
MiniMax's is 3, Kimi's 2.6 (judgement). [-]"""


def usual_draft(model: ModelShape, *, eagle3: bool = False) -> tuple[str, DraftPasses]:
    """Draft model that is assumed where none is described.

    A judgement: the model's own MTP layer where its release has one; else an EAGLE-3 head with the
    heads of its last layer, or an MTP layer where such a head is not known.
    """
    if model.mtp_layers and not eagle3:
        return "the model's own MTP layer", mtp_passes(model)
    last = model.layers[-1]
    if not isinstance(last.attention, GroupedAttention | LatentAttention):
        return "an MTP layer like the model's own", mtp_passes(model)
    width = last.mlp.width if isinstance(last.mlp, DenseMlp) else DRAFT_WIDTH * model.hidden_size
    heads = {}
    if isinstance(last.attention, GroupedAttention):
        names = ("num_heads", "num_kv_heads", "head_dim")
        heads = {name: getattr(last.attention, name) for name in names}
    vocabulary = min(DRAFT_VOCABULARY, model.vocab_size)
    head = eagle3_passes(model, mlp_width=width, vocab_size=vocabulary, **heads)
    return "an EAGLE-3 head of the model's width", head


KINDS: Final = ("eagle3", "mtp", "parallel", "lookup")
"""What can be said of how it drafts."""

WORDS: Final = (
    ("lookup", ("ngram", "n-gram", "suffix", "lookup", "pld")),
    ("parallel", ("dflash", "dspark", "p-eagle", "peagle", "medusa", "parallel")),
    ("mtp", ("mtp", "nextn")),
    ("eagle3", ("eagle",)),
)
"""Words in the names that engines and points have for algorithms, in the order in which they are tried."""

MOST_VOCABULARY: Final = 10_000_000
"""No vocabulary is larger. [tokens]"""


@dataclass(frozen=True, kw_only=True)
class DraftChoice:
    """What is known of a draft model; what is not is assumed from the target."""

    kind: str = ""
    vocab_size: int | None = None
    tp_size: int | None = None
    step_s: float | None = None
    extend_s: float | None = None
    times: MeasuredDraft | None = None

    def __post_init__(self) -> None:
        if self.kind not in {"", *KINDS}:
            raise ParameterError("draft.kind", repr(self.kind[:40]), f"one of {', '.join(KINDS)}")
        if self.vocab_size is not None and not 1 <= self.vocab_size <= MOST_VOCABULARY:
            raise ParameterError("draft.vocab", self.vocab_size, f"from 1 to {MOST_VOCABULARY}")
        if self.tp_size is not None and self.tp_size < 1:
            raise ParameterError("draft.tp_size", self.tp_size, "at least 1")
        for name in ("step_s", "extend_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= MOST_S:
                raise ParameterError(f"draft.{name}", f"{value:g}", f"above 0, at most {MOST_S:g}")

    def described(self, model: ModelShape) -> tuple[str, DraftPasses | Drafter]:
        """Return the draft model in words, and its passes.

        A block drafter makes one pass of the usual layer; a lookup costs its host time alone.
        """
        if self.kind == "lookup":
            return "a lookup without a model", Drafter(kind="lookup", work=None)
        if self.kind == "mtp":
            words, passes = "an MTP layer like the model's own", mtp_passes(model)
        else:
            words, passes = usual_draft(model, eagle3=self.kind in {"eagle3", "parallel"})
        if self.kind == "parallel":
            words = "a block drafter: one pass of " + words
            passes = replace(passes, kind="parallel")
        if self.vocab_size is not None:
            words += f" over {self.vocab_size} tokens"
            first, later = (
                shape and replace(shape, vocab_size=self.vocab_size)
                for shape in (passes.first, passes.later)
            )
            passes = replace(passes, first=first or passes.first, later=later)
        times = self.times
        if times is None and self.step_s is None:
            return words, passes
        return times.words if times else f"{words}, its time measured", replace(
            passes,
            measured_step_s=times.step_s if times else self.step_s,
            measured_extend_s=times.extend_s if times else self.extend_s or self.step_s,
            step_host_s=0.0,
        )

    def head_size(self, model: ModelShape) -> int | None:
        """Vocabulary that the draft model of a target proposes from; None where there is no model."""
        passes = self.described(model)[1]
        return passes.first.vocab_size if isinstance(passes, DraftPasses) else None


def kind_of(algorithm: str) -> str:
    """Kind of draft model in the name of an algorithm.

    ``EAGLE`` of any version is a head of one layer.
    """
    lowered = algorithm.strip().lower()
    return next((kind for kind, words in WORDS if any(word in lowered for word in words)), "")
