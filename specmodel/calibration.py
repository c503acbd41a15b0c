"""A calibrated system: what its points taught, everything a prediction needs, and its file."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specmodel.answer import Answer, answer
from specmodel.ask import Accepted, ask_of
from specmodel.baselines import Baselines
from specmodel.constants import NAMES, NUM_CONSTANTS, ConstantEstimate, to_natural
from specmodel.cost import REFERENCE_STEP_TIME_S, BatchCurve
from specmodel.errors import ExtrapolationWarning, FormatError, ParameterError
from specmodel.files import CheckedJson
from specmodel.physical_fit import PhysicalFit
from specmodel.posterior import Posterior
from specmodel.prior import Prior, load_prior
from specmodel.question import Configuration, Observation, Run
from specmodel.records import from_record, to_record
from specmodel.statistics import NORMAL_95
from specmodel.text_layout import plural
from specmodel.version import __version__

Array = NDArray[np.float64]

SCHEMA_VERSION = 3
"""Version of the calibration file. 1: an own layout; 2: a record as `specmodel.records` writes it; 3: effects
know where they were measured, so that other loads have a part in them."""

_FILE = CheckedJson(
    name="calibration",
    schema_version=SCHEMA_VERSION,
    marks=("posterior", "internal_mean", "content_sha256"),
    lacking="no constants in it",
    write="`specmodel fit BENCH -o FILE`",
    again="run `specmodel fit` again to write a new one",
)


_DRAFT = ("step_cost", "tree_cost")
_EXPONENT = NAMES.index("draft_time_exponent")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
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
        ``per_user``, ``per_gpu``, or ``relative`` where they are speed-ups and no rate is known.
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
    baseline_known : bool
        Whether anything says how fast it is without speculation; if not, the baselines are units of time in
        which the rounds of each load are counted.
    doubts : tuple of str
        What the fit says that its own rows contradict.
    fitted_at : str
        When, in UTC as ISO 8601; empty where that is not known.
    """

    prior: Prior
    posterior: Posterior
    label: str = ""
    system: dict[str, str] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    configurations: tuple[Configuration, ...] = ()
    runs: tuple[Run, ...] = ()
    observations: tuple[Observation, ...] = ()
    baselines: Baselines = field(default_factory=Baselines)
    curve: BatchCurve | None = None
    num_experts: float = np.nan
    experts_per_token: float = np.nan
    throughput_scope: str = "aggregate"
    hull: dict[str, tuple[float, float]] = field(default_factory=dict)
    num_points: int = 0
    residual_log_sd: float = np.nan
    points_sha256: str = ""
    package_version: str = __version__
    notes: tuple[str, ...] = ()
    broken_baselines: tuple[str, ...] = ()
    forced: bool = False
    decode_only: bool = False
    physical: PhysicalFit | None = None
    rig_note: str = ""
    baseline_known: bool = True
    doubts: tuple[str, ...] = ()
    fitted_at: str = ""

    def __post_init__(self) -> None:
        effects = self.posterior.mean.size - NUM_CONSTANTS
        known = (self.posterior.num_configurations, effects - self.posterior.num_configurations)
        if known != (len(self.configurations), len(self.runs)):
            allowed = "effects for each configuration and run"
            raise ParameterError("posterior", f"{known[0]} and {known[1]}", allowed)

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
        return cls(prior=known, posterior=Posterior.from_prior(known))

    def __repr__(self) -> str:
        """What it is of, and its constants, in a few lines."""
        name = self.label or self.prior.name
        constants = ", ".join(f"{one.name} {one.value:.3g}" for one in self.constants)
        return f"<Calibration: {name}; {plural(self.num_points, 'point')}\n {constants}>"

    @cached_property
    def draft_scale(self) -> float:
        """Factor by which draft constants count at the fastest measured load; 1 where unknown.

        See `specmodel.cost.REFERENCE_STEP_TIME_S`.
        """
        times = [one.step_time_s for one in self.baselines.entries if one.batch_size > 0]
        known = [time_s for time_s in times if time_s > 0]
        return REFERENCE_STEP_TIME_S / min(known) if known else 1.0

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
        spread = np.array([-NORMAL_95, 0.0, NORMAL_95])[:, None]
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
        # The constants are for people: what a prediction uses is the posterior.
        constants = {one.name: to_record(one) for one in self.constants}
        _FILE.save(path, {"constants": constants, **to_record(self)})

    @classmethod
    def load(cls, path: Path | str) -> "Calibration":
        """Read a calibration file; see `load_calibration`."""
        version, record = _FILE.load(path)
        try:
            if version == 1:
                from specmodel.schema_1 import from_schema_1

                record = from_schema_1(record)
            record.pop("constants", None)
            found = from_record(cls, record)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            message = f"not a sound calibration ({type(error).__name__}: {error}); {_FILE.again}"
            raise FormatError(path, message, code="edited") from None
        if version == SCHEMA_VERSION:
            return found
        # Nothing was known of effects over loads: what is believed of them widens other loads.
        believed = load_prior(experts_known=False).noise
        return replace(found, posterior=replace(found.posterior, noise=believed))

    def predict(
        self,
        accept_length: Accepted = None,
        *,
        depth: float | Iterable[float] | None = None,
        num_steps: float | Iterable[float] | None = None,
        accept_depth: int | None = None,
        from_training: bool = False,
        matched_prompts: bool | None = None,
        topk: float | None = None,
        num_draft_tokens: float | None = None,
        batch_size: float | None = None,
        context_tokens: float | None = None,
        workload: str | None = None,
        baseline_tokens_per_s: float | None = None,
        target_speedup: float | None = None,
        claim: float | None = None,
    ) -> Answer:
        r"""Answer what `specmodel predict` answers, and refuse what it refuses.

        .. math:: \frac{1}{S} = f + (1-f)\frac{R}{\tau}

        Parameters
        ----------
        accept_length : float, AcceptLength, FullAccuracy, ConditionalAccuracy or sequence, optional
            What is accepted: tokens per round, bonus token included, or accuracies by depth; a plain
            sequence is of full accuracies; by default what the points measured at each depth,
            [tokens], [-].
        depth, num_steps : int or iterable of int, optional
            Draft depth, or several; one of the two, [tokens].
        accept_depth : int, optional
            Depth at which the acceptance was served, of a list by default its length; it is carried to
            `depth`, [tokens].
        from_training : bool
            Whether the acceptance is that of a training log.
        matched_prompts : bool, optional
            Whether the served prompts are like its data; by default that is not known.
        topk, num_draft_tokens, batch_size, context_tokens : float, optional
            Tree and load.
        workload : str, optional
            Of the calibration, for its baseline.
        baseline_tokens_per_s : float, optional
            Throughput without speculation at this load, [tokens/s].
        target_speedup, claim : float, optional
            Say what a speed-up needs, and what an accept length at `depth` would need.

        Returns
        -------
        Answer
            What is not given is the calibrated configuration, where there is a single one.

        Raises
        ------
        ParameterError, UnknownKeyError
            If a value is impossible or a workload is unknown.
        UsageError
            If something is neither given nor known from the calibration.

        Warns
        -----
        ExtrapolationWarning
            For each quantity outside the range of the points.

        Examples
        --------
        >>> answer = Calibration.from_prior().predict(2.75, depth=5, baseline_tokens_per_s=90.0)
        >>> answer.output_tokens_per_s.low < 90.0 * float(answer.speedup)
        True
        """
        ask = ask_of(
            accept_length,
            depth=depth,
            num_steps=num_steps,
            accept_depth=accept_depth,
            from_training=from_training,
            matched_prompts=matched_prompts,
            topk=topk,
            num_draft_tokens=num_draft_tokens,
            batch_size=batch_size,
            context_tokens=context_tokens,
            workload=workload,
            baseline_tokens_per_s=baseline_tokens_per_s,
            target_speedup=target_speedup,
            claim=claim,
        )
        found = answer(self, ask)
        for axis, (low, high) in self.hull.items():
            for one in found.depths:
                question = one.prediction.question
                value = getattr(question.configuration, axis, None)
                if axis == "accept_length" and one.accept_known:
                    value = question.accept_length.estimate.median
                if value is not None and not low <= value <= high:
                    warnings.warn(ExtrapolationWarning(axis, value, low, high), stacklevel=2)
        return found


def save_calibration(calibration: Calibration, path: Path | str) -> None:
    """Write a calibration as JSON, so that an interruption leaves the old file whole.

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
    Numbers keep all their digits. A checksum over the content tells a truncated or edited
    file from a whole one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_calibration(Calibration.from_prior(), Path(folder) / "calibration.json")
    ...     load_calibration(Path(folder) / "calibration.json").num_points
    0
    """
    calibration.save(path)


def load_calibration(path: Path | str) -> Calibration:
    """Read a calibration file.

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
    return Calibration.load(path)
