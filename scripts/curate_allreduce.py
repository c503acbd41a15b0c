"""Make the packaged table of measured all-reduces from a collection of raw points.

    .venv/bin/python scripts/curate_allreduce.py ALLREDUCE_POINTS.csv

Writes ``points.csv``, ``groups.csv`` and ``table.toml`` in ``calibration/data/allreduce`` and prints
what was left out. A group is one machine, library, number of ranks and capture mode.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "calibration" / "data" / "allreduce"
GROUP_COLUMNS = (
    "group",
    "source_key",
    "library",
    "library_version",
    "gpu",
    "num_ranks",
    "num_nodes",
    "interconnect",
    "interconnect_class",
    "kernel",
    "launch",
    "peer_access",
)
SIGNIFICANT = 4

DOCUMENTS = {  # part of the address: key of the source
    "ai-dynamo/aiconfigurator": "aiconfigurator",
    "kalavai-client": "kalavai-4090",
    "pptest_driver": "yigucm-4090",
    "stanage/software": "sheffield-stanage",
    "bessemer/software": "sheffield-bessemer",
    "dgxc-benchmarking": "dgxc-benchmarking",
    "dudeperf3ct": "dudeperf3ct-distributed",
    "dstackai/dstack": "dstack-lambda",
    "aws-batch": "aws-nccl-batch",
    "stas00/ml-engineering": "stas-ml-engineering",
    "rtx6kpro/blob/a4e197ca8fbf": "rtx6kpro-trx40",
    "pcie-oneshot-allreduce": "rtx6kpro-oneshot",
    "asus-esc8000a": "rtx6kpro-asus-e13p",
    "wrx90-cpayne-microchip": "rtx6kpro-wrx90-switch",
    "hardware/pcie-bandwidth": "rtx6kpro-pcie-bandwidth",
    "wrx90-cpayne-8gpu": "rtx6kpro-wrx90-roots",
    "vllm-communicators": "rtx6kpro-communicators",
    "b12x/pull/139": "b12x-139",
    "sglang-V100/pull/2": "sglang-v100-2",
    "vllm/issues/50576": "vllm-50576",
    "sglang/pull/32479": "sglang-32479",
    "b12x/pull/295": "b12x-295",
    "dgx-spark-playbooks": "dgx-spark-103",
    "vllm/pull/24111": "vllm-24111",
    "FlagGems": "flaggems-773",
    "DeepEP/issues/303": "deepep-303",
    "sglang/pull/39605": "sglang-39605",
    "aikitoria": "aikitoria-5090",
    "nccl-tests/issues/333": "nccl-tests-333",
}
CLASSES = (  # part of the interconnect: class; the first that fits
    ("RoCE", "roce"),
    ("InfiniBand", "nodes_infiniband"),
    ("NVLink3", "nvlink3"),
    ("NVLink4", "nvlink4"),
    ("NVLink5", "nvlink5"),
    ("Gen3", "pcie3"),
    ("Gen4", "pcie4"),
    ("Gen5", "pcie5"),
)
LEFT_OUT = {
    "eager": "launched without a graph: the time is the host's, not the collective's",
    "outlier": "flagged as an outlier by the collection",
    "noisy": "a run that its collection calls noisy",
    "derived": "the source gives bandwidth only, from which the time is derived",
    "uncited": "the address of the source is not recorded",
    "other link": "neither PCIe nor NVLink (xGMI), or no CUDA device (Intel XPU)",
}


def main() -> None:
    """Write the packaged files."""
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    left_out: Counter[str] = Counter()
    kept = []
    for row in rows:
        reason = reason_to_leave_out(row)
        left_out[reason] += 1
        if not reason:
            kept.append(row)
    FOLDER.mkdir(parents=True, exist_ok=True)
    groups = {group_name(row): group(row) for row in kept}
    write("groups.csv", GROUP_COLUMNS, groups.values())
    columns = ("group", "size_bytes", "time_us")
    write("points.csv", columns, (point(row) for row in ordered(kept)))
    (FOLDER / "table.toml").write_text(table(groups, left_out), encoding="utf-8")
    print(f"{len(kept)} points in {len(groups)} groups")
    for reason, number in sorted(left_out.items()):
        if reason:
            print(f"left out {number}: {LEFT_OUT[reason]}")


def reason_to_leave_out(row: Mapping[str, str]) -> str:
    """Return why a row is left out; empty where it is kept."""
    notes = row["notes"]
    if "(eager)" in row["library"]:
        return "eager"
    if notes.startswith("uncited") or not row["source_url"]:
        return "uncited"
    if "noisy run" in notes:
        return "noisy"
    if "outlier" in notes:
        return "outlier"
    if "time derived" in notes:
        return "derived"
    return "other link" if "xGMI" in row["interconnect"] or "XPU" in row["interconnect"] else ""


def group_name(row: Mapping[str, str]) -> str:
    """Return the name of the group of a row."""
    return f"{row['source_id']}-n{row['num_gpus']}"


def group(row: Mapping[str, str]) -> dict[str, str]:
    """Return what is common to a group."""
    return {
        "group": group_name(row),
        "source_key": next(key for part, key in DOCUMENTS.items() if part in row["source_url"]),
        "library": row["library"],
        "library_version": row["library_version"],
        "gpu": row["gpu"],
        "num_ranks": row["num_gpus"],
        "num_nodes": row["nodes"],
        "interconnect": row["interconnect"],
        "interconnect_class": interconnect_class(row),
        "kernel": kernel(row),
        "launch": launch(row),
        "peer_access": row["p2p"],
    }


def interconnect_class(row: Mapping[str, str]) -> str:
    """Return the class of an interconnect."""
    if row["p2p"] == "no" and row["nodes"] == "1":
        return "pcie_no_peer_access"
    return next((name for part, name in CLASSES if part in row["interconnect"]), "unknown")


def kernel(row: Mapping[str, str]) -> str:
    """Return whether a library or a kernel of an engine did it, as far as the row tells."""
    library, nvlink = row["library"], "NVLink" in row["interconnect"]
    if "symmetric" in library:
        return "nccl_symmetric"
    if library.startswith("nccl"):
        return "nccl_and_add" if "add" in library else "nccl"
    if "dispatcher" in library:  # on PCIe engines leave more than two GPUs to the library
        host_path = row["source_id"].startswith("aic-rtx_pro_6000_server-vllm-0.19")
        return "engine" if nvlink or (row["num_gpus"] == "2" and not host_path) else "nccl"
    if "trtllm AllReduce" in library:  # tracks the library on PCIe
        return "engine" if nvlink else "nccl"
    return "engine"


def launch(row: Mapping[str, str]) -> str:
    """Return how the collective was launched, as far as the row tells."""
    if "graph" in row["library"].lower() or "CUDA graph" in row["notes"]:
        return "graph"
    if "single process" in row["notes"] and "-t N" not in row["notes"]:
        return "single_process"
    return "back_to_back" if row["library"].startswith("nccl") else "unknown"


def ordered(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return rows by group, in the order of the groups, then by size."""
    place: dict[str, int] = {}
    for row in rows:
        place.setdefault(group_name(row), len(place))
    return sorted(rows, key=lambda row: (place[group_name(row)], int(row["size_bytes"])))


def point(row: Mapping[str, str]) -> dict[str, str]:
    """Return one measurement, the time with four significant digits."""
    return {
        "group": group_name(row),
        "size_bytes": row["size_bytes"],
        "time_us": f"{float(row['time_us']):.{SIGNIFICANT}g}",
    }


def write(name: str, columns: tuple[str, ...], rows: Iterator[dict[str, str]] | object) -> None:
    """Write a CSV file."""
    with (FOLDER / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)  # type: ignore[arg-type]


def table(groups: Mapping[str, Mapping[str, str]], left_out: Mapping[str, int]) -> str:
    """Return the facts about the table."""
    keys = sorted({one["source_key"] for one in groups.values()})
    lines = [
        'title = "Measured all-reduces on PCIe and NVLink machines"',
        "source_keys = [",
        *(f'    "{key}",' for key in keys),
        "]",
        'includes = "Out-of-place time of one all-reduce, message per rank; in a CUDA graph, or back to back as nccl-tests runs it. The column launch says which, and single_process where one process drives all GPUs, which inflates small messages."',
        'corrected = "Times are rounded to four significant digits. Columns that follow from size and time (bandwidths) are dropped."',
        'judgements = "interconnect_class and kernel are ours: engine for a kernel of an inference engine, nccl for the library, also where an engine left the message to it (more than two GPUs without NVLink); nccl_and_add where a separate residual add is in the time."',
        "dropped = [",
        *(
            f'    "{number} rows: {LEFT_OUT[reason]}",'
            for reason, number in sorted(left_out.items())
            if reason
        ),
        "]",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
