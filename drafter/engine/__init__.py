"""Drafts with static buffers: one captured graph per bucket, chain and tree, and an equal eager path.

`draft_engine` is what a user calls; without a GPU its eager path runs in Triton's interpreter.
"""

from drafter.extra import require_extra

require_extra("torch", "triton", what="the engine of the draft model")
