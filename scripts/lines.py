"""Lines of code and of docstrings, by folder: what the size of this project is.

    python scripts/lines.py [--check]

A line of code holds a token that is neither comment nor docstring; docstrings are those of modules, classes
and functions. `--check` fails above the limits.
"""

import ast
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("specmodel", "calibration", "drafter")
MOST_LINES, MOST_FILES = 42_000, 400
MOST_DOCS = {"specmodel": 0.45, "calibration": 0.45}  # docstring lines over lines of code
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def counted(path: Path) -> Counter[str]:
    """Lines of code and of docstrings of a file."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant(value=str())) as doc, *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str())) as doc, *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as doc, *_])
            ):
                docs.update(range(doc.lineno, (doc.end_lineno or doc.lineno) + 1))
    code: set[int] = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in _LAYOUT:
                code.update(range(token.start[0], token.end[0] + 1))
    return Counter(code=len(code - docs), files=1, docs=len(docs))


def main() -> int:
    """Print the table; 1 where a limit is passed and limits are asked for."""
    command = [
        "git",
        "ls-files",
        "-co",
        "--exclude-standard",
        *PACKAGES,
    ]  # also what is not added yet
    names = subprocess.check_output(command, cwd=ROOT, text=True).split()  # noqa: S603 - git
    table: dict[str, Counter[str]] = {}
    for name in names:
        if not name.endswith(".py") or not (ROOT / name).exists():
            continue
        package, *inner = Path(name).parts
        found = counted(ROOT / name)
        for group in (f"{package}/{inner[0] if len(inner) > 1 else '.'}", package, "all"):
            table[group] = table.get(group, Counter()) + found
    print(f"{'':28}{'code':>8}{'files':>7}{'docs':>8}{'docs/code':>11}")
    for group, found in sorted(table.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        ratio = found["docs"] / max(found["code"], 1)
        print(f"{group:28}{found['code']:8,}{found['files']:7}{found['docs']:8,}{ratio:11.2f}")
    total = table["all"]
    passed = [
        f"{label} is {value:,}, at most {most:,}"
        for label, value, most in (
            ("code", total["code"], MOST_LINES),
            ("files", total["files"], MOST_FILES),
            *(
                (f"docs/code of {name}", round(table[name]["docs"] / table[name]["code"], 3), most)
                for name, most in MOST_DOCS.items()
            ),
        )
        if value > most
    ]
    if "--check" not in sys.argv[1:]:
        return 0
    print(*passed, sep="\n", file=sys.stderr)
    return bool(passed)


if __name__ == "__main__":
    sys.exit(main())
