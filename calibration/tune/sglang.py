"""What SGLang reads: flags of a speculation, its adaptive-steps file and its DSPARK cost table."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from calibration.tune.depth_by_batch import DepthSchedule, context_of
from specmodel.calibration import Calibration
from specmodel.cost import BatchCurve, round_cost_parts, round_terms
from specmodel.errors import ParameterError

Release = tuple[int, ...]

_RELEASE: Final = re.compile(
    r"v?(\d+(?:\.\d+)+)(?:[.-]?(?:a|alpha|b|beta|rc|post|dev)\d.*)?(?:\+.*)?", re.IGNORECASE
)


def release_of(engine_version: str) -> Release:
    """Return the numbers of a release; what follows them (post, rc, a local build) does not count."""
    found = _RELEASE.fullmatch(engine_version.strip())
    if found is None:
        raise ParameterError(
            "engine_version",
            repr(engine_version),
            "a release such as 0.5.23",
            "take it from the start of the server's log or from its version command",
        )
    return tuple(int(part) for part in found[1].split("."))


FIRST_SEEN: Final = {
    "EAGLE": (0, 4, 6),
    "EAGLE3": (0, 4, 6),
    "NEXTN": (0, 4, 6),
    "STANDALONE": (0, 5, 3),
    "DFLASH": (0, 5, 11),
    "DSPARK": (0, 5, 16),
}
"""Algorithms with a depth and a number of draft tokens, and the first release in which each was seen;
EAGLE is older than the first release that was looked at."""

DEFAULT_MAX_RUNNING_REQUESTS: Final = 48
"""What SGLang takes for ``--max-running-requests`` when speculation is on and nothing is said.
[requests]"""

_BLOCK_DRAFTERS = ("DFLASH", "DSPARK")
_ADAPTIVE = ("EAGLE", "EAGLE3")
_WITH_A_CHAIN_ONLY = {
    "rejection_sampling": "--speculative-use-rejection-sampling",
    "block_verification": "--speculative-use-block-verification",
    "adaptive_config": "--speculative-adaptive",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SglangSpeculation:
    """One speculation of an SGLang server, checked against what the engine can do.

    With topk 1 SGLang sets the draft tokens to ``num_steps + 1`` whatever was asked for. The three
    numbers are written together or not at all: with one of them unset it chooses all by itself.
    """

    num_steps: int
    topk: int = 1
    num_draft_tokens: int | None = None
    algorithm: str = "EAGLE3"
    draft_model: str | None = None
    batch_size: int | None = None
    engine_version: str | None = None
    attention_backend: str | None = None
    rejection_sampling: bool = False
    block_verification: bool = False
    adaptive_config: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("num_steps", 0), ("topk", 1), ("num_draft_tokens", 2)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ParameterError(name, value, f"at least {least}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ParameterError("batch_size", self.batch_size, "at least 1")
        self._check_algorithm()
        self._check_branching()
        if self.num_steps == 0:
            if self.adaptive_config is not None:
                raise ParameterError(
                    "num_steps", 0, "at least 1 with adaptive steps", "start at the smallest depth"
                )
        elif self.algorithm in _BLOCK_DRAFTERS:
            self._check_block()
        else:
            self._check_draft_tokens()

    def _check_algorithm(self) -> None:
        """Refuse what the release does not have."""
        if self.algorithm not in FIRST_SEEN:
            raise ParameterError("algorithm", self.algorithm, f"one of {', '.join(FIRST_SEEN)}")
        first = FIRST_SEEN[self.algorithm]
        if self.engine_version is not None and release_of(self.engine_version) < first:
            raise ParameterError(
                "engine_version",
                self.engine_version,
                f"at least {'.'.join(map(str, first))}, where {self.algorithm} was first seen",
                "leave it out if yours has it",
            )
        if self.adaptive_config is not None and self.algorithm not in _ADAPTIVE:
            raise ParameterError(
                "algorithm", self.algorithm, f"{' or '.join(_ADAPTIVE)} with adaptive steps"
            )

    def _check_branching(self) -> None:
        """Refuse a tree where the engine runs chains only."""
        if self.topk == 1:
            return
        wanted = [flag for name, flag in _WITH_A_CHAIN_ONLY.items() if getattr(self, name)]
        if self.algorithm in _BLOCK_DRAFTERS:
            wanted.append(self.algorithm)
        if self.attention_backend == "trtllm_mha":
            wanted.append("the attention backend trtllm_mha")
        if wanted:
            raise ParameterError("topk", self.topk, f"1 with {', '.join(wanted)}")

    def _check_draft_tokens(self) -> None:
        """Draft tokens of a chain follow; those of a tree fit into its pool."""
        if self.topk == 1:
            chain = self.num_steps + 1
            if self.num_draft_tokens not in {None, chain}:
                raise ParameterError(
                    "num_draft_tokens",
                    self.num_draft_tokens,
                    f"{chain} for a chain of {self.num_steps} steps",
                    "SGLang would set it so without a word; leave it out",
                )
            object.__setattr__(self, "num_draft_tokens", chain)
            return
        most = 1 + self.topk + (self.num_steps - 1) * self.topk**2
        if self.num_draft_tokens is None or self.num_draft_tokens > most:
            raise ParameterError(
                "num_draft_tokens",
                "nothing" if self.num_draft_tokens is None else self.num_draft_tokens,
                f"given and at most {most}, root and candidates of {self.num_steps} steps with topk "
                f"{self.topk}",
                "it does not follow from the depth of a tree",
            )

    def _check_block(self) -> None:
        """One draft step proposes the whole block."""
        if self.num_steps != 1 or self.num_draft_tokens is None:
            raise ParameterError(
                "num_steps, num_draft_tokens",
                f"{self.num_steps}, {self.num_draft_tokens}",
                f"1 and the block for {self.algorithm}",
                "the block size for DFLASH, block size + 1 for DSPARK",
            )


def sglang_flags(speculation: SglangSpeculation) -> tuple[str, ...]:
    """Return the arguments of the server."""
    if speculation.num_steps == 0:
        return ()
    flags = ["--speculative-algorithm", speculation.algorithm]
    if speculation.draft_model is not None:
        flags += ["--speculative-draft-model-path", speculation.draft_model]
    flags += ["--speculative-num-steps", str(speculation.num_steps)]
    flags += ["--speculative-eagle-topk", str(speculation.topk)]
    flags += ["--speculative-num-draft-tokens", str(speculation.num_draft_tokens)]
    if speculation.rejection_sampling:
        flags.append(_WITH_A_CHAIN_ONLY["rejection_sampling"])
    if speculation.block_verification:
        flags.append(_WITH_A_CHAIN_ONLY["block_verification"])
    if speculation.attention_backend is not None:
        flags += ["--attention-backend", speculation.attention_backend]
    if speculation.adaptive_config is not None:
        flags += [_WITH_A_CHAIN_ONLY["adaptive_config"]]
        flags += ["--speculative-adaptive-config", speculation.adaptive_config]
    if speculation.batch_size is not None:
        if speculation.batch_size > DEFAULT_MAX_RUNNING_REQUESTS:
            flags += ["--max-running-requests", str(speculation.batch_size)]
        flags += ["--cuda-graph-max-bs", str(speculation.batch_size)]
    return tuple(flags)


def sglang_flags_line(speculation: SglangSpeculation) -> str:
    """Return the arguments as one line for a shell, without a line end."""
    return shlex.join(sglang_flags(speculation))


BY_BATCH_SINCE: Final = (0, 5, 23)
"""Release of SGLang in which lists by batch size, and depth 0 in them, were seen."""


def sglang_adaptive_config(
    schedule: DepthSchedule, *, engine_version: str, batch_size: int | None = None
) -> dict[str, Any]:
    """Candidate depths by batch threshold, without those that cost more than they bring."""
    by_batch: dict[str, Any] = {}
    before: tuple[int, ...] = ()
    for choice in schedule.choices:
        depths = choice.paying_depths()
        if depths != before:
            by_batch[str(choice.batch_size)] = {"candidate_steps": list(depths)}
        before = depths
    if release_of(engine_version) >= BY_BATCH_SINCE:
        return by_batch
    if batch_size is None:
        raise ParameterError(
            "batch_size",
            "nothing",
            f"given for SGLang {engine_version}, which may know one list for all batches",
            "name the batch that matters most",
        )
    depths = schedule.choice_at(batch_size).paying_depths()
    if depths == (0,):
        raise ParameterError(
            "batch_size",
            batch_size,
            "one at which a depth pays",
            f"SGLang {engine_version} may not run 0 steps; start it without speculation",
        )
    smallest = min(schedule.accept_lengths)[0]
    for entry in by_batch.values():
        if entry["candidate_steps"] == [0]:
            entry["candidate_steps"] = [smallest]
    return {"candidate_steps": list(depths)} | by_batch


def sglang_adaptive_text(config: dict[str, Any]) -> str:
    """Return the file's text."""
    return json.dumps(config) + "\n"


GROWTH_PER_PROBE: Final = 0.02
"""Growth of the baseline step from one probe to the next: SGLang takes the probe below a number of rows
as it is, so a coarser table would promise too much. A judgement. [-]"""

_STEEP = 1.01  # faster than the batch by more than a rounded time

Array = NDArray[np.float64]


def dspark_sampled_table(
    calibration: Calibration,
    num_draft_tokens: int,
    *,
    context_tokens: float | None = None,
    max_batch_tokens: int | None = None,
    last_rows_before_step: Sequence[int] = (),
) -> dict[str, Any]:
    """Rounds per second by verified rows, at full blocks.

    The form for loads of one width; `dspark_additive_table` tells requests and rows apart. Below one
    full block the number of requests is the smallest measured one. Where the baseline grows faster
    than its batch between two measured batches there is a step; where it lies is not known, so the
    table steps right after the smaller one, unless a given row tells better. The time never falls.
    """
    curve, context, rows = _prepared(
        calibration, context_tokens, max_batch_tokens, last_rows_before_step
    )
    if num_draft_tokens < 2:
        raise ParameterError("num_draft_tokens", num_draft_tokens, "at least 2, root included")
    requests = np.maximum(rows / num_draft_tokens, rows[0])
    verify_s, draft_s = _round_time_s(calibration, curve, requests, rows, context)
    time_s = np.maximum.accumulate(verify_s + draft_s)
    return {
        "sample_batch_tokens": rows.astype(np.int64).tolist(),
        "sample_steps_per_sec": (1.0 / time_s).tolist(),
        "max_batch_tokens": int(rows[-1]),
    }


def dspark_additive_table(
    calibration: Calibration,
    *,
    context_tokens: float | None = None,
    max_batch_tokens: int | None = None,
    last_rows_before_step: Sequence[int] = (),
) -> dict[str, Any]:
    r"""Time of a round as a constant, a part by requests and a part by rows.

    .. math:: T(B, m) = \beta + \alpha(B) + \theta(m), \quad
              \theta(m) = V(B_0, m) - V(B_0, B_0), \quad \alpha(B) = V(B, B) + D(B) - \theta(B) - \beta

    with :math:`V(B, m)` the time to verify m rows of B requests, :math:`D(B)` that of the draft,
    :math:`B_0` the smallest measured batch and :math:`\alpha(B_0) = 0`.

    Exact where the model of the round is: its verification is a share of the baseline's step at B
    requests plus a share of that at m rows. The bias holds one whole round of one row per request, so
    that no part is negative. One draft step proposes the whole block. SGLang interpolates between the
    probes and holds the last one.
    """
    curve, context, rows = _prepared(
        calibration, context_tokens, max_batch_tokens, last_rows_before_step
    )
    one_each_s, draft_s = _round_time_s(calibration, curve, rows, rows, context)
    fewest = np.full_like(rows, rows[0])
    wide_s, _ = _round_time_s(calibration, curve, fewest, rows, context)
    theta_s = wide_s - wide_s[0]
    rest_s = one_each_s + draft_s - theta_s
    return {
        "bias_seconds": float(rest_s[0]),
        "bs_probes": rows.astype(np.int64).tolist(),
        "alpha_seconds": np.maximum.accumulate(rest_s - rest_s[0]).tolist(),
        "m_probes": rows.astype(np.int64).tolist(),
        "theta_seconds": np.maximum.accumulate(theta_s).tolist(),
    }


def dspark_table_text(table: dict[str, Any]) -> str:
    """Return a table of either form as JSON."""
    return json.dumps(table) + "\n"


def _prepared(
    calibration: Calibration,
    context_tokens: float | None,
    max_batch_tokens: int | None,
    last_rows_before_step: Sequence[int],
) -> tuple[BatchCurve, float, Array]:
    """The baseline's curve with its steps, the context, and the rows to probe."""
    curve = calibration.curve
    if curve is None:
        raise ParameterError(
            "calibration",
            "without a batch curve",
            "of points with baselines at two batches or more",
            "measure the server without speculation over batch 1 to 64 and fit again",
        )
    asked = context_of(calibration, context_tokens)
    context = np.nan if asked is None else asked
    first, last = int(np.ceil(curve.batch_size.min())), int(curve.batch_size.max())
    if max_batch_tokens is not None:
        if not first < max_batch_tokens <= last:
            raise ParameterError(
                "max_batch_tokens",
                max_batch_tokens,
                f"above {first} and at most {last}, the batches of the baselines",
                "measure the server without speculation at a larger batch and fit again",
            )
        last = max_batch_tokens
    wrong = [edge for edge in last_rows_before_step if not first <= edge < curve.batch_size.max()]
    if wrong:
        raise ParameterError(
            "last_rows_before_step",
            wrong[0],
            f"from {first} to {int(curve.batch_size.max()) - 1}, inside the batches of the baselines",
        )
    stepped, edges = _stepped(curve, sorted(set(last_rows_before_step)))
    return stepped, context, _probes(stepped, context, edges, (first, last))


def _stepped(curve: BatchCurve, given: Sequence[int]) -> tuple[BatchCurve, set[int]]:
    """The curve with a step where one is known or must be, and the last rows before each."""
    batches, contexts, times = [], [], []
    edges: set[int] = set()
    for context in np.unique(curve.context_tokens):
        inside = curve.context_tokens == context
        points = list(zip(curve.batch_size[inside], curve.step_time_s[inside], strict=True))
        extra = []
        for (low, low_s), (high, high_s) in pairwise(points):
            known = [edge for edge in given if low <= edge < high]
            if not known and high_s / low_s > _STEEP * high / low:
                known = [int(low)]
            for edge in known[-1:]:
                extra += [(float(edge), low_s), (edge + 1.0, high_s)]
                edges.add(edge)
        merged = dict(extra) | dict(points)  # a measured time is never replaced
        for batch in sorted(merged):
            batches.append(batch)
            contexts.append(context)
            times.append(merged[batch])
    stepped = BatchCurve(
        batch_size=np.array(batches),
        context_tokens=np.array(contexts),
        step_time_s=np.array(times),
        kv_s_per_token=curve.kv_s_per_token,
    )
    return stepped, edges


def _probes(curve: BatchCurve, context: float, edges: set[int], ends: tuple[int, int]) -> Array:
    """Rows to probe: measured ones, both sides of each step, and enough between them."""
    first, last = ends
    every = np.arange(first, last + 1)
    time_s = curve.at(every.astype(np.float64), context).step_time_s
    chosen = {first, last, *(int(batch) for batch in curve.batch_size)}
    chosen |= edges | {edge + 1 for edge in edges}
    reached = time_s[0]
    for rows, step_s in zip(every.tolist(), time_s.tolist(), strict=True):
        if rows in chosen or step_s > (1.0 + GROWTH_PER_PROBE) * reached:
            chosen.add(rows)
            reached = step_s
    return np.array(sorted(rows for rows in chosen if first <= rows <= last), dtype=np.float64)


def _round_time_s(
    calibration: Calibration, curve: BatchCurve, requests: Array, rows: Array, context: float
) -> tuple[Array, Array]:
    """Time to verify rows of some requests, and to draft for them in one step."""
    terms = round_terms(
        num_steps=1,
        num_draft_tokens=np.maximum(rows / requests, 1.0),
        batch_size=requests,
        context_tokens=context,
        curve=curve,
    )
    verify, draft, _ = round_cost_parts(calibration.posterior.constants, terms)
    step_s = curve.at(requests, context).step_time_s
    return verify * step_s, draft * step_s
