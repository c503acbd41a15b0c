"""What if: changes of a rig, as --set names them, and what each does to the speed-up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from calibration.rig.draft import MOST_S, MOST_VOCABULARY, read_measured_draft
from calibration.rig.from_points import named_model
from calibration.rig.pricing import Pricing, ScenarioPrice
from calibration.rig.scenario import (
    KERNELS,
    KV_BYTES,
    Scenario,
    card_link,
    doubts_of_all_reduce,
    edition_of,
)
from specmodel.architecture import stated_weights
from specmodel.architecture.passes import MOST_RANKS
from specmodel.cost.physical_round import SCHEDULES
from specmodel.errors import ParameterError, SpecModelError, UnknownKeyError
from specmodel.hardware import gpu
from specmodel.physical_fit import PhysicalFit
from specmodel.question import BOUNDS, Estimate
from specmodel.rig.factors import FACTORS
from specmodel.rig.served_model import link_class, link_prior
from specmodel.units import MILLI

SYNONYMS: Final = {"num_gpus": "tp_size", "num_steps": "depth"}
"""Keys that mean another one."""

KEYS: Final = (
    *("interconnect", "allreduce", "tp_size", "num_gpus", "gpu", "model", "dtype", "kv_dtype"),
    *("batch_size", "context_tokens", "depth", "num_steps", "topk", "num_draft_tokens"),
    *("schedule", "capture_limit"),
    *("draft.kind", "draft.vocab", "draft.tp_size", "draft.step_ms", "draft.record"),
)
"""What can be changed."""

_ORDER: Final = (
    *("model", "gpu", "", "num_draft_tokens", "topk", "tp_size"),
    *("allreduce", "draft.tp_size", "draft.vocab"),
)
"""What brings defaults with it comes before what they are defaults of; other keys stand at the empty one."""

_SAME_TIMES: Final = ("draft.step_ms", "draft.record")


def changed(base: Scenario, *changes: tuple[str, str]) -> Scenario:
    """Scenario with values changed, whatever their order.

    Another link or card drops measured all-reduces; several GPUs without a link have `card_link`.
    """
    pairs = [(SYNONYMS.get(key, key), text) for key, text in changes]
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ParameterError("--set", f"{key} twice", "each key once")
    if {*_SAME_TIMES} <= {*keys}:
        raise ParameterError("--set", " and ".join(_SAME_TIMES), "one of them")
    last = base
    for key, text in sorted(
        pairs, key=lambda pair: _ORDER.index(pair[0] if pair[0] in _ORDER else "")
    ):
        if key not in KEYS:
            raise UnknownKeyError("key of --set", key[:40], list(KEYS))
        if not text.strip():
            raise ParameterError(key, "nothing", "a value")
        settings = _settings(last, key, text)
        last = replace(last, **settings) if settings else last
    rows = last.num_draft_tokens
    chain = last.topk == 1 and last.depth > 1
    if chain and rows not in {None, base.num_draft_tokens, last.depth + 1}:
        allowed = f"depth + 1 = {last.depth + 1} for a chain"
        raise ParameterError("num_draft_tokens", rows, allowed, "set topk for a tree")
    return last


def default_changes(base: Scenario) -> list[tuple[str, str]]:
    """Changes that make sense for a rig.

    A judgement of what people ask.
    """
    found: list[tuple[str, str]] = []
    link = _class_or_none(base.interconnect)
    if link.startswith("pcie") and base.tp_size > 1:
        found.append(("interconnect", "nvlink4" if link == "pcie5" else "nvlink3"))
    sizes = [base.tp_size // 2] if base.tp_size % 2 == 0 else []
    found += [("tp_size", str(size)) for size in (*sizes, 2 * base.tp_size) if size <= MOST_RANKS]
    if base.tp_size > 1 and base.draft.tp_size != 1 and base.draft.kind != "lookup":
        found.append(("draft.tp_size", "1"))
    found += [("batch_size", f"{8 * base.batch_size:g}"), ("context_tokens", "32768")]
    if base.longest <= base.depth + 1:  # a block has no depth to change
        found += [("depth", str(base.depth + more)) for more in (-2, 2)]
    weights = stated_weights(base.model, base.dtype)
    stored = weights.routed_experts if base.model.num_experts else weights.dense_mlp
    if stored.name in {"bf16", "fp16"}:
        found.append(("dtype", "fp8"))
    return [change for change in found if _makes_sense(base, change)]


def _makes_sense(base: Scenario, change: tuple[str, str]) -> bool:
    """Whether a change can be asked for; other GPUs and depths also whether they can serve the load."""
    try:
        scenario = changed(base, change)
        return change[0] not in {"tp_size", "depth"} or scenario.memory().fits
    except SpecModelError:
        return False


def _class_or_none(name: str) -> str:
    """Class of a link; empty where there is none, as of one that was measured."""
    try:
        return link_class(name) if name else ""
    except UnknownKeyError:
        return ""


def _number(key: str, text: str, least: float, most: float) -> float:
    """A number inside its bounds."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ParameterError(key, repr(text[:40]), f"a number from {least:g} to {most:g}")
    return value


def _count(key: str, text: str, most: float) -> int:
    """A whole number from 1."""
    value = _number(key, text, 1, most)
    if not value.is_integer():
        raise ParameterError(key, repr(text[:40]), "a whole number")
    return int(value)


def _chosen(key: str, text: str, allowed: tuple[str, ...]) -> str:
    """One of several words."""
    word = text.strip().lower()
    if word not in allowed:
        raise ParameterError(key, repr(text[:40]), f"one of {', '.join(allowed)}")
    return word


def _settings(base: Scenario, key: str, text: str) -> dict[str, Any]:
    """What a key sets, with what has to go with it; nothing where it is so already."""
    draft = base.draft
    match key:
        case "model":  # with its release's formats
            model = named_model(text)
            return {} if model == base.model else {"model": model, "dtype": ""}
        case "gpu":  # on the same link, of which nothing was measured
            card, _ = edition_of(text)
            link = base.interconnect or (card_link(card) if base.tp_size > 1 else "")
            same = card == gpu(base.gpu).name
            return {} if same else {"gpu": card, "curves": (), "interconnect": link}
        case "interconnect":
            same = link_class(text) == _class_or_none(base.interconnect)
            return {} if same else {"interconnect": text, "curves": (), "kernel": ""}
        case "allreduce":
            word = {"p2p": "engine", "custom": "engine"}.get(text.strip().lower(), text)
            kernel = _chosen(key, word, KERNELS[1:])
            return {} if kernel == _kernel(base) else {"kernel": kernel, "curves": ()}
        case "tp_size":  # over the card's usual link where none is named
            ranks = _count(key, text, MOST_RANKS)
            linked = ranks == 1 or base.interconnect or ranks in dict(base.curves)
            usual = {} if linked else {"interconnect": card_link(base.gpu)}
            return {"tp_size": ranks, **usual}
        case "dtype":
            stated_weights(base.model, text)
            return {"dtype": text}
        case "kv_dtype":
            return {"kv_bytes_per_value": KV_BYTES[_chosen(key, text, tuple(KV_BYTES))]}
        case "schedule":
            return {"schedule": _chosen(key, text, SCHEDULES)}
        case "batch_size" | "context_tokens":
            return {key: _number(key, text, *BOUNDS[key])}
        case "capture_limit" | "num_draft_tokens":
            return {key: _count(key, text, BOUNDS["num_draft_tokens"].most)}
        case "depth":  # a chain verifies one token more than it drafts
            rows = {"num_draft_tokens": None} if base.topk == 1 else {}
            return {"depth": _count(key, text, BOUNDS["num_steps"].most), **rows}
        case "topk":
            topk = _count(key, text, BOUNDS["topk"].most)
            rows = {"num_draft_tokens": None} if topk == 1 != base.topk else {}
            return {"topk": topk, **rows}
        case "draft.kind":
            return {"draft": replace(draft, kind=text.strip().lower())}
        case "draft.vocab":
            size = _count(key, text, MOST_VOCABULARY)
            measured = draft.times is not None or draft.step_s is not None
            if measured and size != draft.head_size(base.model):
                allowed = "of a draft model whose passes were not measured"
                hint = "give the time with the other head as draft.step_ms"
                raise ParameterError(key, size, allowed, hint)
            return {"draft": replace(draft, vocab_size=size)}
        case "draft.tp_size":
            ranks = _count(key, text, MOST_RANKS)
            if ranks not in {1, base.tp_size}:
                raise ParameterError(key, ranks, f"1 or tp_size ({base.tp_size})")
            return {"draft": replace(draft, tp_size=1 if ranks == 1 else None)}
        case "draft.record":  # measured on one GPU, so whole on each
            times = read_measured_draft(Path(text).expanduser())
            return {"draft": replace(draft, times=times, tp_size=1)}
        case _:
            step_s = _number(key, text, 1e-6, MOST_S / MILLI) * MILLI
            return {"draft": replace(draft, step_s=step_s, times=None)}


def _kernel(base: Scenario) -> str:
    """The all-reduce kernel of a rig; empty where it has none or it is not known."""
    if base.tp_size == 1 or base.curve is not None or not base.interconnect:
        return base.kernel
    return link_prior(base.interconnect, base.tp_size, kernel=base.kernel).kernel


_TOGETHER = "all together"

FASTER: Final[Mapping[str, tuple[str, int]]] = {
    "memory bandwidth": ("bandwidth", 1),
    "rate of matrix products": ("compute", 1),
    "all-reduce": ("allreduce", -1),
    "kernels and launches": ("kernels", -1),
    "host between rounds": ("round_host", -1),
    "host of draft passes": ("draft_host", -1),
}
"""What can be made faster, its factor, and the sign of faster."""


class Row(NamedTuple):
    """One change: its price and the ratio of speed-ups, or the reason why it has none."""

    label: str
    priced: ScenarioPrice | None = None
    ratio: Estimate | None = None
    reason: str = ""


class Elasticity(NamedTuple):
    """What 1 % faster does, in %: to the speed-up and to the output, at the base."""

    label: str
    speedup: float
    output: float


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """The base, changes by their effect, and all changes together where several were asked for.

    `num_points` counts the measured loads behind it; 0 for a prior.
    """

    base: ScenarioPrice
    draft: str
    rows: tuple[Row, ...]
    together: Row | None = None
    elasticities: tuple[Elasticity, ...] = ()
    num_points: int = 0

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """Each change, then all together."""
        return (*self.rows, *([self.together] if self.together else ()))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against the measured all-reduces that are used, at the loads that are priced."""
        by_ranks: dict[int, list[Scenario]] = {}
        for one in (self.base, *(row.priced for row in self.all_rows)):
            if one is not None:
                by_ranks.setdefault(one.scenario.tp_size, []).append(one.scenario)
        return tuple(doubt for alike in by_ranks.values() for doubt in doubts_of_all_reduce(alike))


def what_if(
    base: Scenario, changes: Sequence[tuple[str, str]] = (), *, fit: PhysicalFit | None = None
) -> WhatIf:
    r"""Price a base and changes of it, one at a time and all together.

    .. math:: \frac{s'}{s} = \frac{T_r / T_1}{T'_r / T'_1}

    What both share cancels in the ratio: factors of the form (but for `OWN_FACTORS`), and what it
    misses as far as loads and rigs are near each other. The accept length is held fixed.
    """
    pricing = Pricing(base, fit)
    first = pricing.price(base)
    pairs = [(SYNONYMS.get(key, key), text) for key, text in changes]
    together = None
    if len(pairs) > 1 and len(dict(pairs)) == len(pairs):
        together = _row(pricing, _TOGETHER, changed(base, *pairs))
    rows = []
    for pair in pairs or default_changes(base):
        label = "=".join(pair)
        try:
            rows.append(_row(pricing, label, changed(base, pair)))
        except ParameterError as error:
            if together is None:
                raise
            rows.append(Row(label, reason=f"not without the other changes: {error}"))
    return WhatIf(
        base=first,
        draft=base.draft.described(base.model)[0],
        rows=tuple(sorted(rows, key=_order)),
        together=together,
        elasticities=_elasticities(pricing),
        num_points=len(pricing.fit.measured.loads),
    )


def _row(pricing: Pricing, label: str, scenario: Scenario) -> Row:
    """Price one change against the base."""
    same_link = scenario.interconnect == pricing.base.interconnect
    if not same_link and label != _TOGETHER and "interconnect" not in label:
        label += f" over {scenario.interconnect}"
    try:
        return Row(label, pricing.price(scenario), pricing.ratio(pricing.base, scenario))
    except SpecModelError as error:
        hint = error.hint if isinstance(error, ParameterError) else ""
        return Row(label, reason=hint if "does not fit" in hint else str(error))


def _elasticities(pricing: Pricing) -> tuple[Elasticity, ...]:
    """Elasticities of speed-up and output by what can be made faster, largest first."""
    slopes = pricing.priced(pricing.base).jacobian
    _, logs = pricing.logs(pricing.base)
    found = []
    for label, (factor, sign) in FASTER.items():
        moves = sign * slopes[:, FACTORS.index(factor)]
        speedup, output = (
            float(moves @ np.array(each[:2])) for each in (logs.speedup_slopes, logs.output_slopes)
        )
        if abs(speedup) + abs(output) > 1e-4:
            found.append(Elasticity(label, speedup, output))
    return tuple(sorted(found, key=lambda one: -abs(one.output)))


def _order(row: Row) -> float:
    """Largest effect first, either way; what has no price last."""
    return np.inf if row.ratio is None else -abs(float(np.log(row.ratio.median)))
