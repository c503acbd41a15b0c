"""What the picture of a prediction shows, as numbers: a line per configuration and its marks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from calibration.plots.point_groups import notation, varying
from specmodel.acceptance.feasible import ROUNDING_SLACK
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.prediction import Prediction, predict
from specmodel.question import AcceptLength, Configuration, Estimate, Question

Array = NDArray[np.float64]

POINTS_PER_LINE: Final = 60
"""Accept lengths at which a line is evaluated."""

_ROOM = 1.3
_DRAFTING = frozenset({"num_steps", "topk", "num_draft_tokens"})


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionLine:
    """One configuration: its line, its answer and what is marked on it.

    Parameters
    ----------
    name : str
        What tells it from the other lines.
    num_steps : float or None
        Its depth, [tokens].
    accept_length : numpy.ndarray, shape (m,)
        From 1 to the longest path and the bonus token, [tokens].
    median, low, high : numpy.ndarray, shape (m,)
        Prediction and central 90 % interval for a new measurement at each of them.
    asked : Estimate
        Accept length of the question, [tokens].
    answer : Estimate
        Prediction there, the spread of the accept length included.
    break_even : Estimate
        Accept length at which the baseline is reached, [tokens].
    measured : tuple of (float, float)
        Accept lengths and results of measured points of the same configuration.
    """

    name: str
    num_steps: float | None
    accept_length: Array
    median: Array
    low: Array
    high: Array
    asked: Estimate
    answer: Estimate
    break_even: Estimate
    measured: tuple[tuple[float, float], ...]

    @property
    def longest(self) -> float:
        """Largest accept length that the configuration can give, [tokens]."""
        return float(self.accept_length[-1])

    @property
    def reaches_baseline(self) -> bool:
        """Whether the break-even accept length is possible."""
        return self.break_even.median <= self.longest


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionLines:
    """All lines in one unit.

    Parameters
    ----------
    lines : tuple of PredictionLine
        In the order of the questions.
    baseline : float
        Result without speculation: a throughput, [tokens/s], or 1.
    is_speedup : bool
        Whether results are speed-ups: no baseline is known, or the questions have several.
    by_depth : bool
        Whether the lines differ in depth alone, so that their names are depths.
    by_notation : bool
        Whether they differ in drafting alone, so that their names are as `notation` has them.
    """

    lines: tuple[PredictionLine, ...]
    baseline: float
    is_speedup: bool
    by_depth: bool
    by_notation: bool

    @property
    def title(self) -> str:
        """What the names of the lines are; empty where they say it themselves."""
        return "depth" if self.by_depth else ""

    @property
    def unit(self) -> str:
        """Unit of the results, with the space before it."""
        return "" if self.is_speedup else " tok/s"


def prediction_lines(
    calibration: Calibration, questions: Sequence[Question], predictions: Sequence[Prediction]
) -> PredictionLines:
    """Lines over accept length through the answers, by `specmodel.prediction.predict`.

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    questions : sequence of Question
        What was asked, at least one.
    predictions : sequence of Prediction
        The answers, in the same order.

    Returns
    -------
    PredictionLines
        Throughputs where all questions have one known baseline, else speed-ups.

    Raises
    ------
    ParameterError
        If there is no question, or not one answer for each.

    Examples
    --------
    >>> asked = [Question(accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5))]
    >>> prior = Calibration.from_prior()
    >>> found = prediction_lines(prior, asked, predict(prior, asked))
    >>> found.is_speedup, found.lines[0].longest
    (True, 6.0)
    """
    if not questions:
        raise ParameterError("questions", "none", "one question or more")
    if len(questions) != len(predictions):
        raise ParameterError(
            "predictions", len(predictions), f"as many as questions ({len(questions)})"
        )
    baselines = {prediction.baseline_tokens_per_s for prediction in predictions}
    baseline = baselines.pop() if len(baselines) == 1 else None
    configurations = [question.configuration for question in questions]
    differ = varying(configurations)
    names = _names(questions, differ)
    grids = [
        np.linspace(1.0, _longest(calibration, question, prediction), POINTS_PER_LINE)
        for question, prediction in zip(questions, predictions, strict=True)
    ]
    along = predict(
        calibration,
        [
            replace(question, accept_length=AcceptLength.exact(accept_length))
            for question, grid in zip(questions, grids, strict=True)
            for accept_length in grid.tolist()
        ],
    )
    lines = []
    for index, (question, prediction) in enumerate(zip(questions, predictions, strict=True)):
        here = along[index * POINTS_PER_LINE : (index + 1) * POINTS_PER_LINE]
        results = [_result(one, baseline) for one in here]
        lines.append(
            PredictionLine(
                name=names[index],
                num_steps=question.configuration.num_steps,
                accept_length=grids[index],
                median=np.array([result.median for result in results]),
                low=np.array([result.low for result in results]),
                high=np.array([result.high for result in results]),
                asked=question.accept_length.estimate,
                answer=_result(prediction, baseline),
                break_even=prediction.break_even_accept_length,
                measured=_measured(calibration, question.configuration, baseline or 1.0),
            )
        )
    return PredictionLines(
        lines=tuple(lines),
        baseline=baseline or 1.0,
        is_speedup=baseline is None,
        by_depth=differ == ("num_steps",),
        by_notation=differ != ("num_steps",) and bool(differ) and _DRAFTING.issuperset(differ),
    )


def _result(prediction: Prediction, baseline: float | None) -> Estimate:
    """Throughput or speed-up of a prediction."""
    output = prediction.output_tokens_per_s
    return prediction.speedup if baseline is None or output is None else output


def _measured(
    calibration: Calibration, configuration: Configuration, baseline: float
) -> tuple[tuple[float, float], ...]:
    """Points of a configuration, carried to the baseline of the question."""
    return tuple(
        (
            one.accept_length_at,
            baseline * one.output_tokens_per_s / one.baseline_tokens_per_s,
        )
        for one in calibration.observations
        if one.configuration == configuration
    )


def _longest(calibration: Calibration, question: Question, prediction: Prediction) -> float:
    """Accept length at which a line ends."""
    configuration, asked = question.configuration, question.accept_length.estimate
    seen = [
        one.accept_length[1]
        for one in calibration.observations
        if one.configuration == configuration
    ]
    reached = max([asked.median, *seen])
    tokens = configuration.num_draft_tokens
    if configuration.num_steps is None:  # not known: as far as there is something to show
        break_even = prediction.break_even_accept_length.high
        room = _ROOM * max(reached, asked.high, break_even if np.isfinite(break_even) else 1.0)
        return room if tokens is None else min(room, tokens)
    path = configuration.num_steps + 1.0
    longest = path if tokens is None else min(path, tokens)
    if reached > longest + ROUNDING_SLACK:  # a block drafter: its steps do not bound it
        longest = max(reached, tokens or reached)
    return longest


def _names(questions: Sequence[Question], differ: Sequence[str]) -> list[str]:
    """What tells questions apart, in short."""
    configurations = [question.configuration for question in questions]
    if tuple(differ) == ("num_steps",):
        return ["?" if one.num_steps is None else f"{one.num_steps:g}" for one in configurations]
    if differ and _DRAFTING.issuperset(differ):
        return [notation(one) for one in configurations]
    if differ:
        parts = [str(one).split(", ") for one in configurations]
        common = set(parts[0]).intersection(*parts[1:])
        return [", ".join(part for part in own if part not in common) for own in parts]
    if len({question.workload for question in questions}) == len(questions) > 1:
        return [question.workload or "any workload" for question in questions]
    return [f"at {question.accept_length.estimate.median:.2f}" for question in questions]
