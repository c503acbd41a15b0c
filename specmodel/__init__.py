"""The model: acceptance, cost and speed-up of speculative decoding. numpy only."""

from importlib import import_module
from typing import TYPE_CHECKING

from specmodel.version import __version__ as __version__

if TYPE_CHECKING:
    from specmodel.acceptance import ConditionalAccuracy as ConditionalAccuracy
    from specmodel.acceptance import FullAccuracy as FullAccuracy
    from specmodel.baselines import Baseline as Baseline
    from specmodel.baselines import Baselines as Baselines
    from specmodel.calibration import Calibration as Calibration
    from specmodel.calibration import load_calibration as load_calibration
    from specmodel.calibration import save_calibration as save_calibration
    from specmodel.cost import BatchCurve as BatchCurve
    from specmodel.cost import RoundTerms as RoundTerms
    from specmodel.cost import round_cost as round_cost
    from specmodel.cost import round_terms as round_terms
    from specmodel.errors import SpecModelError as SpecModelError
    from specmodel.prediction import Prediction as Prediction
    from specmodel.prediction import accept_length_needed as accept_length_needed
    from specmodel.prediction import predict as predict
    from specmodel.prediction import sensitivities as sensitivities
    from specmodel.prior import Prior as Prior
    from specmodel.prior import load_prior as load_prior
    from specmodel.question import AcceptLength as AcceptLength
    from specmodel.question import Configuration as Configuration
    from specmodel.question import Question as Question
    from specmodel.speedup import accept_length_for_speedup as accept_length_for_speedup
    from specmodel.speedup import elasticities as elasticities
    from specmodel.speedup import round_cost_from_throughput as round_cost_from_throughput

_HOME = {
    "AcceptLength": "question",
    "Baseline": "baselines",
    "Baselines": "baselines",
    "BatchCurve": "cost",
    "Calibration": "calibration",
    "ConditionalAccuracy": "acceptance",
    "Configuration": "question",
    "FullAccuracy": "acceptance",
    "Prediction": "prediction",
    "Prior": "prior",
    "Question": "question",
    "RoundTerms": "cost",
    "SpecModelError": "errors",
    "accept_length_for_speedup": "speedup",
    "accept_length_needed": "prediction",
    "elasticities": "speedup",
    "load_calibration": "calibration",
    "load_prior": "prior",
    "predict": "prediction",
    "round_cost": "cost",
    "round_cost_from_throughput": "speedup",
    "round_terms": "cost",
    "save_calibration": "calibration",
    "sensitivities": "prediction",
}

__all__ = [
    "AcceptLength",
    "Baseline",
    "Baselines",
    "BatchCurve",
    "Calibration",
    "ConditionalAccuracy",
    "Configuration",
    "FullAccuracy",
    "Prediction",
    "Prior",
    "Question",
    "RoundTerms",
    "SpecModelError",
    "__version__",
    "accept_length_for_speedup",
    "accept_length_needed",
    "elasticities",
    "load_calibration",
    "load_prior",
    "predict",
    "round_cost",
    "round_cost_from_throughput",
    "round_terms",
    "save_calibration",
    "sensitivities",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that a cold prediction loads only what it needs."""
    if name in _HOME:
        return getattr(import_module(f"specmodel.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
