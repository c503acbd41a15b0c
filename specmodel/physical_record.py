"""The physical form's fit as plain JSON and back: the part of a calibration file that says why."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.form_error import FormError, Loads
from specmodel.physical_fit import PhysicalFit, Priced

Array = NDArray[np.float64]

_DIGITS = 10


def physical_to_record(fit: PhysicalFit) -> dict[str, Any]:
    r"""JSON record of a physical fit.

    .. math:: \text{fit} \mapsto \text{JSON}

    Parameters
    ----------
    fit : PhysicalFit
        What to write.

    Returns
    -------
    dict
        Plain numbers, strings, lists and dicts; factors also in natural units, for people.

    Notes
    -----
    Ten significant digits.

    Examples
    --------
    >>> fit = PhysicalFit.from_prior({}, ("bandwidth",), np.array([0.15]))
    >>> physical_to_record(fit)["factors"]
    {'bandwidth': 0.0}
    """
    measured = fit.measured
    return {
        "rig": dict(fit.rig),
        "factors": dict(zip(fit.factors, _rounded(fit.mean), strict=True)),
        "covariance": [_rounded(row) for row in fit.covariance],
        "prior_sd": _rounded(fit.prior_sd),
        "loads": {
            field.name: _rounded(getattr(measured.loads, field.name)) for field in fields(Loads)
        },
        "log_time": _rounded(measured.log_time),
        "jacobian": [_rounded(row) for row in measured.jacobian],
        "target_share": _rounded(measured.target_share),
        "residual": _rounded(fit.residual),
        "noise_sd": _rounded(fit.noise_sd),
        "shared_sd": _rounded(fit.shared_sd),
        "non_decode_share": fit.non_decode_share,
        "non_decode_sd": fit.non_decode_sd,
        "form_error": asdict(fit.form),
        "notes": list(fit.notes),
    }


def physical_from_record(record: Mapping[str, Any]) -> PhysicalFit:
    r"""Physical fit from its JSON record.

    .. math:: \text{JSON} \mapsto \text{fit}

    Parameters
    ----------
    record : mapping
        As `physical_to_record` gives it.

    Returns
    -------
    PhysicalFit

    Raises
    ------
    KeyError, TypeError, ValueError
        If the record is not sound; `load_calibration` turns these into one clear line.

    Notes
    -----
    The rig's own record is read by whoever prices it.

    Examples
    --------
    >>> fit = PhysicalFit.from_prior({}, ("bandwidth",), np.array([0.15]))
    >>> physical_from_record(physical_to_record(fit)).prior_sd.tolist()
    [0.15]
    """
    factors = tuple(record["factors"])
    rows = len(record["log_time"])
    return PhysicalFit(
        rig=dict(record["rig"]),
        factors=factors,
        mean=_array(list(record["factors"].values())),
        covariance=_array(record["covariance"]),
        prior_sd=_array(record["prior_sd"]),
        measured=Priced(
            loads=Loads(**{name: _array(values) for name, values in record["loads"].items()}),
            log_time=_array(record["log_time"]),
            jacobian=_array(record["jacobian"]).reshape(rows, len(factors)),
            target_share=_array(record["target_share"]),
        ),
        residual=_array(record["residual"]),
        noise_sd=_array(record["noise_sd"]),
        shared_sd=_array(record["shared_sd"]),
        non_decode_share=float(record["non_decode_share"]),
        non_decode_sd=float(record["non_decode_sd"]),
        form=FormError(**record["form_error"]),
        notes=_texts(record["notes"]),
    )


def _rounded(values: Array) -> list[float]:
    """Numbers with the file's digits."""
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def _texts(values: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise TypeError("notes must be a list of texts")
    return tuple(values)


def _array(values: Any) -> Array:
    """Numbers as an array."""
    return np.array(values, dtype=np.float64)
