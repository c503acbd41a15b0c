"""Which accept lengths are possible, what a claim would need, and whether a list looks like a drafter."""

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import ROUNDING_NOISE, ConditionalAccuracy, FullAccuracy
from specmodel.acceptance.bounds import FloatArray, at_least, finite, whole
from specmodel.errors import Note, ParameterError

ROUNDING_SLACK = 5e-3
"""An accept length printed with two decimals may pass its limit by half a unit."""

LATE_JUMP = 0.2
"""Relative rise of a conditional accuracy, after a fall, that is called a jump."""

PRINTED_ROUNDING = 5e-4
"""Half a unit of the third decimal, as training logs print."""

_MAX_NEWTON_STEPS = 100


def check_accept_length(accept_length: ArrayLike, num_steps: ArrayLike) -> FloatArray:
    """Accept lengths as floats, each between 1 and num_steps + 1 but for printed rounding."""
    limit = whole("num_steps", num_steps) + 1
    length, limit = np.broadcast_arrays(finite("accept_length", accept_length), limit)
    wrong = (length < 1.0) | (length > limit + ROUNDING_SLACK)
    if np.any(wrong):
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"[{', '.join(map(str, index))}]" if index else ""
        hint = (
            "every round emits the target model's own token; if the bonus token is left out, add 1"
            if length[index] < 1.0
            else "check num_steps and num_draft_tokens, or give the depth it was measured at"
        )
        raise ParameterError(
            f"accept_length{place}",
            f"{length[index]:g}",
            f"between 1 and {limit[index]} (longest draft path + 1)",
            hint,
        )
    return np.array(length)


def required_conditional(
    full_accuracy: FullAccuracy, num_steps: int, accept_length: float
) -> float:
    r"""Conditional accuracy that every deeper depth would need to reach a claimed accept length.

    .. math:: c : \quad \tau_m + S_m \sum_{j=1}^{k-m} c^j = \tau

    0 when the measured depths alone reach the claim; a claim out of reach is refused. One that needs more
    than the measured conditionals is not supported by the list.

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
    return _equal_conditional(missing / last, more)


def _equal_conditional(accepted: float, depth: int) -> float:
    """The conditional accuracy at which a chain of equal depths accepts so many of its draft tokens.

    The inverse of Eq. 1 of [leviathan2023]_, which is convex and rising: Newton's method from 1 cannot
    overshoot.
    """
    if accepted >= depth:
        return 1.0
    rate = 1.0
    for _ in range(_MAX_NEWTON_STEPS):
        powers = rate ** np.arange(depth + 1)
        slope = np.arange(1, depth + 1) @ powers[:-1]
        step = (powers[1:].sum() - accepted) / slope
        rate = float(np.clip(rate - step, 0.0, 1.0))
        if abs(step) < 4.0 * np.finfo(np.float64).eps:
            break
    return rate


def check_shape(
    accuracy: FullAccuracy | ConditionalAccuracy, rounding: float = PRINTED_ROUNDING
) -> tuple[Note, ...]:
    r"""Where conditional accuracy jumps up after it fell, as no draft model does.

    .. math:: a_i > 1.2\, a_{i-1} \quad\text{and}\quad a_{i-1} < a_{i-2}

    Smoothly rising conditional accuracies are real (easy requests get deep); a fall followed by a jump that
    rounding does not explain is a misread digit, a small sample or two windows.
    """
    if isinstance(accuracy, FullAccuracy):
        conditional = accuracy.to_conditional().values
        reached = np.concatenate([[1.0], accuracy.values[: conditional.size - 1]])
    else:
        conditional = accuracy.values
        reached = np.ones(conditional.size)
    error = np.minimum(2.0 * rounding / np.maximum(reached, rounding), 1.0)
    findings: list[Note] = []
    for i in range(2, conditional.size):
        fell = conditional[i - 1] < conditional[i - 2]
        surely = conditional[i] - error[i] > (1.0 + LATE_JUMP) * (conditional[i - 1] + error[i - 1])
        if fell and surely and conditional[i - 1] > 0.0:
            rise = conditional[i] / conditional[i - 1] - 1.0
            message = (
                f"conditional accuracy jumps up by {rise:.0%} at depth {i + 1}: "
                f"{conditional[i - 1]:.3f} -> {conditional[i]:.3f} after a fall; check the "
                "list for a misread digit or a small sample"
            )
            findings.append(Note("conditional-jump", message))
    return tuple(findings)
