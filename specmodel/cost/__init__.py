"""What a round costs. Knows no acceptance."""

from specmodel.cost.batch_curve import BatchCurve as BatchCurve
from specmodel.cost.batch_curve import StepTime as StepTime
from specmodel.cost.relative import REFERENCE_STEP_TIME_S as REFERENCE_STEP_TIME_S
from specmodel.cost.relative import UNKNOWN_DEPTH_NUM_STEPS as UNKNOWN_DEPTH_NUM_STEPS
from specmodel.cost.relative import RoundTerms as RoundTerms
from specmodel.cost.relative import expected_experts as expected_experts
from specmodel.cost.relative import expert_loads as expert_loads
from specmodel.cost.relative import round_cost as round_cost
from specmodel.cost.relative import round_cost_gradient as round_cost_gradient
from specmodel.cost.relative import round_cost_parts as round_cost_parts
from specmodel.cost.relative import round_terms as round_terms

__all__ = [
    "REFERENCE_STEP_TIME_S",
    "UNKNOWN_DEPTH_NUM_STEPS",
    "BatchCurve",
    "RoundTerms",
    "StepTime",
    "expected_experts",
    "expert_loads",
    "round_cost",
    "round_cost_gradient",
    "round_cost_parts",
    "round_terms",
]
