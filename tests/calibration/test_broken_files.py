"""Whatever is in a file: an answer or one clear line, in bounded time and memory.

``SPECMODEL_FUZZ=20000 pytest tests/calibration/test_broken_files.py`` spends a budget larger than that of
`make prove`.
"""

import gzip
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calibration.conftest import RunCommand
from tests.calibration.mutations import at_most, mutated
from tests.calibration.said import said_of
from tests.extent import extent, prove, sample

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
SEEDS = sorted(
    path
    for page in ("csv", "other", "sglang")
    for path in (ENGINES / page).iterdir()
    if path.suffix != ".md" and not path.name.endswith(".expected.json")
)
SERVER_LOG = (ENGINES / "sglang" / "server_log_0.5.6.log").read_bytes()
BUDGET = int(os.environ.get("SPECMODEL_FUZZ", extent(test=180, prove=6000)))
BATCHES = 6
MOST_S = 10
MOST_BYTES = extent(test=1 << 29, prove=1 << 30)
BOMB_BYTES = extent(test=1 << 29, prove=4 << 30)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_broken_file_ends_in_an_answer_or_a_line(tmp_path: Path, batch: int) -> None:
    chance = random.Random(f"broken files {batch}")  # noqa: S311 - the same files in every run
    for number in range(BUDGET // BATCHES):
        seed = chance.choice(SEEDS)
        data = mutated(seed.read_bytes(), chance)
        path = tmp_path / "broken"
        path.write_bytes(data)
        try:
            with at_most(MOST_S):
                assert said_of(path)
        except Exception as error:
            kept = Path(os.environ.get("SPECMODEL_FUZZ_KEEP", tmp_path)) / f"{batch}-{number}"
            kept.write_bytes(data)
            error.add_note(f"made from {seed.name}, kept as {kept}")
            raise


@sample(3)
@pytest.mark.parametrize(
    "content",
    [
        b"\0" * (1 << 20),
        b"[" * (1 << 20),
        next(line for line in SERVER_LOG.splitlines(keepends=True) if b"Decode batch" in line)
        * 8192,
        pytest.param(SERVER_LOG * 128, marks=prove),
        b"accept_length,throughput,baseline\n" + b"2.1,82.3,90.0\n" * 60_000,
        b'{"meta_info": {"spec_verify_ct": 1}}\n' * 30_000,
    ],
    ids=["zeros", "brackets", "server log", "many server logs", "table", "json lines"],
)
def test_a_gzip_bomb_is_bounded(tmp_path: Path, content: bytes) -> None:
    """Each grows beyond what the process may use when it is unpacked."""
    bomb = tmp_path / "bomb.gz"
    packed = gzip.compress(content, mtime=0)
    bomb.write_bytes(packed * max(1, BOMB_BYTES // len(content)))

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    run = subprocess.run(
        [sys.executable, "-m", "calibration", "ingest", str(bomb)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        preexec_fn=bounded,
        timeout=120,
    )
    assert run.returncode in {0, 1}, run.stderr[-500:]
    assert "Traceback" not in run.stderr
    said = [line for line in run.stderr.splitlines() if not line.startswith("reading: ")]
    assert run.returncode == 0 or len(said) == 1


def test_a_huge_single_line_is_bounded(specmodel: RunCommand) -> None:
    Path("line").write_bytes(
        b"[2026-01-01 10:00:00] Decode batch, #running-req: 1" + b"x" * 30_000_000
    )
    with at_most(MOST_S):
        run = specmodel("ingest", "line")
    assert run.exit_code == 1
    assert run.stderr.count("\n") == 1
