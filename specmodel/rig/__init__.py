"""A model on some GPUs with its draft model: step and round times from names alone."""

from specmodel.rig.served_model import Rig as Rig
from specmodel.rig.usual_drafts import DraftPasses as DraftPasses
from specmodel.rig.usual_drafts import eagle3_passes as eagle3_passes
from specmodel.rig.usual_drafts import mtp_passes as mtp_passes
