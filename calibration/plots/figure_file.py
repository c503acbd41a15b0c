"""A figure as a file: the type follows from its name, and the old file stays until the new is whole."""

import io
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from calibration.plots.style import figure_style
from specmodel.errors import ParameterError
from specmodel.files import STANDARD_OUTPUT, write_bytes_atomically

_METADATA: Final[dict[str, dict[str, Any]]] = {
    "png": {},
    "svg": {"Date": None},  # equal figures make equal files
    "pdf": {"CreationDate": None},
}


def figure_format(path: Path | str) -> str:
    """Type of a figure file by its suffix.

    Parameters
    ----------
    path : path
        The file, ending in .png, .svg or .pdf in any case.

    Returns
    -------
    str
        ``png``, ``svg`` or ``pdf``.

    Raises
    ------
    ParameterError
        If the suffix is another one.

    Examples
    --------
    >>> figure_format("fit.SVG")
    'svg'
    >>> figure_format("fit.jpg")
    Traceback (most recent call last):
        ...
    specmodel.errors.ParameterError: plot must be a file ending in .png, .svg or .pdf, got fit.jpg; ...
    """
    suffix = "png" if str(path) == STANDARD_OUTPUT else Path(path).suffix.lower().lstrip(".")
    if suffix not in _METADATA:
        raise ParameterError(
            "plot",
            path,
            "a file ending in .png, .svg or .pdf",
            "the ending chooses the type of the picture",
        )
    return suffix


def save_figure(figure: Figure, path: Path | str) -> None:
    """Write a figure; the old file stays whole when that fails.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to write.
    path : path
        The file, ending in .png, .svg or .pdf. Its folder must exist.

    Raises
    ------
    ParameterError
        If the suffix is another one.
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "empty.png"
    ...     save_figure(Figure(), file)
    ...     file.read_bytes()[1:4]
    b'PNG'
    """
    kind = figure_format(path)
    rendered = io.BytesIO()
    with figure_style():
        figure.savefig(rendered, format=kind, metadata=_METADATA[kind])
    write_bytes_atomically(path, rendered.getvalue())
