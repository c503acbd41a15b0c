"""Read measurements, fit the model to them, and answer from the command line."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibration.evaluate import evaluate as evaluate
    from calibration.fit.fit import fit as fit
    from calibration.points.reading import ingest as ingest
    from calibration.points.reading import read_points as read_points
    from calibration.points.table import Points as Points
    from calibration.points.table import write_points as write_points

_HOME = {
    "Points": "points.table",
    "evaluate": "evaluate",
    "fit": "fit.fit",
    "ingest": "points.reading",
    "read_points": "points.reading",
    "write_points": "points.table",
}

__all__ = ["Points", "evaluate", "fit", "ingest", "read_points", "write_points"]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that a prediction does not load pandas."""
    if name in _HOME:
        return getattr(import_module(f"calibration.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """This package: `calibration.fit` is the function, `calibration.fit.summary` a module all the same."""

    def __setattr__(self, name: str, value: object) -> None:
        """A folder that is imported does not take the place of the function of its name."""
        if name not in _HOME:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
