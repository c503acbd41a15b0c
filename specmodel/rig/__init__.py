"""A model on some GPUs with its draft model: step and round times from names alone."""

from specmodel.rig.context_groups import central_interval as central_interval
from specmodel.rig.round_cost_spread import round_cost_interval as round_cost_interval
from specmodel.rig.served_model import Rig as Rig
from specmodel.rig.usual_drafts import DraftPasses as DraftPasses
from specmodel.rig.usual_drafts import eagle3_passes as eagle3_passes
from specmodel.rig.usual_drafts import mtp_passes as mtp_passes

__all__ = [
    "DraftPasses",
    "Rig",
    "central_interval",
    "eagle3_passes",
    "mtp_passes",
    "round_cost_interval",
]
