"""The calibration file: a calibration as JSON, checked when read, whole when written."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from specmodel.baselines import Baseline, Baselines
from specmodel.calibrated import SCHEMA_VERSION, Calibration, Observation
from specmodel.checked_json import JsonKind, load_checked_json, save_checked_json
from specmodel.configuration import Configuration, Run
from specmodel.constants import NAMES, NUM_CONSTANTS
from specmodel.cost import BatchCurve
from specmodel.errors import FormatError
from specmodel.physical_record import physical_from_record, physical_to_record
from specmodel.posterior import Posterior
from specmodel.prior import Noise, prior_from_record, prior_to_record

Array = NDArray[np.float64]
Record = TypeVar("Record")

_AGAIN = "run `specmodel fit` again to write a new one"
_KIND = JsonKind(
    name="calibration",
    schema_version=SCHEMA_VERSION,
    marks=("internal_mean", "content_sha256"),
    lacking="no constants in it",
    write="`specmodel fit BENCH -o FILE`",
    again=_AGAIN,
)
_DIGITS = 10
_SCALES = ("noise_scale", "effect_scale", "degrees_of_freedom", "prior_width")


def save_calibration(calibration: Calibration, path: Path | str) -> None:
    r"""Write a calibration as JSON, so that an interruption leaves the old file whole.

    .. math:: \text{load}(\text{save}(c)) = c

    Parameters
    ----------
    calibration : Calibration
        What to write.
    path : path
        The file; its folder must exist.

    Raises
    ------
    OutputError
        If the file cannot be written; nothing is left behind.

    Notes
    -----
    Numbers carry ten significant digits. A checksum over the content tells a truncated or edited
    file from a whole one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_calibration(Calibration.from_prior(), Path(folder) / "calibration.json")
    ...     load_calibration(Path(folder) / "calibration.json").num_points
    0
    """
    save_checked_json(calibration_to_record(calibration), path)


def load_calibration(path: Path | str) -> Calibration:
    r"""Read a calibration file.

    .. math:: \text{JSON} \mapsto c

    Parameters
    ----------
    path : path
        A file written by `save_calibration`, of this schema version or an older one.

    Returns
    -------
    Calibration

    Raises
    ------
    FormatError
        If the file is missing, truncated, edited by hand, of a newer schema, or no calibration.

    Notes
    -----
    A newer schema is refused with its version named, so that nothing is read wrongly.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "calibration.json"
    ...     save_calibration(Calibration.from_prior(), file)
    ...     load_calibration(file).label
    ''
    """
    record = load_checked_json(path, _KIND)
    try:
        return calibration_from_record(record)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FormatError(
            path,
            f"not a sound calibration ({type(error).__name__}: {error}); {_AGAIN}",
            code="edited",
        ) from None


def _number(value: float) -> float | None:
    """A number with the file's digits; None for NaN."""
    return None if np.isnan(value) else float(f"{value:.{_DIGITS}g}")


def _from_number(value: float | None) -> float:
    """NaN for None."""
    return np.nan if value is None else float(value)


def _triangle(matrix: Array) -> list[list[float]]:
    """Lower triangle of a symmetric matrix."""
    return [
        [float(f"{x:.{_DIGITS}g}") for x in row[: index + 1]] for index, row in enumerate(matrix)
    ]


def _from_triangle(rows: list[list[float]]) -> Array:
    """Symmetric matrix from its lower triangle."""
    matrix = np.zeros((len(rows), len(rows)))
    for index, row in enumerate(rows):
        matrix[index, : index + 1] = row
        matrix[: index + 1, index] = row
    return matrix


def calibration_to_record(calibration: Calibration) -> dict[str, Any]:
    r"""JSON record of a calibration, without its checksum.

    .. math:: c \mapsto \text{JSON}

    Parameters
    ----------
    calibration : Calibration
        What to write.

    Returns
    -------
    dict
        Plain numbers, strings, lists and dicts.

    Notes
    -----
    The constants stand in natural units with intervals for people and other programs; the vector
    and covariance on the internal scale are what predictions use.

    Examples
    --------
    >>> calibration_to_record(Calibration.from_prior())["schema_version"]
    1
    """
    posterior, curve = calibration.posterior, calibration.curve
    effects = posterior.mean[NUM_CONSTANTS:]
    return {
        "schema_version": SCHEMA_VERSION,
        "label": calibration.label,
        "system": dict(calibration.system),
        "constants": {
            estimate.name: {
                "value": _number(estimate.value),
                "low": _number(estimate.low),
                "high": _number(estimate.high),
                "prior": {
                    "value": _number(estimate.prior_value),
                    "low": _number(estimate.prior_low),
                    "high": _number(estimate.prior_high),
                },
                "share_learned": _number(estimate.learned),
            }
            for estimate in calibration.constants
        },
        "intervals": {
            name: list(map(_number, pair)) for name, pair in calibration.intervals.items()
        },
        "internal_mean": {
            name: _number(value)
            for name, value in zip(NAMES, posterior.mean[:NUM_CONSTANTS], strict=True)
        },
        "covariance": _triangle(posterior.covariance),
        "configuration_effects": [_number(x) for x in effects[: posterior.num_configurations]],
        "run_effects": [_number(x) for x in effects[posterior.num_configurations :]],
        "noise_scale": _number(posterior.noise_scale),
        "effect_scale": _number(posterior.effect_scale),
        "degrees_of_freedom": _number(posterior.degrees_of_freedom),
        # Above 1 where the points lie away from the prior, which then counts for less.
        "prior_width": _number(
            np.trace(posterior.prior_covariance) / np.trace(calibration.prior.covariance)
        ),
        "prior": {"name": calibration.prior.name, **prior_to_record(calibration.prior)},
        "configurations": [asdict(one) for one in calibration.configurations],
        "runs": [asdict(one) for one in calibration.runs],
        "observations": [
            {
                **{key: value for key, value in asdict(one).items() if key != "configuration"},
                "configuration": asdict(one.configuration),
            }
            for one in calibration.observations
        ],
        "baselines": [
            {
                key: _number(value) if isinstance(value, float) else value
                for key, value in one.items()
            }
            for one in map(asdict, calibration.baselines.entries)
        ],
        "batch_curve": curve
        and {
            "batch_size": curve.batch_size.tolist(),
            "context_tokens": curve.context_tokens.tolist(),
            "step_time_s": curve.step_time_s.tolist(),
            "kv_s_per_token": curve.kv_s_per_token,
        },
        "num_experts": _number(calibration.num_experts),
        "experts_per_token": _number(calibration.experts_per_token),
        "throughput_scope": calibration.throughput_scope,
        "hull": {name: list(pair) for name, pair in calibration.hull.items()},
        "num_points": calibration.num_points,
        "residual_log_sd": _number(calibration.residual_log_sd),
        "points_sha256": calibration.points_sha256,
        "package_version": calibration.package_version,
        "notes": list(calibration.notes),
        "broken_baselines": list(calibration.broken_baselines),
        "forced": calibration.forced,
        "decode_only": calibration.decode_only,
        "physical": calibration.physical and physical_to_record(calibration.physical),
        "rig_note": calibration.rig_note,
    }


def calibration_from_record(record: Mapping[str, Any]) -> Calibration:
    r"""Calibration from its JSON record.

    .. math:: \text{JSON} \mapsto c

    Parameters
    ----------
    record : mapping
        As `calibration_to_record` gives it.

    Returns
    -------
    Calibration

    Raises
    ------
    KeyError, TypeError, ValueError
        If the record is not sound; `load_calibration` turns these into one clear line.

    Notes
    -----
    Constants are read by name.

    Examples
    --------
    >>> prior = Calibration.from_prior()
    >>> calibration_from_record(calibration_to_record(prior)).prior.noise == prior.prior.noise
    True
    """
    prior_record = dict(record["prior"])
    prior = prior_from_record(prior_record, name=prior_record["name"])
    configurations = _records(Configuration, record["configurations"])
    runs = _records(Run, record["runs"])
    names = list(record["internal_mean"])
    effects = [*record["configuration_effects"], *record["run_effects"]]
    order = [*(names.index(name) for name in NAMES), *range(len(names), len(names) + len(effects))]
    mean = np.array([*record["internal_mean"].values(), *effects], dtype=np.float64)[order]
    covariance = _from_triangle(record["covariance"])[np.ix_(order, order)]
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(covariance))):
        raise ValueError("mean and covariance must be finite")
    if len(configurations) != len(record["configuration_effects"]) or len(runs) != len(
        record["run_effects"]
    ):
        raise ValueError("effects must match configurations and runs")
    scales = {name: float(record[name]) for name in _SCALES}
    for name, value in scales.items():
        if not 0.0 < value < np.inf:
            raise ValueError(f"{name} must be finite and positive, found {value:g}")
    curve = record["batch_curve"]
    return Calibration(
        label=record["label"],
        system=dict(record["system"]),
        prior=prior,
        posterior=Posterior(
            mean=mean,
            covariance=covariance,
            num_configurations=len(configurations),
            noise=Noise(**prior_record["noise"]),
            noise_scale=scales["noise_scale"],
            effect_scale=scales["effect_scale"],
            degrees_of_freedom=scales["degrees_of_freedom"],
            prior_covariance=scales["prior_width"] * prior.covariance,
        ),
        intervals={name: (pair[0], pair[1]) for name, pair in record["intervals"].items()},
        configurations=configurations,
        runs=runs,
        observations=tuple(
            Observation(
                **{
                    **one,
                    "configuration": Configuration(**one["configuration"]),
                    "accept_length": tuple(one["accept_length"]),
                    "round_cost": tuple(one["round_cost"]),
                }
            )
            for one in record["observations"]
        ),
        baselines=Baselines(
            entries=tuple(
                Baseline(
                    workload=one["workload"],
                    batch_size=_from_number(one["batch_size"]),
                    context_tokens=_from_number(one["context_tokens"]),
                    tokens_per_s=_from_number(one["tokens_per_s"]),
                    step_time_s=_from_number(one["step_time_s"]),
                )
                for one in record["baselines"]
            )
        ),
        curve=curve
        and BatchCurve(
            batch_size=np.array(curve["batch_size"], dtype=np.float64),
            context_tokens=np.array(curve["context_tokens"], dtype=np.float64),
            step_time_s=np.array(curve["step_time_s"], dtype=np.float64),
            kv_s_per_token=float(curve["kv_s_per_token"]),
        ),
        num_experts=_from_number(record["num_experts"]),
        experts_per_token=_from_number(record["experts_per_token"]),
        throughput_scope=record["throughput_scope"],
        hull={name: (pair[0], pair[1]) for name, pair in record["hull"].items()},
        num_points=int(record["num_points"]),
        residual_log_sd=_from_number(record["residual_log_sd"]),
        points_sha256=record["points_sha256"],
        package_version=record["package_version"],
        notes=tuple(record["notes"]),
        broken_baselines=tuple(record["broken_baselines"]),
        forced=bool(record["forced"]),
        # Files of 0.1.0 lack what follows.
        decode_only=bool(record.get("decode_only", False)),
        physical=physical_from_record(record["physical"]) if record.get("physical") else None,
        rig_note=str(record.get("rig_note", "")),
    )


def _records(kind: Callable[..., Record], rows: list[dict[str, Any]]) -> tuple[Record, ...]:
    """Records of one kind from their dicts."""
    return tuple(kind(**row) for row in rows)
