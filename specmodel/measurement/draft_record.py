"""The record of one draft model on one device: what was measured, on what, and how far to trust it."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from specmodel.errors import ExtrapolationWarning, ParameterError
from specmodel.measurement.load_grid import Load, interpolate
from specmodel.measurement.timings import (
    DraftTiming,
    ExtendTiming,
    KernelTiming,
    StepTiming,
    check_counts,
    check_spread,
)

SCHEMA_VERSION: Final = 1
"""Layout of the file; it rises when a key changes its meaning. [-]"""

MEASURED: Final = "measured"
"""Kind of a record whose times came from a device's own clock."""

DRY: Final = "dry"
"""Kind of a record of a dry run: its times are made up, and nothing may be predicted from them."""

KINDS: Final = (MEASURED, DRY)
"""Kinds of a record."""

COLD: Final = "cold"
"""Weights come from memory, as after a pass of the target model."""

CACHE_STATES: Final = (COLD, "hot")
"""State of the last-level cache before each timed draft."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Clocks of a device at one moment.

    Parameters
    ----------
    multiprocessor_hz, memory_hz : float
        Positive, [1/s].

    Raises
    ------
    ParameterError
        If a clock is not positive.

    Notes
    -----
    Read before and after; they are never set.

    Examples
    --------
    >>> Clocks(multiprocessor_hz=1.98e9, memory_hz=3.2e9).memory_hz
    3200000000.0
    """

    multiprocessor_hz: float
    memory_hz: float

    def __post_init__(self) -> None:
        for name in ("multiprocessor_hz", "memory_hz"):
            _check_positive(name, getattr(self, name))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShapes:
    """Shapes of the draft model that was measured.

    Parameters
    ----------
    hidden_size, target_hidden_size, num_aux_states : int
        H, Ht and A, [-].
    num_heads, num_kv_heads, head_dim : int
        NH, NKV and D, [-].
    mlp_width : int
        I, [-].
    target_vocab_size, draft_vocab_size : int
        V and Vd, [-].
    attention : str
        ``grouped`` or ``latent``.

    Raises
    ------
    ParameterError
        If a count is below 1.

    Examples
    --------
    >>> DraftShapes(
    ...     hidden_size=8, target_hidden_size=8, num_aux_states=3, num_heads=2, num_kv_heads=1,
    ...     head_dim=4, mlp_width=16, target_vocab_size=50, draft_vocab_size=20,
    ... ).attention
    'grouped'
    """

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
        counts = set(self.__slots__) - {"attention"}
        check_counts(self, **dict.fromkeys(sorted(counts), 1))
        if self.attention not in {"grouped", "latent"}:
            raise ParameterError("attention", repr(self.attention), "grouped or latent")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRecord:
    """What `specmodel drafter time` writes.

    Parameters
    ----------
    kind : str
        ``measured``, or ``dry`` for a run without a device, whose times mean nothing.
    draft_model : str
        Name of the checkpoint's folder or of the public shape.
    layout : str
        Layout of the checkpoint, or that there was none.
    shapes : DraftShapes
        Its shapes.
    dtype : str
        Storage type of weights and cache.
    substituted : tuple of str
        Tensors that were not the checkpoint's own.
    device : str
        Name of the device.
    device_uuid, driver : str or None
        None where the device does not say.
    sm : int
        Compute capability times ten; 0 without a GPU, [-].
    device_state : str
        Error correction, partitioning, whatever else may move times; empty where nothing is known.
    clocks_before, clocks_after : Clocks or None
        Around the measurement.
    torch_version, triton_version, package_version : str
        Software.
    read_bandwidth_bytes_per_s : float
        What a kernel that only reads reached just before, [B/s].
    cache_state : str
        ``cold`` or ``hot``: last-level cache before each timed draft.
    spread : float
        Largest relative difference of two identical runs, [-].
    steps : tuple of StepTiming
        At least one; each load once.
    extends : tuple of ExtendTiming
        At least one; each load once.
    drafts : tuple of DraftTiming
        Whole drafts; each configuration once.
    kernels : tuple of KernelTiming
        Of one draft; empty where the device gave no trace.
    kernels_of : str
        Which draft the kernels are of.
    notes : tuple of str
        What a reader should know besides.

    Raises
    ------
    ParameterError
        If a field is impossible, or a load stands twice.

    Notes
    -----
    drafter.md 21.

    Examples
    --------
    >>> DraftRecord.__dataclass_fields__["kind"].type
    <class 'str'>
    """

    kind: str
    draft_model: str
    layout: str
    shapes: DraftShapes
    dtype: str
    substituted: tuple[str, ...] = ()
    device: str
    device_uuid: str | None
    driver: str | None
    sm: int
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
        check_counts(self, sm=0)
        check_spread(self.spread)
        _check_positive("read_bandwidth_bytes_per_s", self.read_bandwidth_bytes_per_s)
        for name in ("steps", "extends"):
            if not getattr(self, name):
                raise ParameterError(name, "none", "at least one measurement")
        for name, loads in (
            ("steps", [_step_load(row) for row in self.steps]),
            ("extends", [_extend_load(row) for row in self.extends]),
            ("drafts", [_draft_load(row) for row in self.drafts]),
        ):
            twice = next((load for load in loads if loads.count(load) > 1), None)
            if twice is not None:
                raise ParameterError(name, f"{twice} twice", "one row for each load")

    def step_time_s(
        self, *, batch_size: float = 1, context_tokens: float = 0, topk: float = 1
    ) -> float:
        r"""Time of one draft step at a load.

        .. math:: \log t \text{ linear in } \log B, \log C, \log \text{topk}

        Parameters
        ----------
        batch_size : float
            :math:`B`, requests, positive, [-].
        context_tokens : float
            :math:`C`, cached tokens of each request, at least 0, [tokens].
        topk : float
            Branches, at least 1, [-].

        Returns
        -------
        float
            Between the measurements around it, [s].

        Raises
        ------
        ParameterError
            If the record is of a dry run or hot, or the load is impossible.

        Warns
        -----
        ExtrapolationWarning
            For each axis on which the load is outside what was measured.

        Notes
        -----
        The measurement itself at a measured load; see `specmodel.measurement.load_grid.interpolate`.

        Examples
        --------
        >>> from specmodel.measurement.example import example_record
        >>> record = example_record()
        >>> f"{record.step_time_s(batch_size=1, context_tokens=4096):.3e}"
        '2.098e-04'
        """
        points = {_step_load(row): row.time_s for row in self.steps}
        return self._at(points, (topk, batch_size, context_tokens), "topk")

    def extend_time_s(
        self, *, tokens: float, batch_size: float = 1, context_tokens: float = 0
    ) -> float:
        r"""Time of the extend pass at a load.

        .. math:: \log t \text{ linear in } \log M, \log B, \log C

        Parameters
        ----------
        tokens : float
            :math:`M`, newly accepted tokens of each request, at least 1, [tokens].
        batch_size : float
            :math:`B`, requests, positive, [-].
        context_tokens : float
            :math:`C`, cached tokens of each request, at least 0, [tokens].

        Returns
        -------
        float
            [s].

        Raises
        ------
        ParameterError
            If the record is of a dry run or hot, or the load is impossible.

        Warns
        -----
        ExtrapolationWarning
            For each axis on which the load is outside what was measured.

        Notes
        -----
        It drafts the first token too, so a draft of k tokens is one extend pass and k - 1 steps.

        Examples
        --------
        >>> from specmodel.measurement.example import example_record
        >>> f"{example_record().extend_time_s(tokens=4, context_tokens=2048):.3e}"
        '2.600e-04'
        """
        points = {_extend_load(row): row.time_s for row in self.extends}
        return self._at(points, (tokens, batch_size, context_tokens), "tokens")

    def check_usable(self) -> None:
        """Refuse to give a time that was not measured, or not as it is in serving.

        Raises
        ------
        ParameterError
            If the record is of a dry run, or was taken with a hot cache.

        Notes
        -----
        In serving a pass of the target model runs before each draft, so weights are cold.

        Examples
        --------
        >>> from specmodel.measurement.example import example_record
        >>> example_record().check_usable()
        """
        if self.kind != MEASURED:
            raise ParameterError(
                "kind",
                self.kind,
                "measured",
                "its times are made up; run `specmodel drafter time` on a GPU",
            )
        if self.cache_state != COLD:
            raise ParameterError(
                "cache_state",
                self.cache_state,
                "cold",
                "replays that find the weights in cache are faster than a draft in serving",
            )

    def _at(self, points: Mapping[Load, float], load: Load, first: str) -> float:
        """Interpolated time, with a warning where it is carried past the measurements."""
        self.check_usable()
        axes = (first, "batch_size", "context_tokens")
        for axis, value in zip(axes[:2], load[:2], strict=True):
            if not value > 0:
                raise ParameterError(axis, value, "positive")
        found = interpolate(points, load, axes)
        for each in found.beyond:
            warnings.warn(ExtrapolationWarning(*each), stacklevel=3)
        return found.value


def _step_load(row: StepTiming) -> Load:
    """Axes of a step: topk, batch, context."""
    return (row.topk, row.batch_size, row.context_tokens)


def _extend_load(row: ExtendTiming) -> Load:
    """Axes of an extend pass: tokens, batch, context."""
    return (row.tokens, row.batch_size, row.context_tokens)


def _draft_load(row: DraftTiming) -> Load:
    """What tells drafts apart."""
    return (row.topk, row.batch_size, row.context_tokens, row.num_steps, row.num_draft_tokens)


def _check_positive(name: str, value: object) -> None:
    """Refuse a rate that cannot have been measured."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < math.inf:
        return
    raise ParameterError(name, value, "positive and finite")
