"""Run the commands that README.md shows, in its order, and put their real output under them.

Run as ``python scripts/refresh_readme.py``; with ``--check`` it only says whether the page is current,
which the tests do; ``--quick`` besides leaves the evaluation of packaged systems as it is. A block with
one command shows its output; of a block with several, each has to run.
"""

import contextlib
import re
import shlex
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

from calibration.cli import main as specmodel

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"```console\n(.*?)\n```", re.DOTALL)
SET_UP = ("pip install", "specmodel examples", "cd ")
"""Commands of the first screen, which lead into the folder where the others run."""


def output_of(command: str) -> str:
    """What a command prints on standard output in 80 columns; of an evaluation only the summary."""
    arguments = shlex.split(command, comments=True)
    if arguments[0] != "specmodel":
        sys.exit(f"README.md: not a command of ours: {command}")
    settings = {"COLUMNS": "80", "NO_COLOR": "1"}
    result = CliRunner().invoke(specmodel, arguments[1:], env=settings)
    if result.exit_code:
        sys.exit(f"README.md: `{command}` ends with {result.exit_code}: {result.stderr}")
    text = result.stdout
    if arguments[1] == "evaluate":
        text = text[text.index("Mean over systems") : text.index("Error:")]
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def _renewed(block: re.Match[str]) -> str:
    """A block whose commands have run, with the output of the one that shows it."""
    commands = [line[2:] for line in block[1].splitlines() if line.startswith("$ ")]
    if "--quick" in sys.argv and commands[0].startswith("specmodel evaluate --data"):
        return block[0]
    outputs = [output_of(command) for command in commands if not command.startswith(SET_UP)]
    if len(commands) > 1 or block[1].count("\n") == 0:
        return block[0]
    return f"```console\n$ {commands[0]}\n{outputs[0]}\n```"


def refreshed(page: str) -> str:
    """The page with the output of each command that shows it renewed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        output_of("specmodel examples .")
        return BLOCK.sub(_renewed, page)


def main() -> None:
    """Renew the page, or check it."""
    page = README.read_text(encoding="utf-8")
    new = refreshed(page)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == page else "README.md is not current; run scripts/refresh_readme.py")
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
