"""The packages of the extra: what needs them says so in one line where they are missing."""

from importlib.util import find_spec
from typing import Final

from specmodel.errors import MissingExtraError

EXTRA: Final = "drafter"
"""Name of the extra in ``pip install 'specmodel[drafter]'``."""


def require_extra(*packages: str, what: str = "this part of drafter") -> None:
    r"""Refuse to go on where a package of the extra is missing.

    .. math:: \text{packages} \subseteq \text{installed}

    Parameters
    ----------
    *packages : str
        Top-level names of modules, such as ``torch``.
    what : str
        What needs them, for the message.

    Raises
    ------
    MissingExtraError
        Naming what is missing and how to install it.

    Notes
    -----
    Looks for the packages without importing them. A package whose parts need torch calls it in its
    ``__init__``, which runs before any of them.

    Examples
    --------
    >>> require_extra("json")
    >>> require_extra("no_such_package", what="the example")
    Traceback (most recent call last):
    ...
    specmodel.errors.MissingExtraError: the example needs no_such_package, which is not installed; ...
    """
    missing = [each for each in packages if find_spec(each) is None]
    if missing:
        raise MissingExtraError(what, missing, EXTRA)
