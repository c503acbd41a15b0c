"""Whether two lists of one log agree, and whether one list looks like a draft model."""

from dataclasses import dataclass
from typing import final

import numpy as np

from specmodel.acceptance.accuracy import ConditionalAccuracy, FullAccuracy

IDENTITY_TOLERANCE = 0.03
"""Relative disagreement of full and conditional accuracy that pooling of batches explains."""

LATE_JUMP = 0.2
"""Relative rise of a conditional accuracy, after a fall, that is called a jump."""

PRINTED_ROUNDING = 5e-4
"""Half a unit of the third decimal, as training logs print."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that does not fit.

    Parameters
    ----------
    code : str
        A short name for machines.
    message : str
        What, where and what to do, for a person.
    """

    code: str
    message: str


def check_agreement(
    full_accuracy: FullAccuracy,
    conditional_accuracy: ConditionalAccuracy,
    rounding: float = PRINTED_ROUNDING,
) -> tuple[Finding, ...]:
    r"""Where full and conditional accuracy of one log contradict each other.

    .. math:: a_1 = S_1, \qquad S_{i-1} a_i / S_i = 1

    Parameters
    ----------
    full_accuracy : FullAccuracy
        :math:`S_i`, [-].
    conditional_accuracy : ConditionalAccuracy
        :math:`a_i`, compared over the depths that both have, [-].
    rounding : float
        Half a unit of the last printed digit, [-].

    Returns
    -------
    tuple of Finding
        Empty when they agree. Codes ``cond0-differs`` and ``identity-violated``.

    Notes
    -----
    Healthy logs keep the identity to about 3 %; means over unequal batches lower it. The example
    is a log whose lists come from two windows.

    Examples
    --------
    >>> full = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])
    >>> conditional = ConditionalAccuracy([0.77, 0.65, 0.60, 0.57, 0.53])
    >>> [finding.code for finding in check_agreement(full, conditional)]
    ['cond0-differs', 'identity-violated', 'identity-violated']
    """
    full, conditional = full_accuracy.values, conditional_accuracy.values
    findings: list[Finding] = []
    if abs(full[0] - conditional[0]) > 2.0 * rounding:
        findings.append(
            Finding(
                code="cond0-differs",
                message=(
                    f"at depth 1 conditional accuracy {conditional[0]:g} must equal full accuracy "
                    f"{full[0]:g}; the lists come from different windows or prompts"
                ),
            )
        )
    for i in range(1, min(full.size, conditional.size)):
        if full[i - 1] <= 2.0 * rounding:
            break
        expected = full[i] / full[i - 1]
        printed = rounding * (1.0 + (1.0 + expected) / (full[i - 1] - rounding))
        slack = IDENTITY_TOLERANCE * conditional[i] + printed
        if abs(conditional[i] - expected) > slack:
            findings.append(
                Finding(
                    code="identity-violated",
                    message=(
                        f"at depth {i + 1} full accuracy {full[i - 1]:g} -> {full[i]:g} means "
                        f"conditional {expected:.3f}, but {conditional[i]:g} is given; "
                        "use lists of one window"
                    ),
                )
            )
    return tuple(findings)


def check_shape(
    accuracy: FullAccuracy | ConditionalAccuracy, rounding: float = PRINTED_ROUNDING
) -> tuple[Finding, ...]:
    r"""Where conditional accuracy jumps up after it fell, as no draft model does.

    .. math:: a_i > 1.2\, a_{i-1} \quad\text{and}\quad a_{i-1} < a_{i-2}

    Parameters
    ----------
    accuracy : FullAccuracy or ConditionalAccuracy
        The list to look at, [-].
    rounding : float
        Half a unit of the last printed digit; a jump that rounding explains is not one, [-].

    Returns
    -------
    tuple of Finding
        Empty for a smooth list. Code ``conditional-jump``.

    Notes
    -----
    Smoothly rising conditional accuracies are real (easy requests get deep); a fall followed by a
    jump is a misread digit, a small sample or two windows.

    Examples
    --------
    >>> findings = check_shape(FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]))
    >>> [(finding.code, finding.message[:34]) for finding in findings]
    [('conditional-jump', 'conditional accuracy jumps up by 2')]
    """
    if isinstance(accuracy, FullAccuracy):
        conditional = accuracy.to_conditional().values
        reached = np.concatenate([[1.0], accuracy.values[: conditional.size - 1]])
    else:
        conditional = accuracy.values
        reached = np.ones(conditional.size)
    error = np.minimum(2.0 * rounding / np.maximum(reached, rounding), 1.0)
    findings: list[Finding] = []
    for i in range(2, conditional.size):
        fell = conditional[i - 1] < conditional[i - 2]
        surely = conditional[i] - error[i] > (1.0 + LATE_JUMP) * (conditional[i - 1] + error[i - 1])
        if fell and surely and conditional[i - 1] > 0.0:
            rise = conditional[i] / conditional[i - 1] - 1.0
            findings.append(
                Finding(
                    code="conditional-jump",
                    message=(
                        f"conditional accuracy jumps up by {rise:.0%} at depth {i + 1}: "
                        f"{conditional[i - 1]:.3f} -> {conditional[i]:.3f} after a fall; check the "
                        "list for a misread digit or a small sample"
                    ),
                )
            )
    return tuple(findings)
