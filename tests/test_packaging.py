"""The wheel holds the three packages with their data, and the installation is the one that is meant."""

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("specmodel", "calibration", "drafter")
BUILT_FROM = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")

READS_EVERY_DATA_FILE = """
import sys
from pathlib import Path
import specmodel
from calibration.points.packaged import packaged_tables
from drafter.public_models import public_shapes
from specmodel.prior import load_prior
from specmodel.sources import sources
assert Path(specmodel.__file__).is_relative_to(sys.argv[1]), specmodel.__file__
assert public_shapes()
assert sources() and load_prior(experts_known=True).learned_from
assert packaged_tables() and all(table.path.is_file() for table in packaged_tables())
"""


def setuptools_knows_the_licence_fields() -> bool:
    """Whether the installed setuptools can build this project without fetching another."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    return int(version.partition(".")[0]) >= 77


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that nothing left over in the working tree gets in."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).is_file():
            shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    if setuptools_knows_the_licence_fields():
        command.append("--no-build-isolation")
    subprocess.run(
        [*command, "--wheel-dir", str(out), str(copy)], check=True, capture_output=True, text=True
    )
    (built,) = out.glob("*.whl")
    return built


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_exactly_the_three_packages(wheel: Path) -> None:
    top = {name.partition("/")[0] for name in names_in(wheel)}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_holds_nothing_that_a_wheel_should_not(wheel: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "check_wheel_contents", str(wheel)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in names_in(wheel) if name.partition("/")[0] in PACKAGES}
    assert packed == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed


def test_the_wheel_declares_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/entry_points.txt"))
        text = archive.read(name).decode("utf-8")
    assert "specmodel = calibration.cli:main" in text
    assert "drafter = drafter.cli:command" in text


def test_the_gpu_stack_comes_with_the_extra_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        lines = archive.read(name).decode("utf-8").splitlines()
    stack = [
        line for line in lines if re.match(r"Requires-Dist: (torch|triton|safetensors)\b", line)
    ]
    assert len(stack) == 3
    assert all('extra == "drafter"' in line for line in stack)


def test_the_packages_work_from_the_wheel_in_another_folder(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = f"import sys\nsys.path.insert(0, sys.argv[1])\n{READS_EVERY_DATA_FILE}"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "site")],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_the_installed_package_belongs_to_this_distribution(package: str) -> None:
    """Other distributions install packages of these names; the later one overwrites the earlier."""
    assert set(importlib.metadata.packages_distributions()[package]) == {"specmodel"}
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).is_file()


def test_the_wheel_carries_the_version_of_the_code(wheel: Path) -> None:
    version = importlib.import_module("specmodel.version").__version__
    assert wheel.name.startswith(f"specmodel-{version}-")


@pytest.mark.skipif(
    importlib.util.find_spec("calibration.cli") is None, reason="there is no command line yet"
)
def test_the_installed_command_can_be_loaded() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="specmodel")
    assert entry.value == "calibration.cli:main"
    assert callable(entry.load())


def test_the_group_of_draft_models_is_an_entry_point_that_can_be_loaded() -> None:
    (entry,) = importlib.metadata.entry_points(group="specmodel.commands", name="drafter")
    assert entry.value == "drafter.cli:command"
    assert callable(entry.load())
