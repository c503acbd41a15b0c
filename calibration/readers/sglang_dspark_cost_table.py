"""Cost tables of SGLang's DSPARK scheduler: a curve of step times, no measurements of runs."""

from typing import Any, Final

from calibration.readers.dspark_table import DsparkTable, Probes
from calibration.readers.json_text import json_keys, json_value, number_at
from calibration.readers.reading import PointWarning, Reading, SourceText
from specmodel.errors import FormatError, ParameterError

FORMAT: Final = "sglang_dspark_cost_table"

_SAMPLED = ("sample_batch_tokens", "sample_steps_per_sec")
_ADDITIVE = ("bs_probes", "alpha_seconds", "m_probes", "theta_seconds")
_BIAS = "bias_seconds"
_CONVENTIONS: Final = (
    "a table has no rows: no acceptance and no throughput, only the time of a step",
    "steps_per_sec: step time is 1 / steps per second over the rows that the target verifies",
    "additive: step time is bias + alpha(requests) + theta(requests + budget tokens)",
    "straight lines between probes, the end value beyond them; seconds converted to milliseconds",
)
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
        (PointWarning(code="step_time_falls", message=_FALLS, path=source.path),)
        if costs.falls
        else ()
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
