"""`specmodel drafter floor` and how the group joins the command line."""

import json
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import click
import pytest
from click.testing import Result

from drafter.public_models import public_shapes
from specmodel.hardware import gpus

Run = Callable[..., Result]


def widths(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > 80]


def test_every_public_shape_has_a_line_with_its_floor(specmodel: Run) -> None:
    result = specmodel("drafter", "floor")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines() if line]
    assert set(public_shapes()) <= set(names)
    (line,) = (each for each in result.stdout.splitlines() if each.startswith("Llama-3.1-8B"))
    # the roofline table of the drafter reference, at the 1.792 TB/s of the catalogue for the third
    assert line.split() == ["Llama-3.1-8B", "749", "158", "226", "422", "751", "+21"]
    assert "Nothing here was measured" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "names",
    [(), ("B300", "strixhalo", "RTX PRO 6000 Server", "A100 PCIe 80GB", "H20", "A800 PCIe 80GB")],
)
def test_the_table_fits_in_80_columns_and_shows_every_device(
    specmodel: Run, names: tuple[str, ...]
) -> None:
    asked = [argument for name in names for argument in ("--gpu", name)]
    result = specmodel(
        "drafter", "floor", *asked, "--context-tokens", "1000000", "--batch-size", "64"
    )
    assert result.exit_code == 0, result.stderr
    assert widths(result.stdout) == []
    answer = json.loads(specmodel("drafter", "floor", *asked, "--json").stdout)
    assert len(answer["draft_models"][0]["floors"]) == len(names or (1, 2, 3, 4))


def test_the_json_carries_its_schema_and_says_that_nothing_was_measured(specmodel: Run) -> None:
    answer = json.loads(specmodel("drafter", "floor", "--gpu", "H100", "--json").stdout)
    assert (answer["schema_version"], answer["measured"]) == (1, False)
    by_name = {model["name"]: model for model in answer["draft_models"]}
    assert by_name["Llama-3.1-8B"]["floors"][0]["floor_us"] == pytest.approx(226, abs=0.5)
    assert by_name["gpt-oss-short"]["extend_bytes"] == 0


def test_load_moves_the_floor_as_bytes_do(specmodel: Run) -> None:
    def floor(*arguments: str) -> float:
        text = specmodel("drafter", "floor", "--gpu", "H200", "--json", *arguments).stdout
        value: float = json.loads(text)["draft_models"][0]["floors"][0]["floor_us"]
        return value

    # a batch of 64 streams 64 caches of 8.4 MB: the reference says 268 us
    assert floor("--batch-size", "64") == pytest.approx(268, abs=0.5)
    assert floor("--context-tokens", "0") < floor()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpu", "nonsense"),
        ("--gpu", "RTX PRO 6000"),
        ("--context-tokens", "-1"),
        ("--batch-size", "0"),
        tuple(argument for name in list(gpus())[:7] for argument in ("--gpu", name)),
        ("extra",),
    ],
    ids=lambda value: " ".join(value)[:30],
)
def test_bad_usage_ends_with_one_line_and_status_2(
    specmodel: Run, arguments: tuple[str, ...]
) -> None:
    result = specmodel("drafter", "floor", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")


def test_the_help_of_specmodel_lists_the_group_and_the_group_its_commands(specmodel: Run) -> None:
    assert "drafter" in specmodel("--help").stdout
    text = specmodel("drafter", "--help").stdout
    assert "inspect" in text
    assert "floor" in text
    for name in ("inspect", "floor"):
        assert widths(specmodel("drafter", name, "--help").stdout) == []


def test_an_unknown_command_is_refused_in_one_line(specmodel: Run) -> None:
    for arguments in (("nonsense",), ("drafter", "nonsense")):
        result = specmodel(*arguments)
        assert result.exit_code == 2
        assert "No such command" in result.stderr


# --- commands of other packages ---


def brought(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    def found(*, group: str, name: str = "") -> list[EntryPoint]:
        assert group == "specmodel.commands"
        return [entry for entry in entries if not name or entry.name == name]

    monkeypatch.setattr("importlib.metadata.entry_points", found)


def test_a_package_that_cannot_be_loaded_breaks_its_own_command_only(
    specmodel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = EntryPoint("broken", "no_such_module:command", "specmodel.commands")
    other = EntryPoint("other", "math:pi", "specmodel.commands")
    brought(monkeypatch, broken, other)
    help_text = specmodel("--help").stdout
    assert "Cannot be loaded." in help_text
    assert "predict" in help_text
    result = specmodel("broken", "anything", "--at-all")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: the command broken cannot be loaded: ModuleNotFoundError"
    )
    assert "math:pi is no command" in specmodel("other").stderr
    assert specmodel("data").exit_code == 0


def test_a_command_of_the_table_is_not_replaced_by_another_package(
    specmodel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = type(sys)("taken")
    module.command = click.Command("data", callback=lambda: click.echo("taken over"))
    monkeypatch.setitem(sys.modules, "taken", module)
    brought(monkeypatch, EntryPoint("data", "taken:command", "specmodel.commands"))
    assert "taken over" not in specmodel("data").stdout
    assert specmodel("--help").stdout.count("\n  data ") == 1


def test_a_command_of_the_table_does_not_look_for_other_packages(
    specmodel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: str) -> list[EntryPoint]:
        raise AssertionError

    monkeypatch.setattr("importlib.metadata.entry_points", refuse)
    assert specmodel("predict", "--accept", "2.75", "--depth", "5").exit_code == 0
