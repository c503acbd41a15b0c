"""An EAGLE-3 draft model in plain torch: the oracle of the kernels, written for clarity, not speed."""

import drafter.torch_extra  # noqa: F401 - where torch is missing, one line says so
from drafter.reference.draft_model import DraftModel as DraftModel
from drafter.reference.draft_model import DraftPass as DraftPass
from drafter.reference.drafts import ChainDraft as ChainDraft
from drafter.reference.drafts import TreeDraft as TreeDraft
from drafter.reference.drafts import draft_chain as draft_chain
from drafter.reference.drafts import draft_tree as draft_tree

__all__ = ["ChainDraft", "DraftModel", "DraftPass", "TreeDraft", "draft_chain", "draft_tree"]
