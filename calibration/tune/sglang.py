"""What SGLang reads: flags of a speculation, and its adaptive-steps file."""

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any, Final

from calibration.tune.depth_by_batch import DepthSchedule
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
