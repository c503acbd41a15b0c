"""Cost tables of SGLang's DSPARK scheduler: step time over tokens, no measurements of runs."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from calibration.readers.formats import conventions
from calibration.readers.json_text import json_keys, json_value, number_at
from calibration.readers.reading import Reading, SourceText
from specmodel.errors import FormatError, Note, ParameterError
from specmodel.units import MILLI

ADDITIVE: Final = "additive"
STEPS_PER_SEC: Final = "steps_per_sec"

_MOST_PROBES = 4096
_LARGEST = 1e15
_MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Times at ascending numbers of requests or tokens, straight lines between them."""

    at: tuple[float, ...]  # where, ascending
    times_s: tuple[float, ...]  # what was measured there, not negative, [s]

    def __post_init__(self) -> None:
        if len(self.at) != len(self.times_s):
            raise ParameterError(
                "lengths", f"{len(self.at)} probes and {len(self.times_s)} times", "equal"
            )
        if not 1 <= len(self.at) <= _MOST_PROBES:
            raise ParameterError("probes", f"{len(self.at)} of them", f"1 to {_MOST_PROBES}")
        if not all(0 <= number <= _LARGEST for number in (*self.at, *self.times_s)):
            raise ParameterError("probes and times", "another", "finite numbers, not negative")
        if not all(low < high for low, high in pairwise(self.at)):
            raise ParameterError("probes", "others", "strictly ascending")

    def time_s(self, place: float) -> float:
        """Return the time at a place, [s]; before the first and beyond the last probe theirs."""
        after = bisect_right(self.at, place)
        if after in {0, len(self.at)}:
            return self.times_s[0 if after == 0 else -1]
        low, high = self.at[after - 1], self.at[after]
        share = (place - low) / (high - low)
        return self.times_s[after - 1] * (1 - share) + self.times_s[after] * share


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkTable:
    r"""Step time of a server that drafts blocks, in either of the forms that SGLang reads.

    With :math:`m = \text{requests} + \text{budget tokens}`, the rows that the target verifies,

    .. math:: T = b + \alpha(\text{requests}) + \theta(m)

    where the form ``steps_per_sec`` has :math:`\theta` alone, :math:`T = 1 / \text{steps per
    second}`. Straight lines stand between probes, the end value beyond them. (SGLang itself takes
    the last sample that is not beyond, in the form ``steps_per_sec``.)
    """

    theta: Probes  # time over the rows that the target verifies
    alpha: Probes | None = None  # time over requests; None in the form ``steps_per_sec``
    bias_s: float = 0.0  # time of every step, [s]
    # most rows that the server captured a graph for; beyond the last sample its time holds
    max_batch_tokens: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.bias_s <= _LARGEST:
            raise ParameterError(
                "bias_seconds", f"{self.bias_s:g}", "a finite number, not negative"
            )
        if self.step_time_s() <= 0:
            raise ParameterError("step time", "0", "above 0 at every probe")

    @property
    def form(self) -> str:
        """Which of the two forms it has: ``additive`` or ``steps_per_sec``."""
        return STEPS_PER_SEC if self.alpha is None else ADDITIVE

    def step_time_s(
        self,
        *,
        num_reqs: float = 0.0,
        budget_tokens: float = 0.0,
        batch_tokens: float | None = None,
    ) -> float:
        """Return the time of a step, [s]."""
        rows = num_reqs + budget_tokens if batch_tokens is None else batch_tokens
        per_request_s = 0.0 if self.alpha is None else self.alpha.time_s(num_reqs)
        return self.bias_s + per_request_s + self.theta.time_s(rows)

    def values(self) -> tuple[Mapping[str, float], ...]:
        """Return the step time at the probes, ``step_time_ms`` in milliseconds, bounded in number."""
        if self.alpha is None:
            return tuple(
                {"batch_tokens": at, "step_time_ms": self.step_time_s(batch_tokens=at) / MILLI}
                for at in self.theta.at
            )
        places = [
            (num_reqs, rows - num_reqs)
            for num_reqs in self.alpha.at
            for rows in self.theta.at
            if rows >= num_reqs
        ]
        return tuple(
            {
                "num_reqs": num_reqs,
                "budget_tokens": budget,
                "step_time_ms": self.step_time_s(num_reqs=num_reqs, budget_tokens=budget) / MILLI,
            }
            for num_reqs, budget in places[:_MOST_VALUES]
        )

    @property
    def falls(self) -> bool:
        """Whether more rows or requests take less time somewhere, which no step does."""
        curves: Sequence[Probes] = [self.theta] if self.alpha is None else [self.theta, self.alpha]
        return any(low > high for curve in curves for low, high in pairwise(curve.times_s))


FORMAT: Final = "sglang_dspark_cost_table"

_SAMPLED = ("sample_batch_tokens", "sample_steps_per_sec")
_ADDITIVE = ("bs_probes", "alpha_seconds", "m_probes", "theta_seconds")
_BIAS = "bias_seconds"
_CONVENTIONS: Final = conventions("sglang_dspark_cost_table")
_FALLS = (
    "a larger batch takes less time at some probe, which no step does: that probe was disturbed; "
    "measure it again with more repetitions"
)


def recognise(head: str) -> bool:
    """Return whether a text is a cost table of the DSPARK scheduler."""
    keys = json_keys(head)
    return _SAMPLED[0] in keys or (
        _BIAS in keys and not keys.isdisjoint({"theta_seconds", "alpha_seconds"})
    )


def read(source: SourceText) -> Reading:
    """Return the step times at the probes of a table."""
    costs = table(source)
    warnings = (
        (Note(code="step_time_falls", message=_FALLS, path=source.path),) if costs.falls else ()
    )
    return Reading(
        path=source.path,
        format=FORMAT,
        rows=(),
        warnings=warnings,
        era=(costs.form,),
        conventions=_CONVENTIONS,
        cost_table=costs.values(),
    )


def table(source: SourceText) -> DsparkTable:
    """Return the table of a file, which can be asked between its probes."""
    fields = json_value(source)
    try:
        costs = _sampled(fields, source) or _additive(fields, source)
    except ParameterError as error:
        code = "length_mismatch" if error.name == "lengths" else "invalid_value"
        raise FormatError(source.path, str(error), code=code) from None
    if costs is None:
        raise FormatError(
            source.path,
            f"no cost table: it needs {' and '.join(_SAMPLED)}, or {_BIAS}, "
            f"{' and '.join(_ADDITIVE)}",
            code="no_rows",
        )
    return costs


def _sampled(fields: Any, source: SourceText) -> DsparkTable | None:
    """Return the table of samples of one list of steps per second."""
    at, steps_per_s = (_list(fields, name, source) for name in _SAMPLED)
    if at is None or steps_per_s is None or not (at or steps_per_s):
        return None
    if not all(steps > 0 for steps in steps_per_s):
        raise ParameterError(_SAMPLED[1], min(steps_per_s), "above 0 everywhere")
    times_s = tuple(1 / steps for steps in steps_per_s)
    return DsparkTable(
        theta=Probes(at=at, times_s=times_s), max_batch_tokens=number_at(fields, "max_batch_tokens")
    )


def _additive(fields: Any, source: SourceText) -> DsparkTable | None:
    """Return the table that adds a part for requests and a part for tokens."""
    requests, alpha_s, rows, theta_s = (_list(fields, name, source) for name in _ADDITIVE)
    bias_s = number_at(fields, _BIAS)
    if requests is None or alpha_s is None or rows is None or theta_s is None or bias_s is None:
        return None
    return DsparkTable(
        theta=Probes(at=rows, times_s=theta_s),
        alpha=Probes(at=requests, times_s=alpha_s),
        bias_s=bias_s,
    )


def _list(fields: Any, name: str, source: SourceText) -> tuple[float, ...] | None:
    """Return a list of numbers, None where there is none."""
    values = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(values, list):
        return None
    numbers = [number_at({name: value}, name) for value in values]
    if None in numbers:
        raise FormatError(
            source.path, f"{name} must be a list of finite numbers", code="invalid_value"
        )
    return tuple(number for number in numbers if number is not None)
