"""Numbers of a tracker, one name and step at a time, put together to columns by step."""

from array import array
from dataclasses import dataclass, field

import numpy as np

from calibration.training.records import MISSING, Array


@dataclass(slots=True)
class ScalarSeries:
    """Values by name and step: 16 bytes each."""

    _steps: dict[str, "array[float]"] = field(init=False, default_factory=dict)
    _values: dict[str, "array[float]"] = field(init=False, default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the order in which they came first."""
        return tuple(self._steps)

    def add(self, name: str, step: float, value: float) -> None:
        """Add one value."""
        if name not in self._steps:
            self._steps[name], self._values[name] = array("d"), array("d")
        self._steps[name].append(step)
        self._values[name].append(value)

    def steps(self, names: list[str]) -> Array:
        """Return the steps, rising, at which any of some names has a value."""
        return np.unique(np.concatenate([np.array(self._steps[name]) for name in names]))

    def at(self, name: str, steps: Array) -> Array:
        """Return the values of a name at rising steps, the last one of each; `MISSING` where none."""
        values = np.full(len(steps), MISSING)
        own = np.array(self._steps[name])
        places = np.searchsorted(steps, own)
        inside = places < len(steps)
        inside[inside] = steps[places[inside]] == own[inside]
        values[places[inside]] = np.array(self._values[name])[inside]
        return values
