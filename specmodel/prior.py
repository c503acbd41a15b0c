"""Prior of a serving system's constants, learned from public systems."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.constants import NAMES, to_natural
from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.records import from_record

Array = NDArray[np.float64]

EXPERTS_KNOWN = "experts_known"
EXPERTS_UNKNOWN = "experts_unknown"


ANY_ENGINE = "any"
"""Family of engines for which no prior of their own was learned."""


def family_of(engine: str) -> str:
    """Family of engines whose prior fits an engine.

    Round cost is a property of the engine (theory.md B1): optimised baselines shrink the step while the
    cost of drafting stays. Only SGLang has enough public systems for a prior of its own.
    """
    return "sglang" if engine.strip().lower() == "sglang" else ANY_ENGINE


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Spread of measurements around the model, on the log scale of the speed-up."""

    row_log_sd: float  # independent from row to row: measurement noise, [-]
    # shared by all rows of one configuration: what the form of the round cost misses, [-]
    configuration_log_sd: float
    # shared by all rows of one workload, chains and trees apart: what the baseline of the
    # workload misses, [-]
    run_log_sd: float
    # how sure these are for a new system; intervals are Student-t with at least as many, [-]
    degrees_of_freedom: float
    # what near loads have in common (`specmodel.effects`), on ln R: over batch, over verified
    # rows, over depth, of all trees; and on ln S what a workload has at near loads, [-]
    load_log_sd: float = 0.0
    rows_log_sd: float = 0.0
    depth_log_sd: float = 0.0
    tree_log_sd: float = 0.0
    workload_log_sd: float = 0.0
    # how much of the uncertainty of the growth of a step with batch is in a round cost, [-]
    growth_share: float = 0.0

    @property
    def effect_variances(self) -> tuple[float, float]:
        """Of what a configuration adds to ln R and a run to ln S, but for the growth of a step."""
        cost = (self.configuration_log_sd, self.load_log_sd, self.rows_log_sd, self.depth_log_sd)
        return sum(each**2 for each in cost), self.run_log_sd**2 + self.workload_log_sd**2


@dataclass(frozen=True, kw_only=True, eq=False)
class Prior:
    """Normal prior of the constants on their internal scale, and the noise.

    Parameters
    ----------
    mean : numpy.ndarray, shape (NUM_CONSTANTS,)
        On the internal scale of `specmodel.constants`.
    covariance : numpy.ndarray, shape (NUM_CONSTANTS, NUM_CONSTANTS)
        Between systems, positive definite.
    noise : Noise
        Spread of rows around the model.
    name : str
        Which prior it is, for the report.
    learned_from : tuple of str
        Names of the public systems it was fitted on.
    """

    mean: Array
    covariance: Array
    noise: Noise
    name: str
    learned_from: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, shape in (("mean", (len(NAMES),)), ("covariance", (len(NAMES), len(NAMES)))):
            values = getattr(self, name)
            if values.shape != shape or not np.all(np.isfinite(values)):
                raise ParameterError(name, f"shape {values.shape}", f"finite, of shape {shape}")

    @property
    def median(self) -> dict[str, float]:
        """Median of every constant in natural units."""
        return dict(zip(NAMES, to_natural(self.mean).tolist(), strict=True))


@lru_cache(maxsize=1)
def _packaged() -> dict[str, Any]:
    """The packaged priors as they stand in the file."""
    path = Path(__file__).with_name("data") / "priors.json"  # importlib.resources is slow to load
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def target_key(target_model: str) -> str:
    """Name under which a target model is looked up: the catalogue's, else without organisation and case."""
    from specmodel.architecture import packaged_name

    last = target_model.rstrip("/").rsplit("/", 1)[-1].strip()
    return (packaged_name(last) or last).lower()


def load_prior(*, experts_known: bool, engine: str = "", without_target: str = "") -> Prior:
    r"""Packaged prior, learned from public systems.

    .. math:: x \sim \mathcal{N}(\mu, \Sigma)

    Parameters
    ----------
    experts_known : bool
        Whether it is known that the target model is dense, or a mixture with known expert counts. If
        not, the wider prior over both kinds is used.
    engine : str, optional
        The serving engine; SGLang has a prior of its own, all others share one.
    without_target : str, optional
        A target model; every system with this target is left out of the prior, as `evaluate` does.

    Returns
    -------
    Prior

    Raises
    ------
    UnknownKeyError
        If the packaged file lacks the prior, which a sound installation does not.

    Notes
    -----
    Fitted by ``scripts/learn_prior.py`` from the tables in ``calibration/data/points``. A target
    that no packaged system has needs nothing left out.

    Examples
    --------
    >>> prior = load_prior(experts_known=True)
    >>> 1.0 < prior.median["fixed_cost"] < 1.5
    True
    """
    kind = EXPERTS_KNOWN if experts_known else EXPERTS_UNKNOWN
    family = family_of(engine)
    packaged = _packaged()["priors"]
    if kind not in packaged or family not in packaged[kind]:
        raise UnknownKeyError("prior", f"{kind}/{family}", sorted(packaged))
    name = f"{kind.replace('_', ' ')}, {'SGLang' if family == 'sglang' else 'any engine'}"
    left_out = packaged[kind][family]["without"]
    for target in left_out if without_target else ():
        if target_key(target) == target_key(without_target):
            named = {"name": f"{name}, without {without_target}"}
            return from_record(Prior, left_out[target] | named)
    return from_record(Prior, packaged[kind][family]["all"] | {"name": name})
