"""The cost table that SGLang's DSPARK reads, from a calibration with a baseline batch curve."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.writers.batch_hull import context_of
from specmodel.atomic_file import write_text_atomically
from specmodel.calibration import Calibration
from specmodel.cost import BatchCurve, round_cost_parts, round_terms
from specmodel.errors import ParameterError

GROWTH_PER_PROBE: Final = 0.02
"""Growth of the baseline step from one probe to the next: SGLang takes the probe below a number of rows
as it is, so a coarser table would promise too much. A judgement. [-]"""

_STEEP = 1.01  # faster than the batch by more than a rounded time

Array = NDArray[np.float64]


def dspark_sampled_table(
    calibration: Calibration,
    num_draft_tokens: int,
    *,
    context_tokens: float | None = None,
    max_batch_tokens: int | None = None,
    last_rows_before_step: Sequence[int] = (),
) -> dict[str, Any]:
    r"""Rounds per second by verified rows, at full blocks.

    .. math:: \frac{1}{T(m)}, \quad T(m) = T_\text{base}(B)\, R(B, n), \quad B = m / n

    Parameters
    ----------
    calibration : Calibration
        With a batch curve: baselines without speculation at two batches or more.
    num_draft_tokens : int
        :math:`n`, rows that a request verifies in a full block, root included, [tokens].
    context_tokens : float, optional
        By default the only one of the points, [tokens].
    max_batch_tokens : int, optional
        Last captured CUDA-graph size in rows; by default, and at most, the largest measured batch.
    last_rows_before_step : sequence of int
        Rows after which the step time is known to jump (end of the captured graphs, a collective's
        threshold), [rows].

    Returns
    -------
    dict
        ``sample_batch_tokens``, ascending; ``sample_steps_per_sec``, not rising; ``max_batch_tokens``.

    Raises
    ------
    ParameterError
        If there is no batch curve, or something beyond it is asked for.

    Notes
    -----
    The form for loads of one width; `dspark_additive_table` tells requests and rows apart. Below one
    full block the number of requests is the smallest measured one. Where the baseline grows faster
    than its batch between two measured batches there is a step; where it lies is not known, so the
    table steps right after the smaller one, unless a given row tells better. The time never falls.

    Examples
    --------
    >>> from calibration.fitting import fit
    >>> from calibration.packaged import packaged_table
    >>> calibration = fit(packaged_table("rtx6kpro-glm51-dcp1").path, profile=False)
    >>> table = dspark_sampled_table(calibration, 4, context_tokens=0)
    >>> table["sample_batch_tokens"][:2], table["max_batch_tokens"]
    ([1, 2], 32)
    """
    curve, context, rows = _prepared(
        calibration, context_tokens, max_batch_tokens, last_rows_before_step
    )
    if num_draft_tokens < 2:
        raise ParameterError("num_draft_tokens", num_draft_tokens, "at least 2, root included")
    requests = np.maximum(rows / num_draft_tokens, rows[0])
    verify_s, draft_s = _round_time_s(calibration, curve, requests, rows, context)
    time_s = np.maximum.accumulate(verify_s + draft_s)
    return {
        "sample_batch_tokens": rows.astype(np.int64).tolist(),
        "sample_steps_per_sec": (1.0 / time_s).tolist(),
        "max_batch_tokens": int(rows[-1]),
    }


def dspark_additive_table(
    calibration: Calibration,
    *,
    context_tokens: float | None = None,
    max_batch_tokens: int | None = None,
    last_rows_before_step: Sequence[int] = (),
) -> dict[str, Any]:
    r"""Time of a round as a constant, a part by requests and a part by rows.

    .. math:: T(B, m) = \beta + \alpha(B) + \theta(m), \quad
              \theta(m) = V(B_0, m) - V(B_0, B_0), \quad \alpha(B) = V(B, B) + D(B) - \theta(B) - \beta

    with :math:`V(B, m)` the time to verify m rows of B requests, :math:`D(B)` that of the draft,
    :math:`B_0` the smallest measured batch and :math:`\alpha(B_0) = 0`.

    Parameters
    ----------
    calibration : Calibration
        With a batch curve: baselines without speculation at two batches or more.
    context_tokens, max_batch_tokens, last_rows_before_step
        As in `dspark_sampled_table`.

    Returns
    -------
    dict
        ``bias_seconds``; ``bs_probes`` with ``alpha_seconds``; ``m_probes`` with ``theta_seconds``.

    Raises
    ------
    ParameterError
        If there is no batch curve, or something beyond it is asked for.

    Notes
    -----
    Exact where the model of the round is: its verification is a share of the baseline's step at B
    requests plus a share of that at m rows. The bias holds one whole round of one row per request, so
    that no part is negative. One draft step proposes the whole block. SGLang interpolates between the
    probes and holds the last one.

    Examples
    --------
    >>> from calibration.fitting import fit
    >>> from calibration.packaged import packaged_table
    >>> calibration = fit(packaged_table("rtx6kpro-glm51-dcp1").path, profile=False)
    >>> table = dspark_additive_table(calibration, context_tokens=0)
    >>> table["alpha_seconds"][0], table["theta_seconds"][0]
    (0.0, 0.0)
    """
    curve, context, rows = _prepared(
        calibration, context_tokens, max_batch_tokens, last_rows_before_step
    )
    one_each_s, draft_s = _round_time_s(calibration, curve, rows, rows, context)
    fewest = np.full_like(rows, rows[0])
    wide_s, _ = _round_time_s(calibration, curve, fewest, rows, context)
    theta_s = wide_s - wide_s[0]
    rest_s = one_each_s + draft_s - theta_s
    return {
        "bias_seconds": float(rest_s[0]),
        "bs_probes": rows.astype(np.int64).tolist(),
        "alpha_seconds": np.maximum.accumulate(rest_s - rest_s[0]).tolist(),
        "m_probes": rows.astype(np.int64).tolist(),
        "theta_seconds": np.maximum.accumulate(theta_s).tolist(),
    }


def dspark_table_text(table: dict[str, Any]) -> str:
    """Return a table of either form as JSON.

    Parameters
    ----------
    table : dict
        Made by `dspark_sampled_table` or `dspark_additive_table`.

    Returns
    -------
    str
        For ``--speculative-dspark-sps-table-path``; SGLang tells the forms apart by ``bias_seconds``.

    Examples
    --------
    >>> print(dspark_table_text({"sample_batch_tokens": [1]}), end="")
    {"sample_batch_tokens": [1]}
    """
    return json.dumps(table) + "\n"


def write_dspark_table(path: Path | str, table: dict[str, Any]) -> None:
    """Write a table of either form, atomically.

    Parameters
    ----------
    path : path
        The file.
    table : dict
        Made by `dspark_sampled_table` or `dspark_additive_table`.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "dspark_costs.json"
    ...     write_dspark_table(file, {"sample_batch_tokens": [1]})
    ...     json.loads(file.read_text())
    {'sample_batch_tokens': [1]}
    """
    write_text_atomically(path, dspark_table_text(table))


def _prepared(
    calibration: Calibration,
    context_tokens: float | None,
    max_batch_tokens: int | None,
    last_rows_before_step: Sequence[int],
) -> tuple[BatchCurve, float, Array]:
    """The baseline's curve with its steps, the context, and the rows to probe."""
    curve = calibration.curve
    if curve is None:
        raise ParameterError(
            "calibration",
            "without a batch curve",
            "of points with baselines at two batches or more",
            "measure the server without speculation over batch 1 to 64 and fit again",
        )
    asked = context_of(calibration, context_tokens)
    context = np.nan if asked is None else asked
    first, last = int(np.ceil(curve.batch_size.min())), int(curve.batch_size.max())
    if max_batch_tokens is not None:
        if not first < max_batch_tokens <= last:
            raise ParameterError(
                "max_batch_tokens",
                max_batch_tokens,
                f"above {first} and at most {last}, the batches of the baselines",
                "measure the server without speculation at a larger batch and fit again",
            )
        last = max_batch_tokens
    wrong = [edge for edge in last_rows_before_step if not first <= edge < curve.batch_size.max()]
    if wrong:
        raise ParameterError(
            "last_rows_before_step",
            wrong[0],
            f"from {first} to {int(curve.batch_size.max()) - 1}, inside the batches of the baselines",
        )
    stepped, edges = _stepped(curve, sorted(set(last_rows_before_step)))
    return stepped, context, _probes(stepped, context, edges, (first, last))


def _stepped(curve: BatchCurve, given: Sequence[int]) -> tuple[BatchCurve, set[int]]:
    """The curve with a step where one is known or must be, and the last rows before each."""
    batches, contexts, times = [], [], []
    edges: set[int] = set()
    for context in np.unique(curve.context_tokens):
        inside = curve.context_tokens == context
        points = list(zip(curve.batch_size[inside], curve.step_time_s[inside], strict=True))
        extra = []
        for (low, low_s), (high, high_s) in pairwise(points):
            known = [edge for edge in given if low <= edge < high]
            if not known and high_s / low_s > _STEEP * high / low:
                known = [int(low)]
            for edge in known[-1:]:
                extra += [(float(edge), low_s), (edge + 1.0, high_s)]
                edges.add(edge)
        merged = dict(extra) | dict(points)  # a measured time is never replaced
        for batch in sorted(merged):
            batches.append(batch)
            contexts.append(context)
            times.append(merged[batch])
    stepped = BatchCurve(
        batch_size=np.array(batches),
        context_tokens=np.array(contexts),
        step_time_s=np.array(times),
        kv_s_per_token=curve.kv_s_per_token,
    )
    return stepped, edges


def _probes(curve: BatchCurve, context: float, edges: set[int], ends: tuple[int, int]) -> Array:
    """Rows to probe: measured ones, both sides of each step, and enough between them."""
    first, last = ends
    every = np.arange(first, last + 1)
    time_s = curve.at(every.astype(np.float64), context).step_time_s
    chosen = {first, last, *(int(batch) for batch in curve.batch_size)}
    chosen |= edges | {edge + 1 for edge in edges}
    reached = time_s[0]
    for rows, step_s in zip(every.tolist(), time_s.tolist(), strict=True):
        if rows in chosen or step_s > (1.0 + GROWTH_PER_PROBE) * reached:
            chosen.add(rows)
            reached = step_s
    return np.array(sorted(rows for rows in chosen if first <= rows <= last), dtype=np.float64)


def _round_time_s(
    calibration: Calibration, curve: BatchCurve, requests: Array, rows: Array, context: float
) -> tuple[Array, Array]:
    """Time to verify rows of some requests, and to draft for them in one step."""
    terms = round_terms(
        num_steps=1,
        num_draft_tokens=np.maximum(rows / requests, 1.0),
        batch_size=requests,
        context_tokens=context,
        curve=curve,
    )
    verify, draft, _ = round_cost_parts(calibration.posterior.constants, terms)
    step_s = curve.at(requests, context).step_time_s
    return verify * step_s, draft * step_s
