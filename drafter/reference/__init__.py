"""An EAGLE-3 draft model in plain torch: the oracle of the kernels, written for clarity, not speed."""

import drafter.torch_extra  # noqa: F401 - where torch is missing, one line says so
from drafter.reference.draft_model import DraftModel, DraftPass
from drafter.reference.drafts import ChainDraft, TreeDraft, draft_chain, draft_tree

__all__ = ["ChainDraft", "DraftModel", "DraftPass", "TreeDraft", "draft_chain", "draft_tree"]
