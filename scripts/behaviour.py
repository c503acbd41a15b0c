"""What the command line answers over the fixtures, written down and compared.

    python scripts/behaviour.py --write build/behaviour/before [--tree OTHER_CHECKOUT]
    python scripts/behaviour.py --compare build/behaviour/before

The commands of `behaviour_commands.txt` run in order in one temporary folder that holds the example files and
`tests/fixtures/` (as `fixtures/`) of this checkout, so later ones use what earlier ones wrote. A record has
the exit code, both outputs and every file that was written; `--tree` runs the packages of another checkout.
"""

import argparse
import contextlib
import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COMMANDS = HERE / "scripts/behaviour_commands.txt"
# The last bits of a number depend on the order of a sum.
LONG_NUMBER = re.compile(r"-?\b\d+\.\d{9,}(e[-+]?\d+)?")
# A calibration says when it was fitted, and its hash follows from that.
WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
HASH = re.compile(rb'"(fitted_at|content_sha256)": "[^"]*"')
PLACES = {
    "bench.csv": "bench.csv",
    "sweep.jsonl": "engine_files/bench_speculative.jsonl",
    **{
        name: f"engine_files/{name}"
        for name in ("colleague.csv", "sglang_baseline.log", "sglang_eagle3.log", "vllm_server.log")
    },
}
OTHER_NAMES: dict[str, str] = {}  # of a command that was renamed, in either direction


def records(tree: Path) -> dict[str, str]:
    """Run every command with the packages of a tree; the record of each, by the name of its file."""
    sys.path.insert(0, str(tree))
    os.environ.update(
        COLUMNS="100", MPLBACKEND="agg", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"
    )
    from click.testing import CliRunner

    from calibration.cli import main

    found: dict[str, str] = {}
    runner = CliRunner()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "examples/engine_files").mkdir(parents=True)
        for file, place in PLACES.items():
            shutil.copy(HERE / "calibration/data/examples" / file, folder / "examples" / place)
        shutil.copytree(HERE / "tests/fixtures", folder / "fixtures")
        os.chdir(folder)
        for line in COMMANDS.read_text(encoding="utf-8").splitlines():
            words = shlex.split(line)
            if words[0] in OTHER_NAMES and words[0] not in main.commands:
                words[0] = OTHER_NAMES[words[0]]
            before = written(folder)
            result = runner.invoke(main, words, prog_name="specmodel")
            new = {path: text for path, text in written(folder).items() if before.get(path) != text}
            record = {
                "command": line,
                "exit": result.exit_code,
                "stdout": result.stdout.splitlines(),
                "stderr": result.stderr.splitlines(),
                "files": {str(path.relative_to(folder)): said(text) for path, text in new.items()},
            }
            text = json.dumps(record, indent=1, ensure_ascii=False).replace(str(folder), "FOLDER")
            text = WHEN.sub("WHEN", text)
            text = LONG_NUMBER.sub(lambda found: f"{float(found[0]):.9g}", text)
            slug = re.sub(r"[^a-z0-9]+", "-", line.lower()).strip("-")[:120]
            again = sum(name.startswith(f"{slug}.") for name in found)
            found[f"{slug}.{again + 1}.json"] = text + "\n"
        os.chdir(HERE)
    return found


def written(folder: Path) -> dict[Path, bytes]:
    """Bytes of what commands wrote."""
    kept = (folder / "examples", folder / "fixtures")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [path for path in paths if not set(kept) & set(path.parents)]
    return {path: HASH.sub(b'"\\1": ""', path.read_bytes()) for path in files}


def sorted_keys(text: str | None) -> str:
    """A record in which the order of keys of a JSON answer does not count."""
    record = json.loads(text or "{}")
    with contextlib.suppress(ValueError, KeyError):
        record["stdout"] = json.loads("\n".join(record["stdout"]))
    return WHEN.sub("WHEN", json.dumps(record, sort_keys=True))


def said(content: bytes) -> list[str]:
    """Lines of a text; the hash of a picture."""
    if content.startswith(b"\x89PNG"):
        return [f"picture {hashlib.sha256(content).hexdigest()[:16]}"]
    return content.decode(errors="backslashreplace").splitlines()


def main() -> int:
    """Write or compare records; 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--compare", type=Path, metavar="FOLDER")
    parser.add_argument("--tree", type=Path, default=HERE, help="checkout whose packages run")
    asked = parser.parse_args()
    write, compare = (path and path.resolve() for path in (asked.write, asked.compare))
    found = records(asked.tree.resolve())
    if write is not None:
        shutil.rmtree(write, ignore_errors=True)
        write.mkdir(parents=True)
        for name, text in found.items():
            (write / name).write_text(text, encoding="utf-8")
    if compare is None:
        return 0
    old = {path.name: path.read_text(encoding="utf-8") for path in compare.glob("*.json")}
    different = [
        name
        for name in sorted({*old, *found})
        if sorted_keys(old.get(name)) != sorted_keys(found.get(name))
    ]
    for name in different:
        before, now = (texts.get(name, "").splitlines() for texts in (old, found))
        titles = f"before/{name}", f"now/{name}"
        print(*difflib.unified_diff(before, now, *titles, lineterm=""), sep="\n")
    print(f"{len(different)} of {len(found)} commands answer differently", file=sys.stderr)
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
