"""What would change the answer: elasticities of the speed-up with respect to everything in it."""

import numpy as np

from specmodel.calibrated import Calibration
from specmodel.constants import NAMES
from specmodel.question import Question, question_rows
from specmodel.speedup import log_speedup_gradient


def sensitivities(calibration: Calibration, question: Question) -> dict[str, float]:
    r"""Relative change of the speed-up per relative change of each quantity, largest first.

    .. math:: \varepsilon_x = \frac{\partial \ln S}{\partial \ln x}

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    question : Question
        Where to look.

    Returns
    -------
    dict of str to float
        ``accept_length``, ``round_cost`` and every constant by name; quantities that do not matter
        here are 0, [-].

    Raises
    ------
    ParameterError
        If a quantity is outside what is possible.

    Notes
    -----
    Exact derivatives at the median constants: 1 % more accept length changes the speed-up by
    ``accept_length`` per cent.

    Examples
    --------
    >>> from specmodel.configuration import Configuration
    >>> from specmodel.question import AcceptLength
    >>> question = Question(
    ...     accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5)
    ... )
    >>> found = sensitivities(Calibration.from_prior(), question)
    >>> 0.8 < found["accept_length"] <= 1.0 and found["step_cost"] < 0
    True
    """
    rows = question_rows(calibration, [question])
    constants = calibration.posterior.constants
    _, gradient, decode, _ = log_speedup_gradient(
        constants, rows.terms, rows.accept_length, rows.baseline_deficit, rows.measured_share
    )
    found = {"accept_length": float(decode[0]), "round_cost": float(-decode[0])}
    found |= dict(zip(NAMES, (gradient[0] * constants).tolist(), strict=True))
    return dict(sorted(found.items(), key=lambda pair: -np.abs(pair[1])))
