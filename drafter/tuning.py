"""A sweep of tiles for the products of a draft model, each timed with cold weights."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product as product_of
from typing import Final, NamedTuple, final

from drafter.kernels.attention_widths import AttentionWidths
from drafter.kernels.gate_up import gate_up
from drafter.kernels.launch_plan import (
    MATVEC_TOKENS,
    Tiles,
    default_tiles,
    dot_tokens,
    power_of_two,
)
from drafter.kernels.linear import linear
from drafter.spec import DraftSpec
from drafter.timing.refusals import LEAST_FLUSHES, MeasurementRefusedError, check_spread
from drafter.timing.stopwatch import SamplePlan, Stopwatch, Work, timed
from drafter.torch_extra import torch
from drafter.tuning_table import TileRow
from specmodel.units import GIGA, KIBI

TOKENS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Passes that tiles are chosen for; the buckets of batches, [tokens]."""

LEAST_GAIN: Final = 0.02
"""Share by which tiles have to beat those of the rule before they get a row, [-]. A judgement."""

MOST_COPIES: Final = 64
"""Copies of a small matrix that are rotated at most, [-]."""

_ELEMENTS_PER_THREAD: Final = (8, 64)
_SHARED_BYTES: Final = {80: 163 * KIBI, 90: 227 * KIBI, 100: 227 * KIBI}
_SHARED_BYTES_ELSEWHERE: Final = 99 * KIBI
_LARGEST_ERROR: Final = 2e-2
_PLAN: Final = SamplePlan(replays=10, samples=3, warm_up_s=0.05)


@final
class Product(NamedTuple):
    """A product of a draft step.

    Parameters
    ----------
    name : str
        For what is said.
    rows, width : int
        Shape of the weights, [-].
    is_gated : bool
        Gate and up together: two matrices of that shape.

    Examples
    --------
    >>> Product("down", 4096, 14336).rows
    4096
    """

    name: str
    rows: int
    width: int
    is_gated: bool = False


class Found(NamedTuple):
    """The best tiles of one product.

    Parameters
    ----------
    product : Product
        The product.
    tokens : int
        Of the pass, [tokens].
    tiles : Tiles
        The best.
    time_s, default_s : float
        With them, and with those of the rule, [s].
    spread : float
        Larger relative difference of two runs with either, [-].

    Examples
    --------
    >>> Found._fields[-1]
    'spread'
    """

    product: Product
    tokens: int
    tiles: Tiles
    time_s: float
    default_s: float
    spread: float = 0.0


def products(spec: DraftSpec) -> tuple[Product, ...]:
    r"""Products of a step and an extend pass, each shape once.

    .. math:: \{(N_H + 2 N_{KV}) D \times 2H, \dots, V_d \times H\}

    Parameters
    ----------
    spec : DraftSpec
        Shapes. Of latent heads the first product gives compressed queries and latents, `expand` the queries
        of every head; their small products by the head have no row of the table.

    Returns
    -------
    tuple of Product

    Notes
    -----
    The head keeps only maxima of its tiles; it is swept as the product that it is. Shapes that the table
    does not tell apart, which are equal up to a power of two, are swept once: here `fc` goes with `down`.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> [each.name for each in products(public_shape("Llama-3.1-8B").spec)]
    ['qkv', 'out', 'gate and up', 'down', 'head']
    """
    hidden, latent, widths = spec.hidden_size, spec.latent, AttentionWidths.of(spec)
    found = [
        Product("qkv", widths.first_rows, 2 * hidden),
        Product("out", hidden, widths.out),
        Product("gate and up", spec.mlp_width, hidden, is_gated=True),
        Product("down", hidden, spec.mlp_width),
        Product("head", spec.draft_vocab_size, hidden),
    ]
    if latent is not None:
        rows = spec.num_heads * (latent.nope_dim + latent.rope_dim)
        found.append(Product("expand", rows, latent.query_rank))
    if spec.use_aux_hidden_state:
        width = spec.num_aux_states * spec.target_hidden_size
        found.append(Product("fc", hidden, width))
    first: dict[tuple[int, int], Product] = {}
    for each in found:
        first.setdefault((power_of_two(each.rows), power_of_two(each.width)), each)
    return tuple(first.values())


def candidates(sm: int, tokens: int, product: Product) -> Iterator[Tiles]:
    r"""Tiles that are worth a try.

    .. math:: 8 \le \frac{n k}{32 w} \le 64

    Parameters
    ----------
    sm : int
        Compute capability times ten, [-].
    tokens : int
        Of the pass, [tokens].
    product : Product
        The product.

    Returns
    -------
    iterator of Tiles
        For at most 8 tokens: elements a thread within bounds, so that loads are wide and registers last.
        For more: stages that fit into shared memory.

    Notes
    -----
    drafter.md 12 names the tiles that compile to 128-bit loads without spills.

    Examples
    --------
    >>> sum(1 for _ in candidates(90, 1, Product("qkv", 6144, 8192)))
    49
    """
    widest = power_of_two(product.width)
    tries = _matvec_tiles() if tokens <= MATVEC_TOKENS else _dot_tiles(sm, tokens, product)
    return (tiles for tiles in tries if tiles.block_k <= widest)


def _matvec_tiles() -> Iterator[Tiles]:
    """Tiles of the path of few tokens with some 128-bit loads a thread."""
    low, high = _ELEMENTS_PER_THREAD
    for block_n, block_k, warps in product_of(
        (1, 2, 4, 8, 16, 32), (256, 512, 1024, 2048, 4096), (2, 4, 8)
    ):
        if low <= block_n * block_k // (32 * warps) <= high:
            yield Tiles(block_n=block_n, block_k=block_k, num_warps=warps, num_stages=1)


def _dot_tiles(sm: int, tokens: int, product: Product) -> Iterator[Tiles]:
    """Tiles of the tensor-core path whose stages fit into shared memory."""
    room = _SHARED_BYTES.get(sm, _SHARED_BYTES_ELSEWHERE)
    streams = 2 if product.is_gated else 1
    for block_n, block_k, stages, warps in product_of(
        (16, 32, 64, 128), (64, 128, 256), (2, 3, 4), (4, 8)
    ):
        if stages * 2 * block_k * (streams * block_n + dot_tokens(tokens)) <= room:
            yield Tiles(block_n=block_n, block_k=block_k, num_warps=warps, num_stages=stages)


class _Operands:
    """Copies of the weights of a product, rotated so that each is cold when it is read."""

    def __init__(
        self, product: Product, tokens: int, dtype: torch.dtype, device: torch.device, cache: int
    ) -> None:
        streams = 2 if product.is_gated else 1
        each_bytes = streams * product.rows * product.width * dtype.itemsize
        copies = min(max(2, -(-LEAST_FLUSHES * cache // each_bytes)), MOST_COPIES)
        shape = (copies, streams, product.rows, product.width)
        scale = product.width**-0.5
        self.weights = (torch.randn(shape, device=device, dtype=torch.float32) * scale).to(dtype)
        self.inputs = torch.randn(tokens, product.width, device=device).to(dtype)
        self.out = torch.empty(tokens, product.rows, device=device, dtype=dtype)
        self.copies, self.is_gated = copies, product.is_gated

    def launch(self, copy: int, tiles: Tiles) -> None:
        """Compute with one copy."""
        weights = self.weights[copy]
        if self.is_gated:
            gate_up(self.inputs, weights[0], weights[1], self.out, tiles=tiles)
        else:
            linear(self.inputs, weights[0], self.out, tiles=tiles)

    def error(self, tiles: Tiles) -> float:
        """Relative error of the norm against torch, [-]."""
        self.out.fill_(float("nan"))
        self.launch(0, tiles)
        parts = [self.inputs.float() @ each.float().T for each in self.weights[0]]
        truth = parts[0]
        if self.is_gated:
            truth = torch.nn.functional.silu(parts[0]) * parts[1]
        return float((self.out.float() - truth).norm() / truth.norm())

    def rotation(self, tiles: Tiles) -> Callable[[], None]:
        """Launches over all copies."""

        def run() -> None:
            for copy in range(self.copies):
                self.launch(copy, tiles)

        return run


def best_tiles(
    product: Product,
    tokens: int,
    stopwatch: Stopwatch,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    tries: Sequence[Tiles] | None = None,
    checks: bool = True,
) -> Found:
    """Tiles with which a product is fastest while its weights are cold.

    Parameters
    ----------
    product : Product
        The product.
    tokens : int
        Of the pass, [tokens].
    stopwatch : Stopwatch
        Of the device.
    device : torch.device
        Where.
    dtype : torch.dtype
        Storage type.
    tries : sequence of Tiles, optional
        What is tried; `candidates` by default.
    checks : bool
        Tiles whose result is wrong are left out; a stopwatch that runs nothing has none.

    Returns
    -------
    Found

    Raises
    ------
    MeasurementRefusedError
        If the device's cache is unknown, or the times do not repeat.

    Notes
    -----
    Copies of at least four times the cache are rotated inside one graph. What does not compile for the
    device is passed over. drafter.md 13 and 20.

    Examples
    --------
    >>> best_tiles.__name__
    'best_tiles'
    """
    what = f"{product.name}, {tokens} tokens"
    cache = stopwatch.cache_bytes
    if cache is None:
        raise MeasurementRefusedError(what, "the size of the device's cache is not known")
    sm = stopwatch.described().sm
    operands = _Operands(product, tokens, dtype, device, cache)
    rule = default_tiles(sm, tokens, product.rows, product.width)
    chosen = list(candidates(sm, tokens, product)) if tries is None else tries
    made_up_s = product.rows / GIGA
    works = {}
    for tiles in dict.fromkeys([rule, *chosen]):
        if checks and not _is_right(operands, tiles):
            continue
        works[str(tiles)] = (tiles, Work(str(tiles), operands.rotation(tiles), made_up_s))
    found = timed(what, [work for _, work in works.values()], stopwatch, _PLAN)
    times = {name: samples.median_s / operands.copies for name, samples in found.samples.items()}
    best = min(times, key=lambda name: times[name])
    check_spread(what, found.samples[best].spread)
    spread = max(found.samples[name].spread for name in {best, str(rule)} & set(times))
    default_s = times.get(str(rule), float("inf"))
    return Found(product, tokens, works[best][0], times[best], default_s, spread)


def _is_right(operands: _Operands, tiles: Tiles) -> bool:
    """Whether tiles compile for the device and give the product."""
    try:
        return operands.error(tiles) <= _LARGEST_ERROR
    except Exception as error:
        # Triton raises kinds of its own where shared memory or registers do not suffice
        if type(error).__module__.startswith("triton"):
            return False
        raise


def tuned_rows(found: Sequence[Found], *, sm: int, record: str) -> tuple[TileRow, ...]:
    r"""Rows for what is faster than the rule by more than noise.

    .. math:: t < (1 - \max(0.02, s))\, t_{\text{rule}}

    Parameters
    ----------
    found : sequence of Found
        Best tiles by product and pass.
    sm : int
        Compute capability times ten, [-].
    record : str
        What was measured on what.

    Returns
    -------
    tuple of TileRow

    Examples
    --------
    >>> tuned_rows([], sm=90, record="")
    ()
    """
    return tuple(
        TileRow(
            sm=sm,
            tokens=power_of_two(each.tokens),
            rows=power_of_two(each.product.rows),
            width=power_of_two(each.product.width),
            block_n=each.tiles.block_n,
            block_k=each.tiles.block_k,
            num_warps=each.tiles.num_warps,
            num_stages=each.tiles.num_stages,
            how="measured",
            record=record,
        )
        for each in found
        if each.time_s < (1.0 - max(LEAST_GAIN, each.spread)) * each.default_s
    )
