"""What a claimed accept length would need from the depths that nobody measured."""

from specmodel.acceptance.accuracy import ROUNDING_NOISE, FullAccuracy
from specmodel.acceptance.bounds import at_least, whole
from specmodel.acceptance.geometric import geometric_acceptance_rate
from specmodel.errors import ParameterError


def required_conditional(
    full_accuracy: FullAccuracy, num_steps: int, accept_length: float
) -> float:
    r"""Conditional accuracy that every deeper depth would need to reach an accept length.

    .. math:: c : \quad \tau_m + S_m \sum_{j=1}^{k-m} c^j = \tau

    Parameters
    ----------
    full_accuracy : FullAccuracy
        Measured list of depth :math:`m`, [-].
    num_steps : int
        :math:`k`, depth of the claim, beyond the measured one, [tokens].
    accept_length : float
        :math:`\tau`, the claim, bonus token included, [tokens].

    Returns
    -------
    float
        :math:`c` in [0, 1]; 0 when the measured depths alone reach the claim, [-].

    Raises
    ------
    ParameterError
        If the claim is out of reach even when every deeper token is accepted, or `num_steps` is
        not beyond the measured depth.

    Notes
    -----
    Compare the answer with the measured conditionals: a claim that needs more than they are is
    not supported by the list.

    Examples
    --------
    >>> required_conditional(FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]), 10, 3.1)
    0.894
    """
    depth = int(whole("num_steps", num_steps, 1))
    claim = float(at_least("accept_length", accept_length, 1.0))
    more = depth - full_accuracy.num_steps
    if more < 1:
        raise ParameterError(
            "num_steps",
            depth,
            f"beyond the measured depth {full_accuracy.num_steps}",
            "the list itself has the accept length there",
        )
    missing = claim - full_accuracy.accept_length()
    if missing <= 0.0:
        return 0.0
    last = float(full_accuracy.values[-1])
    if missing > more * last + ROUNDING_NOISE:
        raise ParameterError(
            "accept_length",
            f"{claim:g}",
            f"at most {full_accuracy.accept_length() + more * last:.3f} at depth {depth}",
            f"only {last:g} of the rounds get past depth {full_accuracy.num_steps}",
        )
    return float(geometric_acceptance_rate(min(1.0 + missing / last, 1.0 + more), more))
