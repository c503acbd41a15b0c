"""A rig, its load and an accept length, and the same with one value changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, final

from calibration.assumed_rig import card_link, link_class, usual_draft
from calibration.bounds import BOUNDS
from specmodel.architecture import ModelShape, stated_weights
from specmodel.architecture.weights import MOST_RANKS
from specmodel.cost.allreduce_curve import AllReduceCurve
from specmodel.errors import ParameterError, SpecModelError, UnknownKeyError
from specmodel.hardware import gpu
from specmodel.rig import Rig


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A model on its GPUs, a load, and an accept length that is held fixed.

    Parameters
    ----------
    model : ModelShape
        As released.
    gpu, interconnect, dtype : str
        Names; an empty interconnect is none, an empty dtype the release's.
    tp_size : int
        GPUs that serve the model together, [-].
    curves : tuple of (int, AllReduceCurve)
        Measured all-reduces by number of ranks; one of these goes before the interconnect.
    depth, topk : int
        Drafted tokens in sequence, branches, [-].
    num_draft_tokens : int or None
        Verified rows of a request; None for a chain, [tokens].
    batch_size, context_tokens : float
        Running requests, tokens of each, [-], [tokens].
    accept_length : float
        Bonus token included, from 1 to depth + 1, [tokens].
    """

    model: ModelShape
    gpu: str
    tp_size: int = 1
    interconnect: str = ""
    dtype: str = ""
    curves: tuple[tuple[int, AllReduceCurve], ...] = ()
    depth: int
    topk: int = 1
    num_draft_tokens: int | None = None
    batch_size: float = 1
    context_tokens: float = 0
    accept_length: float

    @property
    def curve(self) -> AllReduceCurve | None:
        """Measured all-reduce of this number of GPUs; None where there is none."""
        return dict(self.curves).get(self.tp_size) if self.tp_size > 1 else None

    def __post_init__(self) -> None:
        if self.topk > 1 and self.num_draft_tokens is None:
            raise ParameterError("num_draft_tokens", "none", "given where topk is above 1")
        if self.interconnect and self.curve is None:
            link_class(self.interconnect)

    def rig(self) -> Rig:
        """Return the rig; one that cannot be, or an accept length above its depth, is refused."""
        if not 1 <= self.accept_length <= self.depth + 1:
            raise ParameterError(
                "accept_length",
                f"{self.accept_length:g}",
                f"from 1 to depth + 1 = {self.depth + 1}",
                "a round gives at most its drafted tokens and one more",
            )
        return Rig(
            target=self.model,
            device=self.gpu,
            tp_size=self.tp_size,
            interconnect=self.interconnect,
            allreduce=self.curve,
            dtype=self.dtype,
            draft=usual_draft(self.model)[1],
        )

    def link(self) -> object:
        """Return what all-reduces run over: a measured curve, a class of links, or nothing."""
        if self.tp_size == 1:
            return None
        return self.curve or link_class(self.interconnect)

    def facts(self) -> dict[str, object]:
        """Return what tells one scenario from another, under the names of `KEYS`."""
        return {
            "gpu": gpu(self.gpu).name,
            "interconnect": self.link(),
            "tp_size": self.tp_size,
            "dtype": stated_weights(self.model, self.dtype),
            "batch_size": self.batch_size,
            "context_tokens": self.context_tokens,
            "depth": self.depth,
        }


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
        If a number or a label is not possible.

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
    if key not in KEYS:
        raise UnknownKeyError("key of --set", key[:40], list(KEYS))
    return KEYS[key](base, text)


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
        For `changed`: NVLink where PCIe, half and double the GPUs where they fit, eight times the
        batch, 32k of context, two deeper and two less, fp8 where 16 bits.

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
    found += [("batch_size", f"{8 * base.batch_size:g}"), ("context_tokens", "32768")]
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


def _with_interconnect(base: Scenario, text: str) -> Scenario:
    """Another link, of which nothing was measured."""
    same = link_class(text) == _class_or_none(base.interconnect)
    return base if same else replace(base, interconnect=text, curves=())


def _with_tp_size(base: Scenario, text: str) -> Scenario:
    """Another number of GPUs, over the card's usual link where none is named."""
    scenario = replace(base, tp_size=_count("tp_size", text, MOST_RANKS))
    if scenario.tp_size == 1 or scenario.interconnect or scenario.curve is not None:
        return scenario
    return replace(scenario, interconnect=card_link(base.gpu))


def _with_gpu(base: Scenario, text: str) -> Scenario:
    """Another card on the same link, of which nothing was measured."""
    if gpu(text).name == gpu(base.gpu).name:
        return base
    link = base.interconnect or (card_link(text) if base.tp_size > 1 else "")
    return replace(base, gpu=text, curves=(), interconnect=link)


def _with_dtype(base: Scenario, text: str) -> Scenario:
    """Other stored weights."""
    stated_weights(base.model, text)
    return replace(base, dtype=text)


def _with_depth(base: Scenario, text: str) -> Scenario:
    """Another depth."""
    return replace(base, depth=_count("depth", text, BOUNDS["num_steps"].most))


def _with_batch_size(base: Scenario, text: str) -> Scenario:
    """Other running requests."""
    return replace(base, batch_size=_number("batch_size", text, *BOUNDS["batch_size"]))


def _with_context_tokens(base: Scenario, text: str) -> Scenario:
    """Another context."""
    return replace(base, context_tokens=_number("context_tokens", text, *BOUNDS["context_tokens"]))


KEYS: Final[Mapping[str, Callable[[Scenario, str], Scenario]]] = MappingProxyType(
    {
        "interconnect": _with_interconnect,
        "tp_size": _with_tp_size,
        "num_gpus": _with_tp_size,
        "batch_size": _with_batch_size,
        "context_tokens": _with_context_tokens,
        "dtype": _with_dtype,
        "depth": _with_depth,
        "gpu": _with_gpu,
    }
)
"""What can be changed, by its name."""
