"""torch for the modules of this package that need it; where it is missing, one line says so."""

from drafter.extra import require_extra

require_extra("torch")

import torch  # noqa: E402 - after the check that says how to install it

__all__ = ["torch"]
