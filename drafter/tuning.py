"""Sweep of tiles over the passes of a draft model, and the table of tiles that it writes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product as product_of
from typing import Final, NamedTuple

from drafter.engine.draft_engine import PROGRAMMATIC_FROM_SM, SharedState
from drafter.kernels.attention import AttentionWidths
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.kernels.head import MOST_TILES
from drafter.kernels.launch_plan import (
    MATVEC_TOKENS,
    TileRow,
    Tiles,
    dot_tokens,
    power_of_two,
    tried,
)
from drafter.spec import DraftSpec
from drafter.timing.device import ReadBuffer, is_compiler_error
from drafter.timing.stopwatch import (
    LEAST_FLUSHES,
    MeasurementError,
    SamplePlan,
    Stopwatch,
    Work,
    difference,
    relative_difference,
    timed,
)
from drafter.torch_extra import torch
from specmodel.units import KIBI

TOKENS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Passes that tiles are chosen for; the buckets of batches, [tokens]."""

CONTEXT: Final = 512
"""Context of the passes; products do not depend on it, [tokens]."""

LEAST_GAIN: Final = 0.02
"""Share of a pass by which tiles have to beat those of the rule before they get a row, [-]. A judgement."""

MOST_ERROR: Final = 0.05
"""Distance of an element from what the rule's tiles give, in root mean squares, [-]. A judgement: rounding
to 16 bits costs some 0.01 on the way through a layer, a wrong row or column 1 and more."""

_ELEMENTS_PER_THREAD: Final = (8, 64)
_SHARED_BYTES: Final = {80: 163 * KIBI, 90: 227 * KIBI, 100: 227 * KIBI}
_SHARED_BYTES_ELSEWHERE: Final = 99 * KIBI
_PLAN: Final = SamplePlan(replays=10, samples=3, warm_up_s=0.05)

_HEADER: Final = """\
# Tiles of products of weights and tokens, by compute capability and shape.
#
# sm: compute capability times ten. tokens, rows, width: the pass and the weights, rounded up to powers
# of two. how: what the row rests on: `compiled` (register and stack report of a build without a GPU)
# or `measured` (time with cold weights; such a row also names its record). A missing row means
# the rule of drafter/kernels/launch_plan.py.
"""


class Product(NamedTuple):
    """A product of weights and tokens in a pass."""

    name: str
    rows: int
    width: int

    @property
    def key(self) -> tuple[int, int]:
        """Rows and width as the table tells them apart."""
        return power_of_two(self.rows), power_of_two(self.width)


def products(spec: DraftSpec) -> tuple[Product, ...]:
    """Products of an extend pass; a step has all of them but the fusion."""
    hidden, latent, widths = spec.hidden_size, spec.latent, AttentionWidths.of(spec)
    found = [Product("qkv", widths.first_rows, 2 * hidden)]
    if latent is not None:
        rows = spec.num_heads * (latent.nope_dim + latent.rope_dim)
        found.append(Product("expand", rows, latent.query_rank))
    found += [
        Product("out", hidden, widths.out),
        Product("gate and up", spec.mlp_width, hidden),
        Product("down", hidden, spec.mlp_width),
        Product("head", spec.draft_vocab_size, hidden),
    ]
    if spec.use_aux_hidden_state:
        found.append(Product("fc", hidden, spec.num_aux_states * spec.target_hidden_size))
    return tuple(found)


def by_row(found: Sequence[Product]) -> tuple[tuple[Product, ...], ...]:
    """Products that share a row of the table, which does not tell kernels apart, together."""
    rows: dict[tuple[int, int], list[Product]] = {}
    for each in found:
        rows.setdefault(each.key, []).append(each)
    return tuple(tuple(each) for each in rows.values())


def candidates(sm: int, tokens: int, row: Sequence[Product]) -> Iterator[Tiles]:
    r"""Tiles that are worth a try for every product of a row of the table.

    .. math:: 8 \le \frac{n k}{32 w} \le 64

    elements a thread up to 8 tokens: tiles that compile to 128-bit loads without spills; more tokens:
    stages that fit into shared memory. drafter.md 12.
    """
    low, high = _ELEMENTS_PER_THREAD
    room = _SHARED_BYTES.get(sm, _SHARED_BYTES_ELSEWHERE)
    matrices = 2 if any(each.name == "gate and up" for each in row) else 1
    is_matvec = tokens <= MATVEC_TOKENS
    axes: tuple[tuple[int, ...], ...] = ((16, 32, 64, 128), (64, 128, 256), (4, 8), (2, 3, 4))
    if is_matvec:
        axes = ((1, 2, 4, 8, 16, 32), (256, 512, 1024, 2048, 4096), (1, 2, 4, 8, 16), (1,))
    for n, k, warps, stages in product_of(*axes):
        if k > min(power_of_two(each.width) for each in row):
            continue
        # one program picks from all tiles of the head
        if not is_matvec and any(
            each.name == "head" and each.rows > MOST_TILES * n for each in row
        ):
            continue
        needed = stages * 2 * k * (matrices * n + dot_tokens(tokens))
        if low <= n * k // (32 * warps) <= high if is_matvec else needed <= room:
            yield Tiles(block_n=n, block_k=k, num_warps=warps, num_stages=stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best tiles of a row of the table, and times of a whole pass with them and by the rule."""

    row: tuple[Product, ...]
    tokens: int
    tiles: Tiles | None
    time_s: float
    default_s: float
    spread: float


def swept(
    state: SharedState, tokens: int, watch: Stopwatch, *, tries: Sequence[Tiles] | None = None
) -> Iterator[Found]:
    """Tiles with which a pass over so many tokens is fastest with cold weights, row by row of the table.

    A pass is launched as a draft launches it, whole, with the tiles of one row of the table changed.
    What does not compile for the device, or does not give what the rule's tiles give, is passed over; `check`
    holds those against fp64. drafter.md 13 and 20.
    """
    cache_bytes = watch.cache_bytes
    if not cache_bytes:
        raise MeasurementError(f"{tokens} tokens: the size of the device's cache is not known")
    flush = ReadBuffer(LEAST_FLUSHES * cache_bytes, state.device)
    for row in by_row(products(state.spec)):
        key = (watch.sm, power_of_two(tokens), *row[0].key)
        chosen = tuple(candidates(watch.sm, tokens, row)) if tries is None else tries
        works, by_rule = [Work("flush", flush.read)], _pass(state, tokens, watch.sm, key, None)
        truth = by_rule[1]
        works.append(Work("rule", _cold(flush, by_rule[0].extend, key, None)))
        right = {}
        for tiles in chosen:
            try:
                steps, given = _pass(state, tokens, watch.sm, key, tiles)
            except Exception as error:
                if is_compiler_error(error):  # shared memory or registers do not suffice
                    continue
                raise
            if all(map(is_close, given, truth)):
                right[str(tiles)] = tiles
                works.append(Work(str(tiles), _cold(flush, steps.extend, key, tiles)))
        samples = timed(f"{row[0].name}, {tokens} tokens", works, watch, _PLAN).samples
        times = {name: difference(samples[name], samples["flush"]) for name in right}
        rule = difference(samples["rule"], samples["flush"])
        best = min(times, key=lambda name: times[name].time_s, default="")
        found = times.get(best, rule)
        yield Found(
            row=row,
            tokens=tokens,
            tiles=right.get(best),
            time_s=found.time_s,
            default_s=rule.time_s,
            # runs of a pass: what is claimed has to be larger
            spread=max(
                relative_difference(*samples[each].run_medians_s)
                for each in (best or "rule", "rule")
            ),
        )


def _pass(
    state: SharedState, tokens: int, sm: int, key: tuple[int, int, int, int], tiles: Tiles | None
) -> tuple[DraftSteps, list[torch.Tensor]]:
    """Buffers of a pass over so many tokens, and what each product of it gave with tiles of one row."""
    shape = DraftShape(
        batch_size=tokens,
        num_steps=1,
        most_accepted=1,
        capacity=state.capacity,
        num_splits=4,
        is_programmatic=sm >= PROGRAMMATIC_FROM_SM,
        keeps_logits=True,
    )
    generator = torch.Generator(device=state.device).manual_seed(5)
    with tried(key, tiles):
        steps = state.steps(shape)
        steps.tokens.random_(state.spec.target_vocab_size, generator=generator)
        steps.captured.normal_(generator=generator)
        steps.before.fill_(CONTEXT)
        steps.accepted.fill_(1)
        steps.extend()
    return steps, [each.clone() for each in steps.products()]


def _cold(
    flush: ReadBuffer, run: Callable[[], None], key: tuple[int, int, int, int], tiles: Tiles | None
) -> Callable[[], None]:
    """A flush, then a pass with tiles of one row."""

    def both() -> None:
        flush.read()
        with tried(key, tiles):
            run()

    return both


def is_close(out: torch.Tensor, truth: torch.Tensor) -> bool:
    r"""Whether every element is near what it should be: a norm would hide one wrong row among thousands.

    .. math:: \max_i \frac{|y_i - \hat y_i|}{\sigma + |\hat y_i|} \le 0.05, \qquad
        \sigma^2 = \overline{\hat y^2}
    """
    wanted = truth.double()
    scale = wanted.square().mean().sqrt() + wanted.abs()
    return bool(((out.double() - wanted).abs() <= MOST_ERROR * scale).all())


def tuned_rows(found: Iterable[Found], *, sm: int, record: str) -> tuple[TileRow, ...]:
    """Rows for what is faster than the rule by more than noise."""
    return tuple(
        TileRow(
            sm=sm,
            tokens=power_of_two(each.tokens),
            rows=each.row[0].key[0],
            width=each.row[0].key[1],
            **asdict(each.tiles),
            how="measured",
            record=record,
        )
        for each in found
        if each.tiles is not None
        and each.time_s < (1.0 - max(LEAST_GAIN, each.spread)) * each.default_s
    )


def table_text(old: Iterable[TileRow], new: Iterable[TileRow] = ()) -> str:
    """The table with both, the new row where both have a key; rows of other kinds of GPU stay."""
    parts = [_HEADER.rstrip()]
    for row in sorted({row.key: row for row in (*old, *new)}.values()):
        stated = (f"{name} = {_toml(value)}" for name, value in asdict(row).items() if value != "")
        parts.append("\n".join(["[[tiles]]", *stated]))
    return "\n\n".join(parts if len(parts) > 1 else [*parts, "tiles = []"]) + "\n"


def _toml(value: int | str) -> str:
    """A value as TOML; texts hold no control characters."""
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(each for each in escaped if each.isprintable())}"'
