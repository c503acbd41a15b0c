"""A sweep of tiles for the products of a draft model, each timed with cold weights."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product as product_of
from typing import Final, NamedTuple

from drafter.engine.draft_engine import PROGRAMMATIC_FROM_SM
from drafter.kernels.launch_plan import (
    MATVEC_TOKENS,
    Tiles,
    default_tiles,
    dot_tokens,
    power_of_two,
)
from drafter.kernels.pick import MOST_TILES
from drafter.timing.device_failures import is_compiler_error
from drafter.timing.refusals import LEAST_FLUSHES, MeasurementRefusedError, check_spread
from drafter.timing.samples import Difference, Samples, relative_difference
from drafter.timing.stopwatch import SamplePlan, Stopwatch, Work, timed
from drafter.torch_extra import torch
from drafter.tuned_launches.kinds import launches_of
from drafter.tuned_launches.launches import Launches
from drafter.tuned_products import Product
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
_PLAN: Final = SamplePlan(replays=10, samples=3, warm_up_s=0.05)


class Found(NamedTuple):
    """The best tiles of the products that share a row of the table.

    Parameters
    ----------
    products : tuple of Product
        The products, at least one.
    tokens : int
        Of the pass, [tokens].
    tiles : Tiles
        The best.
    time_s, default_s : float
        One launch of each with them, and with those of the rule, [s].
    spread : float
        Larger relative difference of two runs with either, [-].

    Examples
    --------
    >>> Found._fields[-1]
    'spread'
    """

    products: tuple[Product, ...]
    tokens: int
    tiles: Tiles
    time_s: float
    default_s: float
    spread: float = 0.0


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
    fits = (tiles for tiles in tries if tiles.block_k <= widest)
    if product.name != "head" or tokens <= MATVEC_TOKENS:
        return fits
    # one program picks from all tiles of the head
    return (tiles for tiles in fits if product.rows <= MOST_TILES * tiles.block_n)


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
    for block_n, block_k, stages, warps in product_of(
        (16, 32, 64, 128), (64, 128, 256), (2, 3, 4), (4, 8)
    ):
        if stages * 2 * block_k * (product.num_matrices * block_n + dot_tokens(tokens)) <= room:
            yield Tiles(block_n=block_n, block_k=block_k, num_warps=warps, num_stages=stages)


def shared_candidates(sm: int, tokens: int, row: Sequence[Product]) -> tuple[Tiles, ...]:
    r"""Tiles that are worth a try for every product of a row of the table.

    .. math:: \bigcap_p C_p

    Parameters
    ----------
    sm : int
        Compute capability times ten, [-].
    tokens : int
        Of the pass, [tokens].
    row : sequence of Product
        At least one.

    Returns
    -------
    tuple of Tiles

    Examples
    --------
    >>> both = (Product("gate and up", 17280, 2880), Product("head", 32000, 2880))
    >>> shared_candidates(90, 64, both) == tuple(candidates(90, 64, both[0]))
    True
    """
    first, *others = (list(candidates(sm, tokens, product)) for product in row)
    return tuple(tiles for tiles in first if all(tiles in other for other in others))


def best_tiles(
    row: Sequence[Product],
    tokens: int,
    stopwatch: Stopwatch,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    tries: Sequence[Tiles] | None = None,
    checks: bool = True,
) -> Found:
    """Tiles with which the products of a row are fastest together while their weights are cold.

    Parameters
    ----------
    row : sequence of Product
        Products that read this row of the table, of one model; at least one.
    tokens : int
        Of the pass, [tokens].
    stopwatch : Stopwatch
        Of the device.
    device : torch.device
        Where.
    dtype : torch.dtype
        Storage type.
    tries : sequence of Tiles, optional
        What is tried; `shared_candidates` by default.
    checks : bool
        Tiles whose result is wrong are left out; a stopwatch that runs nothing has none.

    Returns
    -------
    Found

    Raises
    ------
    MeasurementRefusedError
        If the device's cache is unknown, the times do not repeat, or no tiles give every product.

    Notes
    -----
    Each product is launched as a draft step does, with its prologue and epilogue, and checked against
    fp64. Copies of at least four times the cache are rotated inside one graph. What does not compile for
    the device is passed over. drafter.md 13 and 20.

    Examples
    --------
    >>> best_tiles.__name__
    'best_tiles'
    """
    what = f"{' + '.join(each.name for each in row)}, {tokens} tokens"
    cache = stopwatch.cache_bytes
    if cache is None:
        raise MeasurementRefusedError(what, "the size of the device's cache is not known")
    sm = stopwatch.described().sm
    made = [
        launches_of(
            product,
            tokens,
            copies=num_copies(product, dtype, cache),
            dtype=dtype,
            device=device,
            programmatic=sm >= PROGRAMMATIC_FROM_SM,
        )
        for product in row
    ]
    # the rule may cut products differently that share a row
    rules = [default_tiles(sm, tokens, each.rows, each.width, is_wide=each.is_wide) for each in row]
    chosen = shared_candidates(sm, tokens, row) if tries is None else tries
    right = [
        [
            tiles
            for tiles in dict.fromkeys([*rules, *chosen])
            if not checks or _is_right(each, tiles)
        ]
        for each in made
    ]
    works = [
        Work(_name(each.product, tiles), each.rotation(tiles), each.product.rows / GIGA)
        for each, own in zip(made, right, strict=True)
        for tiles in own
    ]
    shared = [tiles for tiles in right[0] if all(tiles in own for own in right[1:])]
    if not shared:
        raise MeasurementRefusedError(what, "no tiles give what fp64 gives")
    samples = timed(what, works, stopwatch, _PLAN).samples
    found = {tiles: _together(made, samples, [tiles] * len(row)) for tiles in shared}
    best = min(found, key=lambda tiles: found[tiles].time_s)
    check_spread(what, found[best].spread)
    by_rule = None
    if all(rule in own for rule, own in zip(rules, right, strict=True)):
        by_rule = _together(made, samples, rules)
    return Found(
        tuple(row),
        tokens,
        best,
        found[best].time_s,
        float("inf") if by_rule is None else by_rule.time_s,
        max(found[best].spread, 0.0 if by_rule is None else by_rule.spread),
    )


def num_copies(product: Product, dtype: torch.dtype, cache_bytes: int) -> int:
    r"""Copies of a product's weights that are together at least four times the cache.

    .. math:: \lceil 4 L / W \rceil

    Parameters
    ----------
    product : Product
        The product.
    dtype : torch.dtype
        Storage type.
    cache_bytes : int
        :math:`L`, last-level cache, [B].

    Returns
    -------
    int
        At least 2, and `MOST_COPIES` at most, [-].

    Examples
    --------
    >>> num_copies(Product("out", 4096, 4096), torch.bfloat16, 50 * 2**20)
    7
    """
    each_bytes = product.num_matrices * product.rows * product.width * dtype.itemsize
    return min(max(2, -(-LEAST_FLUSHES * cache_bytes // each_bytes)), MOST_COPIES)


def _name(product: Product, tiles: Tiles) -> str:
    """Name of the work of a product with tiles."""
    return f"{product.name} {tiles}"


def _together(
    made: Sequence[Launches], samples: Mapping[str, Samples], tiles: Sequence[Tiles]
) -> Difference:
    """Time of one launch of each product with its tiles, and how far two runs of that differ."""
    own = [samples[_name(each.product, cut)] for each, cut in zip(made, tiles, strict=True)]
    copies = [each.copies for each in made]
    runs = [
        sum(each.run_medians_s[run] / count for each, count in zip(own, copies, strict=True))
        for run in (0, 1)
    ]
    return Difference(
        time_s=sum(each.median_s / count for each, count in zip(own, copies, strict=True)),
        spread=relative_difference(*runs),
        num_samples=min(each.num_samples for each in own),
    )


def _is_right(launches: Launches, tiles: Tiles) -> bool:
    """Whether tiles compile for the device and give the product."""
    try:
        return launches.error(tiles) <= 1.0
    except Exception as error:
        if is_compiler_error(error):  # shared memory or registers do not suffice
            return False
        raise


def tuned_rows(found: Sequence[Found], *, sm: int, record: str) -> tuple[TileRow, ...]:
    r"""Rows for what is faster than the rule by more than noise.

    .. math:: t < (1 - \max(0.02, s))\, t_{\text{rule}}

    Parameters
    ----------
    found : sequence of Found
        Best tiles by row of the table and pass.
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
            rows=each.products[0].key[0],
            width=each.products[0].key[1],
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
