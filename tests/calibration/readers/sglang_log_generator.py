"""SGLang server logs with known constants: what a reader and a fit must find in them.

A round of depth k at batch b takes ``host + draft * k + verify(b * (k + 1))``, a plain step
``host + verify(b)``, with ``verify(n) = weights + row * n + row_squared * n^2``. A round accepts
each draft token with the same chance while those before it were accepted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MS_PER_S = 1000.0
LOG_INTERVAL = 40  # rounds from one decode line to the next
LINE_SPREAD = 0.01  # of the time of a line beside the plan's noise


@dataclass(frozen=True, kw_only=True)
class LogPlan:
    """What is logged.

    A server without speculation comes first, then one for each depth. Each visits every batch size
    on every data-parallel rank.
    """

    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    depths: tuple[int, ...] = (1, 3, 5)
    baseline: bool = True
    visits: int = 3
    lines_per_visit: int = 40
    dp_size: int = 1
    tp_ranks: int = 1  # that log, of each data-parallel rank
    noise: float = 0.03  # relative standard deviation of the time of a line
    acceptance: float = 0.75  # chance of each next draft token
    host_ms: float = 1.2
    draft_ms: float = 0.55
    weights_ms: float = 9.0
    row_ms: float = 0.045
    row_squared_ms: float = 2e-5
    first_context: int = 600  # tokens of a request after its prefill
    gaps: bool = True
    truncated: bool = True
    seed: int = 0

    def verify_ms(self, rows: int) -> float:
        return self.weights_ms + self.row_ms * rows + self.row_squared_ms * rows**2

    def round_ms(self, depth: int, batch: int) -> float:
        return self.host_ms + self.draft_ms * depth + self.verify_ms(batch * (depth + 1))

    def accept_length(self, depth: int) -> float:
        return float(np.sum(self.acceptance ** np.arange(depth + 1)))


@dataclass(kw_only=True)
class LogTruth:
    """What a log was made from."""

    baseline_step_time_ms: dict[int, float] = field(default_factory=dict)  # by batch
    round_time_ms: dict[tuple[int, int], float] = field(default_factory=dict)  # by depth and batch
    accept_length: dict[int, float] = field(default_factory=dict)  # by depth
    kept: Counter[tuple[int, str, int]] = field(
        default_factory=Counter
    )  # lines by depth, rank, batch
    dropped: Counter[str] = field(default_factory=Counter)  # lines by reason

    def round_cost(self, depth: int, batch: int) -> float:
        return self.round_time_ms[depth, batch] / self.baseline_step_time_ms[batch]

    def speedup(self, depth: int, batch: int) -> float:
        return self.accept_length[depth] / self.round_cost(depth, batch)


def generate_log(plan: LogPlan | None = None) -> tuple[str, LogTruth]:
    """Return the text of a log, and what it was made from."""
    plan = plan or LogPlan()
    truth = LogTruth()
    writer = _LogWriter(plan, truth, np.random.default_rng(plan.seed))
    lines: list[str] = []
    for depth in (*((0,) if plan.baseline else ()), *plan.depths):
        lines += writer.server(depth)
    if plan.truncated:
        lines.append(writer.cut_line())
        truth.dropped["truncated_line"] += 1
        return "\n".join(lines), truth
    return "\n".join(lines) + "\n", truth


MANY_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


def write_large_log(
    path: Path, num_bytes: int, seed: int = 0, batches: tuple[int, ...] = MANY_BATCHES
) -> None:
    """Write a log of about a size: one server, mostly decode lines, all of them different."""
    plan = LogPlan(batches=batches, depths=(3,), seed=seed)
    writer = _LogWriter(plan, LogTruth(), np.random.default_rng(seed))
    written = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(writer.banner(3) + "\n")
        while written < num_bytes:
            for batch in np.random.default_rng(written).permutation(plan.batches).tolist():
                lines = list(writer.visit(3, batch, 150))
                written += file.write("\n".join(lines) + "\n")


class _LogWriter:
    def __init__(self, plan: LogPlan, truth: LogTruth, generator: np.random.Generator) -> None:
        self._plan, self._truth, self._generator = plan, truth, generator
        self._clock_s = 0.0
        self._first: set[tuple[int, str]] = set()

    def banner(self, depth: int) -> str:
        algorithm = "'EAGLE3'" if depth else "None"
        draft = "'/data/private/Wren-8B-eagle3'" if depth else "None"
        flags = (depth, 1, depth + 1) if depth else (None, None, None)
        return (
            f"[{self._time()}] server_args=ServerArgs(model_path='acme/Wren-8B', tp_size=4, "
            f"dp_size={self._plan.dp_size}, max_running_requests=128, cuda_graph_bs=[1, 2, 4], "
            f"decode_log_interval={LOG_INTERVAL}, speculative_algorithm={algorithm}, "
            f"speculative_draft_model_path={draft}, speculative_num_steps={flags[0]}, "
            f"speculative_eagle_topk={flags[1]}, speculative_num_draft_tokens={flags[2]}, "
            "api_key='PLANTED-SECRET-generator')"
        )

    def server(self, depth: int) -> Iterator[str]:
        plan, truth = self._plan, self._truth
        if depth:
            truth.accept_length[depth] = plan.accept_length(depth)
        self._first = set()
        yield self.banner(depth)
        yield f"[{self._time()}] ready to serve"
        for visit in range(plan.visits):
            for batch in plan.batches:
                if depth:
                    truth.round_time_ms[depth, batch] = plan.round_ms(depth, batch)
                else:
                    truth.baseline_step_time_ms[batch] = plan.round_ms(0, batch)
                gap = plan.gaps and visit == plan.visits - 1
                ranks = [
                    self.visit(depth, batch, plan.lines_per_visit, rank, gap=gap)
                    for rank in self._ranks()
                ]
                yield from _interleaved(ranks)
        for rank in self._ranks():
            reason = "duplicate_rank" if self._is_repeated(rank) else "idle"
            truth.dropped[reason] += 1
            yield self._line(rank, 0, 0, "", 0.0)

    def visit(
        self, depth: int, batch: int, num_lines: int, rank: str = "", *, gap: bool = False
    ) -> Iterator[str]:
        """Yield a prefill and the decode lines after it; the last of a batch is of another one."""
        plan, truth = self._plan, self._truth
        emitted = self._emitted(depth, batch, num_lines)
        spread = np.hypot(plan.noise, LINE_SPREAD)
        slower = np.exp(spread * self._generator.standard_normal(num_lines))
        tokens = np.floor(batch * plan.first_context + np.cumsum(emitted) * batch * LOG_INTERVAL)
        round_s = plan.round_ms(depth, batch) / MS_PER_S * slower
        rate = batch * emitted / round_s
        rate[0] *= 0.3  # holds the prefill
        gap_at = num_lines // 2 if gap else -1
        rate[gap_at] *= 0.02 if gap else 1.0
        new = batch * plan.first_context
        yield (
            f"[{self._time()}{rank and ' '}{rank}] Prefill batch, #new-seq: {batch}, #new-token: "
            f"{new}, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, "
        )
        stamps = self._clock_s + np.cumsum(LOG_INTERVAL * round_s)
        for place in range(num_lines):
            self._clock_s = float(stamps[place])
            accept = (
                f"accept len: {emitted[place]:.2f}, accept rate: {emitted[place] / (depth + 1):.2f}, "
                if depth
                else ""
            )
            yield self._line(rank, batch, int(tokens[place]), accept, float(rate[place]))
            self._count(depth, rank, batch, place, gap_at)
            if place % 11 == 7:
                port = 40000 + (37 * place) % 9999
                yield f'INFO:     127.0.0.1:{port} - "POST /generate HTTP/1.1" 200 OK'
        if batch > 1:  # one request ends
            yield self._line(rank, batch - 1, int(tokens[-1]), accept, float(rate[-1]))
            truth.dropped["duplicate_rank" if self._is_repeated(rank) else "batch_changed"] += 1

    def cut_line(self) -> str:
        return self._line("", 8, 9000, "accept len: 2.41, ", 11.0).partition("11.00")[0] + "11"

    def _emitted(self, depth: int, batch: int, num_lines: int) -> np.ndarray:
        """Return the mean tokens of a round over each line's rounds, drawn round by round."""
        if not depth:
            return np.ones(num_lines)
        chance = self._plan.acceptance
        ends = [chance**j * (1 - chance) for j in range(depth)] + [chance**depth]
        rounds = self._generator.multinomial(LOG_INTERVAL * batch, ends, size=num_lines)
        mean = 1 + rounds @ np.arange(depth + 1) / (LOG_INTERVAL * batch)
        return np.asarray(np.round(mean, 2))

    def _count(self, depth: int, rank: str, batch: int, place: int, gap_at: int) -> None:
        """Count a line where a reader must."""
        if self._is_repeated(rank):
            reason = "duplicate_rank"
        elif (depth, rank) not in self._first:
            self._first.add((depth, rank))
            reason = "warmup"
        elif place == 0:
            reason = "prefill_mixed"
        else:
            reason = "idle" if place == gap_at else ""
        if reason:
            self._truth.dropped[reason] += 1
        else:
            self._truth.kept[depth, rank, batch] += 1

    def _line(self, rank: str, batch: int, tokens: int, accept: str, rate: float) -> str:
        return (
            f"[{self._time()}{rank and ' '}{rank}] Decode batch, #running-req: {batch}, #token: "
            f"{tokens}, token usage: {tokens / 4e6:.2f}, {accept}cuda graph: True, "
            f"gen throughput (token/s): {rate:.2f}, #queue-req: 0, "
        )

    def _time(self) -> str:
        seconds = int(self._clock_s)
        day, clock = 1 + seconds // 86400 % 28, seconds % 86400
        return f"2026-01-{day:02d} {clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"

    def _ranks(self) -> list[str]:
        plan = self._plan
        if plan.dp_size == 1 and plan.tp_ranks == 1:
            return [""]
        data = [f"DP{rank} " for rank in range(plan.dp_size)] if plan.dp_size > 1 else [""]
        return [
            f"{name}TP{number * plan.tp_ranks + tp}"
            for number, name in enumerate(data)
            for tp in range(plan.tp_ranks)
        ]

    def _is_repeated(self, rank: str) -> bool:
        return bool(rank) and int(rank.rpartition("TP")[2]) % self._plan.tp_ranks > 0


def _interleaved(streams: list[Iterator[str]]) -> Iterator[str]:
    """Yield the lines of several ranks as they would come together."""
    while streams:
        for stream in list(streams):
            line = next(stream, None)
            if line is None:
                streams.remove(stream)
            else:
                yield line
