"""Drafters whose log and whose served accept length are both known, and what they say of a new one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from specmodel.acceptance import TransferFactor
from specmodel.errors import ParameterError
from specmodel.question import Estimate
from specmodel.student_t import student_t_quantile

_HIGH: Final = 0.95


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRun:
    """An accept length from a log beside the served one of the same drafter.

    All of [specmodel-paired-runs]_.
    """

    run: str  # name of the run; pairs of one run share its drafter
    # accept lengths, bonus token included, the first cut at the served depth; None where the report
    # gives no number that can be compared, [tokens]
    offline: float | None
    served: float | None
    num_steps: int | None  # served depth, [tokens]
    matched: bool  # whether served prompts and stack are those of the training. A judgement
    remark: str  # what was served, and how
    left_out: str = ""  # why it says nothing of serving; empty for pairs that qualify

    @property
    def qualifies(self) -> bool:
        """Whether it counts for a factor between log and server."""
        return not self.left_out

    @property
    def log_ratio(self) -> float:
        """Logarithm of (served - 1) / (offline - 1)."""
        if self.offline is None or self.served is None:
            raise ParameterError("pair", self.run, "one with both accept lengths", self.left_out)
        return math.log((self.served - 1.0) / (self.offline - 1.0))


def _pair(
    run: str,
    lengths: tuple[float, float],
    num_steps: int | None,
    remark: str,
    *,
    matched: bool = False,
) -> PairedRun:
    """A pair that qualifies."""
    offline, served = lengths
    return PairedRun(
        run=run,
        offline=offline,
        served=served,
        num_steps=num_steps,
        matched=matched,
        remark=remark,
    )


def _excluded(
    run: str, lengths: tuple[float | None, float | None], remark: str, left_out: str
) -> PairedRun:
    """A pair that does not qualify, and why."""
    return PairedRun(
        run=run,
        offline=lengths[0],
        served=lengths[1],
        num_steps=None,
        matched=False,
        remark=remark,
        left_out=left_out,
    )


_BUG = "bug: training and inference of the drafter did not match"
_REPLAY = "offline replay: no server, so it says nothing of serving"
_OVER_FIT = "over-fit test: one sample, trained and served"
_ONE_PROMPT = "one prompt: a single request is no workload"

# Every pair of [specmodel-paired-runs]_, those that do not qualify with the reason. The replays are
# printed without the bonus token, 1 was added to them.
PAIRED_RUNS: Final[tuple[PairedRun, ...]] = (
    _pair("public-report-01a", (2.561, 2.315), 3, "vLLM, 1k context, first run", matched=True),
    _pair("public-report-01a", (2.561, 2.464), 3, "vLLM, 1k context, later run", matched=True),
    _pair("public-report-01b", (2.899, 2.637), 3, "vLLM, suite of 25 benchmarks", matched=True),
    _pair("public-report-01b", (2.899, 2.52), 3, "vLLM, six prompts, 2.51 to 2.53", matched=True),
    _pair("public-report-03", (1.644, 1.45), 2, "vLLM, BF16 target", matched=True),
    _pair("public-report-03", (1.463, 1.36), 1, "vLLM, FP8 target", matched=True),
    _pair("public-report-02a", (2.196, 1.431), 3, "vLLM, agent prompts: another domain"),
    _pair("public-report-12", (2.37, 1.719), 3, "HumanEval; text not written by the target"),
    _pair("public-report-12", (2.37, 1.574), 3, "MT-Bench; text not written by the target"),
    _pair("hf-kimi-k2.6-mla-v1", (1.952, 2.30), 3, "vLLM; small validation set of own tokens"),
    _pair("dspark-kimi-k3", (3.56, 3.934), None, "analytical estimate, SGLang, MT-Bench"),
    _pair("dspark-kimi-k3", (3.98, 5.418), None, "analytical estimate, SGLang, GSM8K"),
    _excluded("eagle-264", (None, 1.50), "accuracy 0.89 at all 7 depths, served 1.50", _BUG),
    _excluded("public-report-14", (2.436, 1.936), "TorchSpec, Kimi-K3, the same set", _REPLAY),
    _excluded("public-report-16b", (2.605, 2.157), "DFlash, Qwen3-8B, benchmarks", _REPLAY),
    _excluded("public-report-16c", (2.557, 2.108), "DFlash, Qwen3-8B, benchmarks", _REPLAY),
    _excluded("spec-d8efd6f8-overfit", (None, 7.44), "vLLM, 8 drafted", _OVER_FIT),
    _excluded("public-report-12", (None, 1.28), "vLLM, 4 drafted, one prompt", _ONE_PROMPT),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPrior:
    r"""What some pairs say of a run that they do not hold.

    .. math:: \ln F \sim t_{n-1}\!\left(\mu,\; b^2 (1 + 1/n) + w^2\right)
    """

    median: float  # of the factor on accept length - 1
    between: float  # standard deviation of ln F from run to run
    within: float  # standard deviation of ln F of one run from workload to workload
    num_runs: int  # n

    @property
    def factor(self) -> TransferFactor:
        """The same as a prior for one drafter, normal."""
        return TransferFactor(
            median=self.median,
            sd=self.between * math.sqrt(1.0 + 1.0 / self.num_runs),
            scatter=self.within,
        )

    def interval(self, offline: float, num_steps: int | None = None) -> Estimate:
        """Return the served accept length to expect of a new run, with its central 90 % interval."""
        if not offline >= 1.0:
            raise ParameterError("accept length", f"{offline:g}", "at least 1")
        width = float(student_t_quantile(_HIGH, self.num_runs - 1)) * self.factor.total_sd
        most = math.inf if num_steps is None else num_steps + 1.0
        low, median, high = (
            min(1.0 + self.median * math.exp(shift) * (offline - 1.0), most)
            for shift in (-width, 0.0, width)
        )
        return Estimate(median=median, low=low, high=high)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPair:
    """A pair as the other runs predict it."""

    pair: PairedRun  # which one
    predicted: Estimate  # its served accept length from all runs but its own, [tokens]

    @property
    def covered(self) -> bool:
        """Whether the served accept length lies inside the interval."""
        served = self.pair.served
        return served is not None and self.predicted.low <= served <= self.predicted.high


def learn_paired_prior(pairs: Sequence[PairedRun] = PAIRED_RUNS) -> PairedPrior:
    r"""Return what pairs say of the factor of a new run.

    .. math:: b^2 = \max(s^2_{\bar y} - w^2 \overline{1/n_j},\, 0)
    """
    runs: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.qualifies:
            runs.setdefault(pair.run, []).append(pair.log_ratio)
    if len(runs) < 3:
        raise ParameterError("runs", len(runs), "at least 3", "fewer say nothing of their spread")
    ratios = [np.array(values) for values in runs.values()]
    means = np.array([values.mean() for values in ratios])
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in ratios)
    freedom = sum(values.size - 1 for values in ratios)
    within = squares / freedom if freedom else 0.0
    shared = within * float(np.mean([1.0 / values.size for values in ratios]))
    between = max(float(means.var(ddof=1)) - shared, 0.0)
    return PairedPrior(
        median=math.exp(float(means.mean())),
        between=math.sqrt(between),
        within=math.sqrt(within),
        num_runs=len(runs),
    )


def leave_one_run_out(pairs: Sequence[PairedRun] = PAIRED_RUNS) -> tuple[HeldOutPair, ...]:
    """Return every pair that qualifies as the runs of all others predict it."""
    sound = [pair for pair in pairs if pair.qualifies]
    found = []
    for pair in sound:
        others = learn_paired_prior([other for other in sound if other.run != pair.run])
        if pair.offline is not None:
            predicted = others.interval(pair.offline, pair.num_steps)
            found.append(HeldOutPair(pair=pair, predicted=predicted))
    return tuple(found)
