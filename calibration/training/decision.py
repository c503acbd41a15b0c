"""What a drafter in training is worth in serving: now, at the end, and whether the rest pays."""

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from calibration.fit.diagnosis import FAR_ABOVE
from calibration.training.accept_length_path import AcceptLengthPath
from calibration.training.offline_acceptance import spread_normal
from calibration.training.serving import ServedAs
from calibration.training.speedup_draws import SpeedupDraws, draw_speedups
from specmodel.acceptance import TRANSFER_PRIOR, TransferFactor, transfer_words
from specmodel.calibration import Calibration
from specmodel.errors import Note, ParameterError
from specmodel.notes import calibration_notes, depth_note, prediction_notes
from specmodel.posterior import Posterior
from specmodel.prediction import Prediction, accept_length_needed, baseline_of, predict
from specmodel.question import AcceptLength, Estimate, Question, longest_accept_length
from specmodel.speedup import speedup
from specmodel.statistics import NORMAL_95
from specmodel.units import KILO, PERCENT

# ---
# What drawn accept lengths are worth in serving: at a checkpoint, and over the rest of a run.
Array = NDArray[np.float64]

# Draws of calibration, transfer and accept length together. [-]
NUM_DRAWS: Final = 10_000

_SEED: Final = 4
_HOUR_S: Final = timedelta(hours=1).total_seconds()
_LEVELS: Final = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What accept lengths are worth."""

    accept_length: Estimate  # at the served depth, [tokens]
    speedup: Estimate  # of a new measurement
    output_tokens_per_s: Estimate | None  # where the baseline is known, [tokens/s]
    # that a new measurement is above the baseline, and above the target, [0, 1]
    probability_faster: float
    probability_of_target: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOutlook:
    """One checkpoint, as its log shows it and as serving is expected to."""

    step: int | None  # where it is; None where the log has no steps
    as_logged: Outlook  # with the accept length of the log, and with that expected in serving
    expected: Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReachingTarget:
    """When the target is reached in serving."""

    probability: float  # that it is reached by the end, [0, 1]
    # step by which it is reached with probability 0.5, 0.05 and 0.95; None where that is not before
    # the end
    median: float | None
    low: float | None
    high: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What the rest of the run adds to the speed-up in serving."""

    speedup: Estimate  # speed-up at the end minus that of now
    per_thousand_steps: Estimate  # the same over the remaining steps, [1/1000 steps]
    per_hour: Estimate | None  # over the remaining hours, where the time of a step is known, [1/h]
    remaining_steps: float  # to the end
    remaining_hours: float | None  # to the end, [h]


class Worth(NamedTuple):
    """Draws of everything but the accept length, and what accept lengths are worth with them."""

    speedups: SpeedupDraws
    factor: Array | None
    row: NDArray[np.intp]
    longest: float
    target: float
    baseline: float | None

    @classmethod
    def drawn(
        cls,
        calibration: Calibration,
        question: Question,
        path: AcceptLengthPath,
        *,
        transfer: TransferFactor | None,
        num_steps: int,
        target: float,
    ) -> "Worth":
        """Draws that belong together: a system, a factor and a course of the accept length."""
        rng = np.random.default_rng(_SEED)
        longest = longest_accept_length(question.configuration) or num_steps + 1.0
        longest = max(longest, 1.0 + 1e-9)
        factor = None
        if transfer is not None:
            factor = transfer.median * np.exp(transfer.total_sd * spread_normal(NUM_DRAWS, rng))
        speedups = draw_speedups(
            calibration, question, longest=longest, num_draws=NUM_DRAWS, rng=rng
        )
        row = rng.permutation(np.resize(np.arange(len(path.draws)), NUM_DRAWS))
        return cls(speedups, factor, row, longest, target, baseline_of(calibration, question)[0])

    @property
    def fastest(self) -> float:
        """Median speed-up with every draft token accepted."""
        return float(np.median(self.speedups.at(np.full(NUM_DRAWS, self.longest))))

    def logged(self, accept_length: Array) -> Array:
        """Accept lengths of the log, one for each draw."""
        return np.minimum(accept_length[self.row], self.longest)

    def served(self, accept_length: Array) -> Array:
        """The same in serving."""
        logged = accept_length[self.row]
        if self.factor is not None:
            logged = 1.0 + self.factor * (logged - 1.0)
        return np.minimum(logged, self.longest)

    def checkpoint(self, accept_length: Array, step: int | None) -> CheckpointOutlook:
        """What one checkpoint is worth."""
        logged, served = self.logged(accept_length), self.served(accept_length)
        return CheckpointOutlook(
            step=step, as_logged=self._outlook(logged), expected=self._outlook(served)
        )

    def _outlook(self, accept_length: Array) -> Outlook:
        """What accept lengths, one for each draw, are worth."""
        gained = self.speedups.at(accept_length)
        speed = estimate_of(gained)
        return Outlook(
            accept_length=estimate_of(accept_length),
            speedup=speed,
            output_tokens_per_s=None if self.baseline is None else speed.scaled(self.baseline),
            probability_faster=float(np.mean(gained > 1.0)),
            probability_of_target=float(np.mean(gained >= self.target)),
        )

    def step_reaching_target(self, path: AcceptLengthPath) -> StepReachingTarget:
        """First step of each draw at which its speed-up in serving is the target."""
        reached = np.full(NUM_DRAWS, np.inf)
        before = self.speedups.at(self.served(path.draws[:, 0]))
        reached[before >= self.target] = path.steps[0]
        for column in range(1, path.steps.size):
            after = self.speedups.at(self.served(path.draws[:, column]))
            now = np.isinf(reached) & (after >= self.target)
            start, width = path.steps[column - 1], path.steps[column] - path.steps[column - 1]
            rise = after[now] - before[now]
            reached[now] = start + width * (self.target - before[now]) / rise
            before = after
        ordered = np.sort(reached)
        low, median, high = (float(ordered[int(level * NUM_DRAWS)]) for level in _LEVELS)
        return StepReachingTarget(
            probability=float(np.mean(np.isfinite(reached))),
            median=_finite(median),
            low=_finite(low),
            high=_finite(high),
        )


def gain_of(worth: Worth, path: AcceptLengthPath, seconds_per_step: float | None) -> Gain:
    """What the rest of the run adds; errors that now and the end share are not in it."""
    now, end = (worth.speedups.at(worth.served(path.draws[:, column])) for column in (0, -1))
    added = estimate_of(end - now)
    steps = float(path.steps[-1] - path.steps[0])
    hours = None if seconds_per_step is None else steps * seconds_per_step / _HOUR_S
    return Gain(
        speedup=added,
        per_thousand_steps=added.scaled(KILO / steps),
        per_hour=None if hours is None else added.scaled(1.0 / hours),
        remaining_steps=steps,
        remaining_hours=hours,
    )


def estimate_of(draws: Array) -> Estimate:
    """Median and central 90 % of draws."""
    low, median, high = np.quantile(draws, _LEVELS).tolist()
    return Estimate(median=median, low=low, high=high)


def _finite(value: float) -> float | None:
    """A number; None where it is infinite."""
    return value if math.isfinite(value) else None


# ---
# What to do with a run in training, in a code for machines and two or three sentences for people.
# Probability from which something is expected. [-]
LIKELY: Final = 0.5

# Probability below which something is called out of reach. A judgement. [-]
UNLIKELY: Final = 0.1

# Relative gain in speed-up below which the rest of a run adds little: what equal benchmark runs
# differ by. A judgement. [-]
LITTLE_GAIN: Final = 0.02


class VerdictCode(StrEnum):
    """Whether the rest of a run is worth it."""

    WORTH_FINISHING = "worth_finishing"
    ALREADY_THERE = "already_there"
    LITTLE_LEFT = "little_left"
    CANNOT_REACH_TARGET = "cannot_reach_target"
    ROUND_COST_TOO_HIGH = "round_cost_too_high"
    UNKNOWN = "unknown"


class Facts(NamedTuple):
    """What a verdict rests on: medians in serving, and probabilities of the target.

    Accept lengths and what is known of the end are None where they are not known; the end is the
    present of a run that is finished. `needed` and `needed_in_log` are the accept lengths that the
    target needs, infinite where none is enough. `public_round_cost` is that of public systems at
    this configuration, `speedup_at_public_cost` the speed-up that the run would have with it, and
    `fastest` the one with every draft token accepted. `added` is the median of what the rest of
    the run adds to the speed-up, which is not quite the difference of the medians.
    """

    target: float
    now_speedup: float
    now_interval: tuple[float, float]
    now_tokens_per_s: float | None
    now_probability: float
    end_speedup: float | None
    end_probability: float | None
    end_in_log: float | None
    added: float | None
    now_step: int | None
    end_step: int | None
    remaining_hours: float | None
    finished: bool
    round_cost: float
    public_round_cost: float
    round_cost_is_high: bool
    speedup_at_public_cost: float
    fastest: float
    needed: float
    needed_in_log: float
    why_unknown: str


class Verdict(NamedTuple):
    """The code, and the text of two or three sentences."""

    code: VerdictCode
    text: str


def verdict(facts: Facts) -> Verdict:
    """Return what to do, from what is known."""
    code = _code(facts)
    sentences = [_now(facts), _end(facts), _ADVICE[code](facts)]
    return Verdict(code, " ".join(sentence for sentence in sentences if sentence))


def _code(facts: Facts) -> VerdictCode:
    """The first that holds."""
    at_the_end = facts.end_probability
    best = facts.now_probability if at_the_end is None else at_the_end
    if facts.now_probability >= LIKELY:
        return VerdictCode.ALREADY_THERE
    if best < LIKELY and (_round_is_the_problem(facts) or facts.fastest < facts.target):
        return VerdictCode.ROUND_COST_TOO_HIGH
    if at_the_end is None:
        return VerdictCode.UNKNOWN
    if at_the_end < UNLIKELY:
        return VerdictCode.CANNOT_REACH_TARGET
    if _gain(facts) < LITTLE_GAIN * facts.now_speedup:
        return VerdictCode.LITTLE_LEFT
    return VerdictCode.WORTH_FINISHING


def _round_is_the_problem(facts: Facts) -> bool:
    """Whether the target would be reached with the rounds of public systems."""
    return facts.round_cost_is_high and facts.speedup_at_public_cost >= facts.target


def _gain(facts: Facts) -> float:
    """What the rest of the run adds to the speed-up; 0 where that is not known."""
    return facts.added or 0.0


def _now(facts: Facts) -> str:
    """What the checkpoint serves now."""
    where = "" if facts.now_step is None else f" (step {facts.now_step:,})"
    rate = facts.now_tokens_per_s
    speed = "" if rate is None else f", {rate:.0f} tok/s"
    low, high = facts.now_interval
    return (
        f"Now{where} it is expected to serve at {facts.now_speedup:.2f}x{speed} "
        f"(90 %: {low:.2f}x to {high:.2f}x)."
    )


def _end(facts: Facts) -> str:
    """What the finished run will serve."""
    if facts.finished or facts.end_speedup is None or facts.end_probability is None:
        return ""
    return (
        f"At step {facts.end_step:,} it is expected at {facts.end_speedup:.2f}x, "
        f"with a chance of {_percent(facts.end_probability)} of {facts.target:g}x."
    )


def _percent(probability: float) -> str:
    """A probability for people: draws do not tell 0 from almost 0."""
    if probability < 0.005:
        return "less than 1 %"
    return "more than 99 %" if probability > 0.995 else f"{probability / PERCENT:.0f} %"


def _remaining(facts: Facts) -> str:
    """The rest of the run, with its hours where they are known."""
    if facts.end_step is None or facts.now_step is None:
        return "the rest of the run"
    hours = facts.remaining_hours
    time = "" if hours is None else f" ({hours:.1f} h)" if hours < 10 else f" ({hours:.0f} h)"
    return f"the remaining {facts.end_step - facts.now_step:,} steps{time}"


def _added(facts: Facts) -> str:
    """What the rest of the run adds, in words."""
    gain = _gain(facts)
    return f"add {gain:.2f}x" if gain >= 0.005 else "add nothing"


def _worth(facts: Facts) -> str:
    return f"Worth finishing: {_remaining(facts)} {_added(facts)}."


def _there(facts: Facts) -> str:
    there = f"{facts.target:g}x is already reached"
    if facts.finished:
        return f"{there}, and the run is finished."
    if facts.end_speedup is None:
        return f"{there}; what the rest of the run adds is not known{_because(facts)}."
    return f"{there}; {_remaining(facts)} {_added(facts)}."


def _little(facts: Facts) -> str:
    needs = f"{facts.target:g}x needs an accept length of {_length(facts.needed_in_log)} in the log"
    if facts.finished:
        return f"The run is finished; {needs}."
    return f"Little is left: {_remaining(facts)} {_added(facts)}; {needs}."


def _out_of_reach(facts: Facts) -> str:
    ends = "" if facts.end_in_log is None else f", and this run ends at {facts.end_in_log:.2f}"
    rest = "" if facts.finished else f"; {_remaining(facts)} {_added(facts)}"
    return (
        f"{facts.target:g}x is out of reach: it needs an accept length of "
        f"{_length(facts.needed_in_log)} in the log{ends}{rest}."
    )


def _round_cost(facts: Facts) -> str:
    cost = f"a round costs {facts.round_cost:.2f} baseline steps"
    if _round_is_the_problem(facts):
        rest = "" if facts.end_step is None else f"; {_remaining(facts)} {_added(facts)}"
        return (
            f"Make rounds cheaper before training on: {cost} where public systems take "
            f"{facts.public_round_cost:.2f}, so {facts.target:g}x needs an accept length of "
            f"{_length(facts.needed)} in serving, {_length(facts.needed_in_log)} in the log; with "
            f"rounds as on public systems it would be {facts.speedup_at_public_cost:.2f}x, so the "
            f"accept length is not the problem{rest}."
        )
    return (
        f"More training cannot help: {cost}, and even with every draft token accepted the speed-up "
        f"is {facts.fastest:.2f}x; draft another number of tokens, or make rounds cheaper."
    )


def _unknown(facts: Facts) -> str:
    return f"Whether the rest of the run is worth it is not known{_because(facts)}."


def _because(facts: Facts) -> str:
    """Why there is no projection, where that is known."""
    return f" ({facts.why_unknown})" if facts.why_unknown else ""


def _length(value: float) -> str:
    """An accept length that may be out of any reach."""
    return f"{value:.2f}" if math.isfinite(value) else "more than any"


_ADVICE: Final = {
    VerdictCode.WORTH_FINISHING: _worth,
    VerdictCode.ALREADY_THERE: _there,
    VerdictCode.LITTLE_LEFT: _little,
    VerdictCode.CANNOT_REACH_TARGET: _out_of_reach,
    VerdictCode.ROUND_COST_TOO_HIGH: _round_cost,
    VerdictCode.UNKNOWN: _unknown,
}


# Speed-up that is asked for where the user says nothing. [-]
TARGET_SPEEDUP: Final = 1.3


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
    question = served.question
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
        *depth_note(calibration, prediction.question.points_depth),
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
        said = (
            f"{transfer_words(transfer)}; other prompts than those of the training, or text that the "
            "target model did not write, can halve it"
        )
        notes.append(Note("transfer", said))
    return tuple(notes)


def _median(estimate: Estimate | None) -> float | None:
    """Median of an estimate, if there is one."""
    return None if estimate is None else estimate.median


def _asked(question: Question, accept_length: Estimate) -> Question:
    """A question at an accept length with its spread."""
    log_sd = math.log(accept_length.high / accept_length.low) / (2.0 * NORMAL_95)
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
        math.log((needed.high - 1.0) / (needed.low - 1.0)) / 2.0, NORMAL_95 * transfer.total_sd
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
