"""Which of our functions a command enters: how many hops an answer takes.

    python scripts/functions_entered.py [--list] fit a.log b.log

Comprehensions and the bodies of modules and classes are not counted.
"""

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(str(ROOT / name) for name in ("specmodel", "calibration", "drafter"))


def entered(arguments: list[str]) -> tuple[Counter[CodeType], int]:
    """Calls by function of a command that is run, and its exit code."""
    sys.path.insert(0, str(ROOT))
    from calibration.cli import main

    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        code = frame.f_code
        ours = event == "call" and code.co_filename.startswith(PACKAGES)
        if ours and not code.co_name.startswith("<"):
            calls[code] += 1

    status: Any = 0
    sys.setprofile(note)
    try:
        main(arguments, prog_name="specmodel")
    except SystemExit as leaving:
        status = leaving.code
    finally:
        sys.setprofile(None)
    return calls, int(status or 0)


def main() -> int:
    """Run the command and print the counts after what it prints."""
    arguments = sys.argv[1:]
    listed = arguments[:1] == ["--list"]
    calls, status = entered(arguments[listed:])
    # A class body is entered once, when its module loads; it is no hop.
    functions = {code: count for code, count in calls.items() if _is_function(code)}
    names = {code: f"{_place(code)} {code.co_qualname}" for code in functions}
    if listed:
        for code, count in sorted(functions.items(), key=lambda pair: names[pair[0]]):
            print(f"{count:7}  {names[code]}", file=sys.stderr)
    once = sum(count == 1 for count in functions.values())
    files = {code.co_filename for code in functions}
    print(
        f"{len(functions)} functions entered, {once} of them once, in {len(files)} files; "
        f"{sum(functions.values()):,} calls",
        file=sys.stderr,
    )
    return status


def _is_function(code: CodeType) -> bool:
    """Whether a body is that of a function: only those have fast locals."""
    return bool(code.co_flags & 0x2)


def _place(code: CodeType) -> str:
    """File and line, from the root."""
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno}"


if __name__ == "__main__":
    sys.exit(main())
