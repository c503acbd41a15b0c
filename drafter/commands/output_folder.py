"""A file that is written after minutes of work: whether it can be is asked before them."""

from pathlib import Path

from specmodel.files import OutputError


def require_folder(output: Path) -> None:
    r"""Refuse a file whose folder does not exist.

    .. math:: \text{path} \mapsto \text{nothing}

    Parameters
    ----------
    output : pathlib.Path
        The file, new or not.

    Raises
    ------
    OutputError
        If its folder does not exist.

    Examples
    --------
    >>> require_folder(Path("table.toml"))
    >>> require_folder(Path("no/such/table.toml"))
    Traceback (most recent call last):
    ...
    specmodel.files.OutputError: no/such/table.toml: cannot be written: there is no such folder
    """
    if not output.absolute().parent.is_dir():
        raise OutputError(output, "cannot be written: there is no such folder")
