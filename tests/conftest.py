"""What holds for every test: properties draw the same examples in every run and on every machine."""

import numpy as np
import pytest
from hypothesis import settings

from tests.extent import PROVES, extent

settings.register_profile(
    "specmodel", deadline=None, derandomize=True, max_examples=extent(test=25, prove=100)
)
settings.load_profile("specmodel")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep of each sampled test as many cases as it says, from the first to the last; slow files first."""
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items if not PROVES else ():
        if mark := item.get_closest_marker("sample"):
            cases.setdefault((item.nodeid.partition("[")[0], *mark.args), []).append(item)
    left_out = set()
    for (_, count), each in cases.items():
        kept = np.linspace(0, len(each) - 1, count).round()
        left_out |= {item for place, item in enumerate(each) if place not in kept}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
