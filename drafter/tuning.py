"""Sweep of tiles on the products that a draft step launches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import product as product_of
from typing import Any, Final, NamedTuple

from drafter.engine.draft_engine import PROGRAMMATIC_FROM_SM
from drafter.kernels.attention import AttentionWidths
from drafter.kernels.head import head, head_tiles
from drafter.kernels.launch_plan import (
    FUSED_NORM_TOKENS,
    MATVEC_TOKENS,
    Tiles,
    default_tiles,
    dot_tokens,
    power_of_two,
)
from drafter.kernels.pick import MOST_TILES
from drafter.kernels.products import gate_up, input_product, linear
from drafter.spec import DraftSpec
from drafter.timing.device import is_compiler_error
from drafter.timing.refusals import (
    LEAST_FLUSHES,
    Difference,
    MeasurementRefusedError,
    Samples,
    check_spread,
    relative_difference,
)
from drafter.timing.stopwatch import SamplePlan, Stopwatch, Work, timed
from drafter.torch_extra import torch
from drafter.tuning_table import TileRow
from specmodel.units import GIGA, KIBI


def element_error(out: torch.Tensor, truth: torch.Tensor) -> float:
    r"""Largest error of an element, in what its type allows.

    .. math:: \max_i \frac{|y_i - \hat y_i|}{\epsilon\,(\sigma + |\hat y_i|)}, \qquad
        \sigma^2 = \overline{\hat y^2}

    A norm over the whole would hide one wrong row among thousands. :math:`\epsilon` is 0.01 for what is
    written in 16 bits, whose rounding alone is 0.004, and 0.001 for fp32, whose sums over ten thousand
    columns are off by some 1e-5. Judgements.
    """
    allowed = 1e-3 if out.dtype == torch.float32 else 1e-2
    scale = truth.square().mean().sqrt() + truth.abs()
    error = float(((out.double() - truth).abs() / scale).max()) / allowed
    return error if error == error else float("inf")  # noqa: PLR0124 - NaN is no small error


EPS: Final = 1e-5
"""Of the norms; no time depends on it, [-]."""

SMALL_SD: Final = 0.1
"""Spread of norms and biases, [-]."""


class Product(NamedTuple):
    """A product of weights and tokens in a draft step or an extend pass."""

    name: str
    rows: int
    width: int
    has_bias: bool = False
    feeds_normed: bool = False

    @property
    def is_gated(self) -> bool:
        """Whether there are two streams of weights."""
        return self.name == "gate and up"

    @property
    def is_wide(self) -> bool:
        """Whether a launch holds more than the sums of one product: two, or the best ids."""
        return self.is_gated or self.name == "head"

    @property
    def num_matrices(self) -> int:
        """Matrices of that shape, [-]."""
        return 2 if self.is_gated else 1

    @property
    def key(self) -> tuple[int, int]:
        """Rows and width as the table tells them apart."""
        return (power_of_two(self.rows), power_of_two(self.width))


class Launches(ABC):
    """One product with the types, the prologue and the epilogue that a draft step gives it.

    Random numbers at the scale of a model. drafter.md 11.
    """

    def __init__(
        self,
        product: Product,
        tokens: int,
        *,
        copies: int,
        dtype: torch.dtype,
        device: torch.device,
        programmatic: bool = False,
    ) -> None:
        self.product, self.tokens, self.copies = product, tokens, copies
        self.dtype, self.device, self.programmatic = dtype, device, programmatic
        shape = (copies, product.num_matrices, product.rows, product.width)
        self.weights = self.random(*shape, dtype=dtype, scale=product.width**-0.5)
        self.norm: torch.Tensor | None = None
        self.prepare()

    inputs: torch.Tensor
    out: torch.Tensor

    @abstractmethod
    def prepare(self) -> None:
        """Make inputs, and what else the launches need besides weights."""

    def random(
        self, *shape: int, dtype: torch.dtype, scale: float = 1.0, mean: float = 0.0
    ) -> torch.Tensor:
        """Normal numbers on the device."""
        normal = torch.randn(shape, device=self.device, dtype=torch.float32)
        return normal.mul_(scale).add_(mean).to(dtype)

    def normed_inputs(self) -> torch.Tensor:
        """The inputs in fp64, after the norm of the prologue where there is one."""
        inputs = self.inputs.double()
        if self.norm is None:
            return inputs
        scale = (inputs.square().mean(dim=-1, keepdim=True) + EPS).rsqrt()
        return inputs * scale * self.norm.double()

    def random_norm(self, width: int) -> torch.Tensor:
        """Weights of a norm."""
        return self.random(width, dtype=self.dtype, scale=SMALL_SD, mean=1.0)

    def random_bias(self) -> torch.Tensor | None:
        """Bias of the product, where it has one."""
        if not self.product.has_bias:
            return None
        return self.random(self.product.rows, dtype=self.dtype, scale=SMALL_SD)

    def exact(self, matrix: int = 0) -> torch.Tensor:
        """Product of the first copy in fp64."""
        return self.normed_inputs() @ self.weights[0, matrix].double().T

    @abstractmethod
    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy, on buffers made now."""

    @property
    @abstractmethod
    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64, computed once for all tiles."""

    def error(self, tiles: Tiles) -> float:
        """Largest error of an element of `out`, over the allowed one; the head, which writes none, has its own."""
        self.out.fill_(float("nan"))
        self.launched(tiles)(0)
        return element_error(self.out, self.truth)

    def rotation(self, tiles: Tiles) -> Callable[[], None]:
        """Launches over all copies."""
        launch = self.launched(tiles)

        def run() -> None:
            for copy in range(self.copies):
                launch(copy)

        return run


class GateUpLaunches(Launches):
    """First half of the MLP: `gate_up`.

    Up to `FUSED_NORM_TOKENS` tokens it reads the fp32 residual stream and norms it; more are normed and
    rounded before. It writes the storage type.
    """

    def prepare(self) -> None:
        """Make inputs, and the norm of a few tokens."""
        product, tokens = self.product, self.tokens
        is_fused = tokens <= FUSED_NORM_TOKENS
        self.inputs = self.random(
            tokens, product.width, dtype=torch.float32 if is_fused else self.dtype
        )
        if is_fused:
            self.norm = self.random_norm(product.width)
        self.out = torch.empty(tokens, product.rows, device=self.device, dtype=self.dtype)

    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy."""
        return lambda copy: gate_up(
            self.inputs,
            self.weights[copy, 0],
            self.weights[copy, 1],
            self.out,
            norm=self.norm,
            eps=EPS,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    @cached_property
    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64."""
        return torch.nn.functional.silu(self.exact(0)) * self.exact(1)


_INDEX_BITS: Final = 0x7FFFFFFF


class HeadLaunches(Launches):
    """The head of a chain: `head`, which keeps of each tile maximum, sum of exponentials and best id.

    Up to `FUSED_NORM_TOKENS` tokens it reads the fp32 residual stream and norms it; with `norm_output`
    up to `MATVEC_TOKENS` it reads the fp32 carry, which is normed; more are normed and rounded before.
    """

    def prepare(self) -> None:
        """Make inputs, and the norm of a few tokens."""
        product, tokens = self.product, self.tokens
        reads_carry = product.feeds_normed and tokens <= MATVEC_TOKENS
        is_fused = tokens <= FUSED_NORM_TOKENS and not reads_carry
        exact = torch.float32 if is_fused or reads_carry else self.dtype
        self.inputs = self.random(tokens, product.width, dtype=exact)
        if is_fused:
            self.norm = self.random_norm(product.width)

    def _buffers(self, tiles: Tiles) -> tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids of a tile, and space for what is kept of each."""
        tile, _ = head_tiles(self.tokens, self.weights[0, 0], tiles)
        shape = (self.tokens, -(-self.product.rows // tile))
        best, total = (torch.full(shape, float("nan"), device=self.device) for _ in range(2))
        return tile, best, total, torch.full((*shape, 1), -1, device=self.device)

    def _launch(self, copy: int, tiles: Tiles, *space: torch.Tensor) -> None:
        """Launch with one copy into space for maxima, sums and best ids."""
        head(
            self.inputs,
            self.weights[copy, 0],
            *space,
            norm=self.norm,
            eps=EPS,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy, on buffers of these tiles."""
        _, *space = self._buffers(tiles)
        return lambda copy: self._launch(copy, tiles, *space)

    def error(self, tiles: Tiles) -> float:
        """Largest error of maximum, logarithm of the sum, or the logit of the best id of a tile.

        Of two logits that nearly tie either may be the best, so what counts is how far the logit of the
        chosen id is below the true maximum.
        """
        tile, best, total, keys = self._buffers(tiles)
        self._launch(0, tiles, best, total, keys)
        logits = self.truth
        num_ids, num_tiles = self.product.rows, best.shape[1]
        room = torch.full(
            (self.tokens, num_tiles * tile), float("-inf"), dtype=torch.float64, device=self.device
        )
        room[:, :num_ids] = logits
        parts = room.unflatten(1, (num_tiles, tile))
        ids = _INDEX_BITS - (keys[..., 0] & _INDEX_BITS)
        inside = ids // tile == torch.arange(num_tiles, device=self.device)
        if not bool((inside & (ids < num_ids)).all()):
            return float("inf")
        true_best = parts.amax(dim=2)
        return max(
            element_error(best, true_best),
            element_error(best.double().add(total.double().log()).float(), parts.logsumexp(dim=2)),
            element_error(logits.gather(1, ids).float(), true_best),
        )

    @cached_property
    def truth(self) -> torch.Tensor:
        """Logits of the first copy in fp64."""
        return self.exact()


_NUM_EMBEDDED: Final = 64


class InputLaunches(Launches):
    """Queries with keys and values of up to `FUSED_NORM_TOKENS` tokens: `input_product`.

    It reads rows of the embedding and the fp32 hidden states, and writes fp32 beside the fp32 residual.
    """

    def prepare(self) -> None:
        """Make hidden states, embedding, norms and bias."""
        product, tokens, half = self.product, self.tokens, self.product.width // 2
        self.ids = torch.arange(tokens, device=self.device)
        self.embedding = self.random(_NUM_EMBEDDED, half, dtype=self.dtype)
        self.inputs = self.random(tokens, half, dtype=torch.float32)
        self.embed_norm, self.hidden_norm = self.random_norm(half), self.random_norm(half)
        self.norm = self.hidden_norm
        self.bias = self.random_bias()
        self.out, self.residual = (
            torch.empty(tokens, rows, device=self.device, dtype=torch.float32)
            for rows in (product.rows, half)
        )

    def normed_inputs(self) -> torch.Tensor:
        """Both halves in fp64, after their norms."""
        embedded = self.embedding[self.ids].double()
        scale = (embedded.square().mean(dim=-1, keepdim=True) + EPS).rsqrt()
        return torch.cat(
            [embedded * scale * self.embed_norm.double(), super().normed_inputs()], dim=-1
        )

    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy."""
        return lambda copy: input_product(
            self.ids,
            self.embedding,
            self.inputs,
            self.embed_norm,
            self.hidden_norm,
            self.weights[copy, 0],
            self.out,
            self.residual,
            eps=EPS,
            normed_residual=False,
            bias=self.bias,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    def error(self, tiles: Tiles) -> float:
        """Largest error of an element of product or residual, over the allowed one."""
        self.residual.fill_(float("nan"))
        return max(super().error(tiles), element_error(self.residual, self.inputs.double()))

    @cached_property
    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64."""
        return self.exact() if self.bias is None else self.exact() + self.bias.double()


class LinearLaunches(Launches):
    """Fusion, queries with keys and values, output projection, second half of the MLP: `linear`.

    Queries with keys and values are launched so for more than `FUSED_NORM_TOKENS` tokens. All read the
    storage type and write fp32. To the output projection and the second half of the MLP the fp32 residual
    is added; a bias where the model has one.
    """

    def prepare(self) -> None:
        """Make inputs, residual and bias."""
        product, tokens = self.product, self.tokens
        self.inputs = self.random(tokens, product.width, dtype=self.dtype)
        self.out = torch.empty(tokens, product.rows, device=self.device, dtype=torch.float32)
        self.residual = (
            self.random(tokens, product.rows, dtype=torch.float32)
            if product.name in {"out", "down"}
            else None
        )
        self.bias = self.random_bias()

    def launched(self, tiles: Tiles) -> Callable[[int], None]:
        """What launches the product with one copy."""
        return lambda copy: linear(
            self.inputs,
            self.weights[copy, 0],
            self.out,
            bias=self.bias,
            residual=self.residual,
            tiles=tiles,
            programmatic=self.programmatic,
        )

    @cached_property
    def truth(self) -> torch.Tensor:
        """What the first copy gives in fp64."""
        truth = self.exact()
        for added in (self.bias, self.residual):
            if added is not None:
                truth = truth + added.double()
        return truth


def launches_of(product: Product, tokens: int, **how: Any) -> Launches:
    """Launches of a product, as a draft step makes them; a test holds them against those of a whole draft."""
    kinds: dict[str, type[Launches]] = {"gate and up": GateUpLaunches, "head": HeadLaunches}
    if tokens <= FUSED_NORM_TOKENS:
        kinds["qkv"] = InputLaunches
    return kinds.get(product.name, LinearLaunches)(product, tokens, **how)


def products(spec: DraftSpec) -> tuple[Product, ...]:
    r"""Products of a step and of an extend pass.

    .. math:: \{(N_H + 2 N_{KV}) D \times 2H, \dots, V_d \times H\}
    """
    hidden, biased, latent = spec.hidden_size, spec.attention_bias, spec.latent
    widths = AttentionWidths.of(spec)
    found = [Product("qkv", widths.first_rows, 2 * hidden, biased)]
    if latent is not None:
        rows = spec.num_heads * (latent.nope_dim + latent.rope_dim)
        found.append(Product("expand", rows, latent.query_rank))
    found += [
        Product("out", hidden, widths.out, biased),
        Product("gate and up", spec.mlp_width, hidden),
        Product("down", hidden, spec.mlp_width),
        Product("head", spec.draft_vocab_size, hidden, feeds_normed=spec.norm_output),
    ]
    if spec.use_aux_hidden_state:
        width = spec.num_aux_states * spec.target_hidden_size
        found.append(Product("fc", hidden, width, spec.fc_bias))
    return tuple(found)


def by_row(found: Sequence[Product]) -> tuple[tuple[Product, ...], ...]:
    """Products that share a row of the table, together.

    The table does not tell kernels apart, so tiles of a row have to suit all products that read it.
    """
    rows: dict[tuple[int, int], list[Product]] = {}
    for each in found:
        rows.setdefault(each.key, []).append(each)
    return tuple(tuple(each) for each in rows.values())


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
    """The best tiles of the products that share a row of the table."""

    products: tuple[Product, ...]
    tokens: int
    tiles: Tiles
    time_s: float
    default_s: float
    spread: float = 0.0


def candidates(sm: int, tokens: int, product: Product) -> Iterator[Tiles]:
    r"""Tiles that are worth a try.

    .. math:: 8 \le \frac{n k}{32 w} \le 64

    drafter.md 12 names the tiles that compile to 128-bit loads without spills.
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

    Each product is launched as a draft step does, with its prologue and epilogue, and checked against
    fp64. Copies of at least four times the cache are rotated inside one graph. What does not compile for
    the device is passed over. drafter.md 13 and 20.
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
    by_rule = Difference(float("inf"), 0.0, 0)
    if all(rule in own for rule, own in zip(rules, right, strict=True)):
        by_rule = _together(made, samples, rules)
    fastest, spread = found[best].time_s, max(found[best].spread, by_rule.spread)
    return Found(tuple(row), tokens, best, fastest, by_rule.time_s, spread)


def num_copies(product: Product, dtype: torch.dtype, cache_bytes: int) -> int:
    r"""Copies of a product's weights that are together at least four times the cache.

    .. math:: \lceil 4 L / W \rceil
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
    """Rows for what is faster than the rule by more than noise."""
    return tuple(
        TileRow(
            sm=sm,
            tokens=power_of_two(each.tokens),
            rows=each.products[0].key[0],
            width=each.products[0].key[1],
            **asdict(each.tiles),
            how="measured",
            record=record,
        )
        for each in found
        if each.time_s < (1.0 - max(LEAST_GAIN, each.spread)) * each.default_s
    )
