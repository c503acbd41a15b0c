"""Accept lengths by depth, from a curve or from numbers, checked."""

from collections.abc import Mapping, Sequence

from specmodel.acceptance import FullAccuracy
from specmodel.errors import ParameterError

AcceptLengths = FullAccuracy | Mapping[int, float]
"""A curve of served full accuracies, or accept lengths by depth (bonus token included)."""


def given_depths(accept_lengths: AcceptLengths) -> tuple[int, ...]:
    """Return the depths for which an accept length is known, ascending.

    Parameters
    ----------
    accept_lengths : FullAccuracy or mapping from int to float
        A curve, which knows every depth up to its own, or accept lengths by depth.

    Returns
    -------
    tuple of int
        Without 0.

    Raises
    ------
    ParameterError
        If a depth is negative, or there is none.

    Examples
    --------
    >>> given_depths(FullAccuracy([0.7, 0.5])), given_depths({4: 2.5, 2: 2.1})
    ((1, 2), (2, 4))
    """
    if isinstance(accept_lengths, FullAccuracy):
        return tuple(range(1, accept_lengths.num_steps + 1))
    depths = sorted(depth for depth in accept_lengths if depth != 0)
    if not depths or depths[0] < 1 or any(depth != int(depth) for depth in depths):
        raise ParameterError(
            "accept_lengths", list(accept_lengths), "given for depths 1, 2, ..., whole numbers"
        )
    return tuple(int(depth) for depth in depths)


def accept_lengths_by_depth(
    accept_lengths: AcceptLengths, depths: Sequence[int]
) -> tuple[tuple[int, float], ...]:
    r"""Accept length at each depth, which never falls with depth.

    .. math:: \tau_k = 1 + \sum_{i \le k} S_i

    Parameters
    ----------
    accept_lengths : FullAccuracy or mapping from int to float
        A curve, or :math:`\tau_k` by depth, bonus token included, [tokens].
    depths : sequence of int
        :math:`k`, some of the known depths, ascending, [tokens].

    Returns
    -------
    tuple of (int, float)
        Depth and accept length, [tokens].

    Raises
    ------
    ParameterError
        If an accept length is outside 1 to depth + 1, or falls with depth.

    Notes
    -----
    A deeper chain accepts all that a shallower one does.

    Examples
    --------
    >>> accept_lengths_by_depth(FullAccuracy([0.7, 0.5, 0.25]), [1, 3])
    ((1, 1.7), (3, 2.45))
    """
    if isinstance(accept_lengths, FullAccuracy):
        return tuple((depth, accept_lengths.accept_length(depth)) for depth in depths)
    before = 1.0
    for depth in given_depths(accept_lengths):
        length = float(accept_lengths[depth])
        if not 1.0 <= length <= depth + 1.0:
            raise ParameterError(
                f"accept length at depth {depth}",
                f"{length:g}",
                f"from 1 to {depth + 1}",
                "the bonus token is counted",
            )
        if length < before:
            raise ParameterError(
                f"accept length at depth {depth}",
                f"{length:g}",
                f"at least {before:g}, that of the depth before it",
                "use lengths of one drafter on one workload",
            )
        before = length
    return tuple((depth, float(accept_lengths[depth])) for depth in depths)
