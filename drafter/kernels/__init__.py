"""Triton kernels of one EAGLE-3 draft step, each with a launch function that checks its shapes.

One family per module. Device functions that several kernels share stand in `numerics`,
`candidate_keys`, `context_part`, `matvec` and `swap_dot`; `draft_steps` runs extend and decode steps from
them. Sizes of a model or a load are run-time arguments, so that one variant serves many.

Rules of every kernel, each of which a test holds:

- what is loaded in a storage type becomes fp32 before any arithmetic or comparison;
- products of matrices go through `numerics.dot`, stores through `numerics.rounded`;
- a row times its stride is int64; every dimension that can overrun is masked;
- a row without a finite entry gives zeros or minus infinity, never NaN;
- with programmatic launch, every program waits before it reads what the kernel before it wrote.
"""

from drafter.extra import require_extra

require_extra("torch", "triton", what="the kernels of the draft model")
