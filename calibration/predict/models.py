"""The two forms that answer a question: the relative one of a calibration, and that of its rig."""

from typing import TYPE_CHECKING, NamedTuple, Protocol, final

from calibration.points.notes import held_to_a_step
from calibration.predict.accept_lengths import AcceptLengths, accept_length_draws
from calibration.predict.notes import prediction_notes
from specmodel.ask import AskedConfiguration
from specmodel.calibration import Calibration
from specmodel.errors import Note, SpecModelError
from specmodel.prediction import (
    Prediction,
    accept_length_needed,
    accept_length_over,
    predict,
    question_rows,
)
from specmodel.question import AcceptLength, Configuration, Estimate, Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from calibration.rig.prediction import ChangedRig
    from specmodel.arrival_question import AskedArrival, ServerTimes
    from specmodel.optimum import DepthChoice

NUM_DRAWS = 4000
"""Draws of the posterior from which the best depth is chosen. [-]"""

SHARE_SAID = 0.02
"""Non-decode share from which it is said that a changed rig keeps it. [-]"""

_SEED = 1


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


class Form(Protocol):
    """What predicts questions."""

    @property
    def calibration(self) -> Calibration:
        """Of the system."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """Remarks that hold for every prediction."""
        ...

    def at_loads(self, asked: AskedConfiguration) -> AskedConfiguration:
        """What was asked, with loads that were set filled in."""
        ...

    def predict(self, questions: list[Question]) -> tuple[Prediction, ...]:
        """Speed-up and what belongs to it, in the order of the questions."""
        ...

    def notes_on(self, prediction: Prediction, *, accept_known: bool) -> tuple[Note, ...]:
        """Remarks on one prediction."""
        ...

    def accept_length_needed(self, prediction: Prediction, target_speedup: float) -> Estimate:
        """Accept length that a predicted configuration needs for a speed-up."""
        ...

    def choose_depth(self, questions: list[Question], found: AcceptLengths) -> "DepthChoice":
        """Best of the depths of the questions and of no speculation."""
        ...

    def rig_answer(self, changed: Prediction, base: Question | None) -> RigAnswer | None:
        """What changes of the rig do; None where none were asked for."""
        ...

    def server_times(
        self,
        question: Question,
        asked: "AskedArrival",
        accept_length: "NDArray[np.float64]",
        rng: "np.random.Generator",
    ) -> "ServerTimes":
        """Steps and rounds of a server at every batch, for draws of the accept length."""
        ...


def form_of(calibration: Calibration, changes: "Sequence[tuple[str, str]]") -> Form:
    """Return the relative form, or the physical form of a changed rig.

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    changes : sequence of (key, text)
        Of ``--set``.

    Returns
    -------
    Form

    Raises
    ------
    UsageError
        If there are changes and the calibration knows no rig.
    """
    if not changes:
        return RelativeForm(calibration)
    from calibration.rig.prediction import changed_rig

    return RigForm(calibration, changed_rig(calibration, changes))


def form_over_batches(calibration: Calibration, changes: "Sequence[tuple[str, str]]") -> Form:
    """Return the form that knows the step at every batch: that of `form_of`, or the calibrated rig's.

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    changes : sequence of (key, text)
        Of ``--set``.

    Returns
    -------
    Form
        The relative one where the calibration has baselines at several batches and nothing is changed.

    Raises
    ------
    UsageError
        If neither form knows it.
    """
    from calibration.predict.relative_times import batch_curve, needs_batches

    if changes or batch_curve(calibration) is not None:
        return form_of(calibration, changes)
    if calibration.physical is None:
        raise needs_batches(calibration)
    from calibration.rig.prediction import changed_rig

    return RigForm(calibration, changed_rig(calibration, ()))


@final
class RelativeForm:
    """Constants in units of the baseline's step.

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    """

    notes: tuple[Note, ...] = ()

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration

    def at_loads(self, asked: AskedConfiguration) -> AskedConfiguration:
        """Return what was asked."""
        return asked

    def predict(self, questions: list[Question]) -> tuple[Prediction, ...]:
        """Return the predictions of the posterior."""
        return predict(self.calibration, questions)

    def notes_on(self, prediction: Prediction, *, accept_known: bool) -> tuple[Note, ...]:
        """Return what to know beside one prediction."""
        return prediction_notes(self.calibration, prediction, accept_known=accept_known)

    def accept_length_needed(self, prediction: Prediction, target_speedup: float) -> Estimate:
        """Return the accept length that a predicted configuration needs for a speed-up."""
        return accept_length_needed(self.calibration, prediction.question, target_speedup)

    def choose_depth(self, questions: list[Question], found: AcceptLengths) -> "DepthChoice":
        """Return the best of the depths and of no speculation."""
        import numpy as np

        from specmodel.optimum import choose_depth

        first = questions[0]
        nothing = Question(
            accept_length=AcceptLength.exact(1.0),
            configuration=Configuration(
                num_steps=0.0,
                batch_size=first.configuration.batch_size,
                context_tokens=first.configuration.context_tokens,
            ),
            workload=first.workload,
            baseline_tokens_per_s=first.baseline_tokens_per_s,
        )
        rng = np.random.default_rng(_SEED)
        drawn = accept_length_draws(found, _depths(questions), num_draws=NUM_DRAWS, rng=rng)
        return choose_depth(
            self.calibration.posterior,
            question_rows(self.calibration, [nothing, *questions]),
            accept_length_draws=np.concatenate([np.ones((NUM_DRAWS, 1)), drawn], axis=1),
            num_draws=NUM_DRAWS,
            rng=rng,
        )

    def server_times(
        self,
        question: Question,
        asked: "AskedArrival",
        accept_length: "NDArray[np.float64]",
        rng: "np.random.Generator",
    ) -> "ServerTimes":
        """Return steps and rounds of a server at every batch, from its own baselines."""
        from calibration.predict.relative_times import relative_server_times

        return relative_server_times(self.calibration, question, asked, accept_length, rng)

    def rig_answer(self, changed: Prediction, base: Question | None) -> RigAnswer | None:
        """Return nothing: nothing was changed."""
        del changed, base
        return None


@final
class RigForm:
    """The physical form of a calibrated rig with changes.

    Parameters
    ----------
    calibration : Calibration
        With a physical form.
    rig : ChangedRig
        Its rig and the changes.
    """

    def __init__(self, calibration: Calibration, rig: "ChangedRig") -> None:
        self.calibration = calibration
        self._rig = rig

    @property
    def notes(self) -> tuple[Note, ...]:
        """What nobody stated of the rig."""
        fit = self._rig.pricing.fit
        found = []
        if fit.notes:
            found.append(Note("assumed_rig", f"assumed of the rig: {'; '.join(fit.notes)}"))
        if fit.non_decode_share >= SHARE_SAID:
            share = f"{fit.non_decode_share:.0%}".replace("%", " %")
            found.append(
                Note(
                    "non_decode_share",
                    f"time outside decoding is taken to keep its share of the baseline's time ({share}); "
                    "where a change makes decoding faster it would grow",
                )
            )
        return tuple(found)

    def at_loads(self, asked: AskedConfiguration) -> AskedConfiguration:
        """Return what was asked, with loads among the changes filled in."""
        from calibration.rig.prediction import (
            with_load_changes,
        )

        return with_load_changes(asked, self._rig.changes)

    def predict(self, questions: list[Question]) -> tuple[Prediction, ...]:
        """Return predictions on the changed rig."""
        from calibration.rig.prediction import (
            rig_predictions,
        )

        return rig_predictions(self._rig, questions)

    def notes_on(self, prediction: Prediction, *, accept_known: bool) -> tuple[Note, ...]:
        """Return what to know of what was measured; the relative form's remarks are not meant."""
        del accept_known
        from calibration.rig.prediction import allreduce_remarks, draft_remarks

        question = prediction.question
        return (
            *(Note("drafter_record", one) for one in draft_remarks(self._rig, question)),
            *(Note("measured_allreduce", one) for one in allreduce_remarks(self._rig, question)),
            *held_to_a_step(prediction),
        )

    def accept_length_needed(self, prediction: Prediction, target_speedup: float) -> Estimate:
        """Return the accept length that a predicted configuration needs for a speed-up."""
        return accept_length_over(
            prediction.round_cost, target_speedup, prediction.non_decode_share
        )

    def choose_depth(self, questions: list[Question], found: AcceptLengths) -> "DepthChoice":
        """Return the best of the depths and of no speculation."""
        import numpy as np

        from calibration.rig.prediction import speedup_draws
        from specmodel.optimum import choose_among

        rng = np.random.default_rng(_SEED)
        steps = _depths(questions)
        drawn = accept_length_draws(found, steps, num_draws=NUM_DRAWS, rng=rng)
        gains = speedup_draws(self._rig, questions, drawn, rng)
        return choose_among(
            np.array([0, *steps], dtype=np.float64),
            np.concatenate([np.ones((NUM_DRAWS, 1)), gains], axis=1),
        )

    def server_times(
        self,
        question: Question,
        asked: "AskedArrival",
        accept_length: "NDArray[np.float64]",
        rng: "np.random.Generator",
    ) -> "ServerTimes":
        """Return steps and rounds of a server at every batch that the memory of its rig holds."""
        from calibration.rig.prediction import rig_server_times

        return rig_server_times(self._rig, question, asked, accept_length, rng)

    def rig_answer(self, changed: Prediction, base: Question | None) -> RigAnswer | None:
        """Return what the changes do, over the rig as it is where a question asks for that."""
        from calibration.rig.prediction import (
            rig_predictions,
            speedup_ratio,
        )

        found = RigAnswer(self._rig.changes, len(self._rig.pricing.fit.measured.loads))
        if base is None:
            return found
        try:
            (before,) = rig_predictions(self._rig.unchanged, [base])
        except SpecModelError:  # the rig as it is cannot serve this load
            return found
        output, rate = before.output_tokens_per_s, changed.output_tokens_per_s
        return found._replace(
            base=before,
            speedup_ratio=speedup_ratio(self._rig, base, changed.question),
            output_ratio=rate.median / output.median if rate and output else None,
        )


def _depths(questions: list[Question]) -> list[int]:
    """Depth of each question."""
    return [int(question.configuration.num_steps or 0) for question in questions]
