"""Acceptance: how many tokens a round of draft and verification emits. Knows no time, no cost."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmodel.acceptance.accuracy import AbstractAccuracy as AbstractAccuracy
    from specmodel.acceptance.accuracy import ConditionalAccuracy as ConditionalAccuracy
    from specmodel.acceptance.accuracy import FullAccuracy as FullAccuracy
    from specmodel.acceptance.accuracy import MarginalAccuracy as MarginalAccuracy
    from specmodel.acceptance.accuracy import MarginalAccuracyWarning as MarginalAccuracyWarning
    from specmodel.acceptance.carry import CarriedAcceptLength as CarriedAcceptLength
    from specmodel.acceptance.carry import carry_accept_length as carry_accept_length
    from specmodel.acceptance.carry import (
        full_accuracy_from_accept_length as full_accuracy_from_accept_length,
    )
    from specmodel.acceptance.claims import required_conditional as required_conditional
    from specmodel.acceptance.consistency import Finding as Finding
    from specmodel.acceptance.consistency import check_agreement as check_agreement
    from specmodel.acceptance.consistency import check_shape as check_shape
    from specmodel.acceptance.extrapolation import DEPTH_INCREMENT_RATIO as DEPTH_INCREMENT_RATIO
    from specmodel.acceptance.extrapolation import TailSpread as TailSpread
    from specmodel.acceptance.extrapolation import extend as extend
    from specmodel.acceptance.extrapolation import tail_spread as tail_spread
    from specmodel.acceptance.extrapolation import (
        tail_spread_from_accept_lengths as tail_spread_from_accept_lengths,
    )
    from specmodel.acceptance.feasibility import accept_length_limit as accept_length_limit
    from specmodel.acceptance.feasibility import check_accept_length as check_accept_length
    from specmodel.acceptance.geometric import geometric_accept_length as geometric_accept_length
    from specmodel.acceptance.geometric import (
        geometric_accept_length_limit as geometric_accept_length_limit,
    )
    from specmodel.acceptance.geometric import (
        geometric_acceptance_rate as geometric_acceptance_rate,
    )
    from specmodel.acceptance.geometric import operations_factor as operations_factor
    from specmodel.acceptance.heterogeneity import beta_accept_length as beta_accept_length
    from specmodel.acceptance.heterogeneity import (
        beta_conditional_accuracy as beta_conditional_accuracy,
    )
    from specmodel.acceptance.heterogeneity import (
        heterogeneous_full_accuracy as heterogeneous_full_accuracy,
    )
    from specmodel.acceptance.heterogeneity import (
        throughput_accept_length as throughput_accept_length,
    )
    from specmodel.acceptance.sampling import (
        TEMPERATURE_ONE_LOGIT_OFFSET as TEMPERATURE_ONE_LOGIT_OFFSET,
    )
    from specmodel.acceptance.sampling import greedy_agreement as greedy_agreement
    from specmodel.acceptance.sampling import greedy_draft_acceptance as greedy_draft_acceptance
    from specmodel.acceptance.sampling import sampled_acceptance as sampled_acceptance
    from specmodel.acceptance.sampling import shift_acceptance_rate as shift_acceptance_rate
    from specmodel.acceptance.sampling import softmax as softmax
    from specmodel.acceptance.tail import AbstractTail as AbstractTail
    from specmodel.acceptance.tail import FittedTail as FittedTail
    from specmodel.acceptance.tail import TailPrior as TailPrior
    from specmodel.acceptance.tail_families import DEFAULT_TAIL as DEFAULT_TAIL
    from specmodel.acceptance.tail_families import TAILS as TAILS
    from specmodel.acceptance.tail_families import BetaGeometricTail as BetaGeometricTail
    from specmodel.acceptance.tail_families import ConstantTail as ConstantTail
    from specmodel.acceptance.tail_families import ExponentialTail as ExponentialTail
    from specmodel.acceptance.tail_families import FirstThenConstantTail as FirstThenConstantTail
    from specmodel.acceptance.tail_families import GeometricDecayTail as GeometricDecayTail
    from specmodel.acceptance.tail_families import PowerLawTail as PowerLawTail
    from specmodel.acceptance.tail_families import WeibullTail as WeibullTail
    from specmodel.acceptance.tail_fit import fit_tail as fit_tail
    from specmodel.acceptance.tail_fit import (
        fit_tail_to_accept_lengths as fit_tail_to_accept_lengths,
    )
    from specmodel.acceptance.transfer import TRANSFER_PRIOR as TRANSFER_PRIOR
    from specmodel.acceptance.transfer import TRANSFER_PRIOR_UNMATCHED as TRANSFER_PRIOR_UNMATCHED
    from specmodel.acceptance.transfer import TransferFactor as TransferFactor
    from specmodel.acceptance.tree import DraftTree as DraftTree
    from specmodel.acceptance.tree import beam_tree as beam_tree
    from specmodel.acceptance.tree import best_tree as best_tree
    from specmodel.acceptance.tree import candidate_pool_size as candidate_pool_size
    from specmodel.acceptance.tree import rank_hit_rates as rank_hit_rates
    from specmodel.acceptance.tree import tree_from_paths as tree_from_paths

_HOME = {
    "AbstractAccuracy": "accuracy",
    "AbstractTail": "tail",
    "BetaGeometricTail": "tail_families",
    "CarriedAcceptLength": "carry",
    "ConditionalAccuracy": "accuracy",
    "ConstantTail": "tail_families",
    "DEFAULT_TAIL": "tail_families",
    "DEPTH_INCREMENT_RATIO": "extrapolation",
    "DraftTree": "tree",
    "ExponentialTail": "tail_families",
    "Finding": "consistency",
    "FirstThenConstantTail": "tail_families",
    "FittedTail": "tail",
    "FullAccuracy": "accuracy",
    "GeometricDecayTail": "tail_families",
    "MarginalAccuracy": "accuracy",
    "MarginalAccuracyWarning": "accuracy",
    "PowerLawTail": "tail_families",
    "TAILS": "tail_families",
    "TEMPERATURE_ONE_LOGIT_OFFSET": "sampling",
    "TRANSFER_PRIOR": "transfer",
    "TRANSFER_PRIOR_UNMATCHED": "transfer",
    "TailPrior": "tail",
    "TailSpread": "extrapolation",
    "TransferFactor": "transfer",
    "WeibullTail": "tail_families",
    "accept_length_limit": "feasibility",
    "beam_tree": "tree",
    "best_tree": "tree",
    "beta_accept_length": "heterogeneity",
    "beta_conditional_accuracy": "heterogeneity",
    "candidate_pool_size": "tree",
    "carry_accept_length": "carry",
    "check_accept_length": "feasibility",
    "check_agreement": "consistency",
    "check_shape": "consistency",
    "extend": "extrapolation",
    "fit_tail": "tail_fit",
    "fit_tail_to_accept_lengths": "tail_fit",
    "full_accuracy_from_accept_length": "carry",
    "geometric_accept_length": "geometric",
    "geometric_accept_length_limit": "geometric",
    "geometric_acceptance_rate": "geometric",
    "greedy_agreement": "sampling",
    "greedy_draft_acceptance": "sampling",
    "heterogeneous_full_accuracy": "heterogeneity",
    "operations_factor": "geometric",
    "rank_hit_rates": "tree",
    "required_conditional": "claims",
    "sampled_acceptance": "sampling",
    "shift_acceptance_rate": "sampling",
    "softmax": "sampling",
    "tail_spread": "extrapolation",
    "tail_spread_from_accept_lengths": "extrapolation",
    "throughput_accept_length": "heterogeneity",
    "tree_from_paths": "tree",
}

__all__ = [
    "DEFAULT_TAIL",
    "DEPTH_INCREMENT_RATIO",
    "TAILS",
    "TEMPERATURE_ONE_LOGIT_OFFSET",
    "TRANSFER_PRIOR",
    "TRANSFER_PRIOR_UNMATCHED",
    "AbstractAccuracy",
    "AbstractTail",
    "BetaGeometricTail",
    "CarriedAcceptLength",
    "ConditionalAccuracy",
    "ConstantTail",
    "DraftTree",
    "ExponentialTail",
    "Finding",
    "FirstThenConstantTail",
    "FittedTail",
    "FullAccuracy",
    "GeometricDecayTail",
    "MarginalAccuracy",
    "MarginalAccuracyWarning",
    "PowerLawTail",
    "TailPrior",
    "TailSpread",
    "TransferFactor",
    "WeibullTail",
    "accept_length_limit",
    "beam_tree",
    "best_tree",
    "beta_accept_length",
    "beta_conditional_accuracy",
    "candidate_pool_size",
    "carry_accept_length",
    "check_accept_length",
    "check_agreement",
    "check_shape",
    "extend",
    "fit_tail",
    "fit_tail_to_accept_lengths",
    "full_accuracy_from_accept_length",
    "geometric_accept_length",
    "geometric_accept_length_limit",
    "geometric_acceptance_rate",
    "greedy_agreement",
    "greedy_draft_acceptance",
    "heterogeneous_full_accuracy",
    "operations_factor",
    "rank_hit_rates",
    "required_conditional",
    "sampled_acceptance",
    "shift_acceptance_rate",
    "softmax",
    "tail_spread",
    "tail_spread_from_accept_lengths",
    "throughput_accept_length",
    "tree_from_paths",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that a cold prediction loads only what it needs."""
    if name in _HOME:
        return getattr(import_module(f"specmodel.acceptance.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
