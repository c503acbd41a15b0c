"""A calibrated system: what its points taught, everything a prediction needs, and its file."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from specmodel.baselines import Baseline, Baselines
from specmodel.checked_json import JsonKind, load_checked_json, save_checked_json
from specmodel.constants import NAMES, NUM_CONSTANTS, to_natural
from specmodel.cost import REFERENCE_STEP_TIME_S, BatchCurve
from specmodel.errors import ExtrapolationWarning, FormatError
from specmodel.physical_fit import PhysicalFit
from specmodel.physical_record import physical_from_record, physical_to_record
from specmodel.posterior import Posterior
from specmodel.prediction import Prediction, predict
from specmodel.prior import Noise, Prior, load_prior, prior_from_record, prior_to_record
from specmodel.question import AcceptLength, Configuration, Question, Run
from specmodel.version import __version__

Record = TypeVar("Record")
Array = NDArray[np.float64]

SCHEMA_VERSION = 1
"""Version of the calibration file. 1: first release."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the points say of one configuration, by the plain identity.

    Parameters
    ----------
    configuration : Configuration
        Which one.
    num_points : int
        Rows of it.
    accept_length : tuple of float
        Smallest and largest, [tokens].
    round_cost : tuple of float
        Smallest, median and largest of accept_length x baseline / throughput, [baseline steps].
    accept_length_at : float
        Accept length of its first row, [tokens].
    output_tokens_per_s, baseline_tokens_per_s : float
        Throughputs of its first row, [tokens/s].
    decode_round_cost : float
        Median of the same with the time that is not decoding taken out where it was measured, [baseline
        steps].
    """

    configuration: Configuration
    num_points: int
    accept_length: tuple[float, float]
    round_cost: tuple[float, float, float]
    accept_length_at: float
    output_tokens_per_s: float
    baseline_tokens_per_s: float
    decode_round_cost: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantEstimate:
    """One constant after the points.

    Parameters
    ----------
    name : str
        As in `specmodel.constants.NAMES`.
    value, low, high : float
        Median and central 90 % interval.
    prior_value, prior_low, prior_high : float
        The same before the points.
    learned : float
        1 - posterior sd / prior sd on the internal scale, the prior as wide as the points made it: 0
        means the points say nothing, [0, 1].
    """

    name: str
    value: float
    low: float
    high: float
    prior_value: float
    prior_low: float
    prior_high: float
    learned: float

    @property
    def prior_dominated(self) -> bool:
        """Whether this is the prior rather than the points."""
        return self.learned < PRIOR_DOMINATED


PRIOR_DOMINATED = 0.1
"""Share learned below which a constant is called prior-dominated (theory.md part D: posterior sd above
0.9 of the prior's)."""

_DRAFT = ("step_cost", "tree_cost")
_EXPONENT = NAMES.index("draft_time_exponent")
_NORMAL_95 = 1.6448536269514722


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A system's constants with everything that a prediction needs.

    Parameters
    ----------
    label : str
        What the system is, for a person; empty for the packaged prior.
    system : dict of str to str
        Fields that make the system.
    prior : Prior
        What was believed before.
    posterior : Posterior
        What is believed now.
    intervals : dict of str to tuple
        Central 90 % interval of constants whose profile was computed; others use the normal one.
    configurations, runs : tuple
        In the order of the effects in `posterior`.
    observations : tuple of Observation
        By configuration.
    baselines : Baselines
        Every baseline of the points.
    curve : BatchCurve or None
        The baseline's batch curve, where there is one.
    num_experts, experts_per_token : float
        Of the target model; 0 for dense, NaN where not known.
    throughput_scope : str
        What the points' throughputs are: ``aggregate`` over the batch (also where not stated),
        ``per_user`` or ``per_gpu``.
    hull : dict of str to tuple
        Smallest and largest value of each quantity in the points.
    num_points : int
        Rows that were fitted.
    residual_log_sd : float
        Root mean square of the residuals of ln speed-up, NaN without points, [-].
    points_sha256 : str
        Hash of the points.
    package_version : str
        Which release fitted it.
    notes : tuple of str
        What the fit set aside or warned of.
    broken_baselines : tuple of str
        What was said of each baseline that implies a round of less than a step; also in `notes`.
    forced : bool
        Whether the rows of broken baselines were fitted all the same.
    decode_only : bool
        Whether every throughput leaves out prefill and idle time: predictions do, too.
    physical : PhysicalFit or None
        The physical form fitted to the same points, where their machine is known.
    rig_note : str
        Why there is no physical form; empty where there is one.
    """

    label: str
    system: dict[str, str]
    prior: Prior
    posterior: Posterior
    intervals: dict[str, tuple[float, float]]
    configurations: tuple[Configuration, ...]
    runs: tuple[Run, ...]
    observations: tuple[Observation, ...]
    baselines: Baselines
    curve: BatchCurve | None
    num_experts: float
    experts_per_token: float
    throughput_scope: str
    hull: dict[str, tuple[float, float]]
    num_points: int
    residual_log_sd: float
    points_sha256: str
    package_version: str
    notes: tuple[str, ...]
    broken_baselines: tuple[str, ...] = ()
    forced: bool = False
    decode_only: bool = False
    physical: PhysicalFit | None = None
    rig_note: str = ""

    @classmethod
    def from_prior(cls, prior: Prior | None = None) -> "Calibration":
        r"""Calibration of no points: the packaged prior.

        .. math:: x \sim \mathcal{N}(\mu, \Sigma)

        Parameters
        ----------
        prior : Prior, optional
            By default the packaged one for any engine and unknown experts.

        Returns
        -------
        Calibration

        Notes
        -----
        Predicts speed-ups with wide intervals and no throughput.
        """
        known = prior or load_prior(experts_known=False)
        return cls(
            label="",
            system={},
            prior=known,
            posterior=Posterior.from_prior(known),
            intervals={},
            configurations=(),
            runs=(),
            observations=(),
            baselines=Baselines(entries=()),
            curve=None,
            num_experts=np.nan,
            experts_per_token=np.nan,
            throughput_scope="aggregate",
            hull={},
            num_points=0,
            residual_log_sd=np.nan,
            points_sha256="",
            package_version=__version__,
            notes=(),
        )

    @property
    def draft_scale(self) -> float:
        """Factor by which draft constants count at the fastest measured load; 1 where unknown.

        See `specmodel.cost.REFERENCE_STEP_TIME_S`.
        """
        batch = self.baselines.column("batch_size")
        step_s = self.baselines.column("step_time_s")[np.isfinite(batch)]
        step_s = step_s[np.isfinite(step_s)]
        return REFERENCE_STEP_TIME_S / float(step_s.min()) if step_s.size else 1.0

    @property
    def constants(self) -> tuple[ConstantEstimate, ...]:
        """Every constant with its interval, its prior and how much the points taught.

        What a draft step and a tree cost is given in baseline steps of the fastest measured load, where
        the points know it; at another load it is times `draft_scale` to the `draft_time_exponent`.
        """
        mean, sd = self._at_load(
            self.posterior.mean[:NUM_CONSTANTS],
            self.posterior.covariance[:NUM_CONSTANTS, :NUM_CONSTANTS],
        )
        prior_mean, prior_sd = self._at_load(self.prior.mean, self.prior.covariance)
        _, widened_sd = self._at_load(self.prior.mean, self.posterior.prior_covariance)
        spread = np.array([-_NORMAL_95, 0.0, _NORMAL_95])[:, None]
        after, before = to_natural(mean + spread * sd), to_natural(prior_mean + spread * prior_sd)
        estimates = []
        for index, name in enumerate(NAMES):
            low, high = float(after[0, index]), float(after[2, index])
            if name in self.intervals and (name not in _DRAFT or self.draft_scale == 1.0):
                low, high = self.intervals[name]
            estimates.append(
                ConstantEstimate(
                    name=name,
                    value=float(after[1, index]),
                    low=low,
                    high=high,
                    prior_value=float(before[1, index]),
                    prior_low=float(before[0, index]),
                    prior_high=float(before[2, index]),
                    learned=float(np.clip(1.0 - sd[index] / widened_sd[index], 0.0, 1.0)),
                )
            )
        return tuple(estimates)

    def _at_load(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Internal means and standard deviations, draft constants taken to the fastest load."""
        shift = float(np.log(self.draft_scale))
        exponent = float(to_natural(mean)[_EXPONENT])
        jacobian = np.eye(NUM_CONSTANTS)
        moved = mean.copy()
        for index in map(NAMES.index, _DRAFT):
            moved[index] += exponent * shift
            jacobian[index, _EXPONENT] = exponent * (1.0 - exponent) * shift
        return moved, np.sqrt(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian))

    def save(self, path: Path | str) -> None:
        """Write the calibration file; see `save_calibration`."""
        save_calibration(self, path)

    @classmethod
    def load(cls, path: Path | str) -> "Calibration":
        """Read a calibration file; see `load_calibration`."""
        return load_calibration(path)

    def predict(
        self,
        accept_length: float,
        *,
        workload: str | None = None,
        baseline_tokens_per_s: float | None = None,
        **configuration: float | None,
    ) -> Prediction:
        r"""Speed-up and throughput at an accept length.

        .. math:: \frac{1}{S} = f + (1-f)\frac{R}{\tau}

        Parameters
        ----------
        accept_length : float
            At the depth of the configuration, bonus token included, [tokens].
        workload : str, optional
            Of the calibration; by default another one.
        baseline_tokens_per_s : float, optional
            Throughput without speculation; by default that of the calibration, [tokens/s].
        **configuration : float
            Fields of `Configuration`; those not given are the only calibrated configuration's.

        Returns
        -------
        Prediction

        Raises
        ------
        ParameterError
            If a quantity is outside what is possible.

        Warns
        -----
        ExtrapolationWarning
            For each quantity outside the range of the points.

        Examples
        --------
        >>> answer = Calibration.from_prior().predict(2.75, num_steps=5, baseline_tokens_per_s=90.0)
        >>> answer.output_tokens_per_s.low < 90.0 * answer.speedup.median
        True
        """
        asked = Configuration(**configuration)
        if not configuration and len(self.configurations) == 1:
            asked = self.configurations[0]
        for axis, value in {"accept_length": accept_length, **configuration}.items():
            low, high = self.hull.get(axis, (-np.inf, np.inf))
            if value is not None and not low <= value <= high:
                warnings.warn(ExtrapolationWarning(axis, value, low, high), stacklevel=2)
        question = Question(
            accept_length=AcceptLength.exact(accept_length),
            configuration=asked,
            workload=workload,
            baseline_tokens_per_s=baseline_tokens_per_s,
        )
        return predict(self, [question])[0]


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
                    "decode_round_cost": one.get("decode_round_cost", one["round_cost"][1]),
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
                    non_decode_share=_from_number(one.get("non_decode_share")),
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
