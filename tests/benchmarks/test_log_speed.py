"""How fast a server log is read, beside reading its lines, and in how much memory.

``SPECMODEL_BENCH_LOG_MB`` sets the size of the log.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from calibration.readers.log_file import LogFile
from calibration.readers.reading import Reading
from calibration.readers.sglang_server_log import read_log
from specmodel.units import KIBI, MEGA
from tests.calibration.readers.sglang_log_generator import write_large_log

SIZE_MB = int(os.environ.get("SPECMODEL_BENCH_LOG_MB", "256"))
MOST_MEMORY_MB = 200

IN_A_PROCESS = """
import re, resource, sys
from pathlib import Path
from calibration.readers.log_file import LogFile
from calibration.readers.sglang_server_log import read_log
read_log(LogFile(path=Path(sys.argv[1])))
status = Path("/proc/self/status")  # getrusage would count the process that started this one
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
print(peak[1] if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture(scope="module", name="large_log")
def _large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "server.log"
    write_large_log(path, SIZE_MB * int(MEGA))
    return path


def count_lines(path: Path) -> int:
    """The least that any reader in plain Python does."""
    with path.open(encoding="utf-8") as file:
        return sum(1 for _ in file)


@pytest.mark.benchmark(group="log")
def test_reading_a_server_log(
    benchmark: BenchmarkFixture, large_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    took_s: list[float] = []

    def read() -> Reading:
        started = perf_counter()
        reading = read_log(LogFile(path=large_log))
        took_s.append(perf_counter() - started)
        return reading

    reading = benchmark.pedantic(read, rounds=3)  # type: ignore[no-untyped-call]
    assert {row.cells["batch_size"] for row in reading.rows} >= {1.0, 96.0}
    megabytes = large_log.stat().st_size / MEGA
    started = perf_counter()
    count_lines(large_log)
    plain_s = perf_counter() - started
    with capsys.disabled():
        sys.stdout.write(
            f"\n{megabytes:.0f} MB: {megabytes / median(took_s):.0f} MB/s; its lines in plain "
            f"Python {megabytes / plain_s:.0f} MB/s, ratio {median(took_s) / plain_s:.1f}\n"
        )


@pytest.mark.benchmark(group="log")
def test_memory_of_reading_a_server_log(
    benchmark: BenchmarkFixture, large_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", IN_A_PROCESS, str(large_log)]
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
        sys.stdout.write(f"\npeak {peak_mb:.0f} MB of memory for {SIZE_MB} MB of log\n")
    assert peak_mb < MOST_MEMORY_MB
