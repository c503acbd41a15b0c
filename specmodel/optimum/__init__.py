"""What to run: best depth, break-even accept length, and what a choice may lose."""

from specmodel.optimum.break_even import break_even_accept_length as break_even_accept_length
from specmodel.optimum.depth_choice import DepthChoice as DepthChoice
from specmodel.optimum.depth_choice import choose_among as choose_among
from specmodel.optimum.depth_choice import choose_depth as choose_depth
from specmodel.optimum.depth_rule import best_num_steps as best_num_steps
from specmodel.optimum.depth_rule import depth_speedups as depth_speedups
from specmodel.optimum.depth_rule import marginal_gain as marginal_gain
from specmodel.optimum.regret import decision_regret as decision_regret
from specmodel.optimum.round_draws import RoundDraws as RoundDraws
from specmodel.optimum.round_draws import draw_rounds as draw_rounds

__all__ = [
    "DepthChoice",
    "RoundDraws",
    "best_num_steps",
    "break_even_accept_length",
    "choose_among",
    "choose_depth",
    "decision_regret",
    "depth_speedups",
    "draw_rounds",
    "marginal_gain",
]
