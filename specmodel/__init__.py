"""The model: acceptance, cost and speed-up of speculative decoding. numpy only."""

from importlib import import_module
from typing import TYPE_CHECKING

from specmodel.version import __version__ as __version__

if TYPE_CHECKING:  # for type checkers; a cold prediction loads only what it needs
    from specmodel.acceptance import ConditionalAccuracy as ConditionalAccuracy
    from specmodel.acceptance import FullAccuracy as FullAccuracy
    from specmodel.answer import Answer as Answer
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
    from specmodel.question import Estimate as Estimate
    from specmodel.question import Question as Question
    from specmodel.speedup import accept_length_for_speedup as accept_length_for_speedup
    from specmodel.speedup import elasticities as elasticities
    from specmodel.speedup import round_cost_from_throughput as round_cost_from_throughput

_HOME = {
    name: module
    for module, names in {
        "acceptance": "ConditionalAccuracy FullAccuracy",
        "answer": "Answer",
        "baselines": "Baseline Baselines",
        "calibration": "Calibration load_calibration save_calibration",
        "cost": "BatchCurve RoundTerms round_cost round_terms",
        "errors": "SpecModelError",
        "prediction": "Prediction accept_length_needed predict sensitivities",
        "prior": "Prior load_prior",
        "question": "AcceptLength Configuration Estimate Question",
        "speedup": "accept_length_for_speedup elasticities round_cost_from_throughput",
    }.items()
    for name in names.split()
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604 - names are texts


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that a cold prediction loads only what it needs."""
    if name in _HOME:
        return getattr(import_module(f"specmodel.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
