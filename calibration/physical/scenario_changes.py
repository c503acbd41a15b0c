"""One value of a scenario changed: the keys of ``--set``, and changes that make sense for a rig."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from calibration.bounds import BOUNDS
from calibration.model_config import named_model
from calibration.physical.assumed_rig import card_link, edition_of, link_class
from calibration.physical.draft_choice import MOST_VOCABULARY
from calibration.physical.measured_draft import MOST_S, read_measured_draft
from calibration.physical.scenario import KERNELS, KV_BYTES, Scenario
from specmodel.architecture import stated_weights
from specmodel.architecture.passes import MOST_RANKS
from specmodel.cost.round_inputs import SCHEDULES
from specmodel.errors import ParameterError, SpecModelError, UnknownKeyError
from specmodel.hardware import gpu
from specmodel.rig.link_prior import link_prior
from specmodel.units import MILLI

_USUAL: Final = 2
_ORDER: Final = {
    "model": 0,
    "gpu": 1,
    "num_draft_tokens": 3,
    "topk": 4,
    "tp_size": 5,
    "allreduce": 6,
    "draft.tp_size": 6,
    "draft.vocab": 6,
}
_SAME_TIMES: Final = ("draft.step_ms", "draft.record")

LOAD_KEYS: Final = ("batch_size", "context_tokens", "depth", "topk", "num_draft_tokens")
"""Keys that change the load and not the rig."""


def changed(base: Scenario, key: str, text: str) -> Scenario:
    r"""Scenario with one value changed.

    .. math:: s \mapsto s'

    Parameters
    ----------
    base : Scenario
        The others' values.
    key, text : str
        Of `KEYS`; the value as typed.

    Returns
    -------
    Scenario

    Raises
    ------
    UnknownKeyError
        If the key or a name is not known; it names those that are.
    ParameterError
        If a number or a label is not possible, or a chain would verify another number of tokens than it
        drafts and one.

    Notes
    -----
    Another link or card drops measured all-reduces; several GPUs without a link have `card_link`.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> llama = Scenario(model=preset("Llama-3.1-8B"), gpu="H100", depth=3, accept_length=2.5)
    >>> changed(llama, "batch_size", "8").batch_size
    8.0
    """
    return _possible(base, _changed(base, key, text))


def all_changed(base: Scenario, changes: list[tuple[str, str]]) -> Scenario:
    r"""Scenario with several values changed, whatever their order.

    .. math:: s \mapsto s'

    Parameters
    ----------
    base : Scenario
        The others' values.
    changes : list of (str, str)
        As in `changed`.

    Returns
    -------
    Scenario

    Raises
    ------
    UnknownKeyError, ParameterError
        As `changed`; also where a key, or the time of the draft passes, is named twice.

    Notes
    -----
    What brings defaults with it comes before what they are defaults of: the model, the card, the
    depth, the verified tokens, the number of GPUs.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> llama = Scenario(model=preset("Llama-3.1-8B"), gpu="H100", depth=3, accept_length=2.5)
    >>> all_changed(llama, [("tp_size", "2"), ("interconnect", "nvlink4")]).tp_size
    2
    """
    pairs = [(SYNONYMS.get(key, key), text) for key, text in changes]
    for key, _ in pairs:
        if sum(key == other for other, _ in pairs) > 1:
            raise ParameterError("--set", f"{key} twice", "each key once")
    if set(_SAME_TIMES) <= {key for key, _ in pairs}:
        raise ParameterError("--set", " and ".join(_SAME_TIMES), "one of them")
    last = base
    for key, text in sorted(pairs, key=lambda pair: _ORDER.get(pair[0], _USUAL)):
        last = _changed(last, key, text)
    return _possible(base, last)


def _changed(base: Scenario, key: str, text: str) -> Scenario:
    """A scenario with one value changed, which others may have to go with."""
    if key not in KEYS:
        raise UnknownKeyError("key of --set", key[:40], list(KEYS))
    if not text.strip():
        raise ParameterError(key, "nothing", "a value")
    return KEYS[key](base, text)


def _possible(base: Scenario, scenario: Scenario) -> Scenario:
    """A scenario whose verified rows are those of a chain, where they were changed and it is one."""
    rows = scenario.num_draft_tokens
    chain = scenario.topk == 1 and scenario.depth > 1
    if chain and rows not in {None, base.num_draft_tokens, scenario.depth + 1}:
        raise ParameterError(
            "num_draft_tokens",
            rows,
            f"depth + 1 = {scenario.depth + 1} for a chain",
            "set topk for a tree",
        )
    return scenario


def default_changes(base: Scenario) -> list[tuple[str, str]]:
    r"""Changes that make sense for a rig.

    .. math:: s \mapsto (\text{key}, \text{text})_i

    Parameters
    ----------
    base : Scenario
        What there is.

    Returns
    -------
    list of (str, str)
        For `changed`: NVLink where PCIe, half and double the GPUs where they fit, the draft model on
        each GPU alone, eight times the batch, 32k of context, two deeper and two less, fp8 where 16
        bits.

    Notes
    -----
    A judgement of what people ask.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> llama = Scenario(model=preset("Llama-3.1-8B"), gpu="H100", depth=3, accept_length=2.5)
    >>> [key for key, _ in default_changes(llama)]
    ['tp_size', 'batch_size', 'context_tokens', 'depth', 'dtype']
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
    rows = []
    for key, text in found:
        try:
            scenario = changed(base, key, text)
        except ParameterError:  # beyond what can be asked for
            continue
        if key not in {"tp_size", "depth"} or _fits(scenario):
            rows.append((key, text))
    return rows


def _fits(scenario: Scenario) -> bool:
    """Whether a scenario can be built and has the memory."""
    try:
        rig = scenario.rig()
        fit = rig.fit(batch_size=scenario.batch_size, context_tokens=scenario.context_tokens)
    except SpecModelError:
        return False
    return fit.fits


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


def _with_model(base: Scenario, text: str) -> Scenario:
    """Another model, with its release's formats."""
    model = named_model(text)
    return base if model == base.model else replace(base, model=model, dtype="")


def _with_interconnect(base: Scenario, text: str) -> Scenario:
    """Another link, of which nothing was measured."""
    same = link_class(text) == _class_or_none(base.interconnect)
    return base if same else replace(base, interconnect=text, curves=(), kernel="")


def _with_kernel(base: Scenario, text: str) -> Scenario:
    """Another all-reduce on the same link."""
    word = {"p2p": "engine", "custom": "engine"}.get(text.strip().lower(), text)
    kernel = _chosen("allreduce", word, KERNELS[1:])
    return base if kernel == _kernel(base) else replace(base, kernel=kernel, curves=())


def _kernel(base: Scenario) -> str:
    """The all-reduce kernel of a rig; empty where it has none or it is not known."""
    if base.tp_size == 1 or base.curve is not None or not base.interconnect:
        return base.kernel
    return link_prior(base.interconnect, base.tp_size, kernel=base.kernel).kernel


def _with_tp_size(base: Scenario, text: str) -> Scenario:
    """Another number of GPUs, over the card's usual link where none is named."""
    scenario = replace(base, tp_size=_count("tp_size", text, MOST_RANKS))
    if scenario.tp_size == 1 or scenario.interconnect or scenario.curve is not None:
        return scenario
    return replace(scenario, interconnect=card_link(base.gpu))


def _with_gpu(base: Scenario, text: str) -> Scenario:
    """Another card on the same link, of which nothing was measured."""
    card, _ = edition_of(text)
    if card == gpu(base.gpu).name:
        return base
    link = base.interconnect or (card_link(card) if base.tp_size > 1 else "")
    return replace(base, gpu=card, curves=(), interconnect=link)


def _with_dtype(base: Scenario, text: str) -> Scenario:
    """Other stored weights."""
    stated_weights(base.model, text)
    return replace(base, dtype=text)


def _with_kv_dtype(base: Scenario, text: str) -> Scenario:
    """Another format of the cache."""
    return replace(base, kv_bytes_per_value=KV_BYTES[_chosen("kv_dtype", text, tuple(KV_BYTES))])


def _with_capture_limit(base: Scenario, text: str) -> Scenario:
    """Graphs up to another number of rows; beyond it a pass is launched kernel by kernel."""
    limit = _count("capture_limit", text, BOUNDS["num_draft_tokens"].most)
    return replace(base, capture_limit=limit)


def _with_schedule(base: Scenario, text: str) -> Scenario:
    """Other things beside each other."""
    word = _chosen("schedule", text, SCHEDULES)
    return replace(base, schedule=next(each for each in SCHEDULES if each == word))


def _with_depth(base: Scenario, text: str) -> Scenario:
    """Another depth; a chain verifies one token more than it drafts."""
    depth = _count("depth", text, BOUNDS["num_steps"].most)
    return replace(
        base, depth=depth, num_draft_tokens=None if base.topk == 1 else base.num_draft_tokens
    )


def _with_topk(base: Scenario, text: str) -> Scenario:
    """Another branching; a chain verifies one token more than it drafts."""
    topk = _count("topk", text, BOUNDS["topk"].most)
    if topk == base.topk:
        return base
    return replace(base, topk=topk, num_draft_tokens=None if topk == 1 else base.num_draft_tokens)


def _with_num_draft_tokens(base: Scenario, text: str) -> Scenario:
    """Other verified rows."""
    return replace(
        base, num_draft_tokens=_count("num_draft_tokens", text, BOUNDS["num_draft_tokens"].most)
    )


def _with_batch_size(base: Scenario, text: str) -> Scenario:
    """Other running requests."""
    return replace(base, batch_size=_number("batch_size", text, *BOUNDS["batch_size"]))


def _with_context_tokens(base: Scenario, text: str) -> Scenario:
    """Another context."""
    return replace(base, context_tokens=_number("context_tokens", text, *BOUNDS["context_tokens"]))


def _with_draft_kind(base: Scenario, text: str) -> Scenario:
    """A draft model that drafts in another way."""
    return replace(base, draft=replace(base.draft, kind=text.strip().lower()))


def _with_draft_vocab(base: Scenario, text: str) -> Scenario:
    """A draft model with another head; its time is not known where passes were measured."""
    size = _count("draft.vocab", text, MOST_VOCABULARY)
    measured = base.draft.times is not None or base.draft.step_s is not None
    if measured and size != base.draft.head_size(base.model):
        raise ParameterError(
            "draft.vocab",
            size,
            "of a draft model whose passes were not measured",
            "give the time with the other head as draft.step_ms",
        )
    return replace(base, draft=replace(base.draft, vocab_size=size))


def _with_draft_tp_size(base: Scenario, text: str) -> Scenario:
    """A draft model on each GPU alone, or on all."""
    size = _count("draft.tp_size", text, MOST_RANKS)
    if size not in {1, base.tp_size}:
        raise ParameterError("draft.tp_size", size, f"1 or tp_size ({base.tp_size})")
    return replace(base, draft=replace(base.draft, tp_size=1 if size == 1 else None))


def _with_draft_record(base: Scenario, text: str) -> Scenario:
    """A draft model whose passes were measured, whole on each GPU."""
    times = read_measured_draft(Path(text).expanduser())
    return replace(base, draft=replace(base.draft, times=times, tp_size=1))


def _with_draft_step_ms(base: Scenario, text: str) -> Scenario:
    """A draft model with a known time of its passes."""
    step_s = _number("draft.step_ms", text, 1e-6, MOST_S / MILLI) * MILLI
    return replace(base, draft=replace(base.draft, step_s=step_s, times=None))


KEYS: Final[Mapping[str, Callable[[Scenario, str], Scenario]]] = MappingProxyType(
    {
        "interconnect": _with_interconnect,
        "allreduce": _with_kernel,
        "tp_size": _with_tp_size,
        "num_gpus": _with_tp_size,
        "gpu": _with_gpu,
        "model": _with_model,
        "dtype": _with_dtype,
        "kv_dtype": _with_kv_dtype,
        "batch_size": _with_batch_size,
        "context_tokens": _with_context_tokens,
        "depth": _with_depth,
        "num_steps": _with_depth,
        "topk": _with_topk,
        "num_draft_tokens": _with_num_draft_tokens,
        "schedule": _with_schedule,
        "capture_limit": _with_capture_limit,
        "draft.kind": _with_draft_kind,
        "draft.vocab": _with_draft_vocab,
        "draft.tp_size": _with_draft_tp_size,
        "draft.step_ms": _with_draft_step_ms,
        "draft.record": _with_draft_record,
    }
)
"""What can be changed, by its name."""

SYNONYMS: Final[Mapping[str, str]] = MappingProxyType({"num_gpus": "tp_size", "num_steps": "depth"})
"""Keys that mean another one."""
