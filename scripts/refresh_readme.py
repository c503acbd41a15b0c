"""Run the commands that README.md shows and put their real output under them.

Run as ``python scripts/refresh_readme.py``; with ``--check`` it only says whether the page is current,
which the tests do. Blocks with several commands are examples without output and stay as they are.
"""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(\$ specmodel [^\n]*)\n(?!\$|```)(.*?)\n```", re.DOTALL)


def output_of(command: str, folder: Path) -> str:
    """What a command prints on stdout in 80 columns; of an evaluation only the summary."""
    arguments = shlex.split(command.removeprefix("$ specmodel "))
    run = subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, "-m", "calibration", *arguments],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
    )
    text = run.stdout
    if arguments[0] == "evaluate":
        text = text[text.index("Mean over systems") : text.index("Error:")]
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def refreshed(page: str) -> str:
    """The page with the output of each single command renewed, in the order of the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "examples" / "bench.csv", folder)
        for log in ("sglang_eagle3.log", "sglang_baseline.log"):
            shutil.copy(ROOT / "examples" / "engine_files" / log, folder)
        with gzip.open(ROOT / "examples" / "training" / "speculators.log.gz") as packed:
            (folder / "train.log").write_bytes(packed.read())
        output_of("$ specmodel fit sglang_eagle3.log sglang_baseline.log -o server.json", folder)

        def renewed(block: re.Match[str]) -> str:
            return f"```console\n{block[1]}\n{output_of(block[1], folder)}\n```"

        return BLOCK.sub(renewed, page)


def main() -> None:
    """Renew the page, or check it."""
    page = README.read_text(encoding="utf-8")
    new = refreshed(page)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == page else "README.md is not current; run scripts/refresh_readme.py")
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
