"""Times of drafts with cold weights, and the reasons for which a time is refused.

`measuring` makes a record; what decides is pure and stands in `samples` and `refusals`. It needs a
`stopwatch`: one of a CUDA device, or the dry one, whose times are made up.
"""

from drafter.extra import require_extra

require_extra("torch", "triton", what="timing of the draft model")
