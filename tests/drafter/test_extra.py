"""Without torch the package imports, its light commands work, and the rest says how to install it."""

import subprocess
import sys
from pathlib import Path

import pytest

import drafter
from drafter.extra import require_extra
from specmodel.errors import MissingExtraError

WITHOUT = "import sys\nfor name in ('torch', 'triton', 'safetensors'): sys.modules[name] = None\n"
LIGHT = (
    "drafter",
    "drafter.checkpoint_files",
    "drafter.cli",
    "drafter.config_json",
    "drafter.floors",
    "drafter.public_models",
    "drafter.report",
    "drafter.spec",
)
NEEDS_TORCH = ("drafter.checkpoint",)


def python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )


def test_light_modules_load_neither_torch_nor_triton() -> None:
    loads = "".join(f"import {name}\n" for name in LIGHT)
    run = python(
        f"{loads}import sys\nprint({{'torch', 'triton', 'safetensors'}} & set(sys.modules))"
    )
    assert run.stdout.strip() == "set()", run.stderr


def test_light_modules_and_commands_work_without_the_extra() -> None:
    loads = "".join(f"import {name}\n" for name in LIGHT)
    command = "from calibration.cli import main\nmain(['drafter', 'inspect', 'gpt-oss'])"
    run = python(f"{WITHOUT}{loads}{command}")
    assert run.returncode == 0, run.stderr
    assert "565.5 MB weights" in run.stdout


@pytest.mark.parametrize("module", NEEDS_TORCH)
def test_a_module_that_needs_torch_says_in_one_line_how_to_install_it(module: str) -> None:
    run = python(f"{WITHOUT}import {module}")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "specmodel.errors.MissingExtraError: this part of drafter needs torch, which is not installed; "
        "pip install 'specmodel[drafter]'"
    )


def test_every_other_module_works_or_says_what_is_missing() -> None:
    root = Path(drafter.__file__).parent
    names = [
        ".".join(("drafter", *path.relative_to(root).with_suffix("").parts))
        for path in sorted(root.rglob("*.py"))
        if path.name != "__init__.py"
    ]
    assert len(names) > 30
    code = (
        f"{WITHOUT}import importlib\n"
        "from specmodel.errors import MissingExtraError\n"
        f"for name in {names}:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except MissingExtraError as error:\n"
        "        assert 'pip install' in str(error)\n"
        "        continue\n"
        "    print(name)\n"
    )
    run = python(code)
    assert run.returncode == 0, run.stderr[-600:]
    assert set(LIGHT) - {"drafter"} <= set(run.stdout.split())
    assert not any(".kernels." in name for name in run.stdout.split())


def test_a_command_that_needs_a_missing_package_ends_in_one_line() -> None:
    """A command of the group whose module imports torch, as those that compute do."""
    code = (
        f"{WITHOUT}"
        "import click, types\n"
        "from drafter.cli import DrafterCommands\n"
        "import drafter.cli, calibration.cli\n"
        "def body(): import torch\n"
        "module = types.ModuleType('drafter.commands.check')\n"
        "module.command = click.Command('check', callback=body)\n"
        "sys.modules['drafter.commands.check'] = module\n"
        "calibration.cli.main(['drafter', 'check'])\n"
    )
    run = python(code)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == (
        "Error: specmodel drafter check needs torch, which is not installed; "
        "pip install 'specmodel[drafter]'\n"
    )


def test_all_that_is_missing_is_named() -> None:
    with pytest.raises(
        MissingExtraError, match="needs no_such and nor_this, which are not installed"
    ):
        require_extra("json", "no_such", "nor_this")
