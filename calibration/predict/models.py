"""Answers on a calibrated rig with some of it changed, by the physical form."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from calibration.rig.prediction import (
    ChangedRig,
    changed_rig,
    rig_notes,
    rig_prediction,
    speedup_draws,
    speedup_ratio,
    with_load_changes,
)
from specmodel.accept_lengths import AcceptLengths, accept_length_draws
from specmodel.answer import NUM_DRAWS, Answer, Model, RigAnswer, answer, depths_of
from specmodel.ask import Ask, configurations, question_of
from specmodel.calibration import Calibration
from specmodel.errors import Note, ParameterError, SpecModelError, UsageError
from specmodel.notes import held_to_a_step
from specmodel.optimum import DepthChoice, choose_among
from specmodel.prediction import Prediction, accept_length_over
from specmodel.question import Question

SHARE_SAID = 0.02
"""Non-decode share from which it is said that a changed rig keeps it. [-]"""

_SEED = 1


def rig_model(rig: ChangedRig) -> Model:
    """The physical form of a calibrated rig with changes."""
    return Model(
        predict=lambda questions: tuple(rig_prediction(rig, question) for question in questions),
        notes_on=partial(_notes_on, rig),
        accept_length_needed=lambda prediction, target_speedup: accept_length_over(
            prediction.round_cost, target_speedup, prediction.non_decode_share
        ),
        choose_depth=partial(_choose_depth, rig),
        notes=_notes(rig),
    )


def _notes(rig: ChangedRig) -> tuple[Note, ...]:
    """What nobody stated of the rig."""
    fit = rig.pricing.fit
    found = []
    if fit.notes:
        found.append(Note("assumed_rig", f"assumed of the rig: {'; '.join(fit.notes)}"))
    if fit.non_decode_share >= SHARE_SAID:
        share = f"{fit.non_decode_share:.0%}".replace("%", " %")
        what = (
            f"time outside decoding is taken to keep its share of the baseline's time ({share}); "
        )
        grows = "where a change makes decoding faster it would grow"
        found.append(Note("non_decode_share", what + grows))
    return tuple(found)


def _notes_on(rig: ChangedRig, prediction: Prediction, *, accept_known: bool) -> tuple[Note, ...]:
    """What to know of what was measured; the relative form's remarks are not meant."""
    del accept_known
    return rig_notes(rig, prediction.question) + held_to_a_step(prediction)


def _choose_depth(rig: ChangedRig, questions: list[Question], found: AcceptLengths) -> DepthChoice:
    """The best of the depths and of no speculation."""
    rng = np.random.default_rng(_SEED)
    steps = depths_of(questions)
    drawn = accept_length_draws(found, steps, num_draws=NUM_DRAWS, rng=rng)
    gains = speedup_draws(rig, questions, drawn, rng)
    return choose_among(
        np.array([0, *steps], dtype=np.float64),
        np.concatenate([np.ones((NUM_DRAWS, 1)), gains], axis=1),
    )


def answer_on_rig(
    calibration: Calibration, ask: Ask, changes: Sequence[tuple[str, str]], *, source: str
) -> Answer:
    """Predictions on the calibrated rig with changes, and what these do over the rig as it is."""
    rig = changed_rig(calibration, changes)
    found = answer(
        calibration, with_load_changes(ask, rig.changes), source=source, model=rig_model(rig)
    )
    did = RigAnswer(rig.changes, len(rig.pricing.fit.measured.loads))
    if len(found.depths) > 1 or not found.depths[0].accept_known:
        return found._replace(rig=did)
    changed = found.prediction
    try:
        (one,) = configurations(calibration, ask)
        base = question_of(calibration, ask, one, changed.question.accept_length)
    except (UsageError, ParameterError):  # several configurations: nothing to compare with
        return found._replace(rig=did)
    try:
        before = rig_prediction(rig.unchanged, base)
    except SpecModelError:  # the rig as it is cannot serve this load
        return found._replace(rig=did)
    output, rate = before.output_tokens_per_s, changed.output_tokens_per_s
    did = did._replace(
        base=before,
        speedup_ratio=speedup_ratio(rig, base, changed.question),
        output_ratio=rate.median / output.median if rate and output else None,
    )
    return found._replace(rig=did)
