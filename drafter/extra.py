"""The packages of the extra: what needs them says so in one line where they are missing."""

from importlib.util import find_spec
from typing import Final

from specmodel.errors import MissingExtraError

EXTRA: Final = "drafter"
"""Name of the extra in ``pip install 'specmodel[drafter]'``."""


def require_extra(*packages: str, what: str = "this part of drafter") -> None:
    """Refuse to go on where a package of the extra is missing.

    Looks for the packages without importing them. A package whose parts need torch calls it in its
    ``__init__``, which runs before any of them.
    """
    missing = [each for each in packages if find_spec(each) is None]
    if missing:
        raise MissingExtraError(what, missing, EXTRA)
