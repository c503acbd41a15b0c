"""A folder of whatever was measured becomes one table of points that any command reads."""

import tempfile
from pathlib import Path

from calibration import ingest, read_points, write_points
from calibration.points.packaged import EXAMPLES

NAMES = (
    "colleague.csv",
    "sglang_baseline.log",
    "sglang_eagle3.log",
    "sweep.jsonl",
    "vllm_server.log",
)


def main() -> None:
    """Read everything, say what was understood, write one table, and read it back."""
    found = ingest([EXAMPLES / name for name in NAMES])
    for group in found.groups:
        names = ", ".join(file.name for file in group.group.files)
        print(
            f"{group.group.format:26s} {len(group.rows):3d} rows, {len(group.pairs)} pairs: {names}"
        )
    if found.points is None:
        raise SystemExit("nothing was measured")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "bench.csv"
        write_points(found.points, table)
        again = read_points(table)
    print(f"one table: {len(found.points)} rows written")
    print(f"read back: {len(again)}, without throughput and left out: {len(again.dropped)}")


if __name__ == "__main__":
    main()
