"""Releases of engines as numbers that can be compared, for formats that drift."""

import re
from typing import Final

from specmodel.errors import ParameterError

Release = tuple[int, ...]

_RELEASE: Final = re.compile(
    r"v?(\d+(?:\.\d+)+)(?:[.-]?(?:a|alpha|b|beta|rc|post|dev)\d.*)?(?:\+.*)?", re.IGNORECASE
)


def release_of(engine_version: str) -> Release:
    """Return the numbers of a release; what follows them (post, rc, a local build) does not count.

    Parameters
    ----------
    engine_version : str
        As the engine prints it.

    Returns
    -------
    tuple of int
        To be compared with other releases.

    Raises
    ------
    ParameterError
        If the text is no release.

    Examples
    --------
    >>> release_of("0.5.23"), release_of("v0.5.4.post1"), release_of("0.5.10rc0")
    ((0, 5, 23), (0, 5, 4), (0, 5, 10))
    >>> release_of("0.5.9") < release_of("0.5.10")
    True
    """
    found = _RELEASE.fullmatch(engine_version.strip())
    if found is None:
        raise ParameterError(
            "engine_version",
            repr(engine_version),
            "a release such as 0.5.23",
            "take it from the start of the server's log or from its version command",
        )
    return tuple(int(part) for part in found[1].split("."))
