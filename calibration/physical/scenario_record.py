"""A rig as plain JSON and back: what a calibration keeps of the machine that it was fitted on."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from calibration.physical.draft_choice import DraftChoice
from calibration.physical.measured_draft import measured_draft_from
from calibration.physical.scenario import Scenario
from specmodel.architecture.shape_record import shape_from_record, shape_to_record
from specmodel.cost.allreduce_curve import AllReduceCurve
from specmodel.errors import FormatError
from specmodel.record_types import check_types

_PLAIN: Final = (
    "gpu",
    "tp_size",
    "interconnect",
    "dtype",
    "kernel",
    "kv_bytes_per_value",
    "context_parallel",
    "schedule",
    "capture_limit",
)


def scenario_to_record(scenario: Scenario) -> dict[str, Any]:
    r"""JSON record of a rig, without its load.

    .. math:: s \mapsto \text{JSON}

    Parameters
    ----------
    scenario : Scenario
        Its load and accept length are not kept.

    Returns
    -------
    dict
        Plain numbers, strings, lists and dicts.

    Notes
    -----
    Sizes in bytes, times in seconds.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> scenario_to_record(Scenario(model=preset("Qwen3-8B"), gpu="H100"))["gpu"]
    'H100'
    """
    return {
        "model": shape_to_record(scenario.model),
        **{name: getattr(scenario, name) for name in _PLAIN},
        "draft": asdict(scenario.draft),
        "allreduce": [
            {
                "num_ranks": ranks,
                "size_bytes": curve.size_bytes.tolist(),
                "time_s": curve.time_s.tolist(),
            }
            for ranks, curve in scenario.curves
        ],
    }


def scenario_from_record(record: Mapping[str, Any], *, path: str = "calibration") -> Scenario:
    r"""Rig from its JSON record.

    .. math:: \text{JSON} \mapsto s

    Parameters
    ----------
    record : mapping
        As `scenario_to_record` gives it.
    path : str
        Named where the record is not sound.

    Returns
    -------
    Scenario

    Raises
    ------
    FormatError
        If the record is not sound, names what this release does not know, or is of a rig that cannot
        be.

    Notes
    -----
    At one request, depth 1 and accept length 1.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> rig = Scenario(model=preset("Qwen3-8B"), gpu="H100")
    >>> scenario_from_record(scenario_to_record(rig)) == rig
    True
    """
    try:
        plain = {name: record[name] for name in _PLAIN}
        check_types(Scenario, plain)
        scenario = Scenario(
            model=shape_from_record(record["model"]),
            **plain,
            draft=_draft(record["draft"]),
            curves=tuple(_curve(one) for one in record["allreduce"]),
        )
        scenario.rig()
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"no {error}" if type(error) is KeyError else str(error)
        message = f"its rig cannot be read ({reason}); run `specmodel fit` again"
        raise FormatError(path, message, code="edited") from None
    return scenario


def _draft(record: Mapping[str, Any]) -> DraftChoice:
    """The draft model of a record; calibrations from before drafter records lack its times."""
    times = record.get("times")
    plain = {name: value for name, value in record.items() if name != "times"}
    check_types(DraftChoice, plain)
    return DraftChoice(**plain, times=measured_draft_from(times) if times else None)


def _curve(record: Mapping[str, Any]) -> tuple[int, AllReduceCurve]:
    """Ranks of a measured all-reduce, and its curve."""
    curve = AllReduceCurve.from_points(record["size_bytes"], record["time_s"])
    return int(record["num_ranks"]), curve
