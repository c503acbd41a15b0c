"""Read measurements, fit the model to them, and answer from the command line."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibration.evaluation import evaluate as evaluate
    from calibration.fitting import fit as fit
    from calibration.ingestion import ingest as ingest
    from calibration.points import read_points as read_points
    from calibration.points import write_points as write_points
    from calibration.table import Points as Points

_HOME = {
    "Points": "calibration.table",
    "evaluate": "calibration.evaluation",
    "fit": "calibration.fitting",
    "ingest": "calibration.ingestion",
    "read_points": "calibration.points",
    "write_points": "calibration.points",
}

__all__ = ["Points", "evaluate", "fit", "ingest", "read_points", "write_points"]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that a prediction does not load pandas."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
