"""Launches of single products as a draft step makes them, on copies of weights, and their errors."""

from drafter.extra import require_extra

require_extra("torch", "triton", what="tuning of tiles")
