"""What holds for every test: properties draw the same examples in every run and on every machine."""

import pytest
from hypothesis import settings

from tests.extent import PROVES

settings.register_profile("specmodel", deadline=None, derandomize=True)
settings.load_profile("specmodel")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make prove` alone runs."""
    left_out = [] if PROVES else [item for item in items if item.get_closest_marker("prove")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
