"""The shipped table of tiles and the rule behind it."""

import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from drafter.kernels import launch_plan
from drafter.kernels.launch_plan import (
    LEAST_DOT_TOKENS,
    MATVEC_TOKENS,
    TileRow,
    default_tiles,
    dot_tokens,
    power_of_two,
    tiles_for,
)
from drafter.public_models import public_shapes
from drafter.tuning import table_text


def is_power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@pytest.mark.parametrize("tokens", [1, 2, 3, 8, 9, 17, 64, 512])
def test_every_public_shape_has_tiles_that_triton_can_make(tokens: int) -> None:
    for public in public_shapes().values():
        spec = public.spec
        for rows, width in (
            (spec.hidden_size, spec.num_aux_states * spec.target_hidden_size),
            (spec.mlp_width, spec.hidden_size),
            (spec.hidden_size, spec.mlp_width),
            (spec.draft_vocab_size, spec.hidden_size),
        ):
            for sm in (0, 80, 89, 90, 100, 120):
                cut = tiles_for(sm, tokens, rows, width)
                assert all(map(is_power, (cut.block_n, cut.block_k, cut.num_warps)))
                assert cut.block_k >= 16, "a tensor core needs sixteen columns"
                assert tokens <= MATVEC_TOKENS or cut.block_n >= 16
                assert cut.block_n * cut.block_k * 2 <= (128 if sm else 256) * 1024


def test_powers_of_two_are_the_next_ones() -> None:
    assert [power_of_two(value) for value in (1, 2, 3, 4, 5, 1023, 1024, 1025)] == [
        *(1, 2, 4, 4, 8, 1024, 1024, 2048)
    ]


def test_tiles_of_tokens_hold_all_of_few_and_sixty_four_of_many() -> None:
    for tokens in range(MATVEC_TOKENS + 1, 65):
        assert LEAST_DOT_TOKENS <= dot_tokens(tokens) < 2 * max(tokens, LEAST_DOT_TOKENS)
        assert dot_tokens(tokens) >= tokens
    assert dot_tokens(65) == 64


def test_the_shipped_table_says_what_each_row_rests_on() -> None:
    table = tomllib.loads(files("drafter.kernels").joinpath("launch.toml").read_text("utf-8"))
    for row in table.get("tiles", []):
        assert row["how"] in {"compiled", "measured"}
        assert row["how"] == "compiled" or row["record"]
        for name in ("tokens", "rows", "width", "block_n", "block_k", "num_warps"):
            assert is_power(row[name])


def test_a_row_of_the_table_goes_before_the_rule(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = TileRow(
        sm=90,
        tokens=4,
        rows=4096,
        width=4096,
        block_n=2,
        block_k=2048,
        num_warps=8,
        num_stages=1,
        how="compiled",
    )
    path = tmp_path / "launch.toml"
    path.write_text(table_text([row]), encoding="utf-8")
    monkeypatch.setattr(launch_plan, "shipped_table", lambda: path)
    monkeypatch.setattr(launch_plan, "_table", launch_plan._table.__wrapped__)
    assert tiles_for(90, 3, 3000, 2880).num_warps == 8  # counts are rounded up
    assert tiles_for(90, 5, 3000, 2880) == default_tiles(90, 5, 3000, 2880)
    assert tiles_for(120, 3, 3000, 2880) == default_tiles(120, 3, 3000, 2880)


def test_wide_values_take_smaller_tiles() -> None:
    plain, wide = (tiles_for(120, 32, 8192, 8192, value_bytes=value) for value in (2, 4))
    assert wide == replace(plain, block_n=plain.block_n // 2, block_k=plain.block_k // 2)
    few, exact = (tiles_for(120, 4, 8192, 8192, value_bytes=value) for value in (2, 4))
    assert exact == replace(few, block_k=few.block_k // 2)
