"""Make the packaged catalogue of GPUs and interconnects from the raw collections.

Run as ``python scripts/curate_hardware.py GPUS INTERCONNECTS``. The raw files hold one row per device
with addresses of documents, one confidence and remarks. This script keeps the devices in `KEPT`,
replaces addresses by keys of the register with the place in the document, reads out of the remarks
which cells are weaker than their row, and prints what it left out. Only cells that a document or a
remark supports are written; empty stays empty.
"""

import csv
import re
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "specmodel" / "data"

KEPT = (  # noqa: SIM905 - one name a line would be long
    "V100 PCIe;V100 SXM2;T4;A10;A30;A40;A100 PCIe 40GB;A100 PCIe 80GB;A100 SXM 40GB;A100 SXM 80GB;"
    "A800 PCIe 80GB;A800 SXM 80GB;RTX A6000;RTX 3090;RTX 3090 Ti;L4;L40;L40S;RTX 4090;RTX 6000 Ada;"
    "H100 PCIe;H100 SXM;H100 NVL;H200 SXM;H200 NVL;H20;GH200 96GB;GH200 144GB;B200;GB200;B300;GB300;"
    "RTX PRO 6000 Blackwell Workstation;RTX PRO 6000 Blackwell Max-Q;RTX PRO 6000 Blackwell Server;"
    "RTX PRO 6000 Blackwell;RTX 5080;RTX 5090;GB10;MI250X;MI300X;MI325X;MI355X;"
    "Radeon 8060S (Strix Halo)"
).split(";")

# Start of an address -> key in specmodel/data/sources.toml
DOCUMENTS = {
    "github.com/Lightning-AI/pytorch-lightning": "lightning-throughput",
    "github.com/cli99/llm-analysis": "llm-analysis",
    "github.com/RRZE-HPC/gpu-benches": "rrze-gpu-benches",
    "github.com/ProjectPhysX/FluidX3D": "fluidx3d",
    "github.com/ProjectPhysX/OpenCL-Benchmark": "opencl-benchmark",
    "sysrqmts.com": "sysrqmts",
    "github.com/stas00/ml-engineering": "stas00-ml-engineering",
    "github.com/hahnyuan/LLM-Viewer": "llm-viewer",
    "github.com/ai-dynamo/aiconfigurator": "aiconfigurator",
    "github.com/meta-pytorch/gpt-fast": "gpt-fast",
    "hmc-tech.com": "hmc-tech-a800",
    "github.com/mli/transformers-benchmarks": "mli-transformers-benchmarks-4",
    "github.com/karpathy/llm.c": "llm-c-mfu",
    "github.com/krrishnarraj/clpeak": "clpeak-106",
    "github.com/yiguCM/pptest_driver": "yigucm-pptest",
    "github.com/casys-kaist/LLMServingSim": "llmservingsim",
    "NVIDIA RTX Blackwell PRO GPU Architecture": "rtx-blackwell-pro-whitepaper",
    "github.com/deepseek-ai/FlashMLA": "flashmla",
    "github.com/dstackai/gpuhunt": "gpuhunt",
    "github.com/alibaba/InferSim": "infersim",
    "willitrunai.com": "willitrunai-h20",
    "zangshuxian.com": "zangshuxian-h20",
    "github.com/UoB-HPC/BabelStream": "babelstream-194",
    "github.com/pytorch/ao/pull": "pytorch-ao-4002",
    "github.com/pytorch/ao/blob": "pytorch-ao-roofline",
    "github.com/callgideon/model-inference": "model-inference",
    "github.com/abhibambhaniya/GenZ": "genz",
    "github.com/NVIDIA/exemplar-performance": "exemplar-performance",
    "github.com/sgl-project/sglang/issues/26171": "sglang-26171",
    "github.com/local-inference-lab/rtx6kpro": "rtx6kpro-pcie-bandwidth",
    "github.com/NVIDIA/dgx-spark-playbooks": "dgx-spark-playbooks",
    "huggingface.co/hardware/gb10": "huggingface-gb10",
    "github.com/hasso5703/dgx-spark-qwen38": "dgx-spark-qwen38",
    "github.com/ROCm/ROCm/": "rocm-gpu-arch-specs",
    "github.com/ROCm/rocm-blogs": "rocm-blogs",
    "github.com/pytorch/pytorch": "pytorch-device-info",
    "github.com/lhl/strix-halo-testing": "strix-halo-testing",
    "technical.city": "technical-city-rtx5080",
    "www.topcpu.net": "topcpu-rtx5090",
    "github.com/joorklee/p2p-bench": "p2p-bench",
    "github.com/NVIDIA/nccl/blob": "nccl-topology",
    "github.com/NVIDIA/nccl/issues/1264": "nccl-1264",
    "gist.github.com/muellerzr": "muellerzr-p2p",
    "github.com/noonghunna/club-3090/blob/4a29ab57/docs/PCIE_P2P.md": "club3090-pcie-p2p",
    "github.com/Azure/azurehpc": "azurehpc-ndv4",
    "reference/allreduce.md": "allreduce-defaults",
    "allreduce_points.csv": "allreduce-defaults",
}
UNCITED = ("from memory", "public GPU tables", "as quoted in public notes")

SHORT_NAMES = {  # what a user types for a link; a judgement where one generation has several forms
    "PCIe 3.0 x16": "pcie3;pcie gen3;pcie 3.0",
    "PCIe 4.0 x16": "pcie4;pcie gen4;pcie 4.0",
    "PCIe 5.0 x16": "pcie5;pcie gen5;pcie 5.0",
    "PCIe 6.0 x16": "pcie6;pcie gen6;pcie 6.0",
    "PCIe 3.0 x8": "pcie3 x8",
    "PCIe 4.0 x8": "pcie4 x8",
    "PCIe 5.0 x8": "pcie5 x8",
    "PCIe 4.0 x16 without peer access": "pcie4 no p2p",
    "PCIe 5.0 x16 without peer access": "pcie5 no p2p",
    "NVLink 2, V100 SXM2": "nvlink2",
    "NVLink 3 + NVSwitch, A100 SXM": "nvlink3",
    "NVLink 3 bridge, GA102 (3090, A6000, A40)": "nvlink3 bridge",
    "NVLink 3, A800": "nvlink3 a800",
    "NVLink 4 + NVSwitch, H100/H200/H20": "nvlink4",
    "NVLink 4 bridge, H100 NVL or PCIe pair": "nvlink4 bridge",
    "NVLink 5 + NVSwitch, B200/B300/GB200": "nvlink5",
    "NVLink-C2C (Grace to GPU)": "nvlink c2c",
    "xGMI, MI300X/MI325X, 8-GPU mesh": "xgmi3;xgmi",
    "xGMI, MI350X/MI355X, 8-GPU mesh": "xgmi4",
    "InfiniBand HDR": "hdr",
    "InfiniBand NDR": "ndr",
    "InfiniBand XDR": "xdr",
}

FIELDS_OF_WORDS = {
    "SM": ("sm_count",),
    "L2": ("l2_mib",),
    "TDP": ("tdp_w",),
    "NVLink": ("nvlink_total_gb_per_s",),
    "PCIe": ("pcie_gen", "pcie_lanes"),
    "FP8": ("fp8_dense_tflop_per_s",),
    "INT8": ("int8_dense_top_per_s",),
    "FLOPs": (
        "fp16_dense_tflop_per_s",
        "bf16_dense_tflop_per_s",
        "fp8_dense_tflop_per_s",
        "fp4_dense_tflop_per_s",
        "int8_dense_top_per_s",
    ),
    "link count": ("lanes_or_links",),
}
DOUBTS = {"memory": "from memory", "unconfirmed": "not confirmed", "derived": "derived"}

Row = dict[str, str]


def documents(text: str) -> tuple[str, str]:
    """Registered keys and, in the same order, the places in the documents."""
    keys: list[str] = []
    places: list[str] = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        if part.startswith(UNCITED):
            continue
        address = part.removeprefix("https://")
        start = max((each for each in DOCUMENTS if address.startswith(each)), key=len, default="")
        if not start:
            sys.exit(f"no key for {part}")
        keys.append(DOCUMENTS[start])
        places.append(address.removeprefix("github.com/").removeprefix("reference/"))
    return ";".join(dict.fromkeys(keys)), ";".join(places)


def weak_cells(row: Row) -> str:
    """Cells that the remarks call weaker than the row, as column:confidence."""
    found: dict[str, str] = {}
    for sentence in re.split(
        r"(?<=[.;])\s+", row["notes"].replace(" (from memory", " from memory")
    ):
        lowered = sentence.lower()
        for confidence, phrase in DOUBTS.items():
            if phrase not in lowered:
                continue
            named = sentence[: lowered.index(phrase)] if confidence != "derived" else sentence
            stated = "hitepaper" in row["notes"] and confidence == "derived"
            for word, columns in FIELDS_OF_WORDS.items():
                if stated and word == "FP8":  # the whitepaper has it; the derivation is a check
                    continue
                if re.search(rf"\b{word}\b", named):
                    found.update({each: confidence for each in columns if row.get(each)})
    return ";".join(f"{column}:{found[column]}" for column in sorted(found))


def usable_alias(alias: str) -> bool:
    """Whether an alias names a device, not a rig or what ran on it."""
    return "(" not in alias and not re.search(r"\d\s*[x\u00d7]\s", alias)


def write(path: Path, rows: list[Row]) -> None:
    """Write the table with the columns of its first row."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path.name}: {len(rows)} rows")


def curated(row: Row, aliases: str) -> Row:
    """Row with keys for addresses, weak cells named, and bandwidth of mixed traffic as a number."""
    keys, places = documents(row["source"])
    mixed = re.search(r"Read\+write effective (\d+) GB/s", row["notes"])
    kept = {name: value for name, value in row.items() if name not in {"source", "notes"}}
    kept["aliases"] = aliases
    if "measured_read_bandwidth_gb_per_s" in row:
        kept["measured_read_write_gb_per_s"] = mixed[1] if mixed else ""
    return {
        **kept,
        "weak_cells": weak_cells(row),
        "source_keys": keys,
        "locator": places,
        "notes": re.sub(r"\s*Read\+write effective [^)]*\)\.", "", row["notes"]),
    }


def main(gpus: str, interconnects: str) -> None:
    """Write both tables and say what was left out."""
    with Path(gpus).open(encoding="utf-8", newline="") as file:
        raw = list(csv.DictReader(file))
    left_out = [row["gpu"] for row in raw if row["gpu"] not in KEPT]
    devices = [
        curated(row, ";".join(filter(usable_alias, row["aliases"].split(";"))))
        for row in raw
        if row["gpu"] in KEPT
    ]
    write(DATA / "gpus.csv", devices)
    print("left out:", "; ".join(left_out))
    with Path(interconnects).open(encoding="utf-8", newline="") as file:
        links = list(csv.DictReader(file))
    table = [curated(row, SHORT_NAMES.get(row["name"], "")) for row in links]
    write(DATA / "interconnects.csv", table)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
