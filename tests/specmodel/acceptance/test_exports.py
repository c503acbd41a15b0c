import subprocess
import sys

from specmodel import acceptance


def test_exported_names_are_sorted_and_exist() -> None:
    constants = [name for name in acceptance.__all__ if name.isupper()]
    classes = [name for name in acceptance.__all__ if name[0].isupper() and not name.isupper()]
    functions = [name for name in acceptance.__all__ if name.islower()]
    assert acceptance.__all__ == sorted(constants) + sorted(classes) + sorted(functions)
    assert all(hasattr(acceptance, name) for name in acceptance.__all__)


def test_acceptance_loads_numpy_and_nothing_heavier() -> None:
    code = (
        "import sys, specmodel.acceptance; "
        "bad = {'scipy', 'pandas', 'click', 'matplotlib', 'rich', 'specmodel.cost'}; "
        "sys.exit(', '.join(bad & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
