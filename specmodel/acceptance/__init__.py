"""Acceptance: how many tokens a round of draft and verification emits. Knows no time, no cost."""

from specmodel.acceptance.accuracy import (
    AbstractAccuracy,
    ConditionalAccuracy,
    FullAccuracy,
    MarginalAccuracy,
    MarginalAccuracyWarning,
)
from specmodel.acceptance.carry import (
    CarriedAcceptLength,
    carry_accept_length,
    full_accuracy_from_accept_length,
)
from specmodel.acceptance.claims import required_conditional
from specmodel.acceptance.consistency import Finding, check_agreement, check_shape
from specmodel.acceptance.extrapolation import (
    DEPTH_INCREMENT_RATIO,
    TailSpread,
    extend,
    tail_spread,
    tail_spread_from_accept_lengths,
)
from specmodel.acceptance.feasibility import accept_length_limit, check_accept_length
from specmodel.acceptance.geometric import (
    geometric_accept_length,
    geometric_accept_length_limit,
    geometric_acceptance_rate,
    operations_factor,
)
from specmodel.acceptance.heterogeneity import (
    beta_accept_length,
    beta_conditional_accuracy,
    heterogeneous_full_accuracy,
    throughput_accept_length,
)
from specmodel.acceptance.sampling import (
    TEMPERATURE_ONE_LOGIT_OFFSET,
    greedy_agreement,
    greedy_draft_acceptance,
    sampled_acceptance,
    shift_acceptance_rate,
    softmax,
)
from specmodel.acceptance.tail import AbstractTail, FittedTail, TailPrior
from specmodel.acceptance.tail_families import (
    DEFAULT_TAIL,
    TAILS,
    BetaGeometricTail,
    ConstantTail,
    ExponentialTail,
    FirstThenConstantTail,
    GeometricDecayTail,
    PowerLawTail,
    WeibullTail,
)
from specmodel.acceptance.tail_fit import fit_tail, fit_tail_to_accept_lengths
from specmodel.acceptance.transfer import (
    TRANSFER_PRIOR,
    TRANSFER_PRIOR_UNMATCHED,
    TransferFactor,
)
from specmodel.acceptance.tree import (
    DraftTree,
    beam_tree,
    best_tree,
    candidate_pool_size,
    rank_hit_rates,
    tree_from_paths,
)

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
