"""The sweep launches what a draft launches, computes what it times, and leaves out tiles that are wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from drafter import tuning as tuned
from drafter.checkpoint import random_weights
from drafter.kernels import draft_steps, layer
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.kernels.head import head
from drafter.kernels.launch_plan import Tiles
from drafter.reference.example import example_spec
from drafter.spec import DraftSpec
from drafter.timing.refusals import MeasurementRefusedError
from drafter.timing.stopwatch import DryStopwatch
from drafter.tuning import Launches, Product, best_tiles, launches_of, products
from tests.extent import prove, sample

CPU = torch.device("cpu")
TRIES = [Tiles(block_n=block_n, block_k=64, num_warps=2, num_stages=1) for block_n in (16, 32)]
HEAD = Product("head", 139, 48)
EVERY = [
    Product("qkv", 33, 48),
    Product("qkv", 33, 48, has_bias=True),
    Product("out", 33, 48),
    Product("gate and up", 40, 24),
    Product("down", 33, 48),
    HEAD,
    Product("head", 139, 48, feeds_normed=True),
    Product("fc", 33, 72, has_bias=True),
]
PLACES = {"linear": (0, 1, 2), "gate_up": (0, 1, 3), "head": (0, 1, 2), "input_product": (2, 5, 6)}
"""Which arguments of each are inputs and weights, and where those begin that it writes."""


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def launches(product: Product, tokens: int) -> Launches:
    return launches_of(product, tokens, copies=2, dtype=torch.bfloat16, device=CPU)


@sample(4)
@pytest.mark.parametrize("product", EVERY, ids=str)
@pytest.mark.parametrize("tokens", [2, 5, 16])
def test_what_is_timed_gives_the_product(product: Product, tokens: int) -> None:
    made = launches(product, tokens)
    for tiles in TRIES:
        assert made.error(tiles) <= 0.5


def test_a_tile_of_the_head_may_be_made_in_parts() -> None:
    """Less rows at a time than a tile has: a maximum over parts."""
    parts = Tiles(block_n=4, block_k=64, num_warps=2, num_stages=1)
    assert launches(HEAD, 2).error(parts) <= 0.5


def one_element(*arguments: Any) -> None:
    arguments[-1][0, 7] += 0.5


def wrong_maximum(*arguments: Any) -> None:
    arguments[2][0, 1] += 0.5


def wrong_sum(*arguments: Any) -> None:
    arguments[3][0, 1] *= 1.5


def worse_id(*arguments: Any) -> None:
    arguments[4][0, 1, 0] -= 1


def id_of_another_tile(*arguments: Any) -> None:
    arguments[4][0, 1, 0] -= 64


def nothing_written(*arguments: Any) -> None:
    arguments[2].fill_(float("nan"))


@sample(2)
@pytest.mark.parametrize(
    ("product", "tokens", "damage"),
    [
        *((product, 2, one_element) for product in EVERY if product.name != "head"),
        (EVERY[2], 16, one_element),
        (EVERY[3], 16, one_element),
        *(
            (HEAD, 2, damage)
            for damage in (wrong_maximum, wrong_sum, worse_id, id_of_another_tile, nothing_written)
        ),
        (HEAD, 16, wrong_maximum),
    ],
    ids=lambda each: each.__name__ if callable(each) else str(each),
)
def test_tiles_whose_result_is_wrong_are_refused(
    product: Product, tokens: int, damage: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One element among all is enough, for every product."""
    function = {"gate and up": "gate_up", "head": "head", "qkv": "input_product"}.get(
        product.name, "linear"
    )
    sound = getattr(tuned, function)

    def wrong_unless_32(*arguments: Any, tiles: Tiles, **options: Any) -> None:
        sound(*arguments, tiles=tiles, **options)
        if tiles.block_n != 32:
            damage(*arguments)

    monkeypatch.setattr(tuned, function, wrong_unless_32)
    found = best_tiles([product], tokens, DryStopwatch(), device=CPU, tries=TRIES)
    assert found.tiles.block_n == 32
    assert found.default_s == float("inf")  # the rule's own 128 rows were wrong too


def test_a_row_without_right_tiles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "linear", lambda *_, **__: None)
    with pytest.raises(MeasurementRefusedError, match="no tiles give what fp64 gives"):
        best_tiles([EVERY[4]], 2, DryStopwatch(), device=CPU, tries=TRIES[:1])


@prove
def test_tiles_of_a_row_have_to_be_right_for_every_product_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong_for_16(*arguments: Any, tiles: Tiles, **options: Any) -> None:
        head(*arguments, tiles=tiles, **options)
        if tiles.block_n == 16:
            wrong_maximum(*arguments)

    monkeypatch.setattr(tuned, "head", wrong_for_16)
    row = [Product("gate and up", 140, 48), HEAD]
    found = best_tiles(row, 2, DryStopwatch(), device=CPU, tries=TRIES)
    assert found.tiles.block_n != 16
    assert found.products == tuple(row)


class Launch(NamedTuple):
    """What decides which kernel is launched, and what it reads and writes."""

    function: str
    shape: tuple[int, ...]
    tokens: int
    inputs: torch.dtype
    writes: tuple[torch.dtype, ...]
    extras: frozenset[tuple[str, torch.dtype]]
    topk: int


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Launches of products, wherever they are made from."""
    seen: list[Launch] = []

    def record(name: str, sound: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: torch.Tensor, **options: Any) -> None:
            inputs, weight, written = PLACES[name]
            extras = {
                (key, value.dtype)
                for key, value in options.items()
                if key in {"norm", "residual", "bias"} and value is not None
            }
            index = options.get("input_index")
            seen.append(
                Launch(
                    name,
                    tuple(arguments[weight].shape),
                    len(arguments[0] if index is None else index),
                    arguments[inputs].dtype,
                    tuple(each.dtype for each in arguments[written:]),
                    frozenset(extras),
                    arguments[4].shape[-1] if name == "head" else 0,
                )
            )
            sound(*arguments, **options)

        return run

    for module in (layer, draft_steps, tuned):
        for name in PLACES:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, record(name, getattr(module, name)))
    return seen


SPECS: list[DraftSpec] = [
    example_spec(),
    replace(example_spec(), norm_output=True, attention_bias=True, fc_bias=True),
]


@sample(1)
@pytest.mark.parametrize("spec", SPECS, ids=["plain", "norm_output, biases"])
@pytest.mark.parametrize("batch", [1, 6, 9])
def test_the_sweep_launches_what_a_draft_launches(
    spec: DraftSpec, batch: int, recorded: list[Launch]
) -> None:
    """Both sides of the limits at which norms leave the products and tensor cores take over."""
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    if spec.attention_bias:
        weights["layers.0.self_attn.o_proj.bias"] = torch.zeros(spec.hidden_size)
    shape = DraftShape(batch_size=batch, num_steps=2, most_accepted=1, capacity=8)
    steps = DraftSteps.alone(spec, weights, shape, dtype=torch.bfloat16, device=CPU)
    steps.accepted.fill_(1)
    steps.run()
    drafted = set(recorded)
    recorded.clear()
    for product in products(spec):
        launches(product, batch).launched(TRIES[-1])(0)
    assert len(set(recorded)) == 6
    assert set(recorded) == drafted
