"""The lines between the packages, and rules about names and files that a linter does not know."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("specmodel", "calibration", "drafter")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SCRIPTS = sorted(
    path for folder in ("scripts", "examples") for path in (ROOT / folder).glob("*.py")
)

GPU_STACK = {"torch", "triton", "safetensors"}
HEAVY = (*GPU_STACK, "pandas", "scipy", "matplotlib", "click", "rich", "iminuit", "drafter")
HEAVY_FOR_THE_COMMAND_LINE = (*GPU_STACK, "pandas", "scipy", "matplotlib", "iminuit", "rich")
PHYSICAL_FORM = (
    "calibration.rig",
    "specmodel.architecture",
    "specmodel.hardware",
    "specmodel.measurement",
    "specmodel.rig",
)
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
SWAPPED_NAMES = {"p", "q"}
SYMBOLS = {"k", "gamma", "tau"}
FACTORS = {1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12, 1024}

Finding = tuple[int, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def findings(rule: Callable[[ast.Module], Iterator[Finding]], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in paths
        for line, text in rule(parsed(path))
    ]


def parameters(function: Function) -> list[ast.arg]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return named + [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]


def swapped_names(tree: ast.Module) -> Iterator[Finding]:
    """Names that one half of the literature reads as the other half's opposite."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in SWAPPED_NAMES:
            yield node.lineno, node.arg
        if isinstance(node, ast.Name) and node.id in SWAPPED_NAMES:
            yield node.lineno, node.id


def symbols_as_public_names(tree: ast.Module) -> Iterator[Finding]:
    """Symbols of formulas where a public function, a field or a constant needs a word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            for argument in parameters(node):
                if argument.arg in SYMBOLS:
                    yield argument.lineno, f"{node.name}({argument.arg})"
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                target = field.target if isinstance(field, ast.AnnAssign) else None
                if isinstance(target, ast.Name) and target.id in SYMBOLS:
                    yield target.lineno, f"{node.name}.{target.id}"


def bare_factors(tree: ast.Module) -> Iterator[Finding]:
    """Products, quotients and powers with a conversion factor that `specmodel.units` names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.Pow):
            for side in (node.left, node.right):
                value = side.value if isinstance(side, ast.Constant) else None
                if isinstance(value, int | float) and value in FACTORS:
                    yield node.lineno, ast.unparse(node)


def modules_after(statement: str, folder: Path = ROOT, *, whole: bool = False) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter after a statement, or whole ones."""
    name = "n" if whole else "n.partition('.')[0]"
    code = f"{statement}\nimport sys\nprint('\\n' + ' '.join({{{name} for n in sys.modules}}))"
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=folder
    )
    return set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("module", PACKAGES)
def test_importing_a_package_loads_no_gpu_stack(module: str) -> None:
    assert modules_after(f"import {module}").isdisjoint(GPU_STACK)


def test_the_model_loads_numpy_and_nothing_heavier() -> None:
    everything = "import specmodel\nfor name in specmodel.__all__: getattr(specmodel, name)"
    loaded = modules_after(everything)
    assert "numpy" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["predict", "--accept", "2.75", "--depth", "5"],
        ["drafter", "--help"],
        ["drafter", "floor"],
        ["drafter", "inspect", "gpt-oss"],
    ],
    ids=" ".join,
)
def test_the_command_line_loads_nothing_heavier_than_numpy_and_click_for(
    arguments: list[str], tmp_path: Path
) -> None:
    statement = f"from calibration.cli import main\nmain({arguments}, standalone_mode=False)"
    assert modules_after(statement, tmp_path).isdisjoint(HEAVY_FOR_THE_COMMAND_LINE)


def test_a_prediction_loads_nothing_of_drafter_and_looks_for_no_other_package(
    tmp_path: Path,
) -> None:
    arguments = ["predict", "--accept", "2.75", "--depth", "5"]
    statement = f"from calibration.cli import main\nmain({arguments}, standalone_mode=False)"
    assert "drafter" not in modules_after(statement, tmp_path)
    code = f"{statement}\nimport sys\nassert 'importlib.metadata' not in sys.modules"
    run = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:] = {[str(ROOT), *sys.path]!r}\n{code}",
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr


def test_a_prediction_without_changes_loads_nothing_of_the_physical_form_that_it_carries(
    tmp_path: Path,
) -> None:
    bench = "accept_length,throughput,baseline,num_steps,target_model,gpu\n2.1,82.3,90,3,Qwen3-8B,H100\n"
    (tmp_path / "bench.csv").write_text(bench, encoding="utf-8")
    fitted = "from calibration import fit\nfit('bench.csv', profile=False).save('calibration.json')"
    modules_after(fitted, tmp_path)
    assert '"jacobian"' in (tmp_path / "calibration.json").read_text(encoding="utf-8")
    for extra in ([], ["--json"]):
        arguments = ["predict", "--accept", "2.5", *extra]
        statement = f"from calibration.cli import main\nmain({arguments}, standalone_mode=False)"
        loaded = modules_after(statement, tmp_path, whole=True)
        assert "specmodel.physical_fit" in loaded
        assert not [name for name in loaded if name.startswith(PHYSICAL_FORM)]
        changed = statement.replace("'2.5'", "'2.5', '--set', 'batch_size=2'")
        loaded = modules_after(changed, tmp_path, whole=True)
        assert "calibration.rig.prediction" in loaded
        assert loaded.isdisjoint(HEAVY_FOR_THE_COMMAND_LINE)


def test_no_module_has_a_name_that_says_nothing() -> None:
    named = [path for path in SOURCES + SCRIPTS if path.stem in VAGUE_NAMES]
    named += [path for path in SOURCES if VAGUE_NAMES & set(path.relative_to(ROOT).parts)]
    assert named == []


def test_letters_that_the_literature_swaps_are_never_names() -> None:
    assert findings(swapped_names, SOURCES + SCRIPTS) == []


def test_symbols_of_formulas_are_not_public_names() -> None:
    assert findings(symbols_as_public_names, SOURCES) == []


def test_conversion_factors_stand_in_units_only() -> None:
    elsewhere = [path for path in SOURCES if path.name != "units.py"]
    assert findings(bare_factors, elsewhere) == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (swapped_names, "def f(*, p): return p"),
        (swapped_names, "q = 1"),
        (swapped_names, "for p in range(3): pass"),
        (swapped_names, "f = lambda q: q"),
        (symbols_as_public_names, "def f(tau): return tau"),
        (symbols_as_public_names, "class C:\n    gamma: float"),
        (bare_factors, "time_ms = time_s * 1e3"),
        (bare_factors, "gib = size / 1024**3"),
        (bare_factors, "rate = 1000 / step_ms"),
    ],
)
def test_the_rules_see_what_they_forbid(
    rule: Callable[[ast.Module], Iterator[Finding]], code: str
) -> None:
    assert list(rule(ast.parse(code)))
