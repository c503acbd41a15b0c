"""What is asked of a server at an arrival rate, and the times of its steps and rounds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class AskedArrival(NamedTuple):
    """Requests that arrive, and the server's limit.

    `output_tokens` is the mean per request. `prefill_s` is the time for which the prefill of one
    request keeps decoding waiting; None: what is not decoding takes the share that it takes in the
    points. `max_running` is the most requests that run at once; None where the user does not say.
    """

    arrival_rate_per_s: float
    output_tokens: float
    prefill_s: float | None = None
    max_running: int | None = None


class ServerTimes(NamedTuple):
    """Times of a server while 1, 2, ... requests run: columns; at the medians first, then draws: rows.

    `form` is ``relative`` or ``physical``. `limit` says where the largest batch comes from.
    `largest_measured` is the largest batch of the points, `non_decode_share` that of the baseline.
    """

    step_s: Array
    round_s: Array
    form: str
    limit: str
    largest_measured: float | None
    non_decode_share: float


def between_batches(batches: Array, values: Array, most_running: int) -> Array:
    r"""Values at every number of running requests, from those at some batches.

    .. math:: y(\ln b)

    Parameters
    ----------
    batches : numpy.ndarray, shape (k,)
        Rising, [requests].
    values : numpy.ndarray, shape (d, k)
        At them.
    most_running : int
        M.

    Returns
    -------
    numpy.ndarray, shape (d, M)
        Linear between batches in their logarithm; beyond them as at the last.

    Examples
    --------
    >>> between_batches(np.array([1.0, 4.0]), np.array([[0.0, 2.0]]), 4).round(3).tolist()
    [[0.0, 1.0, 1.585, 2.0]]
    """
    running = np.log(np.arange(1.0, most_running + 1.0))
    at = np.interp(running, np.log(batches), np.arange(batches.size, dtype=np.float64))
    left = np.minimum(at.astype(np.intp), max(batches.size - 2, 0))
    right = np.minimum(left + 1, batches.size - 1)
    share = at - left
    return np.asarray(values[:, left] * (1.0 - share) + values[:, right] * share)
