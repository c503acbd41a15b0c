"""The answer to `specmodel predict`: predictions per depth, best depth, and what they rest on."""

from typing import TYPE_CHECKING, NamedTuple

from calibration.points.notes import broken_baseline_notes
from calibration.predict.accept_lengths import (
    AcceptLengths,
    AskedAcceptLength,
    accept_lengths,
)
from calibration.predict.models import Form, RigAnswer, form_of
from calibration.predict.notes import calibration_notes
from specmodel.ask import (
    AskedConfiguration,
    UsageError,
    calibrated_depth,
    check_verified_tokens,
    configurations,
    depth_unknown,
    workload_of,
)
from specmodel.calibration import Calibration, Observation
from specmodel.errors import Note, ParameterError
from specmodel.prediction import Prediction
from specmodel.question import (
    AcceptLength,
    Configuration,
    Estimate,
    Question,
    longest_accept_length,
)

if TYPE_CHECKING:
    from specmodel.acceptance import FullAccuracy
    from specmodel.optimum import DepthChoice

NUM_DRAWS = 4000
"""Draws of the posterior from which the best depth is chosen. [-]"""

_SEED = 1
_LADDER = 4


class Asked(NamedTuple):
    """Everything that a user asks of a prediction."""

    accept: AskedAcceptLength | None
    configuration: AskedConfiguration
    workload: str | None = None
    baseline_tokens_per_s: float | None = None
    target_speedup: float | None = None
    claim: float | None = None
    changes: tuple[tuple[str, str], ...] = ()


class Identity(NamedTuple):
    """The plain identity of one measured configuration, beside the posterior.

    `here` tells whether it is the configuration of the answer; `speedup` is what the identity alone
    gives at the accept length asked for, None where there is none. The baseline is that of the answer,
    None where it is not known.
    """

    observation: Observation
    here: bool
    speedup: float | None
    baseline_tokens_per_s: float | None


class Claim(NamedTuple):
    """What an accept length would need of the depths beyond the measured one.

    `conditional` is the accuracy that each of them would need, None where not even 1 is enough.
    """

    accept_length: float
    conditional: float | None


class DepthAnswer(NamedTuple):
    """The answer for one depth.

    `num_steps` is the depth to report, None for a calibrated depth that is not stated.
    `accept_known` is False where only a target was asked for; the prediction then holds no more than
    costs. `as_logged` is the prediction before the transfer from training to serving.
    """

    num_steps: int | None
    prediction: Prediction
    accept_known: bool
    as_logged: Prediction | None
    accept_length_needed: Estimate | None
    longest: float | None
    notes: tuple[Note, ...]


class Answer(NamedTuple):
    """Everything to report, in the order of the depths.

    `choice` holds the candidates, no speculation first, where several depths were asked for.
    """

    source: str
    calibration: Calibration
    asked: Asked
    depths: tuple[DepthAnswer, ...]
    choice: "DepthChoice | None"
    identity: Identity | None
    measured_depth: int | None
    measured_conditional: float | None
    claims: tuple[Claim, ...]
    notes: tuple[Note, ...]
    rig: RigAnswer | None = None

    @property
    def best(self) -> int | None:
        """Position of the recommended depth; None where there is no choice or it is no speculation."""
        if self.choice is None or self.choice.best == 0:
            return None
        return self.choice.best - 1


def answer(calibration: Calibration, asked: Asked, *, source: str) -> Answer:
    """Predictions for everything that was asked.

    Parameters
    ----------
    calibration : Calibration
        Of the system, or of the packaged prior.
    asked : Asked
        What is known, and what is wanted.
    source : str
        Where the calibration comes from, to be reported.

    Returns
    -------
    Answer
        One entry per depth.

    Raises
    ------
    ParameterError, UnknownKeyError
        If a value is impossible or a workload is unknown.
    UsageError
        If something is neither given nor known from the calibration.
    """
    accept = asked.accept
    if accept is None and asked.target_speedup is None:
        raise UsageError("--accept, --full or --conditional", "nothing says what is accepted")
    list_depth = accept.list_depth if accept else None
    form = form_of(calibration, asked.changes)
    configuration = form.at_loads(asked.configuration)
    configured = configurations(calibration, configuration, list_depth=list_depth)
    check_verified_tokens(calibration, configuration, configured)
    found = (
        accept_lengths(accept, configured, calibrated_depth=calibrated_depth(calibration))
        if accept
        else None
    )
    values = found.values if found else (AcceptLength.exact(1.0),) * len(configured)
    questions = [
        _question(calibration, asked, configuration, value)
        for configuration, value in zip(configured, values, strict=True)
    ]
    predictions = form.predict(questions)
    logged = form.predict(_logged(questions, found)) if found else ()
    depths = tuple(
        DepthAnswer(
            num_steps=_reported(one, list_depth),
            prediction=prediction,
            accept_known=found is not None,
            as_logged=logged[index] if logged else None,
            accept_length_needed=None
            if asked.target_speedup is None
            else form.accept_length_needed(prediction, asked.target_speedup),
            longest=longest_accept_length(one),
            notes=form.notes_on(prediction, accept_known=found is not None),
        )
        for index, (one, prediction) in enumerate(zip(configured, predictions, strict=True))
    )
    curve = found.curve if found else None
    return Answer(
        source=source,
        calibration=calibration,
        asked=asked,
        depths=depths,
        choice=form.choose_depth(questions, found) if len(depths) > 1 and found else None,
        identity=_identity(calibration, depths[0])
        if len(depths) == 1 and not asked.changes
        else None,
        measured_depth=found.measured_depth if found else None,
        measured_conditional=_last_conditional(curve),
        claims=_claims(curve, depths, asked.claim),
        notes=(
            *calibration_notes(calibration),
            *broken_baseline_notes(calibration),
            *_taken_as(calibration, depths[0], list_depth),
            *(found.notes if found else ()),
            *form.notes,
        ),
        rig=_rig_answer(form, asked, depths, list_depth),
    )


def note_lines(found: Answer) -> list[str]:
    """Remarks on an answer, each once; those that differ from depth to depth are counted.

    Parameters
    ----------
    found : Answer
        One depth or several.

    Returns
    -------
    list of str
        For a person to read.
    """
    messages: dict[tuple[object, ...], list[str]] = {}
    for note in found.notes:
        messages[note] = [note.message]
    for depth in found.depths:
        for note in depth.notes:
            key = (note.code, note.message.partition(" ")[0])  # the axis of a range
            known = messages.setdefault(key, [])
            if note.message not in known:
                known.append(note.message)
    return [
        known[0] + (f" (and at other depths: {len(known) - 1} more)" if len(known) > 1 else "")
        for known in messages.values()
    ]


def _rig_answer(
    form: Form, asked: Asked, depths: tuple[DepthAnswer, ...], list_depth: int | None
) -> RigAnswer | None:
    """What changes of the rig do; over the rig as it is where that has one configuration here."""
    if not asked.changes:
        return None
    first = depths[0].prediction
    base = None
    if len(depths) == 1 and depths[0].accept_known:
        try:
            (one,) = configurations(form.calibration, asked.configuration, list_depth=list_depth)
            base = _question(form.calibration, asked, one, first.question.accept_length)
        except (UsageError, ParameterError):  # several configurations: nothing to compare with
            base = None
    return form.rig_answer(first, base)


def _question(
    calibration: Calibration, asked: Asked, configuration: Configuration, value: AcceptLength
) -> Question:
    """One question, its workload completed from the calibration."""
    return Question(
        accept_length=value,
        configuration=configuration,
        workload=workload_of(
            calibration,
            configuration,
            workload=asked.workload,
            baseline_tokens_per_s=asked.baseline_tokens_per_s,
        ),
        baseline_tokens_per_s=asked.baseline_tokens_per_s,
    )


def _logged(questions: list[Question], found: AcceptLengths) -> list[Question]:
    """The same questions with accept lengths as a training log gives them; none for served ones."""
    if found.as_logged is None:
        return []
    return [
        Question(
            accept_length=value,
            configuration=question.configuration,
            workload=question.workload,
            baseline_tokens_per_s=question.baseline_tokens_per_s,
        )
        for question, value in zip(questions, found.as_logged, strict=True)
    ]


def _reported(configuration: Configuration, list_depth: int | None) -> int | None:
    """Depth to report: a list's own where the calibration does not state one."""
    return list_depth if configuration.num_steps is None else int(configuration.num_steps)


def _taken_as(
    calibration: Calibration, first: DepthAnswer, list_depth: int | None
) -> tuple[Note, ...]:
    """Remark on a list whose depth stands in for a calibrated depth that is not stated."""
    if list_depth is None or first.prediction.question.configuration.num_steps is not None:
        return ()
    if not depth_unknown(calibration):
        return ()
    return (
        Note(
            "unknown_depth",
            f"the points do not state their depth; it is taken to be that of the list, {list_depth}. "
            "Add num_steps to the points and fit again if it was another one",
        ),
    )


def _identity(calibration: Calibration, depth: DepthAnswer) -> Identity | None:
    """The plain identity of the configuration asked for, or of the only one measured."""
    observations = calibration.observations
    configuration = depth.prediction.question.configuration
    same = [one for one in observations if one.configuration == configuration]
    if not same and len(observations) != 1:
        return None
    observation = same[0] if same else observations[0]
    accept = depth.prediction.question.accept_length.estimate.median
    cost = observation.round_cost[1]
    return Identity(
        observation=observation,
        here=bool(same),
        # A round cheaper than a step is noise: by itself it would give more than the accept length.
        speedup=accept / cost if depth.accept_known and cost >= 1.0 else None,
        baseline_tokens_per_s=depth.prediction.baseline_tokens_per_s,
    )


def _last_conditional(curve: "FullAccuracy | None") -> float | None:
    """Conditional accuracy of the deepest measured depth."""
    return None if curve is None else float(curve.to_conditional().values[-1])


def _claims(
    curve: "FullAccuracy | None", depths: tuple[DepthAnswer, ...], claim: float | None
) -> tuple[Claim, ...]:
    """What accept lengths above the predicted one would need of the depths beyond the measured."""
    deepest = depths[-1]
    depth = deepest.num_steps
    if curve is None or depth is None or depth <= curve.num_steps:
        if claim is not None:
            raise UsageError(
                "--depth beyond that of the list or of --accept-depth",
                "--claim asks what depths that nobody measured would need",
            )
        return ()
    logged = deepest.as_logged or deepest.prediction
    expected = logged.question.accept_length.estimate.median
    most = curve.accept_length() + (depth - curve.num_steps) * float(curve.values[-1])
    steps = [round(0.1 * tenth, 1) for tenth in range(int(10 * expected) + 1, int(10 * most) + 1)]
    chosen = steps[:: max(1, -(-len(steps) // _LADDER))]
    if claim is not None:
        chosen = [claim]
    return tuple(Claim(value, _required(curve, depth, value)) for value in chosen)


def _required(curve: "FullAccuracy", depth: int, accept_length: float) -> float | None:
    """Conditional accuracy that every deeper step needs; None where 1 is not enough."""
    from specmodel.acceptance import required_conditional

    try:
        return required_conditional(curve, depth, accept_length)
    except ParameterError:
        if accept_length < 1.0:
            raise
        return None
