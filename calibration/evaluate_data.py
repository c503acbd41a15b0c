"""What to evaluate on: files of the user, or packaged tables by name."""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from calibration.evaluate import EvaluatedSystem, evaluated_systems
from calibration.points.packaged import packaged_table, packaged_tables
from calibration.points.points import read_points


def systems_to_evaluate(
    paths: Sequence[Path],
    names: Sequence[str],
    *,
    progress: Callable[[int], None] | None = None,
) -> tuple[list[EvaluatedSystem], tuple[str, ...]]:
    r"""Systems of files and packaged tables with their priors, and what was set aside.

    .. math:: \text{files} \cup \text{tables}

    Parameters
    ----------
    paths : sequence of Path
        Points files; read together.
    names : sequence of str
        Packaged tables, or patterns with ``*``. With neither files nor names: all packaged tables.
    progress : callable, optional
        Told how many bytes of the files have been read since it was told last.

    Returns
    -------
    list of EvaluatedSystem, tuple of str
        Systems in their order, and one line for each baseline or system set aside.

    Raises
    ------
    UnknownKeyError
        If a name fits no packaged table.

    Examples
    --------
    >>> found, _ = systems_to_evaluate([], ["vllm-20780-*"])
    >>> [system.name for system in found]
    ['vllm-20780-eagle1', 'vllm-20780-eagle3']
    """
    found: list[EvaluatedSystem] = []
    set_aside: list[str] = []
    if paths:
        systems, aside = evaluated_systems(read_points(list(paths), progress=progress))
        found += systems
        set_aside += aside
    if names or not paths:
        for table in packaged_tables():
            if names and not any(fnmatch.fnmatch(table.name, name) for name in names):
                continue
            systems, aside = evaluated_systems(read_points(table.path))
            set_aside += aside
            for number, system in enumerate(systems, start=1):
                suffix = "" if len(systems) == 1 else f"#{number}"
                found.append(replace(system, name=table.name + suffix))
        for name in names:
            if not any(fnmatch.fnmatch(table.name, name) for table in packaged_tables()):
                packaged_table(name)  # raises, naming the closest ones
    return found, tuple(set_aside)
