"""What a drafter in training is worth in serving: now, at the end, and whether the rest pays."""

import math
from dataclasses import dataclass, replace
from typing import Final, final

from calibration.fit.diagnosis import FAR_ABOVE
from calibration.points.notes import Note, broken_baseline_notes
from calibration.predict.notes import calibration_notes, prediction_notes
from calibration.training.accept_length_path import AcceptLengthPath
from calibration.training.outlook import (
    CheckpointOutlook,
    Gain,
    StepReachingTarget,
    Worth,
    gain_of,
)
from calibration.training.served_as import ServedAs
from calibration.training.verdict import Facts, VerdictCode, verdict
from specmodel.acceptance import TRANSFER_PRIOR, TransferFactor
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.posterior import Posterior
from specmodel.prediction import Prediction, accept_length_needed, predict
from specmodel.question import AcceptLength, Estimate, Question
from specmodel.speedup import speedup

# Speed-up that is asked for where the user says nothing. [-]
TARGET_SPEEDUP: Final = 1.3

_NORMAL_95: Final = 1.6448536269514722


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDecision:
    """Everything to report on a drafter in training."""

    code: VerdictCode  # whether the rest of the run is worth it
    verdict: str  # the same in two or three sentences
    target_speedup: float  # that was asked for
    num_steps: int  # served depth, [tokens]
    now: CheckpointOutlook  # the present checkpoint
    # the finished run, and the step that was asked for; None without a projection
    end: CheckpointOutlook | None
    at_step: CheckpointOutlook | None
    step_reaching_target: StepReachingTarget | None  # none without a projection
    gain: Gain | None  # none without a projection
    # in serving; the last infinite where no accept length is enough, [baseline steps], [tokens]
    round_cost: Estimate
    break_even_accept_length: Estimate
    accept_length_for_target: Estimate
    logged_accept_length_for_target: Estimate  # what the log has to show for it, [tokens]
    public_round_cost: Estimate  # of public systems at this configuration, [baseline steps]
    # from log to server; None where the accept lengths are served ones
    transfer: TransferFactor | None
    baseline_tokens_per_s: float | None  # without speculation, where it is known, [tokens/s]
    prediction: Prediction  # of the present checkpoint in serving, with the parts of its round
    notes: tuple[Note, ...] = ()  # what to know beside it

    @property
    def probability_of_target(self) -> float | None:
        """That the finished run is above the target in serving; None without a projection."""
        return None if self.end is None else self.end.expected.probability_of_target


def decide(
    calibration: Calibration,
    path: AcceptLengthPath,
    served: ServedAs,
    *,
    target_speedup: float = TARGET_SPEEDUP,
    transfer: TransferFactor | None = TRANSFER_PRIOR,
    at_step: float | None = None,
    seconds_per_step: float | None = None,
    finished: bool = False,
    why_not_projected: str = "",
) -> TrainingDecision:
    r"""Return what a drafter in training is worth, and whether the rest of its run is.

    .. math:: S^{(d)} = S\!\left(1 + F^{(d)} (\tau^{(d)} - 1);\; \theta^{(d)}\right)

    Three independent parts make the interval of a speed-up: the accept length of the log (``path``),
    one factor F for the drafter and its workload, and the calibration with measurement noise. The
    second and the third are the same at all steps of a draw, so they do not blur the gain, and none
    is counted twice: accept lengths of the path are those of the log, before any transfer.
    """
    if not (math.isfinite(target_speedup) and target_speedup > 0):
        raise ParameterError("target_speedup", f"{target_speedup:g}", "positive and finite")
    if seconds_per_step is not None and not seconds_per_step > 0:
        raise ParameterError("seconds_per_step", f"{seconds_per_step:g}", "positive")
    question = Question(
        accept_length=AcceptLength.exact(1.0),
        configuration=served.configuration,
        workload=served.workload,
        baseline_tokens_per_s=served.baseline_tokens_per_s,
    )
    worth = Worth.drawn(
        calibration,
        question,
        path,
        transfer=transfer,
        num_steps=served.num_steps,
        target=target_speedup,
    )
    now = worth.checkpoint(path.draws[:, 0], path.now_step)
    projected = path.projected
    end = worth.checkpoint(path.draws[:, -1], path.end_step) if projected else None
    at = None if at_step is None else worth.checkpoint(path.at(at_step), round(at_step))
    reached = worth.step_reaching_target(path) if projected else None
    gain = gain_of(worth, path, seconds_per_step) if projected else None
    prediction = predict(calibration, [_asked(question, now.expected.accept_length)])[0]
    needed = accept_length_needed(calibration, question, target_speedup)
    in_log = _in_the_log(needed, transfer)
    public = _public_round_cost(calibration, question)
    last = end or (now if finished else None)
    best = (last or now).expected
    words = verdict(
        Facts(
            target=target_speedup,
            now_speedup=now.expected.speedup.median,
            now_interval=(now.expected.speedup.low, now.expected.speedup.high),
            now_tokens_per_s=_median(now.expected.output_tokens_per_s),
            now_probability=now.expected.probability_of_target,
            end_speedup=last and last.expected.speedup.median,
            end_probability=last and last.expected.probability_of_target,
            end_in_log=last and last.as_logged.accept_length.median,
            added=gain and gain.speedup.median,
            now_step=path.now_step,
            end_step=path.end_step,
            remaining_hours=gain and gain.remaining_hours,
            finished=finished,
            round_cost=prediction.round_cost.median,
            public_round_cost=public.median,
            round_cost_is_high=calibration.num_points > 0
            and prediction.round_cost.median > FAR_ABOVE * public.high,
            speedup_at_public_cost=float(
                speedup(best.accept_length.median, public.median, prediction.non_decode_share)
            ),
            fastest=worth.fastest,
            needed=needed.median,
            needed_in_log=in_log.median,
            why_unknown=why_not_projected,
        )
    )
    return TrainingDecision(
        code=words.code,
        verdict=words.text,
        target_speedup=target_speedup,
        num_steps=served.num_steps,
        now=now,
        end=end,
        at_step=at,
        step_reaching_target=reached,
        gain=gain,
        round_cost=prediction.round_cost,
        break_even_accept_length=prediction.break_even_accept_length,
        accept_length_for_target=needed,
        logged_accept_length_for_target=in_log,
        public_round_cost=public,
        transfer=transfer,
        baseline_tokens_per_s=prediction.baseline_tokens_per_s,
        prediction=prediction,
        notes=_notes(calibration, prediction, transfer),
    )


def _notes(
    calibration: Calibration, prediction: Prediction, transfer: TransferFactor | None
) -> tuple[Note, ...]:
    """What to know beside a decision."""
    notes = [
        *calibration_notes(calibration),
        *broken_baseline_notes(calibration),
        *prediction_notes(calibration, prediction),
    ]
    if (prediction.question.configuration.topk or 1.0) > 1.0:
        notes.append(
            Note(
                "chain_acceptance_for_a_tree",
                "a training log knows chains alone; a tree of the same depth accepts more",
            )
        )
    if transfer is not None:
        low, high = (
            transfer.median * math.exp(side * _NORMAL_95 * transfer.total_sd) for side in (-1, 1)
        )
        known = "a prior" if transfer == TRANSFER_PRIOR else "learned, or given"
        notes.append(
            Note(
                "transfer",
                f"from training log to server, accept length - 1 is taken times {transfer.median:.2f} "
                f"(90 %: {low:.2f} to {high:.2f}), {known}; other prompts than those of the training, "
                "or text that the target model did not write, can halve it",
            )
        )
    return tuple(notes)


def _median(estimate: Estimate | None) -> float | None:
    """Median of an estimate, if there is one."""
    return None if estimate is None else estimate.median


def _asked(question: Question, accept_length: Estimate) -> Question:
    """A question at an accept length with its spread."""
    log_sd = math.log(accept_length.high / accept_length.low) / (2.0 * _NORMAL_95)
    return replace(question, accept_length=AcceptLength(estimate=accept_length, log_sd=log_sd))


def _in_the_log(needed: Estimate, transfer: TransferFactor | None) -> Estimate:
    """Accept length that a log has to show for one in serving."""
    if transfer is None or needed.low <= 1.0 or not math.isfinite(needed.high):
        factor = 1.0 if transfer is None else transfer.median
        low, median, high = (
            1.0 + max(value - 1.0, 0.0) / factor
            for value in (needed.low, needed.median, needed.high)
        )
        return Estimate(median=median, low=low, high=high)
    width = math.hypot(
        math.log((needed.high - 1.0) / (needed.low - 1.0)) / 2.0, _NORMAL_95 * transfer.total_sd
    )
    accepted = (needed.median - 1.0) / transfer.median
    return Estimate(
        median=1.0 + accepted,
        low=1.0 + accepted * math.exp(-width),
        high=1.0 + accepted * math.exp(width),
    )


def _public_round_cost(calibration: Calibration, question: Question) -> Estimate:
    """Round cost of public systems at a configuration, experts as in the calibrated system."""
    public = replace(
        Calibration.from_prior(calibration.prior),
        posterior=Posterior.from_prior(calibration.prior),
        num_experts=calibration.num_experts,
        experts_per_token=calibration.experts_per_token,
    )
    return predict(
        public,
        [Question(accept_length=AcceptLength.exact(1.0), configuration=question.configuration)],
    )[0].round_cost
