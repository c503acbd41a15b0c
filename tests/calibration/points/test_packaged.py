"""The catalogue of packaged tables."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from calibration.points.packaged import PackagedTable, packaged_table, packaged_tables
from specmodel.errors import UnknownKeyError

KEYS = {
    "name",
    "title",
    "source_keys",
    "url",
    "locator",
    "class",
    "num_speculative_rows",
    "num_baseline_rows",
    "includes",
    "sound",
    "sound_reason",
    "usable_for_prior",
    "prior_reason",
    "split",
    "dropped",
    "corrected",
    "notes",
    "rows",
}
SPLITS = {
    "workload_config",
    "batch_workload",
    "batch_context",
    "batch",
    "depth",
    "workload",
    "none",
}


def toml_of(table: PackagedTable) -> Path:
    return table.path.with_suffix(".toml")


def test_every_csv_has_a_toml_and_every_toml_a_csv() -> None:
    folder = packaged_tables()[0].path.parent
    assert {path.stem for path in folder.glob("*.csv")} == {
        path.stem for path in folder.glob("*.toml")
    }
    assert all(table.path.is_file() for table in packaged_tables())


@pytest.mark.parametrize("table", packaged_tables(), ids=lambda table: table.name)
def test_description_is_complete(table: PackagedTable) -> None:
    values = tomllib.loads(toml_of(table).read_text(encoding="utf-8"))
    assert set(values) == KEYS
    assert table.name == table.path.stem
    assert table.system_class in {"dense", "moe"}
    assert table.split in SPLITS
    assert table.url.startswith("https://")
    for text in (table.title, table.locator, table.includes, table.sound_reason):
        assert text.strip()
    assert table.prior_reason.strip()
    assert table.source_keys
    assert table.num_rows > 0


def test_names_are_sorted_and_unique() -> None:
    names = [table.name for table in packaged_tables()]
    assert names == sorted(set(names))


def test_lookup_returns_the_table_of_that_name() -> None:
    for table in packaged_tables():
        assert packaged_table(table.name) is table


def test_unknown_name_suggests_the_closest() -> None:
    with pytest.raises(UnknownKeyError, match="rtx6kpro-kimi-k26-dcp4") as caught:
        packaged_table("kimi-k26-dcp4")
    assert "rtx6kpro-kimi-k26-dcp4" in caught.value.known
    assert len(caught.value.known) <= 5


def test_name_close_to_nothing_lists_every_table() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        packaged_table("?")
    assert len(caught.value.known) == len(packaged_tables())


def test_catalogue_loads_neither_pandas_nor_numpy() -> None:
    code = (
        "import sys, calibration.points.packaged as packaged; packaged.packaged_tables();"
        "print([name for name in ('numpy', 'pandas', 'scipy', 'click') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
