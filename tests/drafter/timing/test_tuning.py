"""What a sweep tries, what gets a row, and the table as a file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafter.kernels.launch_plan import TileRow, Tiles, default_tiles, read_table, shipped_table
from drafter.public_models import public_shape
from drafter.tuning import Found, Product, by_row, candidates, products, table_text, tuned_rows
from specmodel.errors import FormatError, ParameterError

TILES = Tiles(block_n=8, block_k=64, num_warps=4, num_stages=1)


def found(time_s: float, tokens: int, spread: float = 0.0) -> Found:
    row = (Product("down", 4096, 14336),)
    return Found(row=row, tokens=tokens, tiles=TILES, time_s=time_s, default_s=1e-4, spread=spread)


def test_only_what_beats_the_rule_by_more_than_noise_gets_a_row() -> None:
    best = [found(0.5e-4, 1), found(0.985e-4, 2), found(1e-4, 4)]
    (row,) = tuned_rows(best, sm=90, record="a GPU")
    assert row.key == (90, 1, 4096, 16384)
    assert (row.how, row.record) == ("measured", "a GPU")
    # a gain of 4 % between runs that differ by as much is noise
    assert tuned_rows([found(0.96e-4, 8, spread=0.03)], sm=90, record="a GPU")
    assert not tuned_rows([found(0.96e-4, 8, spread=0.045)], sm=90, record="a GPU")
    assert not tuned_rows([replace(found(0.5e-4, 8), tiles=None)], sm=90, record="a GPU")


def test_every_product_of_a_step_is_swept_in_its_row_of_the_table() -> None:
    spec = public_shape("gpt-oss").spec
    shapes = {each.name: (each.rows, each.width) for each in products(spec)}
    # drafter.md 3: [(NH + 2 NKV) D, 2H], [H, NH D], [I, H], [H, I], [Vd, H], [H, A Ht]
    assert shapes == {
        "qkv": ((64 + 16) * 64, 5760),
        "out": (2880, 64 * 64),
        "gate and up": (17280, 2880),
        "down": (2880, 17280),
        "head": (32000, 2880),
        "fc": (2880, 8640),
    }
    rows = [[each.name for each in row] for row in by_row(products(spec))]
    assert rows == [["qkv"], ["out"], ["gate and up", "head"], ["down"], ["fc"]]


def test_tiles_of_a_row_fit_each_of_its_products() -> None:
    spec = public_shape("gpt-oss").spec
    (row,) = (each for each in by_row(products(spec)) if len(each) > 1)
    shared = set(candidates(89, 64, row))
    gated, head = ([each] for each in row)
    assert shared <= set(candidates(89, 64, gated)) & set(candidates(89, 64, head))
    # two streams of weights leave less room than one
    assert shared < set(candidates(89, 64, head))


def test_products_of_latent_heads_have_their_own_shapes() -> None:
    shapes = {
        each.name: (each.rows, each.width) for each in products(public_shape("Kimi-K2.5-MLA").spec)
    }
    # drafter.md 3: [ql + kl + rope, 2H], [NH (nope + rope), ql], [H, NH v]
    assert shapes["qkv"] == (1536 + 512 + 64, 2 * 7168)
    assert shapes["expand"] == (64 * 192, 1536)
    assert shapes["out"] == (7168, 64 * 128)


@pytest.mark.parametrize("sm", [80, 89, 90, 100, 120])
@pytest.mark.parametrize("tokens", [1, 8, 9, 64])
def test_tiles_that_are_tried_fit_the_device(sm: int, tokens: int) -> None:
    most = {80: 166_912, 90: 232_448, 100: 232_448}.get(sm, 101_376)  # drafter.md 17
    for product in products(public_shape("Llama-3.1-8B").spec):
        tried = list(candidates(sm, tokens, [product]))
        assert len(tried) == len(set(tried)) > 10
        for tiles in tried:
            if tokens <= 8:
                assert tiles.block_n * tiles.block_k <= 64 * 32 * tiles.num_warps
            else:
                rows = tiles.block_n * (2 if product.name == "gate and up" else 1)
                width = max(16, 1 << (tokens - 1).bit_length())
                used = tiles.num_stages * 2 * tiles.block_k * (rows + width)
                assert used <= most
        assert default_tiles(sm, tokens, product.rows, product.width).block_n in {
            tiles.block_n for tiles in tried
        }


ROW = TileRow(
    sm=90,
    tokens=1,
    rows=4096,
    width=8192,
    block_n=4,
    block_k=1024,
    num_warps=4,
    num_stages=1,
    how="measured",
    record='H200 "SXM" \\ driver 1',
)
OTHERS = [
    replace(ROW, sm=120),
    replace(ROW, tokens=2),
    replace(ROW, rows=32768, how="compiled", record=""),
]


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(table_text([ROW, *OTHERS]), encoding="utf-8")
    assert set(read_table(path)) == {ROW, *OTHERS}
    path.write_text(table_text([]), encoding="utf-8")
    assert read_table(path) == ()


def test_the_shipped_table_keeps_its_rows_when_it_is_written_again(tmp_path: Path) -> None:
    rows, path = read_table(shipped_table()), tmp_path / "launch.toml"
    path.write_text(table_text(rows), encoding="utf-8")
    assert read_table(path) == rows
    header = table_text([]).partition("\n\n")[0]
    assert shipped_table().read_text(encoding="utf-8").startswith(header)


def test_new_rows_replace_old_ones_of_their_key_and_others_stay(tmp_path: Path) -> None:
    better, path = replace(ROW, block_n=8), tmp_path / "launch.toml"
    path.write_text(table_text([ROW, *OTHERS], [better]), encoding="utf-8")
    rows = read_table(path)
    assert set(rows) == {better, *OTHERS}
    assert list(rows) == sorted(rows)


@pytest.mark.parametrize("change", [{"rows": 5000}, {"block_n": 0}, {"how": "guessed"}], ids=str)
def test_an_impossible_row_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(change))):
        replace(ROW, **change)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tiles = [", "not valid TOML"),
        ("[[tiles]]\nsm = 90\n", "row 1: "),
        (table_text([ROW]).replace("block_n = 4", "block_n = 5"), "row 1: block_n"),
        (table_text([ROW]) + 'colour = "red"\n', "row 1: "),
        (table_text([ROW]).replace("rows = 4096", 'rows = "4096"'), "row 1: rows"),
    ],
)
def test_a_defect_is_one_line_that_names_it(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=words):
        read_table(path)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        read_table(tmp_path / "none.toml")
