"""What docstrings, tables and pages say agrees with the register of sources and with the code."""

import csv
import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import calibration
import drafter
import specmodel
from specmodel.sources import sources

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (specmodel, calibration, drafter)
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")

CITATION = re.compile(r"\[([A-Za-z0-9][A-Za-z0-9_-]*)\]_")
SOURCE_FIELDS = ("source", "source_id", "source_key", "source_keys", "sources")
NOT_A_DOCUMENT = {
    "definition": "follows from a definition; computed apart from the package",
    "per row": "the table's own column names the source of each row",
}

requires_command_line = pytest.mark.skipif(
    importlib.util.find_spec("calibration.cli") is None, reason="there is no command line yet"
)


# --- sources ---


def keys_in(value: object) -> Iterator[str]:
    """Source keys in parsed TOML, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in SOURCE_FIELDS:
                yield from [inner] if isinstance(inner, str) else inner
            else:
                yield from keys_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)


def keys_of_table(path: Path) -> Iterator[str]:
    """Source keys in the columns of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for name in SOURCE_FIELDS:
                if row.get(name):
                    yield row[name]


def cited_keys() -> dict[str, set[str]]:
    """Every cited key, and where it is cited."""
    cited: dict[str, set[str]] = {}

    def note(keys: Iterator[str], path: Path) -> None:
        for key in keys:
            cited.setdefault(key, set()).add(str(path.relative_to(ROOT)))

    for package in ("specmodel", "calibration", "drafter", "scripts", "examples"):
        for path in (ROOT / package).rglob("*.py"):
            note(iter(CITATION.findall(path.read_text(encoding="utf-8"))), path)
    golden, points = ROOT / "tests" / "golden", ROOT / "calibration" / "data" / "points"
    catalogues = (ROOT / "specmodel" / "data").glob("*.toml")
    shapes = (ROOT / "drafter" / "data").glob("*.toml")
    for path in [*golden.rglob("*.toml"), *points.glob("*.toml"), *catalogues, *shapes]:
        if path.name != "sources.toml":
            note(keys_in(tomllib.loads(path.read_text(encoding="utf-8"))), path)
    for path in [*golden.rglob("*.csv"), *points.glob("*.csv")]:
        note(keys_of_table(path), path)
    return cited


def test_every_cited_source_is_registered() -> None:
    cited = cited_keys()
    unknown = set(cited) - set(sources()) - set(NOT_A_DOCUMENT)
    assert {key: sorted(cited[key]) for key in sorted(unknown)} == {}


def test_every_registered_source_is_cited() -> None:
    assert sorted(set(sources()) - set(cited_keys())) == []


def test_every_golden_table_names_its_source_and_the_place_in_it() -> None:
    for path in sorted((ROOT / "tests" / "golden").rglob("*.csv")):
        facts = tomllib.loads(path.with_suffix(".toml").read_text(encoding="utf-8"))
        assert {"source", "locator", "what"} <= set(facts), path.name
        if "per row" in facts["source"]:
            assert set(keys_of_table(path)), path.name


def test_the_keys_of_a_document_are_found_at_any_depth() -> None:
    text = 'source = "a"\n[x]\nsource_keys = ["b", "c"]\n[[y]]\nsource_id = "d"\nother = "e"'
    assert sorted(keys_in(tomllib.loads(text))) == ["a", "b", "c", "d"]
    assert CITATION.findall("Eq. 1 of [doe2020]_ and [org-repo-12]_, not [this] or x[i]_") == [
        "doe2020",
        "org-repo-12",
        "i",
    ]


# --- docstrings ---


def modules() -> list[ModuleType]:
    """Every module of the packages but the ones that run when imported."""
    names = [package.__name__ for package in PACKAGES]
    for package in PACKAGES:
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        names += [module.name for module in found if not module.name.endswith("__main__")]
    return [importlib.import_module(name) for name in names]


def documented_objects(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions, classes and methods that a module defines, with where they stand."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            yield f"{module.__name__}.{name}", value
            for inner, member in vars(value).items():
                function = (
                    member.__func__ if isinstance(member, classmethod | staticmethod) else member
                )
                if inspect.isfunction(function):
                    yield f"{module.__name__}.{name}.{inner}", function
        elif inspect.isfunction(inspect.unwrap(value)):
            yield f"{module.__name__}.{name}", inspect.unwrap(value)


def sections(docstring: str) -> dict[str, list[str]]:
    """Lines of each numpydoc section."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {title: text.splitlines() for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def documented_names(docstring: str) -> list[str] | None:
    """Names in the section that documents parameters or fields; None where there is none."""
    found = sections(docstring)
    for title in ("Parameters", "Attributes"):
        if title in found:
            heads = [line for line in found[title] if line and not line.startswith(" ")]
            return [
                name.strip().lstrip("*")
                for head in heads
                for name in head.partition(" : ")[0].split(",")
            ]
    return None


def actual_names(value: Any) -> list[str]:
    """Names of parameters, in order, without the instance."""
    if dataclasses.is_dataclass(value):  # fields are keywords, and documented in any order
        documented = documented_names(value.__doc__ or "") or []
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return documented if sorted(documented) == sorted(fields) else fields
    if inspect.isclass(value) and issubclass(value, Warning) and "__init__" not in vars(value):
        return ["message"]
    return [name for name in inspect.signature(value).parameters if name not in {"self", "cls"}]


def test_documented_parameters_are_those_of_the_signature() -> None:
    wrong = {}
    for module in modules():
        for place, value in documented_objects(module):
            documented = documented_names(value.__doc__ or "")
            if documented is not None and documented != actual_names(value):
                wrong[place] = (documented, actual_names(value))
    assert wrong == {}


def exported() -> list[tuple[str, Any]]:
    """Functions and classes that users import, each once."""
    found: dict[int, tuple[str, Any]] = {}
    for package in PACKAGES:
        for each in getattr(package, "__all__", ()):
            value = getattr(package, each)
            if inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value)):
                found.setdefault(id(value), (f"{package.__name__}.{each}", value))
    return list(found.values())


EXPORTED = exported()


@pytest.mark.parametrize(("place", "value"), EXPORTED, ids=[place for place, _ in EXPORTED])
def test_an_exported_name_is_documented_with_an_example(place: str, value: Any) -> None:
    docstring = value.__doc__ or ""
    assert docstring.strip(), place
    if inspect.isclass(value):
        return
    assert ">>>" in docstring, f"{place} has no doctest"
    if actual_names(inspect.unwrap(value)):
        assert "Parameters" in sections(docstring), f"{place} does not document its parameters"


def test_parameters_are_read_out_of_a_docstring() -> None:
    docstring = """One line.

    Parameters
    ----------
    first, second : int
        Text: with a colon : and more.
    *rest
        More.

    Returns
    -------
    int
    """
    assert documented_names(docstring) == ["first", "second", "rest"]
    assert documented_names("One line.") is None


# --- pages ---


def page(name: str) -> str:
    """Text of a page; a page that is still to be written skips."""
    path = ROOT / name
    if not path.is_file():
        pytest.skip(f"{name} is not written yet")
    return path.read_text(encoding="utf-8")


def commands() -> list[str]:
    """Names of the subcommands."""
    group = importlib.import_module("calibration.cli").main
    return sorted(group.list_commands(click.Context(group)))


@requires_command_line
@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_every_command(name: str) -> None:
    text = page(name)
    assert [each for each in commands() if f"specmodel {each}" not in text] == []


@requires_command_line
@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_no_command_that_does_not_exist(name: str) -> None:
    named = re.findall(r"(?:^|`|\$ )specmodel ([a-z]+)", page(name), flags=re.MULTILINE)
    assert sorted(set(named) - set(commands())) == []


@requires_command_line
def test_every_command_has_help() -> None:
    group = importlib.import_module("calibration.cli").main
    loaded = {name: group.get_command(click.Context(group), name) for name in commands()}
    assert [name for name, command in loaded.items() if not command.help] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_only_make_targets_that_exist(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    named = re.findall(r"(?:^|`|\$ )make ([a-z]+)", page(name), flags=re.MULTILINE)
    assert sorted(set(named) - targets) == []


@pytest.mark.parametrize("name", PAGES)
def test_the_paths_that_a_page_names_exist(name: str) -> None:
    """Paths in backticks with a folder, but for patterns and placeholders."""
    named = re.findall(r"`([a-z][\w./-]*/[\w./-]*)`", page(name))
    assert [path for path in named if not (ROOT / path).exists()] == []
