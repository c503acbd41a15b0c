"""The flags that start an SGLang server with a speculation, or with none."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from calibration.writers.engine_version import release_of
from specmodel.atomic_file import write_text_atomically
from specmodel.errors import ParameterError

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
    r"""One speculation of an SGLang server, checked against what the engine can do.

    .. math:: n = k + 1 \;(\text{topk} = 1), \qquad n \le 1 + \text{topk} + (k - 1)\,\text{topk}^2

    Parameters
    ----------
    num_steps : int
        :math:`k`, draft depth; 0 is no speculation, 1 for a block drafter, [tokens].
    topk : int
        Branching; 1 is a chain.
    num_draft_tokens : int or None
        :math:`n`, verified tokens, root included; of a chain it follows, [tokens].
    algorithm : str
        A key of `FIRST_SEEN`.
    draft_model : str or None
        Path or name of the draft model; None where the target model holds it.
    batch_size : int or None
        Largest batch that will run, [requests].
    engine_version : str or None
        Release of SGLang, to refuse what it does not have.
    attention_backend : str or None
        Where it is named on the command line.
    rejection_sampling, block_verification : bool
        Whether those flags are set.
    adaptive_config : str or None
        Path of a file of `calibration.writers.sglang_adaptive`.

    Raises
    ------
    ParameterError
        If the engine would refuse it, or would silently run something else.

    Notes
    -----
    With topk 1 SGLang sets the draft tokens to ``num_steps + 1`` whatever was asked for. The three
    numbers are written together or not at all: with one of them unset it chooses all by itself.

    Examples
    --------
    >>> SglangSpeculation(num_steps=3).num_draft_tokens
    4
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
    """Return the arguments of the server.

    Parameters
    ----------
    speculation : SglangSpeculation
        What to run.

    Returns
    -------
    tuple of str
        Empty for no speculation: depth 0 on the command line would still load a draft model.

    Examples
    --------
    >>> sglang_flags(SglangSpeculation(num_steps=0))
    ()
    >>> sglang_flags(SglangSpeculation(num_steps=1, batch_size=64))[-4:]
    ('--max-running-requests', '64', '--cuda-graph-max-bs', '64')
    """
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
    """Return the arguments as one line for a shell, without a line end.

    Parameters
    ----------
    speculation : SglangSpeculation
        What to run.

    Returns
    -------
    str
        Empty for no speculation.

    Examples
    --------
    >>> print(sglang_flags_line(SglangSpeculation(num_steps=3, topk=4, num_draft_tokens=16)))
    --speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16
    """
    return shlex.join(sglang_flags(speculation))


def write_sglang_flags(path: Path | str, speculations: Sequence[SglangSpeculation]) -> None:
    """Write one line per speculation to a file, atomically.

    Parameters
    ----------
    path : path
        The file.
    speculations : sequence of SglangSpeculation
        What to run.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "flags.txt"
    ...     write_sglang_flags(file, [SglangSpeculation(num_steps=3)])
    ...     len(file.read_text().split())
    8
    """
    lines = [sglang_flags_line(one) for one in speculations]
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))
