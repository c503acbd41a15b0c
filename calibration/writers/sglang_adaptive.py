"""The adaptive-steps file of SGLang: which depths its own policy may choose from, by batch size."""

import json
from pathlib import Path
from typing import Any, Final

from calibration.writers.engine_version import release_of
from calibration.writers.schedule import DepthSchedule
from specmodel.atomic_file import write_text_atomically
from specmodel.errors import ParameterError

BY_BATCH_SINCE: Final = (0, 5, 23)
"""Release of SGLang in which lists by batch size, and depth 0 in them, were seen."""


def sglang_adaptive_config(
    schedule: DepthSchedule, *, engine_version: str, batch_size: int | None = None
) -> dict[str, Any]:
    r"""Candidate depths by batch threshold, without those that cost more than they bring.

    .. math:: \{k : 0 < k \le k^*(B),\ v_k > v_0\}, \quad \{0\} \text{ where } k^*(B) = 0

    Parameters
    ----------
    schedule : DepthSchedule
        Made by `depth_schedule`; its choices say what each depth brings.
    engine_version : str
        Release of SGLang.
    batch_size : int, optional
        Batch whose list counts for releases that know one list for all batches; needed there.

    Returns
    -------
    dict
        As ``--speculative-adaptive-config`` reads it.

    Raises
    ------
    ParameterError
        If the release knows one list and no batch is given, or speculation does not pay at it.

    Notes
    -----
    From 0.5.23 the keys are batch thresholds, lower bounds, as text; a batch is first rounded up to
    its CUDA-graph size. SGLang's policy knows acceptance and no cost: it moves within the list by a
    moving average of accepted tokens. Below the first and above the last batch of the schedule it
    goes on with the first and the last list, so the server is to be limited to the measured batches.

    Releases before it read one list, ``candidate_steps``, and no 0. Between the first of them and
    0.5.23 the shape changed at a release that is not known; each loader skips what the other reads,
    so those files hold both, the smallest depth where 0 is meant. Read in ``adaptive_spec_params.py``, not tried on a running server.

    Examples
    --------
    >>> from calibration.writers.schedule import BatchChoice, DepthRange
    >>> one = BatchChoice(
    ...     batch_size=1, last_batch_size=8, num_steps=2,
    ...     relative_throughput=((0, 0.9), (1, 1.3), (2, 1.4), (3, 1.35)),
    ... )
    >>> schedule = DepthSchedule(
    ...     ranges=(DepthRange(first_batch_size=1, last_batch_size=8, num_steps=2),), choices=(one,),
    ...     accept_lengths=((1, 1.7), (2, 2.1), (3, 2.3)), context_tokens=None, notes=(),
    ... )
    >>> sglang_adaptive_config(schedule, engine_version="0.5.23")
    {'1': {'candidate_steps': [1, 2]}}
    """
    by_batch: dict[str, Any] = {}
    before: tuple[int, ...] = ()
    for choice in schedule.choices:
        depths = choice.paying_depths()
        if depths != before:
            by_batch[str(choice.batch_size)] = {"candidate_steps": list(depths)}
        before = depths
    if release_of(engine_version) >= BY_BATCH_SINCE:
        return by_batch
    if batch_size is None:
        raise ParameterError(
            "batch_size",
            "nothing",
            f"given for SGLang {engine_version}, which may know one list for all batches",
            "name the batch that matters most",
        )
    depths = schedule.choice_at(batch_size).paying_depths()
    if depths == (0,):
        raise ParameterError(
            "batch_size",
            batch_size,
            "one at which a depth pays",
            f"SGLang {engine_version} may not run 0 steps; start it without speculation",
        )
    smallest = min(schedule.accept_lengths)[0]
    for entry in by_batch.values():
        if entry["candidate_steps"] == [0]:
            entry["candidate_steps"] = [smallest]
    return {"candidate_steps": list(depths)} | by_batch


def sglang_adaptive_text(config: dict[str, Any]) -> str:
    """Return the file's text.

    Parameters
    ----------
    config : dict
        Made by `sglang_adaptive_config`.

    Returns
    -------
    str
        JSON.

    Examples
    --------
    >>> print(sglang_adaptive_text({"1": {"candidate_steps": [1, 2]}}), end="")
    {"1": {"candidate_steps": [1, 2]}}
    """
    return json.dumps(config) + "\n"


def write_sglang_adaptive(path: Path | str, config: dict[str, Any]) -> None:
    """Write the file atomically.

    Parameters
    ----------
    path : path
        The file.
    config : dict
        Made by `sglang_adaptive_config`.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "adaptive.json"
    ...     write_sglang_adaptive(file, {"1": {"candidate_steps": [1, 2]}})
    ...     json.loads(file.read_text())
    {'1': {'candidate_steps': [1, 2]}}
    """
    write_text_atomically(path, sglang_adaptive_text(config))
