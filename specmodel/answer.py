"""The answer to an ask: predictions per depth, the best depth, and what they rest on."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specmodel.accept_lengths import (
    AcceptLengths,
    accept_length_draws,
    accept_lengths,
    nothing_accepted,
)
from specmodel.ask import (
    Ask,
    calibrated_depth,
    configurations,
    measured_accept_lengths,
    question_of,
)
from specmodel.errors import Note, ParameterError, UsageError
from specmodel.notes import calibration_notes, depth_note, prediction_notes
from specmodel.prediction import Prediction, accept_length_for, counted, predict, question_rows
from specmodel.question import (
    AcceptLength,
    Configuration,
    Estimate,
    Observation,
    Question,
    estimate_json,
    longest_accept_length,
)

if TYPE_CHECKING:
    from specmodel.acceptance import FullAccuracy
    from specmodel.calibration import Calibration
    from specmodel.optimum import DepthChoice

NUM_DRAWS = 4000
"""Draws of the posterior from which the best depth is chosen. [-]"""

SCHEMA_VERSION = 1
"""Version of the JSON of predictions. 1: first release."""

_SEED = 1
_LADDER = 4


class Model(NamedTuple):
    """What predicts questions: the constants of a calibration, or its rig with changes."""

    predict: Callable[[list[Question]], tuple[Prediction, ...]]  # in the order of the questions
    notes_on: Callable[..., tuple[Note, ...]]  # of a prediction, and whether acceptance is known
    accept_length_needed: Callable[[Prediction, float], Estimate]  # for a speed-up
    # the best of the depths of the questions and of no speculation
    choose_depth: Callable[[list[Question], AcceptLengths], "DepthChoice"]
    notes: tuple[Note, ...] = ()  # that hold for every prediction


def relative_model(system: "Calibration") -> Model:
    """Constants in units of the baseline's step."""
    return Model(
        predict=partial(predict, system),
        notes_on=partial(prediction_notes, system),
        accept_length_needed=accept_length_for,
        choose_depth=partial(_choose_depth, system),
    )


def _choose_depth(
    system: "Calibration", questions: list[Question], found: AcceptLengths
) -> "DepthChoice":
    """The best of the depths and of no speculation."""
    from specmodel.optimum import choose_depth

    at = questions[0].configuration
    load = Configuration(num_steps=0.0, batch_size=at.batch_size, context_tokens=at.context_tokens)
    one = AcceptLength.exact(1.0)
    nothing = replace(questions[0], accept_length=one, configuration=load)
    steps: list[float] = [*depths_of(questions)]
    rng = np.random.default_rng(_SEED)
    drawn = accept_length_draws(found, depths_of(questions), num_draws=NUM_DRAWS, rng=rng)
    if system.baseline_known:
        questions, steps = [nothing, *questions], [0.0, *steps]
        drawn = np.concatenate([np.ones((NUM_DRAWS, 1)), drawn], axis=1)
    else:  # a given baseline says whether a depth pays, not which one is best
        questions = [replace(each, baseline_tokens_per_s=None) for each in questions]
    found_best = choose_depth(
        system.posterior,
        question_rows(system, questions),
        accept_length_draws=drawn,
        num_draws=NUM_DRAWS,
        rng=rng,
    )
    return replace(found_best, num_steps=np.array(steps))


def depths_of(questions: Sequence[Question]) -> list[int]:
    """Depth of each question."""
    return [int(question.configuration.num_steps or 0) for question in questions]


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


class RigAnswer(NamedTuple):
    """What was changed of the calibrated rig, and what that does.

    `speedup_ratio` is over the calibrated rig at the configuration without the changes; None where
    that is not one configuration. `base` is that rig's own prediction.
    """

    changes: tuple[tuple[str, str], ...]
    num_loads: int
    base: Prediction | None = None
    speedup_ratio: Estimate | None = None
    output_ratio: float | None = None


class DepthAnswer(NamedTuple):
    """The answer for one depth.

    `accept_known` is False where only a target was asked for; the prediction then holds no more than
    costs. `as_logged` is the prediction before the transfer from training to serving.
    """

    prediction: Prediction
    accept_known: bool
    as_logged: Prediction | None
    accept_length_needed: Estimate | None
    notes: tuple[Note, ...]

    @property
    def num_steps(self) -> int | None:
        """Depth; None for a calibrated one that is not stated."""
        depth = self.prediction.question.configuration.num_steps
        return None if depth is None else int(depth)

    @property
    def longest(self) -> float | None:
        """Most tokens that a round of this depth emits."""
        return longest_accept_length(self.prediction.question.configuration)


class Answer(NamedTuple):
    """Predictions of everything that was asked, in the order of the depths, and what they rest on.

    Of one depth, its numbers are also those of the answer: ``answer.speedup``.

    Parameters
    ----------
    source : str
        Where the calibration comes from.
    calibration : Calibration
        What predicted.
    ask : Ask
        What was asked.
    depths : tuple of DepthAnswer
        One a depth.
    choice : DepthChoice or None
        The candidates, no speculation first, where several depths were asked for.
    identity : Identity or None
        The same by hand, where one configuration was measured.
    measured_depth : int or None
        Where the accept length belongs, [tokens].
    measured_conditional : float or None
        Conditional accuracy there, [-].
    claims : tuple of Claim
        What higher accept lengths would need.
    notes : tuple of Note
        What to know beside all of it.
    rig : RigAnswer or None
        What changes of the rig do.
    """

    source: str
    calibration: "Calibration"
    ask: Ask
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
        if self.choice is None or self.choice.best_num_steps == 0:
            return None
        return self.choice.best - int(self.choice.num_steps[0] == 0)

    @property
    def prediction(self) -> Prediction:
        """That of the only depth."""
        if len(self.depths) > 1:
            several = "several depths were asked for: see .depths, .best and .to_frame()"
            raise AttributeError(several)
        return self.depths[0].prediction

    @property
    def speedup(self) -> Estimate:
        """Of a new measurement, [-]."""
        return self.prediction.speedup

    @property
    def round_cost(self) -> Estimate:
        """Of the mean round, [baseline steps]."""
        return self.prediction.round_cost

    @property
    def break_even_accept_length(self) -> Estimate:
        """Accept length from which speculation pays, [tokens]."""
        return self.prediction.break_even_accept_length

    @property
    def output_tokens_per_s(self) -> Estimate | None:
        """Where a baseline is known, [tokens/s]."""
        return self.prediction.output_tokens_per_s

    @property
    def per_user_tokens_per_s(self) -> Estimate | None:
        """Where a baseline is known and is not one per GPU, [tokens/s]."""
        return self.prediction.per_user_tokens_per_s

    @property
    def tpot_s(self) -> Estimate | None:
        """Where a baseline is known and is not one per GPU, [s]."""
        return self.prediction.tpot_s

    @property
    def baseline_tokens_per_s(self) -> float | None:
        """Without speculation, used for the others, [tokens/s]."""
        return self.prediction.baseline_tokens_per_s

    @property
    def non_decode_share(self) -> float:
        """Of the baseline's time, used, [-]."""
        return self.prediction.non_decode_share

    @property
    def probability_faster(self) -> float:
        """That a new measurement is above the baseline, [0, 1]."""
        return self.prediction.probability_faster

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers: what `specmodel predict --json` prints.

        The keys of one prediction; for several depths ``predictions`` with the keys of one each, and
        the best depth. Infinite and unknown numbers are None.
        """
        shared = _codes(self.notes)
        if len(self.depths) == 1:
            return self._depth_dict(self.depths[0], shared)
        record: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "predictions": [self._depth_dict(depth, []) for depth in self.depths],
            "best_num_steps": None,
            "probability_best": None,
            "expected_regret": None,
            "candidates": [],
        }
        choice = self.choice
        if choice is not None:
            columns = (choice.num_steps, choice.probability_best, choice.expected_regret)
            candidates = zip(*(one.tolist() for one in columns), strict=True)
            record |= {
                "best_num_steps": choice.best_num_steps,
                "probability_best": choice.probability,
                "expected_regret": choice.regret,
                "candidates": [
                    {"num_steps": int(steps), "probability_best": chance, "expected_regret": loss}
                    for steps, chance, loss in candidates
                ],
            }
        return record | {**used(self.calibration, self.source), "warnings": shared}

    def to_frame(self) -> Any:
        """A pandas table with one row a depth; estimates as three columns each."""
        pandas: Any = import_module("pandas")  # the model itself stays light
        rows = []
        for depth in self.depths:
            row: dict[str, Any] = {}
            for name, value in depth.prediction.to_dict().items():
                if isinstance(value, dict):
                    row |= {name: value["median"]}
                    row |= {f"{name}_{side}": value[side] for side in ("low", "high")}
                elif not isinstance(value, list):
                    row[name] = value
            rows.append(row)
        return pandas.DataFrame(rows)

    def _depth_dict(self, depth: DepthAnswer, shared: list[dict[str, Any]]) -> dict[str, Any]:
        """The keys of one depth."""
        record = {"schema_version": SCHEMA_VERSION, **depth.prediction.to_dict()}
        if not depth.accept_known:
            record |= dict.fromkeys(("accept_length", *_RATES))
        record["warnings"] = [*shared, *_codes(depth.notes)]
        record |= used(self.calibration, self.source)
        if depth.as_logged is not None:
            logged = depth.as_logged.to_dict()
            record["as_logged"] = {name: logged[name] for name in ("accept_length", *_RATES)}
        if depth.accept_length_needed is not None:
            needed = depth.accept_length_needed
            record["target"] = {
                "speedup": self.ask.target_speedup,
                "accept_length": estimate_json(needed),
                "feasible": math.isfinite(needed.median)
                and (depth.longest is None or needed.median <= depth.longest),
            }
        if self.rig is not None:
            record["set"] = dict(self.rig.changes)
            record["physical"] = True
            record["speedup_ratio"] = estimate_json(self.rig.speedup_ratio)
            record["output_ratio"] = self.rig.output_ratio
        if self.ask.claim is not None and depth is self.depths[-1]:
            names = ("accept_length", "required_conditional_accuracy")
            record["claims"] = [dict(zip(names, one, strict=True)) for one in self.claims]
        return record


_RATES = (
    *("speedup", "output_tokens_per_s", "tpot_ms"),
    *("per_user_tokens_per_s", "probability_faster"),
)


def _codes(notes: Sequence[Note]) -> list[dict[str, Any]]:
    """Remarks."""
    return [{"code": note.code, "message": note.message} for note in notes]


def used(system: "Calibration | None", source: str) -> dict[str, Any]:
    """Which calibration was used, of which system, and when it was fitted."""
    return {
        "calibration": source or None,
        "calibration_system": None if system is None else system.label or None,
        "calibration_fitted_at": None if system is None else system.fitted_at or None,
    }


def answer(
    system: "Calibration", ask: Ask, *, source: str = "", model: Model | None = None
) -> Answer:
    """Predictions for everything that was asked, by the constants of a calibration or another model."""
    given = ask.accept_length is not None or ask.list_depth is not None
    accepted = given or ask.target_speedup is None
    if not given and accepted and ask.num_steps is None:
        raise nothing_accepted()
    if ask.target_speedup is not None and not (
        system.baseline_known or ask.baseline_tokens_per_s or model
    ):
        raise UsageError("--baseline", "a speed-up compares with a baseline, and none is known")
    by = model or relative_model(system)
    configured = configurations(system, ask)
    found = None
    if accepted:
        depth = calibrated_depth(system) if len(configured) > 1 else None
        measured = measured_accept_lengths(system, ask, configured)
        found = accept_lengths(ask, configured, calibrated_depth=depth, measured=measured)
    values = found.values if found else (AcceptLength.exact(1.0),) * len(configured)
    questions = [
        question_of(system, ask, one, value) for one, value in zip(configured, values, strict=True)
    ]
    logged = [
        replace(question, accept_length=value)
        for question, value in zip(questions, (found and found.as_logged) or (), strict=False)
    ]
    predictions = by.predict([*questions, *logged])
    target = ask.target_speedup
    depths = tuple(
        DepthAnswer(
            prediction=prediction,
            accept_known=accepted,
            as_logged=predictions[len(questions) + index] if logged else None,
            accept_length_needed=None
            if target is None
            else by.accept_length_needed(prediction, target),
            notes=by.notes_on(prediction, accept_known=accepted),
        )
        for index, prediction in enumerate(predictions[: len(questions)])
    )
    curve = found.curve if found else None
    several, first = len(depths) > 1, questions[0]
    stated = () if first.configuration.num_steps is None else depth_note(system, first.points_depth)
    return Answer(
        source=source,
        calibration=system,
        ask=ask,
        depths=depths,
        choice=by.choose_depth(questions, found) if several and found else None,
        identity=None
        if several or model or not system.baseline_known
        else _identity(system, depths[0]),
        measured_depth=found.measured_depth if found else None,
        measured_conditional=None if curve is None else float(curve.to_conditional().values[-1]),
        claims=_claims(curve, depths, ask.claim)
        if curve is not None or ask.claim is not None
        else (),
        notes=(*calibration_notes(system), *stated, *(found.notes if found else ()), *by.notes),
    )


def note_lines(found: Answer) -> list[str]:
    """Remarks to print below an answer, each once; those that differ from depth to depth are counted."""
    messages: dict[tuple[str, str], list[str]] = {}
    for note in found.notes:
        if note.code != "unknown_depth":  # it stands on top of the answer
            messages[note.code, note.message] = [note.message]
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


def _identity(system: "Calibration", depth: DepthAnswer) -> Identity | None:
    """The plain identity of the configuration asked for, or of the only one measured."""
    question = depth.prediction.question
    configuration = counted(system, question)
    same = [one for one in system.observations if one.configuration == configuration]
    if not same and len(system.observations) != 1:
        return None
    observation = (same or system.observations)[0]
    accept, cost = question.accept_length.estimate.median, observation.round_cost[1]
    return Identity(
        observation=observation,
        here=bool(same),
        # A round cheaper than a step is noise: by itself it would give more than the accept length.
        speedup=accept / cost if depth.accept_known and cost >= 1.0 else None,
        baseline_tokens_per_s=depth.prediction.baseline_tokens_per_s,
    )


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
