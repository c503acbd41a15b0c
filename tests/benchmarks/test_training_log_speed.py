"""How fast a training log is read, beside reading its lines, in how much memory, and followed.

``SPECMODEL_BENCH_TRAINING_MB`` sets the size of the logs.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from calibration.training.following import TrainingLogFollower
from calibration.training.reading import _read_files
from calibration.training.records import RawLog
from specmodel.units import KIBI, MEGA

SIZE_MB = int(os.environ.get("SPECMODEL_BENCH_TRAINING_MB", "50"))
MOST_MEMORY_MB = 250
FOLLOWED_MB = 100
KINDS = ("speculators_wide", "speculators_wrapped", "specforge", "foreign")
INDENT = " " * 20

IN_A_PROCESS = """
import re, resource, sys
from pathlib import Path
from calibration.training.reading import read_training_log
read_training_log(Path(sys.argv[1]))
status = Path("/proc/self/status")  # getrusage would count the process that started this one
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
print(peak[1] if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def speculators_record(step: int, chance: random.Random, *, columns: int | None = None) -> str:
    """Return a record of five depths as Rich prints it, wide or wrapped at commas."""
    pairs = []
    for depth in range(5):
        accuracy = chance.uniform(0.4, 0.8)
        pairs += [f"train/loss_{depth}={chance.uniform(0, 12):.3f}"]
        pairs += [f"train/full_acc_{depth}={accuracy ** (depth + 1):.3f}"]
        pairs += [f"train/cond_acc_{depth}={accuracy:.3f}"]
    pairs += [f"train/loss={chance.uniform(1, 20):.3f}", f"epoch={step // 20_000}"]
    pairs += [f"lr={1e-4 / (1 + step / 1e5):.2e}", f"global_step={step}"]
    pieces = [""]
    for pair in (*(f"{pair}," for pair in pairs[:-1]), pairs[-1]):
        if columns and pieces[-1] and len(pieces[-1]) + len(pair) + 36 > columns:
            pieces.append(pair)
        else:
            pieces[-1] = f"{pieces[-1]} {pair}".lstrip()
    width = columns - 35 if columns else 0
    time = f"[08:{step // 60 % 60:02}:{step % 60:02}]" if step % 3 else " " * 10
    first = f"{time} INFO     {pieces[0]:{width}} trainer.py:220\n"
    return first + "".join(f"{INDENT}{piece:{width}}\n" for piece in pieces[1:])


def specforge_record(step: int, chance: random.Random) -> str:
    """Return a dictionary of seven depths."""
    pairs = {}
    for depth in range(7):
        pairs[f"acc_{depth}"] = round(chance.uniform(0.3, 0.8), 4)
        pairs[f"ploss_{depth}"] = round(chance.uniform(0.5, 3.0), 4)
    pairs |= {"loss": round(chance.uniform(1.0, 9.0), 4), "lr": 1e-4}
    return f"step {step}: {pairs}\n"


def foreign_line(number: int, chance: random.Random) -> str:
    """Return a line of another program."""
    time = f"[08:{number // 60 % 60:02}:{number % 60:02}]"
    kind = number % 10
    if kind == 1:
        wait = f"{chance.random():.3f}"
        return f"{time} WARNING  Retrying request to /v1/completions in {wait} seconds    _base_client.py:1055\n"
    if kind == 2:
        return f"Generating hidden states:  {number % 100}%|###      | {number}/90000 [00:12<10:11, 9.31it/s]\r"
    if kind == 3:
        return f"(EngineCore pid={kind}) INFO 05-02 10:11:12 [loggers.py:111] Running: {number % 9} reqs\n"
    return f'{time} INFO     HTTP Request: POST http://node{kind}:8000/v1 "HTTP/1.1 200 OK"     _client.py:1025\n'


def texts_of(kind: str) -> Iterator[str]:
    """Yield the records of a log without an end."""
    chance = random.Random(kind)  # noqa: S311 - the same in every run
    columns = 160 if kind == "speculators_wrapped" else None
    step = 0
    while True:
        step += 1
        if kind == "specforge":
            yield specforge_record(step, chance)
        else:
            yield speculators_record(step, chance, columns=columns)
        if kind == "foreign":
            yield from (foreign_line(number, chance) for number in range(99))


def write_log(path: Path, kind: str, num_bytes: int) -> None:
    """Write a log of about a size."""
    size = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for text in texts_of(kind):
            size += file.write(text)
            if size >= num_bytes:
                return


@pytest.fixture(scope="module", name="logs")
def _logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("logs")
    paths = {kind: folder / f"{kind}.log" for kind in KINDS}
    for kind, path in paths.items():
        write_log(path, kind, SIZE_MB * int(MEGA))
    return paths


def count_lines(path: Path) -> int:
    """The least that any reader in plain Python does."""
    with path.open(encoding="utf-8") as file:
        return sum(1 for _ in file)


@pytest.mark.benchmark(group="training log")
@pytest.mark.parametrize("kind", KINDS)
def test_reading_a_training_log(
    benchmark: BenchmarkFixture,
    logs: dict[str, Path],
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = logs[kind]
    took_s: list[float] = []
    busy_s: list[float] = []

    def read() -> RawLog:
        started, busy = perf_counter(), process_time()
        raw = _read_files(path, None, None).raw
        took_s.append(perf_counter() - started)
        busy_s.append(process_time() - busy)
        return raw

    raw = benchmark.pedantic(read, rounds=3)  # type: ignore[no-untyped-call]
    assert len(raw.num_records) == 1
    assert not raw.warnings
    megabytes = path.stat().st_size / MEGA
    started = perf_counter()
    count_lines(path)
    plain_s = perf_counter() - started
    with capsys.disabled():
        sys.stdout.write(
            f"\n{kind}, {megabytes:.0f} MB: {megabytes / median(took_s):.0f} MB/s, "
            f"{megabytes / median(busy_s):.0f} MB in a second of processor time; its lines in plain "
            f"Python {megabytes / plain_s:.0f} MB/s, ratio {median(took_s) / plain_s:.1f}\n"
        )


@pytest.mark.benchmark(group="training log")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_reading_a_training_log(
    benchmark: BenchmarkFixture,
    logs: dict[str, Path],
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [sys.executable, "-c", IN_A_PROCESS, str(logs[kind])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = benchmark.pedantic(  # type: ignore[no-untyped-call]
        subprocess.run,
        (command,),
        {"capture_output": True, "text": True, "check": True, "env": environment},
        rounds=1,
    )
    unit = 1 if sys.platform == "darwin" else KIBI
    peak_mb = int(done.stdout) * unit / MEGA
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: peak {peak_mb:.0f} MB of memory for {SIZE_MB} MB of log\n")
    assert peak_mb < MOST_MEMORY_MB


@pytest.mark.benchmark(group="training log")
@pytest.mark.parametrize("kind", ["speculators_wide", "foreign"])
def test_following_a_training_log(
    benchmark: BenchmarkFixture, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, more = tmp_path / "train.log", tmp_path / "more.log"
    write_log(path, kind, FOLLOWED_MB * int(MEGA))
    write_log(more, kind, int(MEGA))
    follower = TrainingLogFollower(path)
    started = process_time()
    assert follower.poll() is not None
    first_s = process_time() - started
    took_s: list[float] = []

    def append() -> None:
        with path.open("ab") as file:
            file.write(more.read_bytes())

    def look() -> None:
        started = process_time()
        assert follower.poll() is not None
        took_s.append(process_time() - started)

    benchmark.pedantic(look, setup=append, rounds=5)  # type: ignore[no-untyped-call]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{kind}: a look after 1 MB was added to {FOLLOWED_MB} MB takes {median(took_s):.3f} s, "
            f"1/{first_s / median(took_s):.0f} of the first one\n"
        )
